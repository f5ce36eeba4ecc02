//! Cancel, requeue, act on lanes, delete dead jobs, amend, and the sweep.

use std::sync::Arc;

use super::lane::{Entry, Lane};
use super::{Ended, Location, State};
use crate::contract::errors::no_waiting_job;
use crate::contract::{
    Act, Acted, Amend, Cancelled, Change, JobState, LaneAction, LaneSelection, Selected, Selection,
    Swept,
};
use crate::model::limits::ACTION_ROWS_MAX;
use crate::model::{JobId, Mode, Owner, Result, Timestamp};
use crate::stores::gone::DEAD_NODE_SHOWN;

impl State {
    pub(in crate::stores) fn cancel(&mut self, now: Timestamp, id: JobId) -> Cancelled {
        let id = self.resolve(id);
        let number = match self.jobs.get(&id) {
            None => return Cancelled::Unknown,
            Some(Location::Lane(number)) => *number,
            Some(_) => return Cancelled::Ended,
        };
        let Some(lane) = self.lanes.get_mut(&number) else {
            return Cancelled::Unknown;
        };
        lane.unread.need_closed();
        let running = lane.hold.as_mut().and_then(|h| h.closed.iter_mut().find(|j| j.id == id));
        if let Some(job) = running {
            job.flagged = true;
            return Cancelled::Flagged;
        }
        let (queue, key) = (lane.id.queue, lane.key.clone());
        let Some(job) = self.take_waiting(now, number, id) else {
            return Cancelled::Unknown;
        };
        self.finish(now, queue, key, job, JobState::Canceled, Some("canceled".into()));
        Cancelled::Now
    }

    /// The dead jobs of a selection, oldest first, at most [`ACTION_ROWS_MAX`]; and whether there are more.
    fn select(&self, request: &Selected) -> Result<(Vec<JobId>, bool)> {
        let queue = self.queue(&request.queue)?.number;
        let chosen = |(id, dead): &(&JobId, &Ended)| match &request.which {
            Selection::All => true,
            Selection::Jobs(ids) => ids.contains(id),
            Selection::Keys(keys) => {
                dead.key.as_ref().is_some_and(|k| keys.iter().any(|key| **key == **k))
            }
        };
        let of_queue = self.dead.iter().filter(|(_, dead)| dead.queue == queue);
        let mut ids: Vec<JobId> = of_queue.filter(chosen).map(|(id, _)| *id).collect();
        ids.sort_unstable_by_key(|id| id.seq());
        let more = ids.len() > ACTION_ROWS_MAX;
        ids.truncate(ACTION_ROWS_MAX);
        Ok((ids, more))
    }

    pub(in crate::stores) fn requeue(
        &mut self,
        now: Timestamp,
        request: &Selected,
    ) -> Result<Acted> {
        let (ids, more) = self.select(request)?;
        for id in &ids {
            let Some(mut dead) = self.dead.remove(id) else {
                continue;
            };
            self.batches.come_back(&mut dead.entry, dead.at);
            let (retry_count, crashes, error, run_at) = (-1, 0, None, now);
            let has_expiry = dead.entry.options.as_ref().is_some_and(|o| o.expires_at.is_some());
            // One that was buried untried counts as tried: what a person brings back does not expire.
            let attempts = dead.entry.attempts.max(u32::from(has_expiry));
            let entry = Entry { attempts, retry_count, crashes, error, run_at, ..dead.entry };
            let route = entry.route;
            let number = self.put_back(now, dead.queue, dead.key, route, entry);
            if let Some(lane) = self.lanes.get_mut(&number).filter(|lane| lane.hold.is_none()) {
                (lane.due, lane.retry_count, lane.crashes) = (now, -1, 0);
            }
            self.position(number, now);
        }
        Ok(Acted { count: ids.len() as u64, more })
    }

    pub(in crate::stores) fn delete_dead(&mut self, request: &Selected) -> Result<Acted> {
        let (ids, more) = self.select(request)?;
        for id in &ids {
            self.remove_dead(*id);
        }
        Ok(Acted { count: ids.len() as u64, more })
    }

    fn remove_dead(&mut self, id: JobId) {
        if let Some(dead) = self.dead.remove(&id) {
            self.forget(&dead.entry);
        }
    }

