//! One transaction. It locks the part of the store that an operation needs, reads it into the reference model
//! (`stores/state`), lets the model run the operation, and writes the differences (`save.rs`).

use std::collections::{BTreeMap, BTreeSet, HashMap, HashSet};
use std::sync::Arc;

use mysql_async::Row;

use super::bodies::Bodies;
use super::definitions::{Definitions, Known};
use super::error::{Fail, Try};
pub(super) use super::gates::Lock;
use super::job_row::JobRow;
use super::lane_row::{LaneRow, lane_columns, st};
use super::pool::{Answer, Pool, Session};
use super::sql::{CLOCK, Columns, LIST_MAX, STATEMENT_BYTES_MAX, given, list, literals};
use crate::model::{Error, ErrorKind, Mode, Timestamp};
use crate::stores::state::State;

/// How many job numbers one row of `seriatim_number` stands for.
const NUMBERS_IN_ROW: u64 = 16;
/// New jobs and lanes have temporary numbers, from this one up, until real ones are drawn. Those get there after 40 years of
/// 100,000 a second.
pub(super) const UNNUMBERED: u64 = 1 << 47;

pub(super) struct Work<'a> {
    pub session: Session<'a>,
    /// Statements to be sent with the next one whose result is needed, and their number.
    pending: (String, usize),
    /// Whether new lanes are reserved first, because another session creates the same ones.
    pub reserves: bool,
    pub now: Timestamp,
    pub state: State,
    pub lock: Lock,
    /// The state before the operation.
    pub lanes: HashMap<u64, LaneRow>,
    pub jobs: HashMap<u64, JobRow>,
    /// Whether all jobs of each lane are read, because a part was not enough.
    pub whole: bool,
    /// Jobs that leave their lanes or change their places, by lane.
    pub leaving: HashMap<u64, Vec<u64>>,
    /// Rows of lanes that this transaction reserved, to own their keys.
    pub reserved: HashMap<(u32, Arc<str>), u64>,
    /// The definitions before the operation.
    pub known: Arc<Known>,
    /// Jobs whose payload was read only as a length.
    pub lengths_only: HashSet<u64>,
    /// The results of the statements sent when the operation began.
    pub ahead: Vec<Answer>,
    /// Whether the transaction has been committed.
    pub ended: bool,
}

impl<'a> Work<'a> {
    /// Begins a transaction. The statements in `ahead` run in the same round trip.
    pub(super) async fn begin(
        pool: &'a Pool,
        definitions: &Definitions,
        lock: Lock,
        now: Option<Timestamp>,
        ahead: &str,
    ) -> Try<Self> {
        let clause = if lock.is_alone() { "FOR UPDATE" } else { "" };
        let access = if lock.is_look() { "READ ONLY" } else { "READ WRITE" };
        let known = definitions.known();
        let mut begins = vec![format!("START TRANSACTION {access}")];
        begins.extend(lock.first_statements(&lock.gates(&known.queues)));
        let sql = format!(
            "{}; SELECT {CLOCK}, definitions FROM seriatim_meta WHERE id = 1 {clause};{ahead}",
            begins.join("; ")
        );
        let (loan, answers) = pool.first(sql.trim_end_matches(';'), &lock.undo()).await?;
        let mut answers = answers.into_iter();
        let begun = answers.by_ref().take(begins.len());
        let locked = numbers_of(begun.flat_map(|answer| answer.rows))?;
        let row = answers.next().and_then(|answer| answer.rows.into_iter().next());
        let Some(mut row) = row.map(Columns::of) else {
            return Err(super::migrate::not_set_up().into());
        };
        let (clock, stamp) = (Timestamp::from_micros(row.int()?), row.int()?);
        let mut work = Self::on(Session::Ours(loan), lock, now.unwrap_or(clock));
        work.ahead = answers.collect();
        match work.define(definitions, known, locked, stamp).await {
            Ok(()) => Ok(work),
            Err(fail) => Err(work.undo_after(fail).await),
        }
    }

