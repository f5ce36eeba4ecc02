//! Writing the changes of the model to the database.

use std::collections::{BTreeMap, BTreeSet, HashMap, HashSet};
use std::sync::Arc;

use super::definitions::{CLOSING, Known};
use super::error::{Fail, Try};
use super::job_row::{BODY_COLUMNS, DEAD, JobRow, Table, WAITING, generation};
use super::lane_row::{LANE_COLUMNS, LaneRow, WATCHED, st};
use super::sql::{CLOCK, LIST_MAX, STATEMENT_BYTES_MAX, bytes, delete, list, maybe_text, text};
use super::tally::{Figure, Figures};
use super::work::{UNNUMBERED, Work};
use crate::contract::Lease;
use crate::model::JobId;
use crate::stores::json::json;
use crate::stores::state::QueueRow;
use crate::stores::state::lane::{Entry, Lane};

/// The final numbers of new jobs and lanes, by their temporary ones.
#[derive(Default)]
pub(super) struct Numbers(HashMap<u64, u64>);

impl Numbers {
    fn number(&self, number: u64) -> u64 {
        self.0.get(&number).copied().unwrap_or(number)
    }

    /// The final id of a job.
    pub(super) fn of(&self, id: JobId) -> JobId {
        match self.0.get(&id.seq()) {
            Some(seq) => JobId::new(id.created_at(), id.queue(), 0, *seq),
            None => id,
        }
    }
}

/// Statements of one kind, split where they become too long.
struct Batch<'a> {
    head: String,
    tail: &'a str,
    done: Vec<String>,
    /// The next one, without its tail.
    next: String,
}

impl<'a> Batch<'a> {
    fn new(head: impl Into<String>, tail: &'a str) -> Self {
        Self { head: head.into(), tail, done: Vec::new(), next: String::new() }
    }

    fn add(&mut self, row: &str) {
        if self.next.len() + row.len() > STATEMENT_BYTES_MAX {
            self.cut();
        }
        self.next.push_str(if self.next.is_empty() { &self.head } else { "," });
        self.next.push_str(row);
    }

    fn cut(&mut self) {
        if !self.next.is_empty() {
            let mut sql = std::mem::take(&mut self.next);
            sql.push_str(self.tail);
            self.done.push(sql);
        }
    }

    fn finish(mut self) -> Vec<String> {
        self.cut();
        self.done
    }
}

/// Changed rows, grouped by equal changes.
#[derive(Default)]
struct Changes(BTreeMap<Change, BTreeMap<u64, Vec<i64>>>);

/// A change that several rows have in common.
#[derive(PartialEq, Eq, PartialOrd, Ord)]
struct Change {
    table: &'static str,
    /// Assignments.
    what: String,
    /// Columns in which each row gets a value of its own.
    own: Vec<&'static str>,
}

impl Changes {
    const LANES: &'static str = "seriatim_lane";

