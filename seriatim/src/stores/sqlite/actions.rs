//! Cancel, requeue, act on lanes, delete dead jobs, and amend.

use std::sync::Arc;

use async_trait::async_trait;
use rusqlite::types::Value;
use rusqlite::{params, params_from_iter};

use super::Sqlite;
use super::lane::{Which, Work};
use super::row::{JOB_COLUMNS, Job, LATER, flag};
use super::tx::Tx;
use crate::contract::errors::no_waiting_job;
use crate::contract::{
    Act, Acted, Actions, Amend, Cancel, Cancelled, Change, LaneAction, LaneSelection, Selected,
    Selection,
};
use crate::model::limits::ACTION_ROWS_MAX;
use crate::model::{Fate, JobId, Leave, Mode, Owner, Result};
use crate::stores::json::json;

/// Most jobs that a step moves. Each step is a transaction, and all other changes wait until it ends.
pub(super) const STEP_JOBS: usize = 1_000;

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
        let mut answers = Vec::with_capacity(request.jobs.len());
        for jobs in request.jobs.chunks(STEP_JOBS) {
            let (now, jobs) = (request.now, jobs.to_vec());
            let step = move |tx: &mut Tx<'_>| {
                tx.at(now);
                jobs.iter().map(|job| tx.cancel(*job)).collect::<Result<Vec<_>>>()
            };
            answers.extend(self.change(step).await?);
        }
        Ok(answers)
    }

    async fn requeue(&self, request: Selected) -> Result<Acted> {
        self.on_dead(request, |tx, queue, seqs| tx.requeue(queue, seqs)).await
    }

    async fn delete_dead(&self, request: Selected) -> Result<Acted> {
        self.on_dead(request, |tx, queue, seqs| tx.delete_dead(queue, seqs)).await
    }

    async fn act(&self, request: Act) -> Result<Acted> {
        let request = Arc::new(request);
        let first = request.clone();
        let first = move |tx: &mut Tx<'_>| {
            let (chosen, more) = tx.at(first.now).chosen(&first)?;
            tx.act(&first, &chosen).map(|(count, rest)| (count, rest, more))
        };
        let (mut count, mut rest, more) = self.change(first).await?;
        while !rest.lanes.is_empty() {
            let again = request.clone();
            let (acted, left) = self.change(move |tx| tx.at(again.now).act(&again, &rest)).await?;
            count += acted;
            rest = left;
        }
        Ok(Acted { count, more })
    }

    async fn amend(&self, request: Amend) -> Result<()> {
        self.change(move |tx| tx.at(request.now).amend(&request)).await
    }
}

/// The lanes that an action has not finished.
pub(super) struct Rest {
    pub lanes: Vec<i64>,
    /// Whether the first of them counts already.
    has_begun: bool,
}

