//! Cancel, requeue, act on lanes, delete dead jobs, and amend.

use std::sync::Arc;

use async_trait::async_trait;
use rusqlite::types::Value;
use rusqlite::{params, params_from_iter};

use super::Sqlite;
use super::lane::Work;
use super::row::{JOB_COLUMNS, Job, flag};
use super::tx::Tx;
use crate::contract::errors::no_waiting_job;
use crate::contract::{
    Act, Acted, Actions, Amend, Cancel, Cancelled, Change, LaneAction, LaneSelection, Selected,
    Selection,
};
use crate::model::batch::Leave;
use crate::model::error::Result;
use crate::model::id::JobId;
use crate::model::limits::ACTION_ROWS_MAX;
use crate::model::queue::{Mode, Owner};
use crate::model::settle::Fate;
use crate::stores::json::json;

/// Where a job is.
pub(super) enum Location {
    /// In this lane, open or closed.
    Lane(i64),
    /// Finished or dead.
    Ended,
}

#[async_trait]
impl Actions for Sqlite {
    async fn cancel(&self, request: Cancel) -> Result<Vec<Cancelled>> {
        self.change(move |tx| {
            tx.at(request.now);
            request.jobs.iter().map(|job| tx.cancel(*job)).collect()
        })
        .await
    }

    async fn requeue(&self, request: Selected) -> Result<Acted> {
        self.change(move |tx| tx.at(request.now).requeue(&request)).await
    }

    async fn delete_dead(&self, request: Selected) -> Result<Acted> {
        self.change(move |tx| tx.at(request.now).delete_dead(&request)).await
    }

    async fn act(&self, request: Act) -> Result<Acted> {
        self.change(move |tx| tx.at(request.now).act(&request)).await
    }

    async fn amend(&self, request: Amend) -> Result<()> {
        self.change(move |tx| tx.at(request.now).amend(&request)).await
    }
}

