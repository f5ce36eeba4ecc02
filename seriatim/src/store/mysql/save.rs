//! Writing what an operation has made different in the model.

use std::collections::{BTreeMap, HashMap};

use super::error::{Fail, Try};
use super::row::{JOB_COLUMNS, JobRow, LANE_COLUMNS, LaneRow, WAITING, generation};
use super::sql::{LIST_MAX, STATEMENT_BYTES_MAX, bytes, json, list, maybe_text, text};
use super::work::{Hold, UNNUMBERED, Work};
use crate::id::JobId;

/// In how many rows the turns of a queue are counted.
const TALLY_SLOTS: u8 = 16;

const LANE_UPDATE: &str = "age = VALUES(age), st = VALUES(st), class = VALUES(class), prio = VALUES(prio), due = VALUES(due), \
    wake = VALUES(wake), tok = VALUES(tok), open = VALUES(open), n = VALUES(n), c = VALUES(c), flags = VALUES(flags), \
    retry = VALUES(retry), crashes = VALUES(crashes), error = VALUES(error), next_due = VALUES(next_due), \
    route = VALUES(route), node = VALUES(node), own = VALUES(own), ttl = VALUES(ttl), until = VALUES(until), \
    claimed_at = VALUES(claimed_at), beat_at = VALUES(beat_at), progress = VALUES(progress)";
const JOB_UPDATE: &str = "lane = VALUES(lane), gen = VALUES(gen), later = VALUES(later), ord = VALUES(ord), \
    score = VALUES(score), prio = VALUES(prio), run_at = VALUES(run_at), attempts = VALUES(attempts), \
    started = VALUES(started), flagged = VALUES(flagged), route = VALUES(route), retry = VALUES(retry), \
    crashes = VALUES(crashes), error = VALUES(error), digest = VALUES(digest), opts = VALUES(opts), \
    aliases = VALUES(aliases), k = VALUES(k), state = VALUES(state), at = VALUES(at), until = VALUES(until), \
    expires = VALUES(expires)";

/// The numbers that the server gave to new jobs and lanes.
#[derive(Default)]
pub(super) struct Numbers {
    jobs: HashMap<u64, u64>,
}

impl Numbers {
    /// The id under which a job is known from now on.
    pub(super) fn of(&self, id: JobId) -> JobId {
        match self.jobs.get(&id.seq()) {
            Some(seq) => JobId::new(id.created_at(), id.queue(), 0, *seq),
            None => id,
        }
    }
}

/// Statements of one kind, cut where they become too long.
struct Batch {
    head: String,
    tail: String,
    done: Vec<(String, u64)>,
    rows: String,
    count: u64,
}

impl Batch {
    fn new(head: impl Into<String>, tail: impl Into<String>) -> Self {
        let (head, tail) = (head.into(), tail.into());
        Self { head, tail, done: Vec::new(), rows: String::new(), count: 0 }
    }

    fn add(&mut self, row: &str) {
        if !self.rows.is_empty() {
            if self.rows.len() + row.len() > STATEMENT_BYTES_MAX {
                self.cut();
            } else {
                self.rows.push(',');
            }
        }
        self.rows.push_str(row);
        self.count += 1;
    }

    fn cut(&mut self) {
        if self.count > 0 {
            let rows = std::mem::take(&mut self.rows);
            self.done.push((format!("{}{rows}{}", self.head, self.tail), self.count));
            self.count = 0;
        }
    }

    /// The statements, each with how many rows it has.
    fn finish(mut self) -> Vec<(String, u64)> {
        self.cut();
        self.done
    }
}