    /// Adds a row: equal assignments, and its own values.
    fn add(
        &mut self,
        table: &'static str,
        number: u64,
        what: String,
        own: Vec<(&'static str, i64)>,
    ) {
        let (own, values): (Vec<_>, Vec<_>) = own.into_iter().unzip();
        if !what.is_empty() || !own.is_empty() {
            self.0.entry(Change { table, what, own }).or_default().insert(number, values);
        }
    }

    fn statements(&self) -> Vec<String> {
        let mut statements = Vec::new();
        for (change, rows) in &self.0 {
            let rows: Vec<(u64, &[i64])> =
                rows.iter().map(|(number, values)| (*number, &values[..])).collect();
            statements.extend(rows.chunks(LIST_MAX).map(|rows| change.statement(rows)));
        }
        statements
    }
}

impl Change {
    /// The statement for these rows, in ascending order.
    fn statement(&self, rows: &[(u64, &[i64])]) -> String {
        let (table, column) = (self.table, if self.table == Changes::LANES { "id" } else { "seq" });
        let numbers = list(rows.iter().map(|(number, _)| *number));
        let mut what = self.what.clone();
        for (i, name) in self.own.iter().enumerate() {
            if !what.is_empty() {
                what.push(',');
            }
            let first = rows.first().map_or(0, |(_, values)| values[i]);
            if rows.iter().all(|(_, values)| values[i] == first) {
                what += &format!("{name} = {first}");
                continue;
            }
            // The server finds the row's place in the ascending numbers by a binary search.
            let values: Vec<String> =
                rows.iter().map(|(_, values)| values[i].to_string()).collect();
            let values = values.join(",");
            what += &format!("{name} = ELT(INTERVAL({column}, {numbers}), {values})");
        }
        // Without the index, it would read and lock the whole table where it writes a large part of it.
        format!("UPDATE {table} FORCE INDEX (PRIMARY) SET {what} WHERE {column} IN ({numbers})")
    }
}

/// The model's state after the operation, as rows.
struct After {
    lanes: Vec<LaneRow>,
    jobs: BTreeMap<u64, JobRow>,
}

impl Work<'_> {
    /// Writes the changes. The transaction stays open.
    pub(super) async fn save(&mut self) -> Try<Numbers> {
        self.check_read()?;
        let changes_definitions = self.state.queues.len() != self.known.queues.len()
            || self.state.routes.len() != self.known.routes.len();
        if changes_definitions && !self.lock.is_alone() {
            return Err(Fail::Alone);
        }
        self.save_definitions().await?;
        let numbers = self.number().await?;
        let after = self.after(&numbers);
        // Payloads must be copied before the rows that contain them are deleted, and keys freed before they are
        // reused.
        self.insert_jobs(&after, Table::Ended).await?;
        self.delete_lanes(&after).await?;
        self.delete_jobs(&after, Table::Job).await?;
        self.insert_lanes(&after).await?;
        self.insert_jobs(&after, Table::Job).await?;
        self.update(&after).await?;
        self.save_wakes(&after).await?;
        self.delete_jobs(&after, Table::Ended).await?;
        self.save_names(&after).await?;
        let changes = self.changed_figures(&after);
        self.write_figures(&changes).await?;
        self.write_rings(&after.lanes).await?;
        self.remember(after);
        Ok(numbers)
    }

    /// Assigns final numbers in order of arrival. A lane has the number of the job that opened it.
    async fn number(&mut self) -> Try<Numbers> {
        let mut numbers = HashMap::new();
        let mut new = BTreeSet::new();
        for (number, lane) in self.state.lanes.range(UNNUMBERED..) {
            let place = lane.key.clone().map(|key| (lane.id.queue, key));
            match place.and_then(|place| self.reserved.get(&place)) {
                Some(id) => drop(numbers.insert(*number, *id)),
                None => drop(new.insert(*number)),
            }
        }
        let live = self.state.lanes.values().flat_map(|lane| {
            lane.hold.iter().flat_map(|hold| &hold.closed).chain(lane.loaded_jobs())
        });
        let dead = self.state.dead.values().map(|dead| &dead.entry);
        let jobs = live.chain(dead).map(|job| job.id.seq());
        new.extend(jobs.filter(|seq| *seq >= UNNUMBERED && !numbers.contains_key(seq)));
        if !new.is_empty() {
            let first = self.draw(new.len()).await?;
            numbers.extend(new.into_iter().zip(first..));
        }
        Ok(Numbers(numbers))
    }

    fn after(&self, numbers: &Numbers) -> After {
        let (mut lanes, mut jobs) = (Vec::new(), BTreeMap::new());
        for (number, lane) in &self.state.lanes {
            let before = self.lanes.get(number);
            let n = (lane.open_count() as u64 + lane.unread.open) as i64;
            let mut row = LaneRow::of(lane, numbers.number(*number), before, n);
            row.taken = self.taken(lane, &row);
            if self.is_watched(lane, before) {
                row.prio = WATCHED;
            }
            let mut add = |job: &Entry, is_closed, later: bool| {
                let old = self.jobs.get(&job.id.seq()).filter(|old| old.lane.is_some());
                let is_closed_by_row = is_closed && job.id.seq() as i64 != row.taken;
                let gen_ = generation(old.map(|old| old.gen_), row.open, is_closed_by_row);
                let later = if is_closed { old.is_some_and(|old| old.later) } else { later };
                let mut job = job.clone();
                job.id = numbers.of(job.id);
                jobs.insert(job.id.seq(), JobRow::live(job, row.q, row.id, gen_, later));
            };
            lane.hold.iter().flat_map(|hold| &hold.closed).for_each(|job| add(job, true, false));
            lane.open.values().for_each(|job| add(job, false, false));
            lane.later.values().for_each(|job| add(job, false, true));
            lanes.push(row);
        }
        for ended in self.state.done.values().chain(self.state.dead.values()) {
            let mut row = JobRow::ended(ended);
            row.entry.id = numbers.of(row.entry.id);
            jobs.insert(row.entry.id.seq(), row);
        }
        After { lanes, jobs }
    }

