//! Settling turns.

use std::sync::Arc;

use super::State;
use super::lane::{Entry, Hold, Lane};
use crate::contract::{JobState, Settled};
use crate::model::window::after_turn;
use crate::model::{Due, Fate, JobId, Keep, LaneId, Leave, Mode, Settlement, Timestamp, Window};

impl State {
    pub(in crate::stores) fn settle(
        &mut self,
        now: Timestamp,
        turns: &[Settlement],
    ) -> Vec<Settled> {
        turns.iter().map(|settlement| self.settle_one(now, settlement)).collect()
    }

    fn settle_one(&mut self, now: Timestamp, settlement: &Settlement) -> Settled {
        let Some((lane, hold)) = self.end_claim(settlement) else {
            return Settled::Stale;
        };
        let (queue, key) = (lane.queue, self.lanes[&lane.number].key.clone());
        let owner = self.owner(lane, &settlement.keep);
        let mut cancelled = Vec::new();
        let mut kept = Vec::new();
        let mut fates = Vec::with_capacity(hold.closed.len());
        for job in hold.closed {
            let mut fate = settlement.fate_of(job.id);
            let mut why = settlement.left_by(fate);
            if job.flagged && fate != Fate::Done {
                (fate, why) = (Fate::Cancel, Some("canceled".into()));
                cancelled.push(job.id);
            }
            fates.push((job.id, fate));
            let keep = &settlement.keep;
            let was_started = fate != Fate::Keep || keep.was_started(job.id);
            let started_at = job.started_at.or(was_started.then_some(hold.claimed_at));
            // A job that ends counts as an attempt; a kept one only if its claim counts.
            let tried = fate != Fate::Keep || was_started && keep.counted;
            let mut job = Entry { started_at, attempts: job.attempts + u32::from(tried), ..job };
            if owner == Some(job.id) {
                (job.retry_count, job.crashes) = (keep.retry_count, keep.crashes);
            }
            match fate {
                Fate::Done => self.finish(now, queue, key.clone(), job, JobState::Succeeded, why),
                Fate::Cancel => self.finish(now, queue, key.clone(), job, JobState::Canceled, why),
                Fate::Expire => self.expire(now, queue, key.clone(), job),
                Fate::Bury => self.bury(now, queue, key.clone(), job, why),
                Fate::Drop => {
                    self.batches.leave(&job, Leave::Dead);
                    self.forget(&job);
                }
                Fate::Keep => kept.push(job),
            }
        }
        self.return_to_lane(now, lane, &settlement.keep, kept);
        self.count(queue, settlement, &fates);
        Settled::ok(cancelled)
    }

    /// Ends the claim that the settlement names, if its token is current.
    fn end_claim(&mut self, settlement: &Settlement) -> Option<(LaneId, Hold)> {
        let lane = self.lanes.get_mut(&settlement.lane.number)?;
        if lane.id != settlement.lane || lane.token != settlement.token {
            return None;
        }
        lane.unread.need_closed();
        let hold = lane.hold.take()?;
        self.claimed.remove(&settlement.lane.number);
        Some((settlement.lane, hold))
    }

    pub(in crate::stores) fn expire(
        &mut self,
        now: Timestamp,
        queue: u32,
        key: Option<Arc<str>>,
        job: Entry,
    ) {
        self.finish(now, queue, key, job, JobState::Canceled, Some("expired".into()));
    }

    fn return_to_lane(&mut self, now: Timestamp, id: LaneId, keep: &Keep, kept: Vec<Entry>) {
        let Some(lane) = self.lanes.get_mut(&id.number) else {
            return;
        };
        if kept.is_empty() {
            lane.progress = None;
        }
        let owner_is_kept = keep.job.is_none_or(|owner| kept.iter().any(|job| job.id == owner));
        lane.held |= keep.hold && owner_is_kept && !kept.is_empty();
        let window = self.queues.get(&id.queue).and_then(|row| row.queue.window);
        if lane.mode == Mode::Accumulate {
            settle_lane_state(lane, window.as_ref(), now, keep, !kept.is_empty());
        }
        let owner = self.owner(id, keep);
        for mut job in kept {
            if owner == Some(job.id) {
                job.error.clone_from(&keep.error);
                job.run_at = due_after(job.run_at, now, keep.due);
            }
            self.unite(id.number, job);
        }
        self.position(id.number, now);
    }

    /// The job that owns a turn's failure.
    fn owner(&self, lane: LaneId, keep: &Keep) -> Option<JobId> {
        let is_lane_s = self.lanes.get(&lane.number)?.mode == Mode::Accumulate;
        keep.job.filter(|_| !is_lane_s)
    }

    fn count(&mut self, queue: u32, settlement: &Settlement, fates: &[(JobId, Fate)]) {
        if !self.queues.contains_key(&queue) {
            return;
        }
        let (processed, failed) = self.ended.entry(queue).or_default();
        *processed += fates.iter().filter(|(_, fate)| *fate == Fate::Done).count() as u64;
        *failed += u64::from(settlement.has_failed(fates.iter().copied()));
    }

    /// Removes a waiting job from its lane, whatever its place.
    pub(in crate::stores) fn take_waiting(
        &mut self,
        now: Timestamp,
        lane: u64,
        id: JobId,
    ) -> Option<Entry> {
        let job = self.lanes.get_mut(&lane)?.take_seq(id.seq())?;
        self.position(lane, now);
        Some(job)
    }
}

fn settle_lane_state(
    lane: &mut Lane,
    window: Option<&Window>,
    now: Timestamp,
    keep: &Keep,
    any_kept: bool,
) {
    if !any_kept {
        (lane.retry_count, lane.crashes, lane.error) = (-1, 0, None);
        lane.set_dues(after_turn(window, lane.dues(), now));
        lane.end_full_window(window, now);
        return;
    }
    lane.next_due = None;
    (lane.retry_count, lane.crashes) = (keep.retry_count, keep.crashes);
    lane.error.clone_from(&keep.error);
    lane.due = due_after(lane.due, now, keep.due);
}

fn due_after(was: Timestamp, now: Timestamp, due: Due) -> Timestamp {
    match due {
        Due::Unchanged => was,
        Due::Now => now,
        Due::In(length) => now + length,
    }
}