    /// An operation within the user's transaction. It does not lock the definitions: that would block all changes to
    /// them until the user's transaction ends.
    pub(super) fn within(session: Session<'a>, now: Timestamp, known: Arc<Known>) -> Self {
        let mut work = Self::on(session, Lock::FREE, now);
        work.give_definitions(known);
        work
    }

    fn on(session: Session<'a>, lock: Lock, now: Timestamp) -> Self {
        Self {
            session,
            pending: (String::new(), 0),
            reserves: false,
            now,
            state: State { seq: UNNUMBERED, ..State::default() },
            lock,
            lanes: HashMap::new(),
            jobs: HashMap::new(),
            whole: false,
            leaving: HashMap::new(),
            reserved: HashMap::new(),
            known: Arc::default(),
            lengths_only: HashSet::new(),
            ahead: Vec::new(),
            ended: false,
        }
    }

    /// Loads the definitions into the model, read after the queues of the operation were locked. `locked`: the queues
    /// whose gates existed and are locked. While this waits for a gate, its queue may be deleted and another one made
    /// with the same number. `stamp`: the version, read after that.
    async fn define(
        &mut self,
        definitions: &Definitions,
        mut known: Arc<Known>,
        mut locked: BTreeSet<u32>,
        stamp: i64,
    ) -> Try<()> {
        if known.stamp != stamp {
            let mut looked = None;
            loop {
                known = Arc::new(Known::read(self.run(Known::SQL).await?)?);
                definitions.keep(&known);
                let missing = self.lock.unlocked(&known.queues, &locked);
                // Nothing has changed since the last look: such a queue has no gate.
                if missing.is_empty() || looked == Some(known.stamp) {
                    break;
                }
                // It must wait for them before it locks the definitions.
                if self.lock.is_alone() {
                    return Err(Fail::Open(missing));
                }
                looked = Some(known.stamp);
                let rows = self.rows(&self.lock.lock_gates(&missing)).await?;
                locked.extend(numbers_of(rows)?);
            }
        }
        self.give_definitions(known);
        Ok(())
    }

    fn give_definitions(&mut self, known: Arc<Known>) {
        self.state.queues = known.queues.clone();
        self.state.routes = known.routes.clone();
        self.known = known;
    }

    /// Refuses what the model was asked of lanes that were read in part.
    pub(super) fn check_read(&self) -> Try<()> {
        match self.state.lanes.values().any(|lane| lane.unread.was_missed()) {
            true => Err(Fail::Partial),
            false => Ok(()),
        }
    }

    /// The operation has waited for what writes lanes of these queues.
    pub(super) fn has_closed(&self, queues: BTreeSet<u32>) -> Try<()> {
        match &self.lock {
            Lock::Alone(closed) if queues.is_subset(closed) => Ok(()),
            _ => Err(Fail::Open(queues)),
        }
    }

    /// After a failure, rolls the transaction back, unless the connection is lost.
    pub(super) async fn undo_after(self, fail: Fail) -> Fail {
        self.session.undo_after(fail, &self.lock.undo()).await
    }

