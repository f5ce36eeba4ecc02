//! A transaction shared by operations: statements, sequences, counters of queues.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::sync::Arc;

use rusqlite::{CachedStatement, Connection, OptionalExtension, Params, Row, params};

use super::fault::translate;
use super::flush::{Boot, TOKENS_RESERVED};
use super::row::Sql;
use crate::contract::errors::{no_queue, too_many_routes};
use crate::contract::{Claim, Wake};
use crate::model::limits::{PROMOTE_JOBS_MAX, QUEUES_MAX, ROUTES_MAX};
use crate::model::{BatchCounts, Error, ErrorKind, JobOptions, Queue, Result, Timestamp};
use crate::stores::options::{ReadOptions, WriteOptions};
use crate::stores::route::{bound_of, route_in};

/// Changes to a queue's counters.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Delta {
    pub lanes: i64,
    pub jobs: i64,
    pub running: i64,
    pub dead: i64,
    pub processed: i64,
    pub failed: i64,
    /// Lanes with `retry >= 0`.
    pub retrying: i64,
}

/// A queue, as operations see it.
#[derive(Clone, Debug)]
pub(super) struct QueueRow {
    pub number: u32,
    pub name: Arc<str>,
    pub queue: Arc<Queue>,
    pub declared: bool,
    pub paused: bool,
    /// Whether it is being deleted.
    pub closing: bool,
}

/// The value of `paused` for a queue that is being deleted; 1 is a paused one.
const CLOSING: i64 = 2;

/// The node and the group that a job is bound to.
pub(super) type Route = (Option<Arc<str>>, Option<Arc<str>>);

/// The queues and routes that a connection caches between transactions. A change to them raises `meta.version`, so
/// that every other connection, in any process, reloads them.
#[derive(Debug, Default)]
pub(super) struct Definitions {
    version: Option<i64>,
    queues: BTreeMap<u32, QueueRow>,
    names: HashMap<Arc<str>, u32>,
    routes: BTreeMap<i64, Route>,
    /// The number of each route.
    numbers: HashMap<Route, i64>,
}

impl Definitions {
    /// Reloads everything on next use.
    pub(super) fn forget(&mut self) {
        self.version = None;
    }

    fn load(&mut self, c: &Connection, version: i64) -> Result<()> {
        *self = Self::default();
        let sql = "SELECT number, name, definition, declared, paused FROM queue";
        for row in all(c, sql, [], read_queue)? {
            self.insert(row?);
        }
        let sql = "SELECT number, node, grp FROM route";
        let read = |row: &Row<'_>| Ok((row.get(0)?, (row.get(1)?, row.get(2)?)));
        for (number, route) in all(c, sql, [], read)? {
            self.insert_route(number, route);
        }
        self.version = Some(version);
        Ok(())
    }

    fn insert(&mut self, row: QueueRow) {
        self.names.insert(row.name.clone(), row.number);
        self.queues.insert(row.number, row);
    }

    fn insert_route(&mut self, number: i64, route: Route) {
        self.numbers.insert(route.clone(), number);
        self.routes.insert(number, route);
    }
}

/// The sequences of the store.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Meta {
    seq: i64,
    token: i64,
    /// Up to this token claims need not be flushed.
    reserved: i64,
    version: i64,
}

/// The state to which a failed operation returns.
#[derive(Debug)]
pub(super) struct Mark {
    stored: Meta,
    meta: Meta,
    deltas: BTreeMap<u32, Delta>,
    batches: BTreeMap<String, BatchCounts>,
    wake: Wake,
}

/// A transaction, and the time of its current operation.
pub(super) struct Tx<'c> {
    pub c: &'c Connection,
    pub now: i64,
    definitions: &'c mut Definitions,
    stored: Meta,
    meta: Meta,
    deltas: BTreeMap<u32, Delta>,
    /// What the operation has changed of batches.
    pub batches: BTreeMap<String, BatchCounts>,
    wake: Wake,
    /// Lanes with a limited window that this push reached.
    pub collecting: BTreeSet<i64>,
    pub read_options: ReadOptions,
    pub write_options: WriteOptions,
    /// How many jobs of `exclusive` lanes the operation may still move to the due ones.
    pub promotable: usize,
    /// Whether the connection only reads.
    pub is_reader: bool,
}

