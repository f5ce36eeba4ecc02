//! Declaring, pausing and deleting queues.

use std::sync::Arc;

use async_trait::async_trait;
use rusqlite::params;

use super::Sqlite;
use super::actions::STEP_JOBS;
use super::row::{Job, flag};
use super::tx::{QueueRow, Tx};
use crate::contract::definition::Found;
use crate::contract::errors::{is_claimed, is_closing, too_many_queues};
use crate::contract::{Acted, Declare, DeleteQueue, LaneAction, Queues};
use crate::model::limits::ACTION_ROWS_MAX;
use crate::model::{Leave, Mode, Queue, Result, Timestamp};

/// Conditions that find the lanes of a queue, cheapest first. Only lanes in none of these indexes (held or paused,
/// without a key) need a scan of all lanes.
const LANES: [&str; 4] =
    ["key IS NOT NULL", "id IN (SELECT id FROM ready WHERE q = ?1)", "wake IS NOT NULL", "true"];

/// What was in a queue before its mode changed.
#[derive(Default)]
struct Moved {
    /// With their keys, in order of arrival.
    jobs: Vec<(Option<String>, Job)>,
    /// The paused keys.
    paused: Vec<String>,
}

/// The jobs of the lanes in a JSON array.
const JOBS_OF: &str =
    "SELECT seq FROM lane WHERE id IN (SELECT value FROM json_each(?1)) AND seq IS NOT NULL
     UNION ALL SELECT seq FROM item INDEXED BY item_order WHERE lane IN (SELECT value FROM json_each(?1))";

/// The batch of each of them that has one.
const BATCHES_OF: &str =
    "SELECT opts ->> '$.batch' FROM lane WHERE id IN (SELECT value FROM json_each(?1)) AND flags & 128 AND opts ->> '$.batch' IS NOT NULL
     UNION ALL SELECT opts ->> '$.batch' FROM item INDEXED BY item_order WHERE lane IN (SELECT value FROM json_each(?1)) AND opts ->> '$.batch' IS NOT NULL";

#[async_trait]
impl Queues for Sqlite {
    async fn declare(&self, request: Declare) -> Result<()> {
        self.change(move |tx| tx.at(request.now).declare(&request.queues, false)).await
    }

    async fn declare_new(&self, request: Declare) -> Result<()> {
        self.change(move |tx| tx.at(request.now).declare(&request.queues, true)).await
    }

    async fn pause_queue(&self, queue: Arc<str>, paused: bool) -> Result<()> {
        self.change(move |tx| tx.at(None).pause_queue(&queue, paused)).await
    }

    async fn delete_queue(&self, request: DeleteQueue) -> Result<Acted> {
        self.change(move |tx| tx.at(None).delete_queue(&request)).await
    }
}