    /// Whether the lane's claim has a lease of its own, or one shorter than its node's.
    fn is_watched(&self, lane: &Lane, before: Option<&LaneRow>) -> bool {
        let Some(hold) = &lane.hold else { return false };
        let is_same = |row: &&LaneRow| row.st == st::CLAIMED && row.tok == lane.token.0;
        match (before.filter(is_same), hold.lease) {
            (Some(row), _) => row.prio == WATCHED,
            (None, Lease::Own { .. }) => true,
            (None, Lease::Node { ttl }) => {
                self.state.nodes.get(&hold.node).is_none_or(|node| ttl < node.info.lease)
            }
        }
    }

    /// The only closed job whose row would have to be written, if there is one.
    fn taken(&self, lane: &Lane, row: &LaneRow) -> i64 {
        if row.st != st::CLAIMED {
            return 0;
        }
        if lane.unread.closed > 0 {
            return self.lanes.get(&lane.id.number).map_or(0, |before| before.taken);
        }
        let closed = lane.hold.iter().flat_map(|hold| &hold.closed).map(|job| job.id.seq());
        let is_open = |seq: &u64| {
            *seq != row.id && self.jobs.get(seq).is_some_and(|old| old.gen_ >= row.open)
        };
        let mut open = closed.filter(is_open);
        match (open.next(), open.next()) {
            (Some(seq), None) => seq as i64,
            _ => 0,
        }
    }

    /// Writes the statements that are full: those with payloads are large.
    async fn write_full(&mut self, batch: &mut Batch<'_>) -> Try<()> {
        for sql in std::mem::take(&mut batch.done) {
            self.write(&sql).await?;
        }
        Ok(())
    }

    async fn write_all(&mut self, batch: Batch<'_>) -> Try<()> {
        for sql in batch.finish() {
            self.write(&sql).await?;
        }
        Ok(())
    }

    /// The payload expression for a job written to a new table.
    fn payload(&self, job: &JobRow) -> String {
        let seq = job.entry.id.seq();
        match self.jobs.get(&seq).map(JobRow::table) {
            Some(table) if (table == Table::Ended) != (job.table() == Table::Ended) => {
                table.payload(seq)
            }
            // It is new, or its queue changes its mode, for which everything is read.
            _ => bytes(job.entry.payload.as_bytes()),
        }
    }

    async fn insert_jobs(&mut self, after: &After, table: Table) -> Try<()> {
        let name = table_name(table);
        let mut batch =
            Batch::new(format!("INSERT INTO {name} ({}) VALUES ", JobRow::columns(table)), "");
        for (seq, job) in after.jobs.iter().filter(|(_, job)| job.table() == table) {
            if self.jobs.get(seq).is_none_or(|before| before.table() != table) {
                let queue = self.state.queue_row(job.q).ok_or_else(super::sql::corrupt)?;
                batch.add(&job.values(&queue.queue, self.payload(job))?);
                self.write_full(&mut batch).await?;
            }
        }
        self.write_all(batch).await
    }

    /// Deletes removed lanes, and reserved ones that were not needed.
    async fn delete_lanes(&mut self, after: &After) -> Try<()> {
        let stay: BTreeSet<u64> = after.lanes.iter().map(|row| row.id).collect();
        let all = self.lanes.keys().chain(self.reserved.values());
        let mut gone: Vec<u64> = all.copied().filter(|id| !stay.contains(id)).collect();
        gone.sort_unstable();
        for ids in gone.chunks(LIST_MAX) {
            self.write(&delete(Changes::LANES, "id", ids, "")).await?;
        }
        Ok(())
    }