    /// The clause that makes a read see the newest committed state. Only a user's transaction may have an isolation
    /// level at which it would see an older state.
    pub(super) fn newest(&self) -> &'static str {
        match self.session {
            Session::Ours(_) => "",
            Session::Users(..) => " LOCK IN SHARE MODE",
        }
    }

    /// Runs the pending statements and these, in order and in one round trip.
    pub(super) async fn run(&mut self, sql: &str) -> Try<Vec<Answer>> {
        let (mut before, count) = std::mem::take(&mut self.pending);
        if count == 0 {
            return self.session.run(sql).await;
        }
        before.push_str(sql);
        let mut answers = self.session.run(&before).await?;
        Ok(answers.split_off(count.min(answers.len())))
    }

    /// Runs the last statements of the operation and commits it, in one round trip.
    pub(super) async fn finish(&mut self, sql: &str) -> Try<Vec<Answer>> {
        let answers = self.run(&format!("{sql};COMMIT{}", self.lock.last_statement())).await?;
        self.ended = true;
        Ok(answers)
    }

    /// Commits the operation, unless [`Self::finish`] has.
    pub(super) async fn commit(&mut self) -> Try<()> {
        if !self.ended {
            self.run(&format!("COMMIT{}", self.lock.last_statement())).await?;
            self.ended = true;
        }
        Ok(())
    }

    /// Runs one statement and returns its rows.
    pub(super) async fn rows(&mut self, sql: &str) -> Try<Vec<Row>> {
        let answers = self.run(sql).await?;
        Ok(answers.into_iter().next().map(|answer| answer.rows).unwrap_or_default())
    }

    /// Runs one statement on the newest committed state, without locks. A user's transaction, which may see an older state, is
    /// left out: a locking read of rows that are gone would also keep others from inserting new ones.
    pub(super) async fn committed(&mut self, sql: &str) -> Try<Vec<Row>> {
        let Session::Users(_, pool) = self.session else { return self.rows(sql).await };
        let answers = pool.ask(sql).await?;
        Ok(answers.into_iter().next().map(|answer| answer.rows).unwrap_or_default())
    }

    /// Queues a write whose result is not needed; it is sent with the next statement.
    pub(super) async fn write(&mut self, sql: &str) -> Try<()> {
        let (before, count) = &mut self.pending;
        if before.len() + sql.len() > STATEMENT_BYTES_MAX {
            // A large payload is not copied behind the others.
            if sql.len() > STATEMENT_BYTES_MAX && *count > 0 {
                let before = std::mem::take(before);
                *count = 0;
                self.session.run(before.trim_end_matches(';')).await?;
            }
            self.run(sql).await?;
            return Ok(());
        }
        before.push_str(sql);
        before.push(';');
        *count += 1;
        Ok(())
    }

    /// Draws `numbers` consecutive job numbers, higher than any before; returns the first. Jobs in rows locked before
    /// have lower ones.
    pub(super) async fn draw(&mut self, numbers: usize) -> Try<u64> {
        let rows = (numbers as u64).div_ceil(NUMBERS_IN_ROW).max(1);
        let values = vec!["(NULL)"; rows as usize].join(",");
        let places: Vec<u64> = (0..rows).collect();
        // One by one: otherwise it would lock or wait for rows of other sessions, some of which are open for long.
        let sql = format!(
            "INSERT INTO seriatim_number (n) VALUES {values}; DELETE t FROM {} STRAIGHT_JOIN seriatim_number t \
             FORCE INDEX (PRIMARY) ON t.n = LAST_INSERT_ID() + given.number",
            given(&places)
        );
        let first = self.run(&sql).await?.first().map(|answer| answer.first_id);
        let first = first.filter(|id| *id > 0).ok_or_else(super::sql::corrupt)?;
        let first = first.checked_mul(NUMBERS_IN_ROW).unwrap_or(UNNUMBERED);
        if first.saturating_add(numbers as u64) > UNNUMBERED {
            let message = "the store has given out all of its 2^47 job numbers";
            return Err(Error::new(ErrorKind::Full, message).into());
        }
        Ok(first)
    }

    pub(super) fn mode(&self, queue: u32) -> Try<Mode> {
        let row = self.state.queue_row(queue);
        Ok(row.ok_or_else(super::sql::corrupt)?.queue.mode)
    }

    /// Locks the existing lanes of these keys, in the common order (queue, key), which prevents deadlocks.
    pub(super) async fn lock_keys(&mut self, keys: &BTreeSet<(u32, Arc<str>)>) -> Try<()> {
        let keys: Vec<&(u32, Arc<str>)> = keys.iter().collect();
        for keys in keys.chunks(LIST_MAX / 10) {
            for (queue, keys) in by_queue(keys.iter().map(|(q, k)| (*q, k))) {
                self.read_lanes(&by_key(queue, keys), Bodies::None).await?;
            }
        }
        Ok(())
    }

    /// Creates the missing lanes of these keys, and locks the others.
    pub(super) async fn open_keys(&mut self, keys: &BTreeSet<(u32, Arc<str>)>) -> Try<()> {
        // An insert of a key that is there locks the gap before it, too: neighbouring new keys would wait until the end of
        // the user's transaction.
        let seen = self.seen_keys(keys).await?;
        self.lock_keys(&seen).await?;
        let keys: Vec<&(u32, Arc<str>)> =
            keys.iter().filter(|key| !self.state.keys.contains_key(*key)).collect();
        for keys in keys.chunks(LIST_MAX / 10) {
            let first = self.draw(keys.len()).await?;
            let row = |((q, k), id): (&&(u32, Arc<str>), u64)| {
                format!("({id},{q},{},{})", super::sql::text(k), st::OPENING)
            };
            let rows: Vec<String> = keys.iter().zip(first..).map(row).collect();
            let sql = format!(
                "INSERT INTO seriatim_lane (id, q, k, st) VALUES {} ON DUPLICATE KEY UPDATE st = st",
                rows.join(",")
            );
            self.write(&sql).await?;
            for (queue, keys) in by_queue(keys.iter().map(|(q, k)| (*q, k))) {
                self.read_lanes(&by_key(queue, keys), Bodies::None).await?;
            }
        }
        Ok(())
    }

    /// Those of these keys that have lanes, without locking them. A user's transaction may see an older state.
    async fn seen_keys(
        &mut self,
        keys: &BTreeSet<(u32, Arc<str>)>,
    ) -> Try<BTreeSet<(u32, Arc<str>)>> {
        let keys: Vec<&(u32, Arc<str>)> = keys.iter().collect();
        let mut seen = BTreeSet::new();
        for keys in keys.chunks(LIST_MAX / 10) {
            for (queue, keys) in by_queue(keys.iter().map(|(q, k)| (*q, k))) {
                let keys = literals(keys);
                let sql =
                    format!("SELECT k FROM seriatim_lane WHERE q = {queue} AND k IN ({keys})");
                for row in self.rows(&sql).await? {
                    seen.insert((queue, Columns::of(row).text()?));
                }
            }
        }
        Ok(seen)
    }

    /// Locks the existing ones of these lanes in order of (queue, key), then of number.
    pub(super) async fn lock_lanes(&mut self, wanted: &BTreeSet<u64>) -> Try<()> {
        self.lock_lanes_of(wanted, &HashMap::new(), Bodies::None).await
    }

    /// Like [`Self::lock_lanes`], if the queue and key of some lanes are known (`None`: it has no key). `bodies`: those
    /// of open jobs.
    pub(super) async fn lock_lanes_of(
        &mut self,
        wanted: &BTreeSet<u64>,
        keys: &HashMap<u64, Option<(u32, Arc<str>)>>,
        bodies: Bodies,
    ) -> Try<()> {
        let wanted_list: Vec<u64> =
            wanted.iter().copied().filter(|lane| !keys.contains_key(lane)).collect();
        let mut keyed: BTreeSet<(u32, Arc<str>)> = keys.values().flatten().cloned().collect();
        let mut bare: Vec<u64> =
            keys.iter().filter(|(_, key)| key.is_none()).map(|(lane, _)| *lane).collect();
        for ids in wanted_list.chunks(LIST_MAX) {
            let these = by_id(ids.iter().copied());
            let sql = format!("SELECT id, q, k FROM seriatim_lane {these}{}", self.newest());
            for row in self.rows(&sql).await? {
                let mut row = Columns::of(row);
                let (id, q) = (row.int()? as u64, row.int()? as u32);
                match row.maybe_text()? {
                    Some(key) => drop(keyed.insert((q, key))),
                    None => bare.push(id),
                }
            }
        }
        let skip = if self.lock.skips_locked() { " SKIP LOCKED" } else { "" };
        let mut statements = Vec::new();
        let keyed: Vec<_> = keyed.into_iter().collect();
        for keys in keyed.chunks(LIST_MAX / 10) {
            for (queue, keys) in by_queue(keys.iter().map(|(q, k)| (*q, k))) {
                statements.push(by_key(queue, keys));
            }
        }
        bare.sort_unstable();
        for ids in bare.chunks(LIST_MAX) {
            statements.push(format!("{} FOR UPDATE", by_id(ids.iter().copied())));
        }
        for rest in statements {
            let body = bodies.of("IF(j_gen >= open, payload, NULL)");
            let columns = lane_columns();
            let sql = format!("SELECT {columns}, {body} FROM seriatim_lane {rest}{skip}");
            for row in self.rows(&sql).await? {
                let mut row = Columns::of(row);
                let (lane, mut job) = LaneRow::read(&mut row)?;
                if let Some(job) = &mut job {
                    self.read_body(&mut row, job)?;
                }
                if wanted.contains(&lane.id) {
                    self.add_lane(lane, job)?;
                }
            }
        }
        Ok(())
    }

    /// Reads lanes with the jobs that opened them. Locks them if `rest` contains a locking clause.
    pub(super) async fn read_lanes(&mut self, rest: &str, bodies: Bodies) -> Try<Vec<u64>> {
        let (columns, body) = (lane_columns(), bodies.of("payload"));
        let sql = format!("SELECT {columns}, {body} FROM seriatim_lane {rest}");
        let rows = self.rows(&sql).await?;
        self.add_lanes(rows)
    }

    pub(super) fn add_lanes(&mut self, rows: Vec<Row>) -> Try<Vec<u64>> {
        let mut ids = Vec::with_capacity(rows.len());
        for row in rows {
            let mut row = Columns::of(row);
            let (lane, mut job) = LaneRow::read(&mut row)?;
            if let Some(job) = &mut job {
                self.read_body(&mut row, job)?;
            }
            if let (Some(key), st::OPENING) = (&lane.k, lane.st) {
                self.reserved.insert((lane.q, key.clone()), lane.id);
                continue;
            }
            ids.push(lane.id);
            self.add_lane(lane, job)?;
        }
        Ok(ids)
    }

    fn add_lane(&mut self, row: LaneRow, job: Option<JobRow>) -> Try<()> {
        if self.lanes.contains_key(&row.id) {
            return Ok(());
        }
        let mut lane = row.lane(self.mode(row.q)?);
        (lane.unread.open, lane.unread.closed) = (row.n as u64, row.c as u64);
        if let Some(key) = &row.k {
            self.state.keys.insert((row.q, key.clone()), row.id);
        }
        if lane.hold.is_some() {
            self.state.claimed.insert(row.id);
        }
        self.state.lanes.insert(row.id, lane);
        self.lanes.insert(row.id, row);
        if let Some(job) = job {
            self.add_job(job);
        }
        Ok(())
    }
}

/// The queues of which these gates are.
fn numbers_of(gates: impl IntoIterator<Item = Row>) -> Try<BTreeSet<u32>> {
    gates.into_iter().map(|row| Ok(Columns::of(row).int()? as u32)).collect()
}

/// The lanes with these numbers. The optimiser would read the whole table where its statistics are old.
pub(super) fn by_id(ids: impl IntoIterator<Item = u64>) -> String {
    format!("FORCE INDEX (PRIMARY) WHERE id IN ({})", list(ids))
}

/// The lanes of these keys of a queue, locked through the index that has that order.
fn by_key(queue: u32, keys: Vec<&str>) -> String {
    let keys = literals(keys);
    format!("FORCE INDEX (lane_key) WHERE q = {queue} AND k IN ({keys}) FOR UPDATE")
}

fn by_queue<'k>(keys: impl Iterator<Item = (u32, &'k Arc<str>)>) -> BTreeMap<u32, Vec<&'k str>> {
    let mut queues: BTreeMap<u32, Vec<&str>> = BTreeMap::new();
    for (queue, key) in keys {
        queues.entry(queue).or_default().push(key);
    }
    queues
}
