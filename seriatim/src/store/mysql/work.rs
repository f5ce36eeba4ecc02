//! One transaction: it locks and reads the part of the store that an operation needs into the
//! reference model (`store/memory`), which carries the operation out; `save.rs` then writes what has
//! become different.

use std::collections::{BTreeMap, BTreeSet, HashMap, HashSet};
use std::sync::{Arc, Mutex, PoisonError};

use bytes::Bytes;

use super::error::Try;
use super::pool::{Loan, Pool};
use super::row::{JOB_COLUMNS, JobRow, LANE_COLUMNS, LaneRow, WAITING, later_order, st};
use super::sql::{Columns, LIST_MAX, bytes, list, literals};
use crate::clock::Timestamp;
use crate::error::{Error, ErrorKind};
use crate::id::JobId;
use crate::limits::{PAYLOAD_BYTES_MAX, TURN_JOBS_MAX};
use crate::payload::{Digest, Payload};
use crate::queue::Mode;
use crate::store::memory::state::{NodeRow, Place, QueueRow, State};
use crate::store::request::{Command, NodeInfo};

/// Lanes with at most so many open jobs are read as a whole; of others only what is needed.
const SMALL_LANE: i64 = 64;
/// Larger payloads are read only once a claim has taken their job.
const INLINE_BYTES: usize = 4 << 10;
/// New jobs and lanes have numbers from here on until the server has given them theirs.
pub(super) const UNNUMBERED: u64 = 1 << 47;

type Routes = Vec<(Option<String>, Option<String>)>;

/// The queues and routes, as they were at the last look. They change rarely, and each change has a
/// number.
#[derive(Default)]
pub(super) struct Definitions(Mutex<Known>);

#[derive(Default)]
struct Known {
    stamp: i64,
    queues: Vec<QueueRow>,
    routes: Routes,
}

/// How the definitions are held during an operation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Hold {
    /// Nothing will be written that depends on them.
    Look,
    /// Nobody may change them meanwhile.
    Shared,
    /// This operation may change them.
    Alone,
}

/// Which open jobs of a lane an operation needs, if there are many.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Need {
    /// All of them.
    All,
    /// Those that say where the lane stands.
    Position,
    /// The same, of a lane to which jobs are only added.
    Arrival,
    /// Those that a turn may take.
    Turn,
}

/// What is read of payloads.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Bodies {
    /// Nothing: they are empty.
    None,
    /// The small ones, and the length of the others.
    Lengths,
    /// All.
    All,
}

pub(super) struct Work<'a> {
    pub loan: Loan<'a>,
    pub now: Timestamp,
    pub state: State,
    pub hold: Hold,
    /// What was there before the operation.
    pub lanes: HashMap<u64, LaneRow>,
    pub jobs: HashMap<u64, JobRow>,
    /// Lanes of which all closed jobs were read.
    pub with_closed: HashSet<u64>,
    /// Rows of lanes that this transaction opened, to be the first at their key.
    pub reserved: HashMap<(u32, Arc<str>), u64>,
    pub queues_before: Vec<QueueRow>,
    pub routes_before: usize,
    pub stamp: i64,
    /// Jobs of which only the length of the payload was read.
    lengths_only: HashSet<u64>,
}

impl<'a> Work<'a> {
    pub(super) async fn begin(
        pool: &'a Pool,
        definitions: &Definitions,
        hold: Hold,
        now: Option<Timestamp>,
    ) -> Try<Self> {
        let lock = match hold {
            Hold::Look => "",
            Hold::Shared => "LOCK IN SHARE MODE",
            Hold::Alone => "FOR UPDATE",
        };
        let access = if hold == Hold::Look { "READ ONLY" } else { "READ WRITE" };
        let sql = format!(
            "START TRANSACTION {access}; SELECT CAST(UNIX_TIMESTAMP(NOW(6)) * 1000000 AS SIGNED), definitions \
             FROM seriatim_meta WHERE id = 1 {lock}"
        );
        let (loan, answers) = pool.first(&sql).await?;
        let row = answers.into_iter().nth(1).and_then(|answer| answer.rows.into_iter().next());
        let Some(mut row) = row.map(Columns::of) else {
            let message = "the store has not been set up here: migrate it first";
            return Err(Error::new(ErrorKind::NotFound, message).into());
        };
        let (clock, stamp) = (Timestamp::from_micros(row.int()?), row.int()?);
        let mut work = Self {
            loan,
            now: now.unwrap_or(clock),
            state: State { seq: UNNUMBERED, ..State::default() },
            hold,
            lanes: HashMap::new(),
            jobs: HashMap::new(),
            with_closed: HashSet::new(),
            reserved: HashMap::new(),
            queues_before: Vec::new(),
            routes_before: 0,
            stamp,
            lengths_only: HashSet::new(),
        };
        work.define(definitions).await?;
        Ok(work)
    }

