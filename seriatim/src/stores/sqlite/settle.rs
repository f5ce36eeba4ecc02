//! Settling turns.

use std::collections::BTreeMap;
use std::sync::Arc;

use rusqlite::params;

use super::done::Done;
use super::going_on::GoingOn;
use super::lane::Work;
use super::row::{Job, flag, state};
use super::sharing::Groups;
use super::tx::{QueueRow, Tx};
use crate::contract::{JobState, Settle, Settled};
use crate::model::clock::micros;
use crate::model::window::after_turn;
use crate::model::{Due, Fate, JobId, Keep, Mode, Result, Settlement, Timestamp, Turn};

impl Tx<'_> {
    pub(super) fn settle(&mut self, request: &Settle) -> Result<Vec<Settled>> {
        let turns = &request.turns;
        let mut going_on = GoingOn::of(self, request)?;
        let mut settled = Vec::with_capacity(turns.len());
        // Number of settled lanes per claim row.
        let mut claims: BTreeMap<i64, i64> = BTreeMap::new();
        let groups = Groups::of(self, turns)?;
        let mut done = Done::of(self, turns)?;
        let mut last: Option<QueueRow> = None;
        for (place, settlement) in turns.iter().enumerate() {
            let number = settlement.lane.queue;
            let queue = match last.take().filter(|row| row.number == number) {
                Some(row) => Some(row),
                None => self.queue_number(number)?,
            };
            let Some(queue) = queue else {
                settled.push(Settled::Stale);
                continue;
            };
            let is_done =
                settlement.is_all_done() && done.settle(self, place, &queue, settlement)?;
            let answer = match is_done {
                true => Settled::ok(Vec::new()),
                false => {
                    let before = self.left_batches();
                    let answer = self.settle_one(settlement, place, &mut going_on)?;
                    if self.left_batches() != before {
                        done.has_left_batch();
                    }
                    answer
                }
            };
            if matches!(answer, Settled::Ok { next: None, .. }) {
                done.has_ended();
            }
            if answer.is_ok() {
                *claims.entry(settlement.token.0).or_default() += 1;
            }
            if queue.queue.is_shared_out() && answer.is_ok() {
                // A limit may have held back others.
                self.ring(&queue.name);
            }
            settled.push(answer);
            last = Some(queue);
        }
        self.release_claims(&claims)?;
        groups.end(self, &settled)?;
        going_on.store(self)?;
        Ok(settled)
    }

    fn settle_one(
        &mut self,
        settlement: &Settlement,
        place: usize,
        going_on: &mut GoingOn<'_>,
    ) -> Result<Settled> {
        let Some(mut work) = self.lane_to_settle(settlement.lane.number as i64)? else {
            return Ok(Settled::Stale);
        };
        let head = &work.row.head;
        let is_current = head.token == settlement.token.0 && head.is_claimed();
        if !is_current || head.lane_id() != settlement.lane {
            return Ok(Settled::Stale);
        }
        if settlement.is_all_done()
            && head.flags & (flag::ALIASES | flag::FLAGGED | flag::BODIES | flag::BATCH) == 0
            && work.definition().retention().is_zero()
        {
            let done = self.drop_closed(&mut work)?;
            self.delta(work.queue.number).processed += done;
            self.finish_turn(&mut work, settlement, Vec::new())?;
            let next = self.store_settled(work, (place, settlement), going_on)?;
            return Ok(Settled::Ok { cancelled: Vec::new(), next });
        }
        let closed = self.take_closed(&mut work)?;
        let mut cancelled = Vec::new();
        let mut kept = Vec::new();
        let mut fates = Vec::with_capacity(closed.len());
        for job in closed {
            let mut fate = settlement.fate_of(job.id(work.queue.number));
            let mut why = settlement.left_by(fate);
            if job.flagged && fate != Fate::Done {
                (fate, why) = (Fate::Cancel, Some("canceled".into()));
                cancelled.push(job.id(work.queue.number));
            }
            fates.push((job.id(work.queue.number), fate));
            let mut job = tried(job, &work, fate, &settlement.keep);
            if owner(&work, &settlement.keep) == Some(job.id(work.queue.number)) {
                job.retry = i64::from(settlement.keep.retry_count);
                job.crashes = i64::from(settlement.keep.crashes);
            }
            match fate {
                Fate::Keep => kept.push(job),
                fate => self.end_job(&work, job, fate, why)?,
            }
        }
        let delta = self.delta(work.queue.number);
        delta.processed += fates.iter().filter(|(_, fate)| *fate == Fate::Done).count() as i64;
        delta.failed += i64::from(settlement.has_failed(fates));
        self.finish_turn(&mut work, settlement, kept)?;
        let next = self.store_settled(work, (place, settlement), going_on)?;
        Ok(Settled::Ok { cancelled, next })
    }

    /// Stores a lane whose turn has ended: at its position, or under a new claim if it goes on.
    fn store_settled(
        &mut self,
        mut work: Work,
        (place, settlement): (usize, &Settlement),
        going_on: &mut GoingOn<'_>,
    ) -> Result<Option<Box<Turn>>> {
        if work.is_empty() {
            self.save(work)?;
            return Ok(None);
        }
        self.position(&mut work)?;
        let next = match settlement.is_all_done() {
            true => self.next_turn(&mut work, place, going_on)?,
            false => None,
        };
        if next.is_none() {
            self.ring(&work.queue.name);
        }
        self.write(work)?;
        Ok(next.map(Box::new))
    }

    /// Deletes the jobs of a done turn and returns their number.
    fn drop_closed(&mut self, work: &mut Work) -> Result<i64> {
        let mut gone = 0;
        if work.row.closed_slot().is_some() {
            work.unseat();
            gone += 1;
        }
        if work.row.head.flags & flag::CLOSED_ITEMS != 0 {
            work.row.head.flags &= !flag::CLOSED_ITEMS;
            let sql = "DELETE FROM item INDEXED BY item_order WHERE lane = ?1 AND gen < ?2";
            let items = self.execute(sql, params![work.row.head.id, work.row.head.open])? as i64;
            work.row.head.items -= items;
            gone += items;
        }
        self.delta(work.queue.number).jobs -= gone;
        Ok(gone)
    }

    /// Removes the jobs of a turn from the lane, in the order of execution.
    fn take_closed(&mut self, work: &mut Work) -> Result<Vec<Job>> {
        let mut jobs = self.closed_jobs(work)?;
        if work.row.closed_slot().is_some() {
            let slot = work.unseat();
            // The slot's job with its own retry state, which the lane's row holds.
            jobs.retain(|job| Some(job.seq) != slot.as_ref().map(|slot| slot.seq));
            jobs.extend(slot);
        }
        if work.row.head.flags & flag::CLOSED_ITEMS != 0 {
            work.row.head.flags &= !flag::CLOSED_ITEMS;
            let sql = "DELETE FROM item INDEXED BY item_order WHERE lane = ?1 AND gen < ?2";
            let gone = self.execute(sql, params![work.row.head.id, work.row.head.open])?;
            work.row.head.items -= gone as i64;
        }
        if work.row.head.flags & flag::FLAGGED != 0 {
            work.row.head.flags &= !flag::FLAGGED;
        }
        jobs.sort_by_key(Job::rank);
        self.delta(work.queue.number).jobs -= jobs.len() as i64;
        Ok(jobs)
    }

    pub(super) fn end_job(
        &mut self,
        work: &Work,
        job: Job,
        fate: Fate,
        why: Option<Arc<str>>,
    ) -> Result<()> {
        if let Some(how) = fate.leaves() {
            self.leave_batch(&job, how);
        }
        let key = work.row.head.key.as_deref();
        let (queue, now) = (&work.queue, self.now);
        match fate {
            Fate::Done => self.record(queue, key, job, JobState::Succeeded, why, now),
            Fate::Cancel => self.record(queue, key, job, JobState::Canceled, why, now),
            Fate::Expire => {
                self.record(queue, key, job, JobState::Canceled, Some("expired".into()), now)
            }
            Fate::Bury => self.record(queue, key, job, JobState::Dead, why, now),
            Fate::Drop | Fate::Keep => self.forget(work.queue.number, &job),
        }
    }

    /// Stores a finished job for its queue's retention.
    pub(super) fn record(
        &mut self,
        queue: &QueueRow,
        key: Option<&str>,
        j: Job,
        ended: JobState,
        why: Option<Arc<str>>,
        at: i64,
    ) -> Result<()> {
        let dead = ended == JobState::Dead;
        let retention = queue.queue.retention();
        if !dead && retention.is_zero() {
            return self.forget(queue.number, &j);
        }
        let name = match ended {
            JobState::Succeeded => "succeeded",
            JobState::Dead => "failed",
            _ => "canceled",
        };
        let until = (!dead).then(|| at + micros(retention));
        let error = why.or(j.error);
        let sql = "INSERT INTO ended VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10, ?11, ?12, ?13, ?14, ?15, ?16,
                   ?17, ?18, ?19, ?20, ?21, ?22, ?23, ?24)";
        self.execute(
            sql,
            params![
                j.seq,
                queue.number,
                key,
                dead,
                name,
                at,
                until,
                j.created,
                j.score,
                j.prio,
                j.run_at,
                j.attempts,
                j.started,
                j.flagged && !dead,
                j.expires,
                j.route,
                j.retry,
                j.crashes,
                error,
                j.task,
                j.digest,
                j.options,
                j.aliases,
                j.payload
            ],
        )?;
        self.delta(queue.number).dead += i64::from(dead);
        Ok(())
    }

    /// Removes all traces of a job and its aliases.
    pub(super) fn forget(&mut self, _queue: u32, job: &Job) -> Result<()> {
        if job.payload.is_none() {
            self.delete_body(job.seq)?;
        }
        if job.aliases.is_some() {
            self.execute("DELETE FROM alias WHERE target = ?1", [job.seq])?;
        }
        Ok(())
    }

    /// Ends the claim, and returns kept jobs to the lane.
    fn finish_turn(
        &mut self,
        work: &mut Work,
        settlement: &Settlement,
        kept: Vec<Job>,
    ) -> Result<()> {
        let keep = &settlement.keep;
        let is_named = |job: &Job| keep.job == Some(job.id(work.queue.number));
        if kept.is_empty() && head_has_progress(work) {
            work.row.head.flags &= !flag::PROGRESS;
            self.execute("UPDATE lane SET progress = NULL WHERE id = ?1", [work.row.head.id])?;
        }
        let owner_is_kept = keep.job.is_none() || kept.iter().any(is_named);
        let mode = work.definition().mode;
        let head = &mut work.row.head;
        (head.st, head.claimed_at) = (state::READY, None);
        if keep.hold && owner_is_kept && !kept.is_empty() {
            head.flags |= flag::HELD;
        }
        if mode == Mode::Accumulate {
            settle_lane_state(work, self.now, keep, !kept.is_empty());
        }
        self.delta(work.queue.number).jobs += kept.len() as i64;
        for mut job in kept {
            if owner(work, keep) == Some(job.id(work.queue.number)) {
                job.error.clone_from(&keep.error);
                job.run_at = due_after(job.run_at, self.now, keep.due);
            }
            self.unite(work, job)?;
        }
        self.settle_priority(work)?;
        self.end_full_window(work)?;
        self.delta(work.queue.number).running -= 1;
        Ok(())
    }
}

