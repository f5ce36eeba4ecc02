//! What one operation reads and writes: statements, numbers given out, counters of queues.

use std::collections::BTreeMap;
use std::sync::Arc;

use rusqlite::{CachedStatement, Connection, OptionalExtension, Params, Row, params};

use super::fault::translate;
use super::row::Sql;
use crate::clock::Timestamp;
use crate::error::{Error, ErrorKind, Result};
use crate::queue::Queue;

/// What an operation changes of a queue's numbers.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Delta {
    pub lanes: i64,
    pub jobs: i64,
    pub running: i64,
    pub dead: i64,
    pub processed: i64,
    pub failed: i64,
}

/// A queue as an operation sees it.
#[derive(Clone, Debug)]
pub(super) struct QueueRow {
    pub number: u32,
    pub name: Arc<str>,
    pub queue: Arc<Queue>,
    pub declared: bool,
    pub paused: bool,
}

/// One operation inside the writer's transaction.
pub(super) struct Tx<'c> {
    pub c: &'c Connection,
    pub now: i64,
    seq: i64,
    token: i64,
    given: bool,
    deltas: BTreeMap<u32, Delta>,
    queues: BTreeMap<u32, QueueRow>,
}

impl<'c> Tx<'c> {
    /// Runs `body` as one operation at `now`, or at this machine's time.
    pub(super) fn run<T>(
        c: &'c Connection,
        now: Option<Timestamp>,
        body: impl FnOnce(&mut Self) -> Result<T>,
    ) -> Result<T> {
        let now = now.unwrap_or_else(Timestamp::of_this_machine).as_micros();
        let numbers = "SELECT seq, token FROM meta WHERE id = 1";
        let (seq, token) = c
            .prepare_cached(numbers)
            .and_then(|mut s| s.query_row([], |row| Ok((row.get(0)?, row.get(1)?))))
            .map_err(translate)?;
        let (deltas, queues) = (BTreeMap::new(), BTreeMap::new());
        let mut tx = Tx { c, now, seq, token, given: false, deltas, queues };
        let result = body(&mut tx)?;
        tx.finish()?;
        Ok(result)
    }

    fn finish(self) -> Result<()> {
        if self.given {
            let sql = "UPDATE meta SET seq = ?1, token = ?2 WHERE id = 1";
            self.execute(sql, params![self.seq, self.token])?;
        }
        let sql = "UPDATE queue SET lanes = lanes + ?2, jobs = jobs + ?3, running = running + ?4,
                   dead = dead + ?5, processed = processed + ?6, failed = failed + ?7 WHERE number = ?1";
        for (queue, d) in &self.deltas {
            let values = params![queue, d.lanes, d.jobs, d.running, d.dead, d.processed, d.failed];
            self.execute(sql, values)?;
        }
        Ok(())
    }

    /// The next number of a job or lane.
    pub(super) fn next_seq(&mut self) -> i64 {
        self.given = true;
        self.seq += 1;
        self.seq
    }

    /// The next token: higher than any before, and not below the clock.
    pub(super) fn next_token(&mut self) -> i64 {
        self.given = true;
        self.token = (self.token + 1).max(self.now);
        self.token
    }

    pub(super) fn delta(&mut self, queue: u32) -> &mut Delta {
        self.deltas.entry(queue).or_default()
    }

    pub(super) fn prepare(&self, sql: &str) -> Result<CachedStatement<'c>> {
        self.c.prepare_cached(sql).map_err(translate)
    }

    /// Runs a statement; so many rows were changed.
    pub(super) fn execute(&self, sql: &str, values: impl Params) -> Result<usize> {
        self.prepare(sql)?.execute(values).map_err(translate)
    }

    /// The first row, if there is one.
    pub(super) fn first<T>(
        &self,
        sql: &str,
        values: impl Params,
        read: impl FnOnce(&Row<'_>) -> Sql<T>,
    ) -> Result<Option<T>> {
        self.prepare(sql)?.query_row(values, read).optional().map_err(translate)
    }

    /// All rows.
    pub(super) fn rows<T>(
        &self,
        sql: &str,
        values: impl Params,
        read: impl FnMut(&Row<'_>) -> Sql<T>,
    ) -> Result<Vec<T>> {
        let mut statement = self.prepare(sql)?;
        let rows = statement.query_map(values, read).map_err(translate)?;
        rows.collect::<Sql<Vec<T>>>().map_err(translate)
    }

    /// The queue of this name.
    pub(super) fn queue(&mut self, name: &str) -> Result<Option<QueueRow>> {
        if let Some(row) = self.queues.values().find(|row| &*row.name == name) {
            return Ok(Some(row.clone()));
        }
        let sql = "SELECT number, name, definition, declared, paused FROM queue WHERE name = ?1";
        let row = self.first(sql, [name], read_queue)?.transpose()?;
        Ok(self.remember(row))
    }

    /// The queue of this number.
    pub(super) fn queue_number(&mut self, number: u32) -> Result<Option<QueueRow>> {
        if let Some(row) = self.queues.get(&number) {
            return Ok(Some(row.clone()));
        }
        let sql = "SELECT number, name, definition, declared, paused FROM queue WHERE number = ?1";
        let row = self.first(sql, [number], read_queue)?.transpose()?;
        Ok(self.remember(row))
    }

    fn remember(&mut self, row: Option<QueueRow>) -> Option<QueueRow> {
        if let Some(row) = &row {
            self.queues.insert(row.number, row.clone());
        }
        row
    }

    /// Forgets a queue's definition, which has changed.
    pub(super) fn forget_queue(&mut self, number: u32) {
        self.queues.remove(&number);
    }

    /// The queue of this name, or an error that names it.
    pub(super) fn known_queue(&mut self, name: &str) -> Result<QueueRow> {
        self.queue(name)?.ok_or_else(|| no_queue(name))
    }
}

pub(super) fn no_queue(name: &str) -> Error {
    Error::new(ErrorKind::NotFound, format!("there is no queue {name:?}")).in_field("queue")
}

/// Reads number, name, definition, declared, paused.
pub(super) fn read_queue(row: &Row<'_>) -> Sql<Result<QueueRow>> {
    let definition: String = row.get(2)?;
    let (number, name) = (row.get(0)?, row.get(1)?);
    let (declared, paused) = (row.get(3)?, row.get(4)?);
    let read = serde_json::from_str(&definition).map_err(|e| {
        Error::new(ErrorKind::Corrupt, "a queue's definition cannot be read").because(e)
    });
    Ok(read.map(|queue| QueueRow { number, name, queue: Arc::new(queue), declared, paused }))
}