    /// Gives the model the queues and routes.
    async fn define(&mut self, definitions: &Definitions) -> Try<()> {
        let known = {
            let known = definitions.0.lock().unwrap_or_else(PoisonError::into_inner);
            (known.stamp == self.stamp).then(|| (known.queues.clone(), known.routes.clone()))
        };
        let (queues, routes) = match known {
            Some(known) => known,
            None => {
                let read = self.read_definitions().await?;
                let mut known = definitions.0.lock().unwrap_or_else(PoisonError::into_inner);
                // Without the lock it may be newer than the number says, which is read again then.
                if self.hold != Hold::Look && known.stamp < self.stamp {
                    *known =
                        Known { stamp: self.stamp, queues: read.0.clone(), routes: read.1.clone() };
                }
                read
            }
        };
        self.routes_before = routes.len();
        self.queues_before.clone_from(&queues);
        (self.state.queues, self.state.routes) = (queues, routes);
        Ok(())
    }

    async fn read_definitions(&mut self) -> Try<(Vec<QueueRow>, Routes)> {
        let sql = "SELECT number, name, definition, declared, paused FROM seriatim_queue ORDER BY number; \
                   SELECT node, grp FROM seriatim_route ORDER BY number";
        let mut answers = self.loan.run(sql).await?.into_iter();
        let mut next = || answers.next().map(|answer| answer.rows).unwrap_or_default();
        let queue = |row| {
            let mut row = Columns::of(row);
            Ok(QueueRow {
                number: row.int()? as u32,
                name: row.text()?,
                queue: row.json()?.ok_or_else(super::sql::corrupt)?,
                declared: row.int()? != 0,
                paused: row.int()? != 0,
                processed: 0,
                failed: 0,
            })
        };
        let queues: Try<Vec<QueueRow>> = next().into_iter().map(queue).collect();
        let owned = |text: Option<Arc<str>>| text.map(|text| text.to_string());
        let route = |row| {
            let mut row = Columns::of(row);
            Ok((owned(row.maybe_text()?), owned(row.maybe_text()?)))
        };
        let routes: Try<Routes> = next().into_iter().map(route).collect();
        Ok((queues?, routes?))
    }

    /// Ends the transaction without a trace.
    pub(super) async fn undo(mut self) {
        if self.loan.run("ROLLBACK").await.is_ok() {
            self.loan.give_back();
        }
    }

    pub(super) fn mode(&self, queue: u32) -> Try<Mode> {
        let row = self.state.queue_row(queue);
        Ok(row.ok_or_else(super::sql::corrupt)?.queue.mode)
    }