impl<'c> Tx<'c> {
    /// Reads what every operation needs. The transaction must have begun.
    pub(super) fn begin(c: &'c Connection, definitions: &'c mut Definitions) -> Result<Self> {
        let sql = "SELECT seq, token, definitions, reserved FROM meta WHERE id = 1";
        let read = |row: &Row<'_>| {
            let (seq, token, version) = (row.get(0)?, row.get(1)?, row.get(2)?);
            Ok(Meta { seq, token, version, reserved: row.get(3)? })
        };
        let meta = c
            .prepare_cached(sql)
            .and_then(|mut statement| statement.query_row([], read))
            .map_err(|e| super::migrate::explain(c, e))?;
        if definitions.version != Some(meta.version) {
            definitions.load(c, meta.version)?;
        }
        let deltas = BTreeMap::new();
        Ok(Self {
            c,
            now: 0,
            definitions,
            stored: meta,
            meta,
            deltas,
            batches: BTreeMap::new(),
            wake: Wake::of([]),
            collecting: BTreeSet::new(),
            read_options: ReadOptions::default(),
            write_options: WriteOptions::default(),
            promotable: PROMOTE_JOBS_MAX,
            is_reader: false,
        })
    }

    /// Sets the time of the next operation: `now`, or this machine's time if unset.
    pub(super) fn at(&mut self, now: Option<Timestamp>) -> &mut Self {
        self.now = now.unwrap_or_else(Timestamp::of_this_machine).as_micros();
        self.promotable = PROMOTE_JOBS_MAX;
        self
    }

    /// Records that a lane of this queue may have become claimable.
    pub(super) fn ring(&mut self, queue: &str) {
        self.wake.add(queue);
    }

    pub(super) fn mark(&self) -> Mark {
        Mark {
            stored: self.stored,
            meta: self.meta,
            deltas: self.deltas.clone(),
            batches: self.batches.clone(),
            wake: self.wake.clone(),
        }
    }

    /// Restores the state of the mark, after its writes were undone.
    pub(super) fn back_to(&mut self, mark: Mark) {
        if self.meta.version != mark.meta.version {
            self.definitions.forget();
        }
        (self.stored, self.meta) = (mark.stored, mark.meta);
        (self.deltas, self.batches, self.wake) = (mark.deltas, mark.batches, mark.wake);
    }

    /// Stores the counters. Returns which queues may have claimable lanes now.
    pub(super) fn finish(mut self) -> Result<Wake> {
        self.flush()?;
        Ok(self.wake)
    }

    /// Stores the counters, so that statements see them.
    pub(super) fn flush(&mut self) -> Result<()> {
        if self.meta != self.stored {
            let sql = "UPDATE meta SET seq = ?1, token = ?2, definitions = ?3, reserved = ?4 WHERE id = 1";
            let Meta { seq, token, version, reserved } = self.meta;
            self.execute(sql, params![seq, token, version, reserved])?;
            self.stored = self.meta;
        }
        // A process of an earlier build that still runs on this file does not count `retrying`.
        let sql = "UPDATE queue SET lanes = lanes + ?2, jobs = jobs + ?3, running = running + ?4,
                   dead = dead + ?5, processed = processed + ?6, failed = failed + ?7,
                   retrying = iif(lanes + ?2 = 0, 0, retrying + ?8) WHERE number = ?1";
        for (queue, d) in std::mem::take(&mut self.deltas) {
            if d != Delta::default() {
                let Delta { lanes, jobs, running, dead, processed, failed, retrying } = d;
                let values =
                    params![queue, lanes, jobs, running, dead, processed, failed, retrying];
                self.execute(sql, values)?;
            }
        }
        Ok(())
    }

    /// The next number of a job or lane.
    pub(super) fn next_seq(&mut self) -> i64 {
        self.meta.seq += 1;
        self.meta.seq
    }

    /// The last number given to a job or lane.
    pub(super) fn last_seq(&self) -> i64 {
        self.meta.seq
    }

    /// The last token: no later claim has it or a lower one.
    pub(super) fn last_token(&self) -> i64 {
        self.meta.token
    }

    /// The next token: higher than any before, and not below the clock.
    pub(super) fn next_token(&mut self) -> i64 {
        self.meta.token = (self.meta.token + 1).max(self.now);
        self.meta.token
    }

    /// Whether all its tokens are reserved: none will be issued again, even if this transaction is lost with the
    /// machine.
    pub(super) fn has_reserved(&self) -> bool {
        self.meta.token <= self.meta.reserved
    }

    /// Reserves tokens for claims to come, if it writes the sequences anyway. For a transaction that is flushed.
    pub(super) fn reserve(&mut self) {
        if self.meta == self.stored && self.has_reserved() {
            return;
        }
        let next = self.meta.token.max(self.now);
        if next.saturating_add(TOKENS_RESERVED / 2) > self.meta.reserved {
            self.meta.reserved = next.saturating_add(TOKENS_RESERVED);
        }
    }

    /// After another boot of the machine, leaves out the tokens of claims that it may have lost.
    pub(super) fn begin_boot(&mut self, boot: &Boot) -> Result<()> {
        let sql = "UPDATE meta SET boot = ?1 WHERE id = 1 AND boot != ?1";
        if self.execute(sql, [&boot.0])? > 0 {
            self.meta.token = self.meta.token.max(self.meta.reserved);
        }
        Ok(())
    }

    pub(super) fn delta(&mut self, queue: u32) -> &mut Delta {
        self.deltas.entry(queue).or_default()
    }

    /// What has changed of a queue's counters and is not stored yet.
    pub(super) fn change_of(&self, queue: u32) -> Delta {
        self.deltas.get(&queue).copied().unwrap_or_default()
    }

    /// How many lanes a queue has.
    pub(super) fn lane_count(&self, queue: u32) -> Result<i64> {
        Ok(self.stored(queue, "lanes")? + self.change_of(queue).lanes)
    }

    /// How many jobs wait or run in it.
    pub(super) fn job_count(&self, queue: u32) -> Result<i64> {
        Ok(self.stored(queue, "jobs")? + self.change_of(queue).jobs)
    }

    /// How many lanes have failed and not succeeded since.
    pub(super) fn retrying(&self, queue: u32) -> Result<i64> {
        Ok(self.stored(queue, "retrying")? + self.change_of(queue).retrying)
    }

    fn stored(&self, queue: u32, counter: &str) -> Result<i64> {
        let sql = format!("SELECT {counter} FROM queue WHERE number = ?1");
        Ok(self.first(&sql, [queue], |row| row.get(0))?.unwrap_or_default())
    }

    pub(super) fn prepare(&self, sql: &str) -> Result<CachedStatement<'c>> {
        self.c.prepare_cached(sql).map_err(translate)
    }

    /// Runs a statement and returns the number of changed rows.
    pub(super) fn execute(&self, sql: &str, values: impl Params) -> Result<usize> {
        let mut statement = self.prepare(sql)?;
        let changed = statement.execute(values).map_err(translate);
        #[cfg(test)]
        count_steps(&statement);
        changed
    }

    /// The first row, if any.
    pub(super) fn first<T>(
        &self,
        sql: &str,
        values: impl Params,
        read: impl FnOnce(&Row<'_>) -> Sql<T>,
    ) -> Result<Option<T>> {
        let mut statement = self.prepare(sql)?;
        let row = statement.query_row(values, read).optional().map_err(translate);
        #[cfg(test)]
        count_steps(&statement);
        row
    }

    pub(super) fn rows<T>(
        &self,
        sql: &str,
        values: impl Params,
        read: impl FnMut(&Row<'_>) -> Sql<T>,
    ) -> Result<Vec<T>> {
        all(self.c, sql, values, read)
    }

    /// Reads rows as long as `read` answers that it needs more. The statement is not kept.
    pub(super) fn while_rows(
        &self,
        sql: &str,
        values: impl Params,
        mut read: impl FnMut(&Row<'_>) -> Sql<bool>,
    ) -> Result<()> {
        let mut statement = self.c.prepare(sql).map_err(translate)?;
        let mut rows = statement.query(values).map_err(translate)?;
        while let Some(row) = rows.next().map_err(translate)? {
            if !read(row).map_err(translate)? {
                break;
            }
        }
        drop(rows);
        #[cfg(test)]
        count_steps(&statement);
        Ok(())
    }

    /// The cached definitions, reloaded if an undone operation invalidated them.
    fn definitions(&mut self) -> Result<&mut Definitions> {
        if self.definitions.version.is_none() {
            self.definitions.load(self.c, self.meta.version)?;
        }
        Ok(self.definitions)
    }

    /// The definitions, for a change. Other connections will reload them.
    fn redefine(&mut self) -> Result<&mut Definitions> {
        self.meta.version += 1;
        let version = self.meta.version;
        let definitions = self.definitions()?;
        definitions.version = Some(version);
        Ok(definitions)
    }

    /// The queue with this name.
    pub(super) fn queue(&mut self, name: &str) -> Result<Option<QueueRow>> {
        let definitions = self.definitions()?;
        Ok(definitions.names.get(name).and_then(|n| definitions.queues.get(n)).cloned())
    }

    /// The queue with this number.
    pub(super) fn queue_number(&mut self, number: u32) -> Result<Option<QueueRow>> {
        Ok(self.definitions()?.queues.get(&number).cloned())
    }

    /// The queue with this name, or an error that names it.
    pub(super) fn known_queue(&mut self, name: &str) -> Result<QueueRow> {
        self.queue(name)?.ok_or_else(|| no_queue(name))
    }

    /// Those of the named queues that exist.
    pub(super) fn queues_named(&mut self, names: &[Arc<str>]) -> Result<Vec<QueueRow>> {
        let definitions = self.definitions()?;
        let row = |name| definitions.queues.get(definitions.names.get(name)?).cloned();
        Ok(names.iter().filter_map(row).collect())
    }

    /// The lowest number that no queue has; `None` if there are too many queues.
    pub(super) fn free_number(&mut self) -> Result<Option<u32>> {
        let queues = &self.definitions()?.queues;
        Ok((1..=QUEUES_MAX).find(|number| !queues.contains_key(number)))
    }

    /// All queues, by number.
    pub(super) fn all_queues(&mut self) -> Result<Vec<QueueRow>> {
        Ok(self.definitions()?.queues.values().cloned().collect())
    }

    /// Inserts or updates a queue.
    pub(super) fn store_queue(&mut self, row: QueueRow) -> Result<()> {
        let sql = "INSERT INTO queue (number, name, definition, declared, paused) VALUES (?1, ?2, ?3, ?4, ?5)
                   ON CONFLICT (number) DO UPDATE SET definition = ?3, declared = ?4, paused = ?5";
        let definition = crate::stores::json::json(&*row.queue)?;
        let paused = if row.closing { CLOSING } else { i64::from(row.paused) };
        let values = params![row.number, &*row.name, definition, row.declared, paused];
        self.execute(sql, values)?;
        self.redefine()?.insert(row);
        Ok(())
    }

    /// Removes an empty queue.
    pub(super) fn remove_queue(&mut self, number: u32) -> Result<()> {
        self.execute("DELETE FROM queue WHERE number = ?1", [number])?;
        self.deltas.remove(&number);
        let definitions = self.redefine()?;
        if let Some(row) = definitions.queues.remove(&number) {
            definitions.names.remove(&row.name);
        }
        Ok(())
    }

    /// The node and consumer group of a route.
    pub(super) fn route_of(&mut self, route: i64) -> Result<Option<Route>> {
        let number = bound_of(route as u64) as i64;
        if number == 0 {
            return Ok(Some((None, None)));
        }
        Ok(self.definitions()?.routes.get(&number).cloned())
    }

    /// The number of a job's route, bound to this node.
    pub(super) fn route(&mut self, options: &JobOptions, node: Option<&str>) -> Result<i64> {
        let bound = self.bound(node, options.consumer_group.as_deref())?;
        Ok(route_in(options.group.as_deref(), bound as u64) as i64)
    }

    /// The number of a node and a consumer group. 0: none.
    fn bound(&mut self, node: Option<&str>, group: Option<&str>) -> Result<i64> {
        if node.is_none() && group.is_none() {
            return Ok(0);
        }
        let route: Route = (node.map(Arc::from), group.map(Arc::from));
        let definitions = self.definitions()?;
        if let Some(number) = definitions.numbers.get(&route) {
            return Ok(*number);
        }
        let number = definitions.routes.keys().next_back().copied().unwrap_or_default() + 1;
        if number > ROUTES_MAX as i64 {
            return Err(too_many_routes());
        }
        let sql = "INSERT INTO route (number, node, grp) VALUES (?1, ?2, ?3)";
        self.execute(sql, params![number, node, group])?;
        self.redefine()?.insert_route(number, route);
        Ok(number)
    }

    /// What the caller of a claim may take: the numbers of its nodes and consumer groups, and 0.
    pub(super) fn bounds(&mut self, request: &Claim) -> Result<BTreeSet<i64>> {
        let numbers = &self.definitions()?.numbers;
        let mut bounds = BTreeSet::from([0]);
        for node in [None, request.node_name.clone()] {
            for group in std::iter::once(None).chain(request.groups.iter().cloned().map(Some)) {
                bounds.extend(numbers.get(&(node.clone(), group)));
            }
        }
        Ok(bounds)
    }
}

fn all<T>(
    c: &Connection,
    sql: &str,
    values: impl Params,
    read: impl FnMut(&Row<'_>) -> Sql<T>,
) -> Result<Vec<T>> {
    let mut statement = c.prepare_cached(sql).map_err(translate)?;
    let rows = statement.query_map(values, read).map_err(translate)?;
    let rows = rows.collect::<Sql<Vec<T>>>().map_err(translate);
    #[cfg(test)]
    count_steps(&statement);
    rows
}

#[cfg(test)]
thread_local! {
    /// The steps of SQLite's virtual machine that statements of this thread made.
    pub(super) static STEPS: std::cell::Cell<u64> = const { std::cell::Cell::new(0) };
}

#[cfg(test)]
fn count_steps(statement: &rusqlite::Statement<'_>) {
    let steps = statement.reset_status(rusqlite::StatementStatus::VmStep);
    STEPS.set(STEPS.get() + u64::try_from(steps).unwrap_or_default());
}

/// Reads number, name, definition, declared, paused.
fn read_queue(row: &Row<'_>) -> Sql<Result<QueueRow>> {
    let definition: String = row.get(2)?;
    let (number, name) = (row.get(0)?, row.get(1)?);
    let (declared, paused): (bool, i64) = (row.get(3)?, row.get(4)?);
    let (paused, closing) = (paused != 0, paused == CLOSING);
    let read = serde_json::from_str(&definition).map_err(|e| {
        Error::new(ErrorKind::Corrupt, "a queue's definition cannot be read").because(e)
    });
    Ok(read.map(|queue| QueueRow {
        number,
        name,
        queue: Arc::new(queue),
        declared,
        paused,
        closing,
    }))
}