impl Sqlite {
    /// Does something with dead jobs, some in each step.
    async fn on_dead(
        &self,
        request: Selected,
        step: fn(&mut Tx<'_>, &str, &[i64]) -> Result<u64>,
    ) -> Result<Acted> {
        let (now, queue) = (request.now, request.queue.clone());
        let first = move |tx: &mut Tx<'_>| {
            let (seqs, more) = tx.at(now).select(&request)?;
            let count = step(tx, &request.queue, &seqs[..seqs.len().min(STEP_JOBS)])?;
            Ok((count, seqs, more))
        };
        let (mut count, seqs, more) = self.change(first).await?;
        for seqs in seqs.chunks(STEP_JOBS).skip(1) {
            let (queue, seqs) = (queue.clone(), seqs.to_vec());
            count += self.change(move |tx| step(tx.at(now), &queue, &seqs)).await?;
        }
        Ok(Acted { count, more })
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

    /// Stores a lane that a waiting job has left. If all that arrived during a turn has, the next job to arrive says when
    /// the lane is due.
    fn save_left(&mut self, mut work: Work) -> Result<()> {
        let head = &work.row.head;
        if head.is_claimed() && head.next_due.is_some() && !self.has_open(&work)? {
            work.row.head.next_due = None;
        }
        self.settle_priority(&mut work)?;
        self.save(work)
    }

    fn has_open(&self, work: &Work) -> Result<bool> {
        let sql = "SELECT 1 FROM item INDEXED BY item_order WHERE lane = ?1 AND gen >= ?2 LIMIT 1";
        let place = params![work.row.head.id, work.row.head.open];
        let item = self.first(sql, place, |_| Ok(()))?;
        Ok(work.row.open_slot().is_some() || item.is_some())
    }

    /// Ends a waiting job. False if it is running.
    pub(super) fn end_waiting(&mut self, lane: i64, seq: i64, fate: Fate) -> Result<bool> {
        let Some(mut work) = self.lane(lane)? else { return Ok(false) };
        let Some(job) = self.take_open(&mut work, seq)? else { return Ok(false) };
        let why = (fate == Fate::Cancel).then(|| "canceled".into());
        self.end_job(&work, job, fate, why)?;
        self.delta(work.queue.number).jobs -= 1;
        self.save_left(work)?;
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

    pub(super) fn requeue(&mut self, queue: &str, seqs: &[i64]) -> Result<u64> {
        let queue = self.known_queue(queue)?.number;
        let mut count = 0;
        for seq in seqs {
            let Some((key, died_at, mut job)) = self.take_dead(queue, *seq)? else { continue };
            count += 1;
            self.come_back_to_batch(&mut job, died_at)?;
            // One that was buried untried counts as tried: what a person brings back does not expire.
            let attempts = job.attempts.max(i64::from(job.expires.is_some()));
            let job = Job { attempts, retry: -1, crashes: 0, error: None, run_at: self.now, ..job };
            self.delta(queue).jobs += 1;
            self.put_back(queue, key.as_deref(), job)?;
            if let Some(key) = key {
                self.restart(queue, &key)?;
            }
        }
        Ok(count)
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

    pub(super) fn delete_dead(&mut self, queue: &str, seqs: &[i64]) -> Result<u64> {
        let queue = self.known_queue(queue)?.number;
        let mut count = 0;
        for seq in seqs {
            count += u64::from(self.remove_dead(queue, *seq)?);
        }
        Ok(count)
    }

    /// Whether there was one.
    pub(super) fn remove_dead(&mut self, queue: u32, seq: i64) -> Result<bool> {
        let Some((_, _, job)) = self.take_dead(queue, seq)? else { return Ok(false) };
        self.forget(queue, &job).map(|()| true)
    }

    /// The lanes that an action is for, and whether there are more.
    pub(super) fn chosen(&mut self, request: &Act) -> Result<(Rest, bool)> {
        let mut lanes = self.chosen_lanes(request)?;
        let more = lanes.len() > ACTION_ROWS_MAX;
        lanes.truncate(ACTION_ROWS_MAX);
        Ok((Rest { lanes, has_begun: false }, more))
    }

    /// One step of an action. Returns how many lanes it began with, and what is left.
    pub(super) fn act(&mut self, request: &Act, rest: &Rest) -> Result<(u64, Rest)> {
        let only_failed = request.lanes == LaneSelection::Failed;
        let (mut count, mut room, mut has_begun) = (0, STEP_JOBS, rest.has_begun);
        for (place, id) in rest.lanes.iter().enumerate() {
            // What has begun goes on: the first step may have taken what failed.
            let must_have_failed = only_failed && !has_begun;
            let (has_acted, moved) = match request.action {
                LaneAction::RunNow if has_begun => (true, self.run_rest_now(*id, room)?),
                action => self.act_on(*id, action, must_have_failed, room)?,
            };
            count += u64::from(has_acted && !has_begun);
            has_begun |= has_acted;
            room = room.saturating_sub(moved.max(1));
            if room == 0 {
                // Perhaps this lane has more.
                return Ok((count, Rest { lanes: rest.lanes[place..].to_vec(), has_begun }));
            }
            has_begun = false;
        }
        Ok((count, Rest { lanes: Vec::new(), has_begun }))
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
                "q = ?1 AND (retry >= 0 OR (n > 0 AND EXISTS (SELECT 1 FROM item INDEXED BY item_order WHERE lane = lane.id AND gen >= lane.open AND retry >= 0))) AND ?2 = ?2",
                Value::Integer(0),
            ),
        };
        let sql = format!("SELECT id FROM lane WHERE {filter} ORDER BY id LIMIT ?3");
        self.rows(&sql, params_from_iter([number, value, most]), |row| row.get(0))
    }

    /// Acts on a lane; at most `most` jobs leave it. Returns whether it did anything, and how many jobs left.
    pub(super) fn act_on(
        &mut self,
        id: i64,
        action: LaneAction,
        must_have_failed: bool,
        most: usize,
    ) -> Result<(bool, usize)> {
        let Some(mut work) = self.lane(id)? else { return Ok((false, 0)) };
        if must_have_failed && !self.has_open_failure(&work)? {
            return Ok((false, 0));
        }
        let (mut is_some, mut moved) = (true, 0);
        match action {
            LaneAction::Pause => work.row.head.flags |= flag::PAUSED,
            LaneAction::Resume => work.row.head.flags &= !(flag::PAUSED | flag::HELD),
            _ if work.row.head.is_claimed() => return Ok((false, 0)),
            LaneAction::RunNow => moved = self.run_now(&mut work, most)?,
            LaneAction::Bury | LaneAction::DeleteFailed => {
                moved = self.end_failed(&mut work, action, most)?;
                is_some = moved > 0;
            }
            LaneAction::Delete => {
                let jobs = self.take_some_open(&mut work, Which::All, most)?;
                self.delete_all(&work, &jobs)?;
                moved = jobs.len();
            }
        }
        self.settle_priority(&mut work)?;
        self.save(work)?;
        Ok((is_some, moved))
    }

    fn has_open_failure(&mut self, work: &Work) -> Result<bool> {
        if work.definition().mode.failure_belongs_to() == Owner::Lane {
            return Ok(work.row.head.retry >= 0);
        }
        if work.row.open_slot().is_some() && work.row.head.retry >= 0 {
            return Ok(true);
        }
        let sql = "SELECT 1 FROM item INDEXED BY item_order WHERE lane = ?1 AND gen >= ?2 AND retry >= 0 LIMIT 1";
        let place = params![work.row.head.id, work.row.head.open];
        Ok(work.row.head.items > 0 && self.first(sql, place, |_| Ok(()))?.is_some())
    }

    /// Makes the lane due; of `exclusive` at most `most` jobs. Returns how many items it changed.
    fn run_now(&mut self, work: &mut Work, most: usize) -> Result<usize> {
        let now = self.now;
        work.row.head.flags &= !flag::HELD;
        let mode = work.definition().mode;
        if mode == Mode::Accumulate {
            work.row.head.due = now;
        } else if let Some(slot) = work.slot_mut() {
            // What is due in `exclusive` keeps its time.
            slot.run_at = if mode == Mode::Exclusive { slot.run_at.min(now) } else { now };
        }
        if mode == Mode::Exclusive { self.run_items_now(work, most) } else { Ok(0) }
    }

    /// A further step, also if the lane is claimed by now: only what waits changes.
    fn run_rest_now(&mut self, id: i64, most: usize) -> Result<usize> {
        let Some(mut work) = self.lane(id)? else { return Ok(0) };
        let moved = self.run_items_now(&mut work, most)?;
        self.save(work)?;
        Ok(moved)
    }

    fn run_items_now(&mut self, work: &mut Work, most: usize) -> Result<usize> {
        let sql = format!(
            "SELECT {JOB_COLUMNS} FROM item INDEXED BY item_order WHERE lane = ?1 AND gen = ?2 ORDER BY ord LIMIT ?3"
        );
        let later = params![work.row.head.id, LATER, most as i64];
        let items = self.rows(&sql, later, |row| Job::read(row, 0))?;
        let count = items.len();
        for item in items {
            let run_at = item.run_at.min(self.now);
            self.make_due(work, Job { run_at, ..item })?;
        }
        Ok(count)
    }

    /// Ends what has failed of a lane, at most `most` jobs; returns how many. An `accumulate` lane counts as failed
    /// until its last job leaves.
    fn end_failed(&mut self, work: &mut Work, action: LaneAction, most: usize) -> Result<usize> {
        let owner = work.definition().mode.failure_belongs_to();
        if owner == Owner::Lane && work.row.head.retry < 0 {
            return Ok(0);
        }
        let which = if owner == Owner::Lane { Which::All } else { Which::Failed };
        let jobs = self.take_some_open(work, which, most)?;
        let count = jobs.len();
        let is_left = !work.is_empty();
        let head = &mut work.row.head;
        let mut why = None;
        if owner == Owner::Lane {
            why.clone_from(&head.error);
        }
        if owner == Owner::Job || !is_left {
            head.flags &= !flag::HELD;
        }
        if owner == Owner::Lane && !is_left {
            (head.retry, head.crashes, head.error, head.due) = (-1, 0, None, self.now);
        }
        if action == LaneAction::DeleteFailed {
            self.delete_all(work, &jobs)?;
            return Ok(count);
        }
        for job in jobs {
            self.delta(work.queue.number).jobs -= 1;
            self.end_job(work, job, Fate::Bury, why.clone())?;
        }
        Ok(count)
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
                return self.save_left(work);
            }
            Change::RunAt(time) if work.definition().mode == Mode::Accumulate => {
                let head = &mut work.row.head;
                match head.is_claimed() {
                    true => head.next_due = Some(time.as_micros()),
                    false => head.due = time.as_micros(),
                }
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