fn head_has_progress(work: &Work) -> bool {
    work.row.head.flags & flag::PROGRESS != 0
}

/// Counts the attempt of a settled job: one that ends always, a kept one only if its claim counts.
fn tried(job: Job, work: &Work, fate: Fate, keep: &Keep) -> Job {
    let was_started = fate != Fate::Keep || keep.was_started(job.id(work.queue.number));
    let counts = fate != Fate::Keep || was_started && keep.counted;
    let claimed_at = work.row.head.claimed_at.filter(|_| was_started);
    Job { started: job.started.or(claimed_at), attempts: job.attempts + i64::from(counts), ..job }
}

fn settle_lane_state(work: &mut Work, now: i64, keep: &Keep, any_kept: bool) {
    let window = work.definition().window;
    let head = &mut work.row.head;
    if !any_kept {
        (head.retry, head.crashes, head.error) = (-1, 0, None);
        let now = Timestamp::from_micros(now);
        head.set_dues(after_turn(window.as_ref(), head.dues(), now));
        return;
    }
    head.next_due = None;
    (head.retry, head.crashes) = (i64::from(keep.retry_count), i64::from(keep.crashes));
    head.error.clone_from(&keep.error);
    head.due = due_after(head.due, now, keep.due);
}

/// The job that owns a turn's failure.
fn owner(work: &Work, keep: &Keep) -> Option<JobId> {
    keep.job.filter(|_| work.definition().mode != Mode::Accumulate)
}

fn due_after(was: i64, now: i64, due: Due) -> i64 {
    match due {
        Due::Unchanged => was,
        Due::Now => now,
        Due::In(length) => now.saturating_add(micros(length)),
    }
}