    /// Opens the lanes of these keys, or locks those that are there. They are locked in order of
    /// (queue, key), as everywhere, so that nobody waits in a circle.
    pub(super) async fn open_keys(&mut self, keys: &BTreeSet<(u32, Arc<str>)>) -> Try<()> {
        let keys: Vec<&(u32, Arc<str>)> = keys.iter().collect();
        for keys in keys.chunks(LIST_MAX / 10) {
            let rows: Vec<String> = keys
                .iter()
                .map(|(q, k)| format!("({q},{},{})", super::sql::text(k), st::OPENING))
                .collect();
            let mut sql = format!(
                "INSERT INTO seriatim_lane (q, k, st) VALUES {} ON DUPLICATE KEY UPDATE id = id",
                rows.join(",")
            );
            for (queue, keys) in by_queue(keys.iter().map(|(q, k)| (*q, k))) {
                sql += &format!(
                    "; SELECT {LANE_COLUMNS} FROM seriatim_lane WHERE q = {queue} AND k IN ({})",
                    literals(keys)
                );
            }
            for answer in self.loan.run(&sql).await?.into_iter().skip(1) {
                for row in answer.rows {
                    let row = LaneRow::read(&mut Columns::of(row))?;
                    match (&row.k, row.st) {
                        (Some(key), st::OPENING) => {
                            self.reserved.insert((row.q, key.clone()), row.id);
                        }
                        _ => self.add_lane(row)?,
                    }
                }
            }
        }
        Ok(())
    }

    /// Locks these lanes, as far as they exist, in order of (queue, key), then of number.
    pub(super) async fn lock_lanes(&mut self, wanted: &BTreeSet<u64>) -> Try<()> {
        let wanted_list: Vec<u64> = wanted.iter().copied().collect();
        let mut keyed: BTreeSet<(u32, Arc<str>)> = BTreeSet::new();
        let mut bare: Vec<u64> = Vec::new();
        for ids in wanted_list.chunks(LIST_MAX) {
            let sql = format!(
                "SELECT id, q, k FROM seriatim_lane WHERE id IN ({})",
                list(ids.iter().copied())
            );
            for row in self.loan.rows(&sql).await? {
                let mut row = Columns::of(row);
                let (id, q) = (row.int()? as u64, row.int()? as u32);
                match row.maybe_text()? {
                    Some(key) => drop(keyed.insert((q, key))),
                    None => bare.push(id),
                }
            }
        }
        let mut statements = Vec::new();
        let keyed: Vec<_> = keyed.into_iter().collect();
        for keys in keyed.chunks(LIST_MAX / 10) {
            for (queue, keys) in by_queue(keys.iter().map(|(q, k)| (*q, k))) {
                statements.push(format!(
                    "SELECT {LANE_COLUMNS} FROM seriatim_lane FORCE INDEX (lane_key) \
                     WHERE q = {queue} AND k IN ({}) FOR UPDATE",
                    literals(keys)
                ));
            }
        }
        bare.sort_unstable();
        for ids in bare.chunks(LIST_MAX) {
            statements.push(format!(
                "SELECT {LANE_COLUMNS} FROM seriatim_lane WHERE id IN ({}) FOR UPDATE",
                list(ids.iter().copied())
            ));
        }
        for sql in statements {
            for row in self.loan.rows(&sql).await? {
                let row = LaneRow::read(&mut Columns::of(row))?;
                if wanted.contains(&row.id) {
                    self.add_lane(row)?;
                }
            }
        }
        Ok(())
    }

    /// Reads lanes without locking them, or, for claims, with `FOR UPDATE SKIP LOCKED` in `rest`.
    pub(super) async fn read_lanes(&mut self, rest: &str) -> Try<Vec<u64>> {
        let sql = format!("SELECT {LANE_COLUMNS} FROM seriatim_lane {rest}");
        let mut ids = Vec::new();
        for row in self.loan.rows(&sql).await? {
            let row = LaneRow::read(&mut Columns::of(row))?;
            ids.push(row.id);
            self.add_lane(row)?;
        }
        Ok(ids)
    }

    fn add_lane(&mut self, row: LaneRow) -> Try<()> {
        if self.lanes.contains_key(&row.id) {
            return Ok(());
        }
        let lane = row.lane(self.mode(row.q)?);
        if let Some(key) = &row.k {
            self.state.keys.insert((row.q, key.clone()), row.id);
        }
        if lane.hold.is_some() {
            self.state.claimed.insert(row.id);
        }
        self.state.lanes.insert(row.id, lane);
        self.lanes.insert(row.id, row);
        Ok(())
    }