    pub(in crate::stores) fn act(&mut self, now: Timestamp, request: &Act) -> Result<Acted> {
        let row = self.queue(&request.queue)?;
        let (queue, owner) = (row.number, row.queue.mode.failure_belongs_to());
        let chosen = |lane: &&Lane| match &request.lanes {
            LaneSelection::All => true,
            LaneSelection::Key(key) => lane.key.as_deref() == Some(key.as_str()),
            LaneSelection::Lanes(ids) => ids.contains(&lane.id),
            LaneSelection::Failed => has_failure(lane, owner),
        };
        let of_queue = self.lanes.values().filter(|lane| lane.id.queue == queue).filter(chosen);
        let mut numbers: Vec<u64> =
            of_queue.map(|lane| lane.id.number).take(ACTION_ROWS_MAX + 1).collect();
        let more = numbers.len() > ACTION_ROWS_MAX;
        numbers.truncate(ACTION_ROWS_MAX);
        let mut acted = |n: &&u64| self.act_on(now, **n, request.action);
        let count = numbers.iter().filter(|n| acted(n)).count() as u64;
        Ok(Acted { count, more })
    }

    fn act_on(&mut self, now: Timestamp, number: u64, action: LaneAction) -> bool {
        let Some(lane) = self.lanes.get_mut(&number) else {
            return false;
        };
        let mut is_some = true;
        match action {
            LaneAction::Pause => lane.paused = true,
            LaneAction::Resume => (lane.paused, lane.held) = (false, false),
            _ if lane.hold.is_some() => return false,
            LaneAction::RunNow => run_now(lane, now),
            LaneAction::Bury | LaneAction::DeleteFailed => {
                is_some = self.end_failed(now, number, action);
            }
            LaneAction::Delete => lane.take_all().iter().for_each(|job| self.delete(job)),
        }
        self.position(number, now);
        is_some
    }

    /// Whether anything had failed.
    fn end_failed(&mut self, now: Timestamp, number: u64, action: LaneAction) -> bool {
        let Some(lane) = self.lanes.get_mut(&number) else {
            return false;
        };
        let (queue, key) = (lane.id.queue, lane.key.clone());
        let (jobs, error) = match lane.mode.failure_belongs_to() {
            Owner::Lane if lane.retry_count < 0 => return false,
            Owner::Lane => {
                let error = lane.error.take();
                (lane.retry_count, lane.crashes, lane.due, lane.held) = (-1, 0, now, false);
                (lane.take_all(), error)
            }
            Owner::Job => {
                lane.held = false;
                (take_failed(lane), None)
            }
        };
        let is_some = !jobs.is_empty();
        for job in jobs {
            match action {
                LaneAction::Bury => self.bury(now, queue, key.clone(), job, error.clone()),
                _ => self.delete(&job),
            }
        }
        is_some
    }

    /// A part of an action: moves these waiting jobs. The failure of an `accumulate` lane stays.
    #[cfg(feature = "mysql")]
    pub(in crate::stores) fn act_on_some(
        &mut self,
        now: Timestamp,
        number: u64,
        seqs: &[u64],
        action: LaneAction,
    ) {
        let Some(lane) = self.lanes.get_mut(&number) else { return };
        let (queue, key) = (lane.id.queue, lane.key.clone());
        let of_lane = lane.mode.failure_belongs_to() == Owner::Lane;
        lane.held &= of_lane;
        let error = lane.error.clone().filter(|_| of_lane);
        let mut jobs: Vec<Entry> = seqs.iter().filter_map(|seq| lane.take_seq(*seq)).collect();
        if action == LaneAction::RunNow {
            for mut job in jobs.drain(..) {
                job.run_at = job.run_at.min(now);
                lane.insert(job);
            }
        }
        for job in jobs {
            match action {
                LaneAction::Bury => self.bury(now, queue, key.clone(), job, error.clone()),
                _ => self.delete(&job),
            }
        }
        self.position(number, now);
    }

    pub(in crate::stores) fn amend(&mut self, now: Timestamp, request: &Amend) -> Result<()> {
        let id = self.resolve(request.job);
        let Some(Location::Lane(number)) = self.jobs.get(&id).copied() else {
            return Err(no_waiting_job());
        };
        let route = match &request.change {
            Change::Node(node) => {
                let lane = self.lanes.get(&number).ok_or_else(no_waiting_job)?;
                let job = lane.open_jobs().find(|job| job.id == id).ok_or_else(no_waiting_job)?;
                let options = job.options.as_deref().cloned().unwrap_or_default();
                let route = (node.as_deref(), options.consumer_group.as_deref());
                self.check_routes(std::iter::once(route))?;
                Some(self.route(&options, node.as_deref()))
            }
            _ => None,
        };
        let lane = self.lanes.get_mut(&number).ok_or_else(no_waiting_job)?;
        let mut job = lane.take_seq(id.seq()).ok_or_else(no_waiting_job)?;
        match &request.change {
            Change::Delete => {
                self.delete(&job);
                self.position(number, now);
                return Ok(());
            }
            Change::RunAt(time) if lane.mode == Mode::Accumulate => match lane.hold {
                Some(_) => lane.next_due = Some(*time),
                None => lane.due = *time,
            },
            Change::RunAt(time) => job.run_at = *time,
            Change::Node(node) => {
                let route = route.unwrap_or_default();
                (job.route, lane.route) = (route, route);
                let mut options = job.options.take().unwrap_or_default();
                Arc::make_mut(&mut options).node.clone_from(node);
                job.options = Some(options);
            }
        }
        lane.insert(job);
        self.position(number, now);
        Ok(())
    }