impl Tx<'_> {
    /// The location of a job, and the number under which it is stored.
    pub(super) fn find(&mut self, id: JobId) -> Result<Option<(i64, Location)>> {
        let (mut seq, mut created) = (id.seq() as i64, id.created_at().as_micros() / 1_000);
        let queue = id.queue();
        let sql = "SELECT target FROM alias WHERE seq = ?1 AND created / 1000 = ?2";
        if let Some(target) = self.first(sql, params![seq, created], |row| row.get(0))? {
            (seq, created) = (target, -1);
        }
        let same_time = "(?2 < 0 OR created / 1000 = ?2)";
        let lanes = [
            format!("SELECT id FROM lane WHERE id = ?1 AND seq = ?1 AND q = ?3 AND {same_time}"),
            format!(
                "SELECT id FROM lane INDEXED BY lane_slot WHERE seq = ?1 AND seq <> id AND q = ?3 AND {same_time}"
            ),
            format!(
                "SELECT lane FROM item WHERE seq = ?1 AND {same_time} AND ?3 = (SELECT q FROM lane WHERE id = lane)"
            ),
        ];
        for sql in &lanes {
            if let Some(lane) = self.first(sql, params![seq, created, queue], |row| row.get(0))? {
                return Ok(Some((seq, Location::Lane(lane))));
            }
        }
        let sql = format!("SELECT 1 FROM ended WHERE seq = ?1 AND q = ?3 AND {same_time}");
        let ended = self.first(&sql, params![seq, created, queue], |_| Ok(()))?;
        Ok(ended.map(|()| (seq, Location::Ended)))
    }

    pub(super) fn cancel(&mut self, id: JobId) -> Result<Cancelled> {
        let (seq, lane) = match self.find(id)? {
            None => return Ok(Cancelled::Unknown),
            Some((_, Location::Ended)) => return Ok(Cancelled::Ended),
            Some((seq, Location::Lane(lane))) => (seq, lane),
        };
        if self.end_waiting(lane, seq, Fate::Cancel)? {
            return Ok(Cancelled::Now);
        }
        self.flag(lane, seq)?;
        Ok(Cancelled::Flagged)
    }

    /// Ends a waiting job. False if it is running.
    pub(super) fn end_waiting(&mut self, lane: i64, seq: i64, fate: Fate) -> Result<bool> {
        let Some(mut work) = self.lane(lane)? else { return Ok(false) };
        let Some(job) = self.take_open(&mut work, seq)? else { return Ok(false) };
        let why = (fate == Fate::Cancel).then(|| "canceled".into());
        self.end_job(&work, job, fate, why)?;
        self.delta(work.queue.number).jobs -= 1;
        self.settle_priority(&mut work)?;
        self.save(work)?;
        Ok(true)
    }

    /// The numbers of the dead jobs of a selection, oldest first, at most [`ACTION_ROWS_MAX`]; and whether there are
    /// more.
    fn select(&mut self, request: &Selected) -> Result<(Vec<i64>, bool)> {
        let queue = self.known_queue(&request.queue)?.number;
        let most = ACTION_ROWS_MAX as i64 + 1;
        let mut seqs: Vec<i64> = Vec::new();
        match &request.which {
            Selection::All => {
                let sql = "SELECT seq FROM ended WHERE q = ?1 AND dead = 1 ORDER BY seq LIMIT ?2";
                seqs = self.rows(sql, params![queue, most], |row| row.get(0))?;
            }
            Selection::Keys(keys) => {
                let sql = "SELECT seq FROM ended WHERE q = ?1 AND dead = 1 AND key = ?2 LIMIT ?3";
                for key in keys {
                    seqs.extend(
                        self.rows(sql, params![queue, key, most], |row| row.get::<_, i64>(0))?,
                    );
                }
            }
            Selection::Jobs(ids) => {
                let sql = "SELECT seq FROM ended WHERE q = ?1 AND dead = 1 AND seq = ?2 AND created / 1000 = ?3";
                for id in ids {
                    let millis = id.created_at().as_micros() / 1_000;
                    seqs.extend(self.first(
                        sql,
                        params![queue, id.seq() as i64, millis],
                        |row| row.get::<_, i64>(0),
                    )?);
                }
            }
        }
        seqs.sort_unstable();
        seqs.dedup();
        let more = seqs.len() > ACTION_ROWS_MAX;
        seqs.truncate(ACTION_ROWS_MAX);
        Ok((seqs, more))
    }

    fn take_dead(&mut self, queue: u32, seq: i64) -> Result<Option<(Option<String>, i64, Job)>> {
        let columns = JOB_COLUMNS.replace("gen", "0");
        let sql =
            format!("DELETE FROM ended WHERE seq = ?1 AND dead = 1 RETURNING key, at, {columns}");
        let taken =
            self.first(&sql, [seq], |row| Ok((row.get(0)?, row.get(1)?, Job::read(row, 2)?)))?;
        self.delta(queue).dead -= i64::from(taken.is_some());
        Ok(taken)
    }

    pub(super) fn requeue(&mut self, request: &Selected) -> Result<Acted> {
        let (seqs, more) = self.select(request)?;
        let queue = self.known_queue(&request.queue)?.number;
        for seq in &seqs {
            let Some((key, died_at, mut job)) = self.take_dead(queue, *seq)? else { continue };
            self.come_back_to_batch(&mut job, died_at)?;
            let job = Job { retry: -1, crashes: 0, error: None, run_at: self.now, ..job };
            self.delta(queue).jobs += 1;
            self.put_back(queue, key.as_deref(), job)?;
            if let Some(key) = key {
                self.restart(queue, &key)?;
            }
        }
        Ok(Acted { count: seqs.len() as u64, more })
    }

    /// Makes an `accumulate` lane due now and clears its retry state, after a dead job was requeued to it.
    fn restart(&mut self, queue: u32, key: &str) -> Result<()> {
        let Some(mut work) = self.lane_of_key(queue, key)? else { return Ok(()) };
        if work.definition().mode != Mode::Accumulate || work.row.head.is_claimed() {
            return Ok(());
        }
        let head = &mut work.row.head;
        (head.due, head.retry, head.crashes) = (self.now, -1, 0);
        self.save(work)
    }

    pub(super) fn delete_dead(&mut self, request: &Selected) -> Result<Acted> {
        let (seqs, more) = self.select(request)?;
        let queue = self.known_queue(&request.queue)?.number;
        for seq in &seqs {
            self.remove_dead(queue, *seq)?;
        }
        Ok(Acted { count: seqs.len() as u64, more })
    }

    pub(super) fn remove_dead(&mut self, queue: u32, seq: i64) -> Result<()> {
        match self.take_dead(queue, seq)? {
            Some((_, _, job)) => self.forget(queue, &job),
            None => Ok(()),
        }
    }

    pub(super) fn act(&mut self, request: &Act) -> Result<Acted> {
        let mut ids = self.chosen_lanes(request)?;
        let more = ids.len() > ACTION_ROWS_MAX;
        ids.truncate(ACTION_ROWS_MAX);
        let only_failed = request.lanes == LaneSelection::Failed;
        let mut count = 0;
        for id in ids {
            count += u64::from(self.act_on(id, request.action, only_failed)?);
        }
        Ok(Acted { count, more })
    }

    /// The oldest first, one more than a call may act on.
    fn chosen_lanes(&mut self, request: &Act) -> Result<Vec<i64>> {
        let queue = self.known_queue(&request.queue)?;
        let owner = queue.queue.mode.failure_belongs_to();
        let most = Value::Integer(ACTION_ROWS_MAX as i64 + 1);
        let number = Value::Integer(i64::from(queue.number));
        let (filter, value) = match &request.lanes {
            LaneSelection::Lanes(lanes) => {
                let here = lanes.iter().filter(|lane| lane.queue == queue.number);
                let numbers: Vec<u64> = here.map(|lane| lane.number).collect();
                // The plus: these rows are looked up, not looked for among those of the queue.
                (
                    "+q = ?1 AND id IN (SELECT value FROM json_each(?2))",
                    Value::Text(json(&numbers)?),
                )
            }
            LaneSelection::All => ("q = ?1 AND ?2 = ?2", Value::Integer(0)),
            LaneSelection::Key(key) => ("q = ?1 AND key = ?2", Value::Text(key.clone())),
            LaneSelection::Failed if owner == Owner::Lane => {
                ("q = ?1 AND retry >= 0 AND ?2 = ?2", Value::Integer(0))
            }
            // A failed job may be behind the slot, only in `exclusive`.
            LaneSelection::Failed => (
                "q = ?1 AND (retry >= 0 OR (n > 0 AND EXISTS (SELECT 1 FROM item WHERE lane = lane.id AND gen >= lane.open AND retry >= 0))) AND ?2 = ?2",
                Value::Integer(0),
            ),
        };
        let sql = format!("SELECT id FROM lane WHERE {filter} ORDER BY id LIMIT ?3");
        self.rows(&sql, params_from_iter([number, value, most]), |row| row.get(0))
    }

    fn act_on(&mut self, id: i64, action: LaneAction, only_failed: bool) -> Result<bool> {
        let Some(mut work) = self.lane(id)? else { return Ok(false) };
        if only_failed && !self.has_open_failure(&work)? {
            return Ok(false);
        }
        let mut is_some = true;
        match action {
            LaneAction::Pause => work.row.head.flags |= flag::PAUSED,
            LaneAction::Resume => work.row.head.flags &= !(flag::PAUSED | flag::HELD),
            _ if work.row.head.is_claimed() => return Ok(false),
            LaneAction::RunNow => self.run_now(&mut work)?,
            LaneAction::Bury | LaneAction::DeleteFailed => {
                is_some = self.end_failed(&mut work, action)?;
            }
            LaneAction::Delete => {
                let jobs = self.take_all_open(&mut work)?;
                self.delete_all(&work, &jobs)?;
            }
        }
        self.settle_priority(&mut work)?;
        self.save(work)?;
        Ok(is_some)
    }

    fn has_open_failure(&mut self, work: &Work) -> Result<bool> {
        if work.definition().mode.failure_belongs_to() == Owner::Lane {
            return Ok(work.row.head.retry >= 0);
        }
        if work.row.open_slot().is_some() && work.row.head.retry >= 0 {
            return Ok(true);
        }
        Ok(work.row.head.items > 0 && self.open_items(work)?.iter().any(|job| job.retry >= 0))
    }

    fn run_now(&mut self, work: &mut Work) -> Result<()> {
        let now = self.now;
        work.row.head.flags &= !flag::HELD;
        match work.definition().mode {
            Mode::Accumulate => work.row.head.due = now,
            Mode::Parallel | Mode::Fifo => {
                if let Some(slot) = work.slot_mut() {
                    slot.run_at = now;
                }
            }
            Mode::Exclusive => {
                for job in self.take_all_open(work)? {
                    let run_at = job.run_at.min(now);
                    self.put(work, Job { run_at, ..job })?;
                }
            }
        }
        Ok(())
    }

    /// Whether anything had failed.
    fn end_failed(&mut self, work: &mut Work, action: LaneAction) -> Result<bool> {
        let owner = work.definition().mode.failure_belongs_to();
        if owner == Owner::Lane && work.row.head.retry < 0 {
            return Ok(false);
        }
        let jobs = match owner {
            Owner::Lane => self.take_all_open(work)?,
            Owner::Job => self.take_failed(work)?,
        };
        let is_some = !jobs.is_empty();
        let head = &mut work.row.head;
        head.flags &= !flag::HELD;
        let mut why = None;
        if owner == Owner::Lane {
            why = head.error.take();
            (head.retry, head.crashes, head.due) = (-1, 0, self.now);
        }
        if action == LaneAction::DeleteFailed {
            self.delete_all(work, &jobs)?;
            return Ok(is_some);
        }
        for job in jobs {
            self.delta(work.queue.number).jobs -= 1;
            self.end_job(work, job, Fate::Bury, why.clone())?;
        }
        Ok(is_some)
    }

    fn take_failed(&mut self, work: &mut Work) -> Result<Vec<Job>> {
        let (failed, others): (Vec<Job>, Vec<Job>) =
            self.take_all_open(work)?.into_iter().partition(|job| job.retry >= 0);
        for job in others {
            self.put(work, job)?;
        }
        Ok(failed)
    }

    fn delete_all(&mut self, work: &Work, jobs: &[Job]) -> Result<()> {
        self.delta(work.queue.number).jobs -= jobs.len() as i64;
        jobs.iter().try_for_each(|job| {
            self.leave_batch(job, Leave::Cancelled);
            self.forget(work.queue.number, job)
        })
    }

    pub(super) fn amend(&mut self, request: &Amend) -> Result<()> {
        let Some((seq, Location::Lane(lane))) = self.find(request.job)? else {
            return Err(no_waiting_job());
        };
        let mut work = self.lane(lane)?.ok_or_else(no_waiting_job)?;
        let mut job = self.take_open(&mut work, seq)?.ok_or_else(no_waiting_job)?;
        match &request.change {
            Change::Delete => {
                self.leave_batch(&job, Leave::Cancelled);
                self.forget(work.queue.number, &job)?;
                self.delta(work.queue.number).jobs -= 1;
                self.settle_priority(&mut work)?;
                return self.save(work);
            }
            Change::RunAt(time) if work.definition().mode == Mode::Accumulate => {
                work.row.head.due = time.as_micros();
            }
            Change::RunAt(time) => job.run_at = time.as_micros(),
            Change::Node(node) => {
                let mut options = job.options().unwrap_or_default();
                Arc::make_mut(&mut options).node.clone_from(node);
                job.route = self.route(&options, node.as_deref())?;
                work.row.head.route = job.route;
                job.options = Some(json(&options)?);
            }
        }
        self.put(&mut work, job)?;
        self.save(work)
    }
}