    /// Reads jobs of lanes that were read before: their open ones, and the closed ones with
    /// `closed`. `equal` are the digests of jobs that will be put into a lane.
    pub(super) async fn load_jobs(
        &mut self,
        lanes: &[u64],
        need: Need,
        closed: bool,
        bodies: Bodies,
        equal: &HashMap<u64, Vec<Digest>>,
    ) -> Try<()> {
        let is_small = |work: &Self, id: &u64| {
            work.lanes.get(id).is_none_or(|row| need == Need::All || row.n <= SMALL_LANE)
        };
        let (small, large): (Vec<u64>, Vec<u64>) = lanes.iter().partition(|id| is_small(self, id));
        let all = if closed { "" } else { "AND j.gen >= l.open" };
        for ids in small.chunks(LIST_MAX) {
            let from = format!(
                "FROM seriatim_job j JOIN seriatim_lane l ON l.id = j.lane WHERE j.lane IN ({}) {all}",
                list(ids.iter().copied())
            );
            self.read_jobs(&from, bodies).await?;
        }
        for id in large {
            self.load_large(id, need, closed, bodies, equal.get(&id)).await?;
        }
        if closed {
            self.with_closed.extend(lanes);
        }
        Ok(())
    }

    async fn load_large(
        &mut self,
        id: u64,
        need: Need,
        closed: bool,
        bodies: Bodies,
        equal: Option<&Vec<Digest>>,
    ) -> Try<()> {
        let Some(row) = self.lanes.get(&id).cloned() else { return Ok(()) };
        let mode = self.mode(row.q)?;
        let open = format!("FROM seriatim_job j WHERE j.lane = {id} AND j.gen >= {}", row.open);
        if closed {
            let closed =
                format!("FROM seriatim_job j WHERE j.lane = {id} AND j.gen < {}", row.open);
            self.read_jobs(&closed, bodies).await?;
        }
        let most = match (need, mode) {
            (Need::Turn, Mode::Accumulate) => TURN_JOBS_MAX + 1,
            (Need::Turn, Mode::Fifo) => {
                self.state.queue_row(row.q).map_or(1, |queue| queue.queue.take as usize) + 1
            }
            _ => 1,
        };
        let order = match (need, mode) {
            (Need::Turn, Mode::Accumulate) => "score, j.seq",
            _ => "ord, j.seq",
        };
        self.read_jobs(&format!("{open} ORDER BY j.{order} LIMIT {most}"), bodies).await?;
        if mode == Mode::Exclusive {
            let (from, to) = (bytes(&[1]), bytes(&later_order(self.now)));
            let due = format!("{open} AND j.ord >= {from} AND j.ord <= {to}");
            self.read_jobs(&due, bodies).await?;
            let next = format!("{open} AND j.ord > {to} ORDER BY j.ord, j.seq LIMIT 1");
            self.read_jobs(&next, bodies).await?;
        }
        if let Some(equal) = equal.filter(|equal| !equal.is_empty()) {
            let equal: Vec<String> = equal.iter().map(|digest| bytes(digest)).collect();
            for some in equal.chunks(LIST_MAX) {
                self.read_jobs(&format!("{open} AND j.ord IN ({})", some.join(",")), bodies)
                    .await?;
            }
        }
        if mode == Mode::Accumulate && need != Need::Turn {
            self.load_soonest(&row, need).await?;
        }
        Ok(())
    }

    /// Tells the model the soonest priority of the open jobs that were not read.
    async fn load_soonest(&mut self, row: &LaneRow, need: Need) -> Try<()> {
        let known = need == Need::Arrival && row.st == st::READY;
        let soonest = if known {
            Some(row.prio)
        } else {
            let here = self.state.lanes.get(&row.id);
            let here = here.into_iter().flat_map(|lane| lane.open_jobs().map(|job| job.id.seq()));
            let sql = format!(
                "SELECT MIN(prio) FROM seriatim_job WHERE lane = {} AND gen >= {} AND seq NOT IN (0,{})",
                row.id,
                row.open,
                list(here)
            );
            let first = self.loan.rows(&sql).await?.into_iter().next();
            first.map(|row| Columns::of(row).maybe_int()).transpose()?.flatten()
        };
        if let (Some(soonest), Some(lane)) = (soonest, self.state.lanes.get_mut(&row.id)) {
            lane.there_are_more(soonest as u16);
        }
        Ok(())
    }