    /// Deletes jobs that left that table. `update` clears those in lane rows.
    async fn delete_jobs(&mut self, after: &After, table: Table) -> Try<()> {
        let stays = |seq: &u64| after.jobs.get(seq).is_some_and(|job| job.table() == table);
        let here = self.jobs.iter().filter(|(_, before)| before.table() == table);
        let mut gone: Vec<u64> = here.map(|(seq, _)| *seq).filter(|seq| !stays(seq)).collect();
        gone.sort_unstable();
        for seqs in gone.chunks(LIST_MAX) {
            self.write(&delete(table_name(table), "seq", seqs, "")).await?;
        }
        Ok(())
    }

    async fn insert_lanes(&mut self, after: &After) -> Try<()> {
        let columns = format!("({LANE_COLUMNS}, payload) VALUES ");
        // Not REPLACE, which would also lock the gap before the row.
        let again = LANE_COLUMNS.split(", ").chain(["payload"]);
        let again: Vec<String> = again.map(|name| format!("{name} = VALUES({name})")).collect();
        let all_of_it = format!(" ON DUPLICATE KEY UPDATE {}", again.join(","));
        let mut new = Batch::new(format!("INSERT INTO seriatim_lane {columns}"), "");
        let mut reserved = Batch::new(format!("INSERT INTO seriatim_lane {columns}"), &all_of_it);
        let is_reserved: BTreeSet<u64> = self.reserved.values().copied().collect();
        // In the common order of keys, which prevents deadlocks.
        let mut lanes: Vec<&LaneRow> =
            after.lanes.iter().filter(|row| !self.lanes.contains_key(&row.id)).collect();
        lanes.sort_by(|a, b| (a.q, &a.k, a.id).cmp(&(b.q, &b.k, b.id)));
        for row in lanes {
            let job = after.jobs.get(&row.id).filter(|job| job.table() == Table::Lane);
            let payload = job.map_or_else(|| "NULL".to_owned(), |job| self.payload(job));
            let batch = if is_reserved.contains(&row.id) { &mut reserved } else { &mut new };
            batch.add(&row.values(job, payload)?);
            self.write_full(batch).await?;
        }
        self.write_all(new).await?;
        self.write_all(reserved).await
    }

    /// Updates changed rows.
    async fn update(&mut self, after: &After) -> Try<()> {
        let mut changes = Changes::default();
        for row in &after.lanes {
            let Some(before) = self.lanes.get(&row.id) else { continue };
            let (mut what, own) = match before == row {
                true => Default::default(),
                false => (row.changes(before), row.own_changes(before)),
            };
            let queue = self.state.queue_row(row.q).ok_or_else(super::sql::corrupt)?;
            let is_in = |job: &&JobRow| job.lane == Some(row.id);
            let job_before = self.jobs.get(&row.id).filter(is_in);
            let more = match (job_before, after.jobs.get(&row.id).filter(is_in)) {
                (Some(old), Some(new)) if !new.is_same(old) => new.changes(old, &queue.queue)?,
                (Some(_), None) => no_job(),
                // The job returns to the lane that it opened.
                (None, Some(new)) => format!("{},payload = {}", new.all()?, self.payload(new)),
                _ => String::new(),
            };
            if !what.is_empty() && !more.is_empty() {
                what.push(',');
            }
            changes.add(Changes::LANES, row.id, what + &more, own);
        }
        for (seq, job) in after.jobs.iter().filter(|(_, job)| job.table() != Table::Lane) {
            let before = self.jobs.get(seq).filter(|before| before.table() == job.table());
            let Some(before) = before.filter(|before| !job.is_same(before)) else { continue };
            let queue = self.state.queue_row(job.q).ok_or_else(super::sql::corrupt)?;
            let what = job.changes(before, &queue.queue)?;
            changes.add(table_name(job.table()), *seq, what, Vec::new());
        }
        for sql in changes.statements() {
            self.write(&sql).await?;
        }
        Ok(())
    }