    pub(in crate::stores) fn sweep(&mut self, now: Timestamp, rows_max: usize) -> Swept {
        let mut swept = Swept { expired: self.expired_jobs(now), ..Swept::default() };
        swept.more |= swept.expired.len() > rows_max;
        swept.expired.truncate(rows_max);
        for id in &swept.expired {
            let Some(Location::Lane(number)) = self.jobs.get(id).copied() else {
                continue;
            };
            let (queue, key) = (self.lanes[&number].id.queue, self.lanes[&number].key.clone());
            if let Some(job) = self.take_waiting(now, number, *id) {
                self.expire(now, queue, key, job);
            }
        }
        self.sweep_done(now, rows_max, &mut swept);
        self.sweep_dead(now, rows_max, &mut swept);
        let jobs = &self.jobs;
        self.idempotency.retain(|_, (first, until)| *until > now || jobs.contains_key(first));
        self.sweep_batches(now);
        self.nodes.retain(|_, row| row.dead_at.is_none_or(|at| at + DEAD_NODE_SHOWN > now));
        swept
    }

    /// Of the waiting jobs that are here: a store that loads lanes in part has loaded the expired ones.
    fn expired_jobs(&self, now: Timestamp) -> Vec<JobId> {
        let waiting = self.lanes.values().flat_map(Lane::loaded_jobs);
        let expired = |job: &&Entry| {
            job.options.as_ref().is_some_and(|options| options.have_expired(job.attempts, now))
        };
        let mut ids: Vec<JobId> = waiting.filter(expired).map(|job| job.id).collect();
        ids.sort_unstable_by_key(|id| id.seq());
        ids
    }

    fn sweep_done(&mut self, now: Timestamp, rows_max: usize, swept: &mut Swept) {
        let old = self.done.iter().filter(|(_, done)| done.until <= now).map(|(id, _)| *id);
        let mut old: Vec<JobId> = old.take(rows_max + 1).collect();
        swept.more |= old.len() > rows_max;
        old.truncate(rows_max);
        swept.completed = old.len() as u64;
        for id in old {
            if let Some(done) = self.done.remove(&id) {
                self.forget(&done.entry);
            }
        }
    }

    fn sweep_dead(&mut self, now: Timestamp, rows_max: usize, swept: &mut Swept) {
        for row in self.queues.values() {
            let mut dead: Vec<(Timestamp, JobId)> = self
                .dead
                .values()
                .filter(|dead| dead.queue == row.number)
                .map(|dead| (dead.at, dead.entry.id))
                .collect();
            dead.sort_unstable_by_key(|(at, id)| (*at, id.seq()));
            let over = dead.len().saturating_sub(row.queue.retain_dead_max as usize);
            let old = |(i, (at, _)): &(usize, (Timestamp, JobId))| {
                *i < over || *at + row.queue.retain_dead <= now
            };
            swept.dead.extend(dead.into_iter().enumerate().filter(old).map(|(_, (_, id))| id));
        }
        swept.more |= swept.dead.len() > rows_max;
        swept.dead.truncate(rows_max);
        for id in swept.dead.clone() {
            self.remove_dead(id);
        }
    }
}

fn has_failure(lane: &Lane, owner: Owner) -> bool {
    match owner {
        Owner::Lane => lane.retry_count >= 0,
        Owner::Job => lane.open_jobs().any(|job| job.retry_count >= 0),
    }
}

fn take_failed(lane: &mut Lane) -> Vec<Entry> {
    let failed: Vec<u64> =
        lane.open_jobs().filter(|job| job.retry_count >= 0).map(|job| job.id.seq()).collect();
    failed.into_iter().filter_map(|seq| lane.take_seq(seq)).collect()
}

fn run_now(lane: &mut Lane, now: Timestamp) {
    lane.held = false;
    match lane.mode {
        Mode::Accumulate => lane.due = now,
        Mode::Parallel | Mode::Fifo => {
            if let Some(head) = lane.first_rank().and_then(|rank| lane.open.get_mut(&rank)) {
                head.run_at = now;
            }
        }
        Mode::Exclusive => {
            for mut job in lane.take_all() {
                job.run_at = job.run_at.min(now);
                lane.insert(job);
            }
        }
    }
}