impl Work<'_> {
    /// Writes what has changed. The transaction goes on.
    pub(super) async fn save(&mut self) -> Try<Numbers> {
        let changes_definitions = self.state.queues.len() != self.queues_before.len()
            || self.state.routes.len() != self.routes_before;
        if changes_definitions && self.hold != Hold::Alone {
            return Err(Fail::Alone);
        }
        self.save_definitions().await?;
        let (lanes, jobs) = self.after().await?;
        let numbers = self.save_jobs(jobs).await?;
        self.save_lanes(lanes, &numbers).await?;
        self.save_tally().await?;
        Ok(numbers)
    }

    /// Rows of all that is in the model now, with the numbers of new lanes.
    async fn after(&mut self) -> Try<(Vec<(u64, LaneRow)>, BTreeMap<u64, JobRow>)> {
        let mut open_before: HashMap<u64, i64> = HashMap::new();
        for job in self.jobs.values() {
            if let Some(lane) = job.lane
                && self.lanes.get(&lane).is_some_and(|row| job.gen_ >= row.open)
            {
                *open_before.entry(lane).or_default() += 1;
            }
        }
        self.delete_lanes().await?;
        let mut rows = Vec::new();
        let mut unnumbered = Vec::new();
        for (number, lane) in &self.state.lanes {
            let before = self.lanes.get(number);
            let more = before.map_or(0, |row| row.n)
                - open_before.get(number).copied().unwrap_or_default();
            let n = lane.open_count() as i64 + more;
            let mut row = LaneRow::of(lane, before, n, self.with_closed.contains(number));
            if before.is_none() {
                let reserved = row.k.clone().and_then(|key| self.reserved.remove(&(row.q, key)));
                row.id = reserved.unwrap_or_default();
                if reserved.is_none() {
                    unnumbered.push(rows.len());
                }
            }
            rows.push((*number, row));
        }
        self.number_lanes(&mut rows, &unnumbered).await?;
        let mut jobs = BTreeMap::new();
        for (number, row) in &rows {
            let Some(lane) = self.state.lanes.get(number) else { continue };
            let before = |seq: u64| self.jobs.get(&seq);
            for job in lane.hold.iter().flat_map(|hold| &hold.closed) {
                let old = before(job.id.seq());
                let gen_ = generation(old.map(|old| old.gen_), row.open, true);
                let later = old.is_some_and(|old| old.later);
                jobs.insert(job.id.seq(), JobRow::live(job, row, gen_, later));
            }
            let open = lane.open.values().map(|job| (job, false));
            for (job, later) in open.chain(lane.later.values().map(|job| (job, true))) {
                let old = before(job.id.seq()).filter(|old| old.lane.is_some());
                let gen_ = generation(old.map(|old| old.gen_), row.open, false);
                jobs.insert(job.id.seq(), JobRow::live(job, row, gen_, later));
            }
        }
        for ended in self.state.done.values().chain(self.state.dead.values()) {
            jobs.insert(ended.entry.id.seq(), JobRow::ended(ended));
        }
        Ok((rows, jobs))
    }

    /// Deletes the lanes that are gone, and those that were opened for nothing.
    async fn delete_lanes(&mut self) -> Try<()> {
        let lanes = &self.state.lanes;
        let gone = self.lanes.keys().copied().filter(|id| !lanes.contains_key(id));
        let mut gone: Vec<u64> = gone.collect();
        let is_used = |(queue, key): &(u32, std::sync::Arc<str>)| {
            self.state.keys.get(&(*queue, key.clone())).is_some_and(|n| lanes.contains_key(n))
        };
        let unused = self.reserved.iter().filter(|(place, _)| !is_used(place));
        gone.extend(unused.map(|(_, id)| *id));
        gone.sort_unstable();
        for ids in gone.chunks(LIST_MAX) {
            let sql =
                format!("DELETE FROM seriatim_lane WHERE id IN ({})", list(ids.iter().copied()));
            self.loan.run(&sql).await?;
        }
        Ok(())
    }

    /// Opens lanes, of which the server chooses the numbers.
    async fn number_lanes(&mut self, rows: &mut [(u64, LaneRow)], unnumbered: &[usize]) -> Try<()> {
        let head = format!("INSERT INTO seriatim_lane ({LANE_COLUMNS}) VALUES ");
        let mut batch = Batch::new(head, "");
        for i in unnumbered {
            batch.add(&rows[*i].1.values("NULL"));
        }
        let mut places = unnumbered.iter();
        for (sql, count) in batch.finish() {
            let first = self.first_id(&sql).await?;
            for (place, id) in places.by_ref().take(count as usize).zip(first..) {
                rows[*place].1.id = id;
            }
        }
        Ok(())
    }

    async fn first_id(&mut self, sql: &str) -> Try<u64> {
        let answers = self.loan.run(sql).await?;
        let first = answers.first().map(|answer| answer.first_id).filter(|id| *id > 0);
        first.ok_or_else(super::sql::corrupt)
    }

    /// A lane is as old as the job that opened it. One that was opened for a job with a history
    /// is new, and gets a number as a new job would.
    async fn age_lanes(&mut self, rows: &mut [(u64, LaneRow)], numbers: &Numbers) -> Try<()> {
        let mut ageless = Vec::new();
        for (i, (number, row)) in rows.iter_mut().enumerate() {
            match numbers.jobs.get(number) {
                _ if row.age != 0 => {}
                Some(seq) => row.age = *seq as i64,
                None if *number < UNNUMBERED => row.age = *number as i64,
                None => ageless.push(i),
            }
        }
        let columns = "(q, gen, later, ord, created, score, prio, run_at, attempts, flagged, route, retry, crashes)";
        for places in ageless.chunks(LIST_MAX) {
            let values = vec!["(0, 0, 0, '', 0, 0, 0, 0, 0, 0, 0, 0, 0)"; places.len()].join(",");
            let first = self
                .first_id(&format!("INSERT INTO seriatim_job {columns} VALUES {values}"))
                .await?;
            let last = first + places.len() as u64 - 1;
            let sql = format!("DELETE FROM seriatim_job WHERE seq BETWEEN {first} AND {last}");
            self.loan.run(&sql).await?;
            for (place, age) in places.iter().zip(first..) {
                rows[*place].1.age = age as i64;
            }
        }
        Ok(())
    }

    async fn save_lanes(&mut self, mut rows: Vec<(u64, LaneRow)>, numbers: &Numbers) -> Try<()> {
        self.age_lanes(&mut rows, numbers).await?;
        let head = format!("INSERT INTO seriatim_lane ({LANE_COLUMNS}) VALUES ");
        let mut batch = Batch::new(head, format!(" ON DUPLICATE KEY UPDATE {LANE_UPDATE}"));
        for (_, row) in rows {
            if self.lanes.get(&row.id) != Some(&row) {
                batch.add(&row.values(&row.id.to_string()));
                self.lanes.insert(row.id, row);
            }
        }
        for (sql, _) in batch.finish() {
            self.loan.run(&sql).await?;
        }
        Ok(())
    }

    async fn save_jobs(&mut self, after: BTreeMap<u64, JobRow>) -> Try<Numbers> {
        self.delete_jobs(&after).await?;
        let columns = JOB_COLUMNS.replace("j.", "");
        let head = format!("INSERT INTO seriatim_job ({columns}, payload) VALUES ");
        let mut inserts = Batch::new(head.clone(), "");
        let mut updates = Batch::new(head, format!(" ON DUPLICATE KEY UPDATE {JOB_UPDATE}"));
        let mut new = Vec::new();
        let mut flags = Vec::new();
        let mut aliases = Batch::new(
            "INSERT INTO seriatim_alias (id, target) VALUES ",
            " ON DUPLICATE KEY UPDATE target = VALUES(target)",
        );
        for (seq, row) in after {
            let queue = self.state.queue_row(row.q).ok_or_else(super::sql::corrupt)?;
            let before = self.jobs.get(&seq);
            if seq >= UNNUMBERED {
                let payload = row.entry.payload.as_bytes();
                inserts.add(&row.values("NULL", &queue.queue, Some(payload))?);
                new.push(seq);
                continue;
            }
            if before.is_some_and(|before| before.is_same(&row)) {
                continue;
            }
            updates.add(&row.values(&seq.to_string(), &queue.queue, None)?);
            let was_flagged = before.is_some_and(|before| before.entry.flagged);
            if row.entry.flagged && !was_flagged {
                flags.extend(row.lane.filter(|_| row.state == WAITING).map(|lane| (seq, lane)));
            }
            if before.is_none_or(|before| before.entry.aliases != row.entry.aliases) {
                let target = bytes(&row.entry.id.to_bytes());
                for alias in &row.entry.aliases {
                    aliases.add(&format!("({},{target})", bytes(&alias.to_bytes())));
                }
            }
            self.jobs.insert(seq, row);
        }
        let mut numbers = Numbers::default();
        let mut new = new.into_iter();
        for (sql, count) in inserts.finish() {
            let first = self.first_id(&sql).await?;
            numbers.jobs.extend(new.by_ref().take(count as usize).zip(first..));
        }
        for (sql, _) in updates.finish().into_iter().chain(aliases.finish()) {
            self.loan.run(&sql).await?;
        }
        if !flags.is_empty() {
            let rows: Vec<String> =
                flags.iter().map(|(seq, lane)| format!("({seq},{lane})")).collect();
            let sql = format!("REPLACE INTO seriatim_flag (seq, lane) VALUES {}", rows.join(","));
            self.loan.run(&sql).await?;
        }
        Ok(numbers)
    }

    /// Deletes the jobs of which nothing is kept, and the flags of those that run no more.
    async fn delete_jobs(&mut self, after: &BTreeMap<u64, JobRow>) -> Try<()> {
        let mut gone = Vec::new();
        let mut unflagged = Vec::new();
        let mut aliases = Vec::new();
        for (seq, before) in &self.jobs {
            let row = after.get(seq);
            if row.is_none() {
                gone.push(*seq);
                aliases.extend(before.entry.aliases.iter().map(|id| bytes(&id.to_bytes())));
            }
            let stays = row.is_some_and(|row| row.entry.flagged && row.state == WAITING);
            if before.entry.flagged && !stays {
                unflagged.push(*seq);
            }
        }
        gone.sort_unstable();
        let mut sql = Vec::new();
        for (table, seqs) in [("seriatim_job", &gone), ("seriatim_flag", &unflagged)] {
            for seqs in seqs.chunks(LIST_MAX) {
                let seqs = list(seqs.iter().copied());
                sql.push(format!("DELETE FROM {table} WHERE seq IN ({seqs})"));
            }
        }
        for ids in aliases.chunks(LIST_MAX) {
            sql.push(format!("DELETE FROM seriatim_alias WHERE id IN ({})", ids.join(",")));
        }
        if !sql.is_empty() {
            self.loan.run(&sql.join("; ")).await?;
        }
        for seq in gone {
            self.jobs.remove(&seq);
        }
        Ok(())
    }

    /// Counts the turns that ended, in a row that hardly anybody else writes just now.
    async fn save_tally(&mut self) -> Try<()> {
        let slot = fastrand::u8(..TALLY_SLOTS);
        let mut batch = Batch::new(
            "INSERT INTO seriatim_tally (q, slot, processed, failed) VALUES ",
            " ON DUPLICATE KEY UPDATE processed = processed + VALUES(processed), failed = failed + VALUES(failed)",
        );
        for row in &mut self.state.queues {
            if (row.processed, row.failed) != (0, 0) {
                batch.add(&format!("({},{slot},{},{})", row.number, row.processed, row.failed));
                (row.processed, row.failed) = (0, 0);
            }
        }
        for (sql, _) in batch.finish() {
            self.loan.run(&sql).await?;
        }
        Ok(())
    }

    async fn save_definitions(&mut self) -> Try<()> {
        if self.hold != Hold::Alone {
            return Ok(());
        }
        let mut queues = Batch::new(
            "INSERT INTO seriatim_queue (number, name, definition, declared, paused) VALUES ",
            " ON DUPLICATE KEY UPDATE definition = VALUES(definition), declared = VALUES(declared), paused = VALUES(paused)",
        );
        for (i, row) in self.state.queues.iter().enumerate() {
            let same = self.queues_before.get(i).is_some_and(|old| {
                (old.declared, old.paused) == (row.declared, row.paused) && old.queue == row.queue
            });
            if !same {
                let (name, definition) = (text(&row.name), text(&json(&row.queue)?));
                let (declared, paused) = (i64::from(row.declared), i64::from(row.paused));
                queues.add(&format!("({},{name},{definition},{declared},{paused})", row.number));
            }
        }
        let mut routes = Batch::new("INSERT INTO seriatim_route (number, node, grp) VALUES ", "");
        for (i, (node, group)) in self.state.routes.iter().enumerate().skip(self.routes_before) {
            let (node, group) = (maybe_text(node.as_deref()), maybe_text(group.as_deref()));
            routes.add(&format!("({},{node},{group})", i + 1));
        }
        let statements: Vec<_> = queues.finish().into_iter().chain(routes.finish()).collect();
        if statements.is_empty() {
            return Ok(());
        }
        for (sql, _) in statements {
            self.loan.run(&sql).await?;
        }
        self.queues_before.clone_from(&self.state.queues);
        self.routes_before = self.state.routes.len();
        let sql = "UPDATE seriatim_meta SET definitions = definitions + 1 WHERE id = 1";
        self.loan.run(sql).await?;
        Ok(())
    }
}