    /// Stores which ready lanes must be positioned again, and when.
    async fn save_wakes(&mut self, after: &After) -> Try<()> {
        let wake = |row: &LaneRow| row.wake.filter(|_| row.st == st::READY);
        let mut old: HashMap<u64, i64> = HashMap::new();
        old.extend(self.lanes.values().filter_map(|row| Some((row.id, wake(row)?))));
        let mut new = Batch::new("REPLACE INTO seriatim_wake (lane, q, wake) VALUES ", "");
        for row in &after.lanes {
            let before = old.remove(&row.id);
            match wake(row) {
                Some(at) if before != Some(at) => new.add(&format!("({},{},{at})", row.id, row.q)),
                None => old.extend(before.map(|at| (row.id, at))),
                Some(_) => {}
            }
        }
        self.write_all(new).await?;
        let mut gone: Vec<u64> = old.into_keys().collect();
        gone.sort_unstable();
        for lanes in gone.chunks(LIST_MAX) {
            self.write(&delete("seriatim_wake", "lane", lanes, "")).await?;
        }
        Ok(())
    }

    /// Stores flags, aliases and expiry times.
    async fn save_names(&mut self, after: &After) -> Try<()> {
        let mut new_aliases = Batch::new(
            "INSERT INTO seriatim_alias (id, target) VALUES ",
            " ON DUPLICATE KEY UPDATE target = VALUES(target)",
        );
        let mut new_flags = Batch::new("REPLACE INTO seriatim_flag (seq, lane) VALUES ", "");
        let mut new_expiries = Batch::new("REPLACE INTO seriatim_expiry (seq, at) VALUES ", "");
        let (mut aliases, mut flags, mut expiries) = (Vec::new(), Vec::new(), Vec::new());
        // A job that is gone may have been merged into another one, which takes its aliases over.
        let stay: HashSet<JobId> =
            after.jobs.values().flat_map(|job| job.entry.aliases.iter().copied()).collect();
        for (seq, job) in &after.jobs {
            let before = self.jobs.get(seq);
            if before.is_none_or(|before| before.entry.aliases != job.entry.aliases) {
                let target = bytes(&job.entry.id.to_bytes());
                for alias in &job.entry.aliases {
                    new_aliases.add(&format!("({},{target})", bytes(&alias.to_bytes())));
                }
            }
            let was_flagged = before.is_some_and(|before| before.entry.flagged);
            if let Some(lane) = job.lane.filter(|_| job.entry.flagged && !was_flagged) {
                new_flags.add(&format!("({seq},{lane})"));
            }
            let expires = job.expires_at();
            if let Some(at) = expires.filter(|_| before.and_then(JobRow::expires_at) != expires) {
                new_expiries.add(&format!("({seq},{})", at.as_micros()));
            }
        }
        for (seq, before) in &self.jobs {
            let job = after.jobs.get(seq);
            if job.is_none() {
                let gone = before.entry.aliases.iter().filter(|id| !stay.contains(id));
                aliases.extend(gone.map(|id| bytes(&id.to_bytes())));
            }
            let stays = job.is_some_and(|job| job.entry.flagged && job.state == WAITING);
            if before.entry.flagged && !stays {
                flags.push(*seq);
            }
            if before.expires_at().is_some() && job.and_then(JobRow::expires_at).is_none() {
                expiries.push(*seq);
            }
        }
        for batch in [new_aliases, new_flags, new_expiries] {
            self.write_all(batch).await?;
        }
        for ids in aliases.chunks(LIST_MAX) {
            let ids = ids.join(",");
            self.write(&format!("DELETE FROM seriatim_alias WHERE id IN ({ids})")).await?;
        }
        for (table, mut seqs) in [("seriatim_flag", flags), ("seriatim_expiry", expiries)] {
            seqs.sort_unstable();
            for seqs in seqs.chunks(LIST_MAX) {
                self.write(&delete(table, "seq", seqs, "")).await?;
            }
        }
        Ok(())
    }

    /// The model's state becomes the state before the next change.
    fn remember(&mut self, after: After) {
        self.lanes = after.lanes.into_iter().map(|row| (row.id, row)).collect();
        self.jobs = after.jobs.into_iter().collect();
        self.reserved.clear();
    }

