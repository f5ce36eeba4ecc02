//! What people do: cancel, requeue, pause, retry, delete; and what time does to old things.

use std::time::Duration;

use rusqlite::{params, params_from_iter, types::Value};

use super::lane::Work;
use super::push::micros;
use super::row::json;
use super::row::{JOB_COLUMNS, Job, flag};
use super::tx::Tx;
use crate::contract::errors::no_waiting_job;
use crate::contract::{
    Act, Acted, Amend, Cancelled, Change, LaneAction, LaneSelection, Selected, Selection, Swept,
};
use crate::model::error::Result;
use crate::model::id::JobId;
use crate::model::limits::ACTION_ROWS_MAX;
use crate::model::queue::{Mode, Owner};
use crate::model::settle::Fate;

/// How long a dead node is shown.
const DEAD_NODE_SHOWN: Duration = Duration::from_secs(86_400);

/// Where a job is.
pub(super) enum Place {
    /// In this lane, open or closed.
    Lane(i64),
    /// Finished or dead.
    Ended,
}

impl Tx<'_> {
    /// Where the job of this id is, and under which number it is handed over.
    pub(super) fn find(&mut self, id: JobId) -> Result<Option<(i64, Place)>> {
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
                return Ok(Some((seq, Place::Lane(lane))));
            }
        }
        let sql = format!("SELECT 1 FROM ended WHERE seq = ?1 AND q = ?3 AND {same_time}");
        let ended = self.first(&sql, params![seq, created, queue], |_| Ok(()))?;
        Ok(ended.map(|()| (seq, Place::Ended)))
    }

    pub(super) fn cancel(&mut self, id: JobId) -> Result<Cancelled> {
        let (seq, lane) = match self.find(id)? {
            None => return Ok(Cancelled::Unknown),
            Some((_, Place::Ended)) => return Ok(Cancelled::Ended),
            Some((seq, Place::Lane(lane))) => (seq, lane),
        };
        if self.end_waiting(lane, seq, Fate::Cancel)? {
            return Ok(Cancelled::Now);
        }
        self.flag(lane, seq)?;
        Ok(Cancelled::Flagged)
    }

    /// Ends a job that waits. False if it runs.
    fn end_waiting(&mut self, lane: i64, seq: i64, fate: Fate) -> Result<bool> {
        let Some(mut work) = self.lane(lane)? else { return Ok(false) };
        let Some(job) = self.take_open(&mut work, seq)? else { return Ok(false) };
        let why = (fate == Fate::Cancel).then(|| "canceled".into());
        self.end_job(&work, job, fate, why)?;
        self.delta(work.queue.number).jobs -= 1;
        self.settle_priority(&mut work)?;
        self.save(work)?;
        Ok(true)
    }

    /// The numbers of the dead jobs of a selection, at most [`ACTION_ROWS_MAX`], oldest first.
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

    fn take_dead(&mut self, queue: u32, seq: i64) -> Result<Option<(Option<String>, Job)>> {
        let columns = JOB_COLUMNS.replace("gen", "0");
        let sql = format!("DELETE FROM ended WHERE seq = ?1 AND dead = 1 RETURNING key, {columns}");
        let taken = self.first(&sql, [seq], |row| Ok((row.get(0)?, Job::read(row, 1)?)))?;
        self.delta(queue).dead -= i64::from(taken.is_some());
        Ok(taken)
    }

    pub(super) fn requeue(&mut self, request: &Selected) -> Result<Acted> {
        let (seqs, more) = self.select(request)?;
        let queue = self.known_queue(&request.queue)?.number;
        for seq in &seqs {
            let Some((key, job)) = self.take_dead(queue, *seq)? else { continue };
            let job = Job { retry: -1, crashes: 0, error: None, run_at: self.now, ..job };
            self.delta(queue).jobs += 1;
            self.put_back(queue, key.as_deref(), job)?;
            if let Some(key) = key {
                self.restart(queue, &key)?;
            }
        }
        Ok(Acted { count: seqs.len() as u64, more })
    }

    /// An `accumulate` lane to which a dead job came back is due now and starts afresh.
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

    fn remove_dead(&mut self, queue: u32, seq: i64) -> Result<()> {
        match self.take_dead(queue, seq)? {
            Some((_, job)) => self.forget(queue, &job),
            None => Ok(()),
        }
    }

    pub(super) fn act(&mut self, request: &Act) -> Result<Acted> {
        let queue = self.known_queue(&request.queue)?;
        let owner = queue.queue.mode.failure_belongs_to();
        let most = Value::Integer(ACTION_ROWS_MAX as i64 + 1);
        let number = Value::Integer(i64::from(queue.number));
        let (filter, value) = match &request.lanes {
            LaneSelection::All => ("?2 = ?2", Value::Integer(0)),
            LaneSelection::Key(key) => ("key = ?2", Value::Text(key.clone())),
            LaneSelection::Lane(lane) if lane.queue == queue.number => {
                ("id = ?2", Value::Integer(lane.number as i64))
            }
            LaneSelection::Lane(_) => return Ok(Acted::default()),
            LaneSelection::Failed if owner == Owner::Lane => {
                ("retry >= 0 AND ?2 = ?2", Value::Integer(0))
            }
            // A failed job may stand behind the slot; only `exclusive` has such lanes.
            LaneSelection::Failed => (
                "(retry >= 0 OR (n > 0 AND EXISTS (SELECT 1 FROM item WHERE lane = lane.id AND gen >= lane.open AND retry >= 0))) AND ?2 = ?2",
                Value::Integer(0),
            ),
        };
        let sql = format!("SELECT id FROM lane WHERE q = ?1 AND {filter} ORDER BY id LIMIT ?3");
        let mut ids: Vec<i64> =
            self.rows(&sql, params_from_iter([number, value, most]), |row| row.get(0))?;
        let more = ids.len() > ACTION_ROWS_MAX;
        ids.truncate(ACTION_ROWS_MAX);
        let only_failed = request.lanes == LaneSelection::Failed;
        let mut count = 0;
        for id in ids {
            count += u64::from(self.act_on(id, request.action, only_failed)?);
        }
        Ok(Acted { count, more })
    }

    fn act_on(&mut self, id: i64, action: LaneAction, only_failed: bool) -> Result<bool> {
        let Some(mut work) = self.lane(id)? else { return Ok(false) };
        if only_failed && !self.has_open_failure(&work)? {
            return Ok(false);
        }
        match action {
            LaneAction::Pause => work.row.head.flags |= flag::PAUSED,
            LaneAction::Resume => work.row.head.flags &= !(flag::PAUSED | flag::HELD),
            _ if work.row.head.is_claimed() => return Ok(false),
            LaneAction::RunNow => self.run_now(&mut work)?,
            LaneAction::Bury => self.bury_failed(&mut work)?,
            LaneAction::Delete => self.delete_waiting(&mut work, only_failed)?,
        }
        self.settle_priority(&mut work)?;
        self.save(work)?;
        Ok(true)
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

    fn bury_failed(&mut self, work: &mut Work) -> Result<()> {
        let jobs = if work.definition().mode == Mode::Accumulate {
            let mut jobs = self.take_all_open(work)?;
            jobs.sort_by_key(Job::rank);
            let rest = jobs.split_off(jobs.len().min(1));
            for job in rest {
                self.put(work, job)?;
            }
            jobs
        } else {
            self.take_failed(work)?
        };
        let head = &mut work.row.head;
        head.flags &= !flag::HELD;
        let mut why = None;
        if work.definition().mode == Mode::Accumulate {
            let head = &mut work.row.head;
            why = head.error.take();
            (head.retry, head.crashes, head.due) = (-1, 0, self.now);
        }
        for job in jobs {
            self.delta(work.queue.number).jobs -= 1;
            self.end_job(work, job, Fate::Bury, why.clone())?;
        }
        Ok(())
    }

    fn take_failed(&mut self, work: &mut Work) -> Result<Vec<Job>> {
        let (failed, others): (Vec<Job>, Vec<Job>) =
            self.take_all_open(work)?.into_iter().partition(|job| job.retry >= 0);
        for job in others {
            self.put(work, job)?;
        }
        Ok(failed)
    }

    fn delete_waiting(&mut self, work: &mut Work, only_failed: bool) -> Result<()> {
        let owner = work.definition().mode.failure_belongs_to();
        let jobs = match (owner, only_failed) {
            (Owner::Job, true) => self.take_failed(work)?,
            _ => self.take_all_open(work)?,
        };
        self.delta(work.queue.number).jobs -= jobs.len() as i64;
        jobs.iter().try_for_each(|job| self.forget(work.queue.number, job))
    }

    pub(super) fn amend(&mut self, request: &Amend) -> Result<()> {
        let Some((seq, Place::Lane(lane))) = self.find(request.job)? else {
            return Err(no_waiting_job());
        };
        let mut work = self.lane(lane)?.ok_or_else(no_waiting_job)?;
        let mut job = self.take_open(&mut work, seq)?.ok_or_else(no_waiting_job)?;
        match &request.change {
            Change::Delete => {
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
                options.node.clone_from(node);
                job.route = self.route(node.as_deref(), options.consumer_group.as_deref())?;
                work.row.head.route = job.route;
                job.options = Some(json(&options)?);
            }
        }
        self.put(&mut work, job)?;
        self.save(work)
    }

    pub(super) fn sweep(&mut self, rows_max: usize) -> Result<Swept> {
        self.flush()?;
        let mut swept = Swept::default();
        self.sweep_expired(rows_max, &mut swept)?;
        self.sweep_done(rows_max, &mut swept)?;
        self.sweep_dead(rows_max, &mut swept)?;
        self.sweep_idempotency(rows_max, &mut swept)?;
        let sql = "DELETE FROM node WHERE dead_at IS NOT NULL AND dead_at <= ?1";
        self.execute(sql, [self.now - micros(DEAD_NODE_SHOWN)])?;
        Ok(swept)
    }

    fn sweep_expired(&mut self, rows_max: usize, swept: &mut Swept) -> Result<()> {
        let limit = rows_max as i64 + 1;
        let slots = "SELECT id, seq, q, created FROM lane INDEXED BY lane_expires
                     WHERE expires IS NOT NULL AND expires <= ?1 AND (st <> 2 OR gen >= open) LIMIT ?2";
        let items = "SELECT l.id, i.seq, l.q, i.created FROM item i INDEXED BY item_expires JOIN lane l ON l.id = i.lane
                     WHERE i.expires IS NOT NULL AND i.expires <= ?1 AND i.gen >= l.open LIMIT ?2";
        let mut found: Vec<(i64, i64, u32, i64)> = Vec::new();
        for sql in [slots, items] {
            let read =
                |row: &rusqlite::Row<'_>| Ok((row.get(0)?, row.get(1)?, row.get(2)?, row.get(3)?));
            found.extend(self.rows(sql, params![self.now, limit], read)?);
        }
        found.sort_unstable_by_key(|(_, seq, _, _)| *seq);
        swept.more |= found.len() > rows_max;
        for (lane, seq, queue, created) in found.into_iter().take(rows_max) {
            if self.end_waiting(lane, seq, Fate::Expire)? {
                swept.expired.push(super::push::job_id(created, queue, seq));
            }
        }
        Ok(())
    }

    fn sweep_done(&mut self, rows_max: usize, swept: &mut Swept) -> Result<()> {
        let sql = "DELETE FROM ended WHERE seq IN
                   (SELECT seq FROM ended WHERE until IS NOT NULL AND until <= ?1 ORDER BY until LIMIT ?2)
                   RETURNING seq, aliases IS NOT NULL, payload IS NULL";
        let most = rows_max as i64;
        let gone: Vec<(i64, bool, bool)> = self.rows(sql, params![self.now, most], |row| {
            Ok((row.get(0)?, row.get(1)?, row.get(2)?))
        })?;
        for (seq, has_aliases, has_body) in &gone {
            if *has_aliases {
                self.execute("DELETE FROM alias WHERE target = ?1", [seq])?;
            }
            if *has_body {
                self.delete_body(*seq)?;
            }
        }
        swept.completed = gone.len() as u64;
        swept.more |= gone.len() == rows_max;
        Ok(())
    }

    fn sweep_dead(&mut self, rows_max: usize, swept: &mut Swept) -> Result<()> {
        let numbers: Vec<(u32, i64)> =
            self.rows("SELECT number, dead FROM queue", [], |r| Ok((r.get(0)?, r.get(1)?)))?;
        for (number, dead) in numbers {
            let Some(queue) = self.queue_number(number)? else { continue };
            let over = dead.saturating_sub(queue.queue.retain_dead_max as i64).max(0);
            let old = self.now.saturating_sub(micros(queue.queue.retain_dead));
            let sql = "SELECT seq, created, at FROM ended WHERE q = ?1 AND dead = 1 ORDER BY at, seq LIMIT ?2";
            let left = rows_max.saturating_sub(swept.dead.len());
            let oldest: Vec<(i64, i64, i64)> =
                self.rows(sql, params![number, left as i64 + 1], |r| {
                    Ok((r.get(0)?, r.get(1)?, r.get(2)?))
                })?;
            for (i, (seq, created, at)) in oldest.into_iter().enumerate() {
                if (i as i64) >= over && at > old {
                    break;
                }
                if i == left {
                    swept.more = true;
                    return Ok(());
                }
                self.remove_dead(number, seq)?;
                swept.dead.push(super::push::job_id(created, number, seq));
            }
        }
        Ok(())
    }

    fn sweep_idempotency(&mut self, rows_max: usize, swept: &mut Swept) -> Result<()> {
        let sql =
            "SELECT q, key, name, job FROM idempotency WHERE until <= ?1 ORDER BY until LIMIT ?2";
        let old: Vec<(u32, String, String, [u8; 16])> =
            self.rows(sql, params![self.now, rows_max as i64], |row| {
                Ok((row.get(0)?, row.get(1)?, row.get(2)?, row.get(3)?))
            })?;
        swept.more |= old.len() == rows_max;
        for (queue, key, name, job) in old {
            let place = params![queue, key, name];
            if self.find(JobId::from_bytes(job))?.is_some() {
                // Its job is still known: look again in a while.
                let sql =
                    "UPDATE idempotency SET until = ?4 WHERE q = ?1 AND key = ?2 AND name = ?3";
                let later = self.now.saturating_add(60_000_000);
                self.execute(sql, params![queue, key, name, later])?;
            } else {
                self.execute(
                    "DELETE FROM idempotency WHERE q = ?1 AND key = ?2 AND name = ?3",
                    place,
                )?;
            }
        }
        Ok(())
    }
}