impl Tx<'_> {
    /// Declares queues; with `keep` only those that are not declared.
    pub(super) fn declare(&mut self, queues: &[Queue], keep: bool) -> Result<()> {
        for (i, queue) in queues.iter().enumerate() {
            self.declare_one(queue, keep).map_err(|e| e.in_field(format!("queues[{i}]")))?;
        }
        Ok(())
    }

    fn declare_one(&mut self, queue: &Queue, keep: bool) -> Result<()> {
        queue.validate()?;
        let Some(row) = self.queue(&queue.name)? else {
            return self.create_queue(queue, true).map(drop);
        };
        if keep && row.declared {
            return Ok(());
        }
        if row.closing {
            return Err(is_closing(&queue.name));
        }
        let old = row.queue.clone();
        let changes = (old.mode, old.merge) != (queue.mode, queue.merge);
        let moved = if changes { self.take_queue_apart(&row, queue)? } else { Moved::default() };
        let number = row.number;
        if !changes && row.declared && *old == *queue {
            return Ok(());
        }
        let limits_change = (&old.groups, old.limit) != (&queue.groups, queue.limit);
        let row = QueueRow { queue: Arc::new(queue.clone()), declared: true, ..row };
        self.store_queue(row.clone())?;
        if limits_change {
            self.count_groups(&row)?;
            if old.rates() != queue.rates() {
                self.execute("UPDATE share SET paced = 0 WHERE q = ?1", [number])?;
            }
            self.ring(&row.name);
        }
        for (key, job) in moved.jobs {
            self.put_back(number, key.as_deref(), job)?;
        }
        for key in moved.paused {
            if let Some(mut work) = self.lane_of_key(number, &key)? {
                work.row.head.flags |= flag::PAUSED;
                self.save(work)?;
            }
        }
        Ok(())
    }

    /// Takes all jobs out of a queue whose mode changes, if the change is allowed. Those without a score of their own
    /// get that of the new mode.
    fn take_queue_apart(&mut self, row: &QueueRow, new: &Queue) -> Result<Moved> {
        let sql = "SELECT id, key FROM lane WHERE q = ?1 ORDER BY id";
        let lanes: Vec<(i64, Option<String>)> =
            self.rows(sql, [row.number], |r| Ok((r.get(0)?, r.get(1)?)))?;
        let (mode, merge, declared) = (row.queue.mode, row.queue.merge, row.declared);
        let sql = "SELECT 1 FROM held WHERE q = ?1 LIMIT 1";
        let runs = self.first(sql, [row.number], |_| Ok(()))?.is_some();
        Found { mode, merge, declared, holds_jobs: !lanes.is_empty(), runs }.check(new)?;
        let mut moved = Moved::default();
        for (id, key) in lanes {
            let Some(mut work) = self.lane(id)? else { continue };
            let (route, flags) = (work.row.head.route, work.row.head.flags);
            moved.paused.extend(key.clone().filter(|_| flags & flag::PAUSED != 0));
            for job in self.take_all_open(&mut work)? {
                let route = route.max(job.route);
                let made_at = Timestamp::from_micros(job.created).as_secs_f64();
                let is_default = new.mode == Mode::Fifo && job.score.to_bits() == made_at.to_bits();
                let score = if is_default { 0.0 } else { job.score };
                moved.jobs.push((key.clone(), Job { digest: None, route, score, ..job }));
            }
            self.save(work)?;
        }
        moved.jobs.sort_unstable_by_key(|(_, job)| job.seq);
        Ok(moved)
    }

    pub(super) fn create_queue(&mut self, queue: &Queue, declared: bool) -> Result<QueueRow> {
        let number = self.free_number()?.ok_or_else(too_many_queues)?;
        let (name, queue) = (Arc::from(queue.name.as_str()), Arc::new(queue.clone()));
        let row = QueueRow { number, name, queue, declared, paused: false, closing: false };
        self.store_queue(row.clone())?;
        Ok(row)
    }

    pub(super) fn pause_queue(&mut self, name: &str, paused: bool) -> Result<()> {
        let row = self.known_queue(name)?;
        if row.closing {
            return Err(is_closing(name));
        }
        self.ring(name);
        self.store_queue(QueueRow { paused, ..row })
    }

    /// Closes a queue that is being deleted to new jobs.
    pub(super) fn close_queue(&mut self, row: QueueRow) -> Result<()> {
        match row.closing {
            true => Ok(()),
            false => self.store_queue(QueueRow { closing: true, paused: true, ..row }),
        }
    }

    pub(super) fn delete_queue(&mut self, request: &DeleteQueue) -> Result<Acted> {
        let row = self.known_queue(&request.queue)?;
        let number = row.number;
        self.flush()?;
        let sql = "SELECT running FROM queue WHERE number = ?1";
        let running: i64 = self.first(sql, [number], |row| row.get(0))?.unwrap_or_default();
        if running > 0 {
            return Err(is_claimed(&request.queue, running as u64));
        }
        self.close_queue(row)?;
        let rows_max = request.rows_max.clamp(1, ACTION_ROWS_MAX);
        let (lanes, lanes_left) = self.delete_lanes(number, rows_max)?;
        let (ended, ended_left) = self.delete_ended(number, rows_max)?;
        let names_left = self.delete_names(number, rows_max)?;
        let more = lanes_left || ended_left || names_left;
        if !more {
            self.execute("DELETE FROM claim WHERE q = ?1", [number])?;
            self.execute("DELETE FROM share WHERE q = ?1", [number])?;
            self.remove_queue(number)?;
            // An engine that declares it does so again.
            self.ring(&request.queue);
        }
        Ok(Acted { count: lanes + ended, more })
    }

    fn delete_lanes(&mut self, queue: u32, rows_max: usize) -> Result<(u64, bool)> {
        let mut jobs = 0;
        for found in LANES {
            if self.lanes_of(queue)? == 0 {
                break;
            }
            let sql = format!("SELECT id, n FROM lane WHERE q = ?1 AND {found} LIMIT ?2");
            let limit = params![queue, rows_max as i64];
            let lanes: Vec<(i64, i64)> =
                self.rows(&sql, limit, |row| Ok((row.get(0)?, row.get(1)?)))?;
            if let Some(&(id, items)) = lanes.first()
                && items as usize > STEP_JOBS
            {
                // A long one goes in parts.
                let (_, gone) = self.act_on(id, LaneAction::Delete, false, STEP_JOBS)?;
                return Ok((jobs + gone as u64, true));
            }
            let mut rows = jobs as usize;
            let fits = |(_, items): &&(i64, i64)| {
                let fits = rows < rows_max && *items as usize <= STEP_JOBS;
                rows += 1 + *items as usize;
                fits
            };
            let lanes: Vec<i64> = lanes.iter().take_while(fits).map(|(id, _)| *id).collect();
            jobs += self.delete_these(queue, &lanes)?;
        }
        Ok((jobs, self.lanes_of(queue)? > 0))
    }

    fn lanes_of(&mut self, queue: u32) -> Result<i64> {
        self.flush()?;
        let sql = "SELECT lanes FROM queue WHERE number = ?1";
        Ok(self.first(sql, [queue], |row| row.get(0))?.unwrap_or_default())
    }

    fn delete_these(&mut self, queue: u32, lanes: &[i64]) -> Result<u64> {
        if lanes.is_empty() {
            return Ok(0);
        }
        let ids = serde_json::Value::from(lanes).to_string();
        let count = format!("SELECT count(*) FROM ({JOBS_OF})");
        let jobs: i64 = self.first(&count, [&ids], |row| row.get(0))?.unwrap_or_default();
        for batch in self.rows(BATCHES_OF, [&ids], |row| row.get::<_, String>(0))? {
            self.counts_of(&batch).leave(Leave::Cancelled);
        }
        self.execute(&format!("DELETE FROM alias WHERE target IN ({JOBS_OF})"), [&ids])?;
        self.execute(&format!("DELETE FROM body WHERE seq IN ({JOBS_OF})"), [&ids])?;
        let of_lanes = "IN (SELECT value FROM json_each(?1))";
        self.execute(
            &format!("DELETE FROM item INDEXED BY item_order WHERE lane {of_lanes}"),
            [&ids],
        )?;
        let sql = format!(
            "DELETE FROM ready WHERE (q, class, prio, due, id) IN
               (SELECT q, class, prio, due, id FROM lane WHERE id {of_lanes})"
        );
        self.execute(&sql, [&ids])?;
        let sql = format!("SELECT count(*) FROM lane WHERE id {of_lanes} AND retry >= 0");
        let retrying: i64 = self.first(&sql, [&ids], |row| row.get(0))?.unwrap_or_default();
        self.execute(&format!("DELETE FROM lane WHERE id {of_lanes}"), [&ids])?;
        let delta = self.delta(queue);
        delta.lanes -= lanes.len() as i64;
        delta.jobs -= jobs;
        delta.retrying -= retrying;
        Ok(jobs as u64)
    }

    fn delete_ended(&mut self, queue: u32, rows_max: usize) -> Result<(u64, bool)> {
        let sql = "SELECT seq, dead FROM ended WHERE q = ?1 LIMIT ?2";
        let read = |row: &rusqlite::Row<'_>| Ok((row.get(0)?, row.get(1)?));
        let mut found: Vec<(i64, i64)> =
            self.rows(sql, params![queue, rows_max as i64 + 1], read)?;
        let more = found.len() > rows_max;
        found.truncate(rows_max);
        if found.is_empty() {
            return Ok((0, false));
        }
        let seqs: Vec<i64> = found.iter().map(|(seq, _)| *seq).collect();
        let seqs = serde_json::Value::from(seqs).to_string();
        for (table, column) in [("alias", "target"), ("body", "seq"), ("ended", "seq")] {
            let these = "SELECT value FROM json_each(?1)";
            let sql = format!("DELETE FROM {table} WHERE {column} IN ({these})");
            self.execute(&sql, [&seqs])?;
        }
        self.delta(queue).dead -= found.iter().map(|(_, dead)| dead).sum::<i64>();
        Ok((found.len() as u64, more))
    }

    /// Deletes idempotency keys; whether more may be left.
    fn delete_names(&mut self, queue: u32, rows_max: usize) -> Result<bool> {
        let sql = "DELETE FROM idempotency WHERE (q, key, name) IN
                     (SELECT q, key, name FROM idempotency WHERE q = ?1 LIMIT ?2)";
        Ok(self.execute(sql, params![queue, rows_max as i64])? == rows_max)
    }
}