    /// How the figures of queues change.
    fn changed_figures(&mut self, after: &After) -> Figures {
        let mut changes = Figures::default();
        self.lanes.values().for_each(|row| changes.add_lane(row, -1));
        after.lanes.iter().for_each(|row| changes.add_lane(row, 1));
        let mut add_dead = |job: &JobRow, count| {
            if job.table() == Table::Ended && job.state == DEAD {
                changes.add(job.q, Figure::Dead, count);
            }
        };
        self.jobs.values().for_each(|job| add_dead(job, -1));
        after.jobs.values().for_each(|job| add_dead(job, 1));
        for (queue, (processed, failed)) in std::mem::take(&mut self.state.ended) {
            changes.add(queue, Figure::Processed, processed as i64);
            changes.add(queue, Figure::Failed, failed as i64);
        }
        changes
    }

    async fn save_definitions(&mut self) -> Try<()> {
        if !self.lock.is_alone() {
            return Ok(());
        }
        let mut queues = Batch::new(
            "INSERT INTO seriatim_queue (number, name, definition, declared, paused) VALUES ",
            " ON DUPLICATE KEY UPDATE definition = VALUES(definition), declared = VALUES(declared), paused = VALUES(paused)",
        );
        let mut gates = Batch::new("INSERT IGNORE INTO seriatim_gate (q, claims) VALUES ", "");
        for (number, row) in self.state.queues.iter() {
            let flags = |row: &QueueRow| (row.declared, row.paused, row.closing);
            let before = self.known.queues.get(number);
            let same = before.is_some_and(|old| flags(old) == flags(row) && old.queue == row.queue);
            if before.is_none() {
                gates.add(&format!("({number},0),({number},1)"));
            }
            if !same {
                let (name, definition) = (text(&row.name), text(&json(&row.queue)?));
                let paused = if row.closing { CLOSING } else { i64::from(row.paused) };
                let declared = i64::from(row.declared);
                queues.add(&format!("({},{name},{definition},{declared},{paused})", row.number));
            }
        }
        let mut routes = Batch::new("INSERT INTO seriatim_route (number, node, grp) VALUES ", "");
        for (i, (node, group)) in self.state.routes.iter().enumerate().skip(self.known.routes.len())
        {
            let (node, group) = (maybe_text(node.as_deref()), maybe_text(group.as_deref()));
            routes.add(&format!("({},{node},{group})", i + 1));
        }
        let gone = self.known.queues.keys().filter(|old| !self.state.queues.contains_key(old));
        let gone = gone.flat_map(|number| {
            let of = |table: &str| format!("DELETE FROM seriatim_{table} WHERE q = {number}");
            let queue = format!("DELETE FROM seriatim_queue WHERE number = {number}");
            [queue, of("gate"), of("share"), of("grouped")]
        });
        let known = self.known.changed(&self.state);
        let mut grouped = Batch::new("INSERT IGNORE INTO seriatim_grouped (q) VALUES ", "");
        for number in known.grouped.difference(&self.known.grouped) {
            grouped.add(&format!("({number})"));
        }
        let new = queues.finish().into_iter().chain(gates.finish()).chain(routes.finish());
        let new = new.chain(grouped.finish());
        let statements: Vec<_> = gone.chain(new).collect();
        if statements.is_empty() {
            return Ok(());
        }
        for sql in statements {
            self.write(&sql).await?;
        }
        self.known = Arc::new(Known { stamp: known.stamp + 1, ..known });
        // Not the next number: a replica that took over without this change would give that to another one, and processes
        // would believe what they know of this one.
        let sql = format!(
            "UPDATE seriatim_meta SET definitions = GREATEST(definitions + 1, {CLOCK}) WHERE id = 1"
        );
        self.write(&sql).await
    }
}

fn table_name(table: Table) -> &'static str {
    match table {
        Table::Lane => Changes::LANES,
        Table::Job => "seriatim_job",
        Table::Ended => "seriatim_ended",
    }
}

/// The assignments that clear the job in a lane's row.
fn no_job() -> String {
    let columns = BODY_COLUMNS.map(|column| format!("j_{column} = NULL,")).concat();
    format!("j_gen = NULL,{columns}payload = NULL")
}