    /// Reads jobs into the lanes that were read before.
    pub(super) async fn read_jobs(&mut self, from: &str, bodies: Bodies) -> Try<Vec<JobId>> {
        let body = match bodies {
            Bodies::None => "NULL, 0".to_owned(),
            Bodies::All => "j.payload, 0".to_owned(),
            Bodies::Lengths => format!(
                "IF(LENGTH(j.payload) <= {INLINE_BYTES}, j.payload, NULL), LENGTH(j.payload)"
            ),
        };
        let sql = format!("SELECT {JOB_COLUMNS}, {body} {from}");
        let mut ids = Vec::new();
        for row in self.loan.rows(&sql).await? {
            let mut row = Columns::of(row);
            let mut job = JobRow::read(&mut row)?;
            let (body, length) = (row.bytes()?, row.int()? as usize);
            let seq = job.entry.id.seq();
            job.entry.payload = match body {
                Some(body) => Payload::from_bytes(body),
                None if length > 0 => {
                    self.lengths_only.insert(seq);
                    stand_in(length)
                }
                None => Payload::from_bytes(Vec::new()),
            };
            ids.push(job.entry.id);
            if self.jobs.contains_key(&seq) {
                continue;
            }
            self.add_job(job);
        }
        for lane in self.state.lanes.values_mut() {
            if let Some(hold) = &mut lane.hold {
                hold.closed.sort_by_key(|job| {
                    (crate::store::memory::lane::score_rank(job.score), job.id.seq())
                });
            }
        }
        Ok(ids)
    }

    fn add_job(&mut self, job: JobRow) {
        let seq = job.entry.id.seq();
        let (id, entry) = (job.entry.id, job.entry.clone());
        match job.lane {
            Some(number) => {
                self.state.jobs.insert(id, Place::Lane(number));
                let Some(lane) = self.state.lanes.get_mut(&number) else { return };
                let open = self.lanes.get(&number).map_or(0, |row| row.open);
                match &mut lane.hold {
                    Some(hold) if job.gen_ < open => hold.closed.push(entry),
                    _ if lane.mode == Mode::Exclusive && !job.later => lane.insert_due(entry),
                    _ => lane.insert(entry),
                }
            }
            None if job.state == super::row::DEAD => {
                self.state.jobs.insert(id, Place::Dead);
                self.state.dead.insert(id, job.clone().into_ended());
            }
            None if job.state != WAITING => {
                self.state.jobs.insert(id, Place::Done);
                self.state.done.insert(id, job.clone().into_ended());
            }
            None => {}
        }
        self.jobs.insert(seq, job);
    }

    /// Reads the payloads that were too large to be read before, of these jobs.
    pub(super) async fn bodies_of(&mut self, jobs: &[JobId]) -> Try<HashMap<u64, Payload>> {
        let missing = jobs.iter().map(|id| id.seq()).filter(|seq| self.lengths_only.contains(seq));
        let missing: Vec<u64> = missing.collect();
        let mut bodies = HashMap::new();
        // Few at a time, since each may be large.
        for seqs in missing.chunks(100) {
            let sql = format!(
                "SELECT seq, payload FROM seriatim_job WHERE seq IN ({})",
                list(seqs.iter().copied())
            );
            for row in self.loan.rows(&sql).await? {
                let mut row = Columns::of(row);
                let seq = row.int()? as u64;
                bodies.insert(seq, Payload::from_bytes(row.bytes()?.unwrap_or_default()));
            }
        }
        Ok(bodies)
    }

    /// Where these jobs are, each under the id by which it is handed over; those that merged into
    /// another are noted as its aliases. Unknown ids are left out. Nothing is locked.
    pub(super) async fn find(&mut self, ids: &[JobId]) -> Try<Vec<(JobId, Option<u64>)>> {
        let mut found = Vec::new();
        for ids in ids.chunks(LIST_MAX / 10) {
            let names: Vec<String> = ids.iter().map(|id| bytes(&id.to_bytes())).collect();
            let sql =
                format!("SELECT id, target FROM seriatim_alias WHERE id IN ({})", names.join(","));
            let mut wanted: BTreeSet<JobId> = ids.iter().copied().collect();
            for row in self.loan.rows(&sql).await? {
                let mut row = Columns::of(row);
                let (alias, target) = (job_id(&mut row)?, job_id(&mut row)?);
                wanted.remove(&alias);
                wanted.insert(target);
                self.state.jobs.insert(alias, Place::Alias(target));
            }
            let sql = format!(
                "SELECT seq, q, created, lane FROM seriatim_job WHERE seq IN ({})",
                list(wanted.iter().map(|id| id.seq()))
            );
            for row in self.loan.rows(&sql).await? {
                let mut row = Columns::of(row);
                let (seq, q) = (row.int()? as u64, row.int()? as u32);
                let id = JobId::new(Timestamp::from_micros(row.int()?), q, 0, seq);
                let lane = row.maybe_int()?.map(|lane| lane as u64);
                if wanted.contains(&id) {
                    found.push((id, lane));
                }
            }
        }
        Ok(found)
    }
}

fn job_id(row: &mut Columns) -> Try<JobId> {
    let bytes = row.bytes()?.and_then(|bytes| <[u8; 16]>::try_from(bytes).ok());
    bytes.map(JobId::from_bytes).ok_or_else(super::sql::corrupt)
}

fn by_queue<'k>(keys: impl Iterator<Item = (u32, &'k Arc<str>)>) -> BTreeMap<u32, Vec<&'k str>> {
    let mut queues: BTreeMap<u32, Vec<&str>> = BTreeMap::new();
    for (queue, key) in keys {
        queues.entry(queue).or_default().push(key);
    }
    queues
}

/// Something of the length of a payload, for what counts bytes. It takes no memory of its own.
fn stand_in(length: usize) -> Payload {
    static ZEROS: [u8; PAYLOAD_BYTES_MAX] = [0; PAYLOAD_BYTES_MAX];
    Payload::from_bytes(Bytes::from_static(&ZEROS[..length.min(PAYLOAD_BYTES_MAX)]))
}

impl Work<'_> {
    /// The digests of the closed jobs of a lane that is read in part only.
    pub(super) async fn closed_digests(&mut self, lane: u64) -> Try<Vec<Digest>> {
        let Some(row) = self.lanes.get(&lane).filter(|row| row.n > SMALL_LANE) else {
            return Ok(Vec::new());
        };
        let sql = format!(
            "SELECT digest FROM seriatim_job WHERE lane = {lane} AND gen < {} AND digest IS NOT NULL",
            row.open
        );
        let mut digests = Vec::new();
        for row in self.loan.rows(&sql).await? {
            digests
                .extend(Columns::of(row).bytes()?.and_then(|bytes| Digest::try_from(bytes).ok()));
        }
        Ok(digests)
    }

    /// Reads nodes: this one, or all.
    pub(super) async fn load_nodes(&mut self, id: Option<&str>, lock: &str) -> Try<()> {
        let filter =
            id.map_or_else(String::new, |id| format!("WHERE id = {}", super::sql::text(id)));
        let sql = format!(
            "SELECT info, beat_at, dead_at, command FROM seriatim_node {filter} ORDER BY id {lock}"
        );
        for row in self.loan.rows(&sql).await? {
            let mut row = Columns::of(row);
            let info: NodeInfo = row.json()?.ok_or_else(super::sql::corrupt)?;
            let beat_at = Timestamp::from_micros(row.int()?);
            let dead_at = row.maybe_int()?.map(Timestamp::from_micros);
            let command = row.maybe_text()?.and_then(|text| match &*text {
                "quiet" => Some(Command::Quiet),
                "stop" => Some(Command::Stop),
                _ => None,
            });
            let id = info.id.clone();
            self.state.nodes.insert(id, NodeRow { info, beat_at, dead_at, command });
        }
        Ok(())
    }
}
