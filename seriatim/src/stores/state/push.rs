//! Declaring queues and pushing jobs.

use std::collections::HashMap;
use std::sync::Arc;

use super::lane::{Entry, Lane};
use super::{IdempotencyKey, Location, QueueRow, State};
use crate::contract::definition::Found;
use crate::contract::errors::{is_closing, no_queue, other_route, too_many_queues};
use crate::contract::{PushStatus, Pushed, validate_job};
use crate::model::limits::QUEUES_MAX;
use crate::model::{
    DueRule, Error, Job, JobId, LaneId, Leave, Mode, Queue, Result, Throttled, Timestamp, Window,
    group_number,
};
use crate::stores::route::group_of;

/// The node and the consumer group that a job is bound to, and the number of its group.
type Route<'a> = (Option<&'a str>, Option<&'a str>, u64);

/// The result of putting a job into its lane.
enum Put {
    /// It waits in the lane.
    Queued,
    /// It was merged into this job.
    Merged(JobId),
}

impl State {
    /// Declares queues; with `keep` only those that are not declared.
    pub(in crate::stores) fn declare(
        &mut self,
        now: Timestamp,
        queues: Vec<Queue>,
        keep: bool,
    ) -> Result<()> {
        let keeps = |state: &Self, queue: &Queue| {
            keep && state.queue(&queue.name).is_ok_and(|row| row.declared)
        };
        for (i, queue) in queues.iter().enumerate() {
            let may = queue.validate().and_then(|()| match keeps(&*self, queue) {
                true => Ok(()),
                false => self.may_declare(queue),
            });
            may.map_err(|e| e.in_field(format!("queues[{i}]")))?;
        }
        let new = queues.iter().filter(|queue| self.queue(&queue.name).is_err()).count();
        if self.queues.len() + new > QUEUES_MAX as usize {
            return Err(too_many_queues());
        }
        for queue in queues {
            match self.queue(&queue.name).map(|row| row.number) {
                _ if keeps(&*self, &queue) => {}
                Err(_) => drop(self.create_queue(queue, true)?),
                Ok(number) => self.redefine(now, number, queue),
            }
        }
        Ok(())
    }

    fn may_declare(&self, queue: &Queue) -> Result<()> {
        let Ok(row) = self.queue(&queue.name) else {
            return Ok(());
        };
        if row.closing {
            return Err(is_closing(&queue.name));
        }
        let (mode, merge, declared) = (row.queue.mode, row.queue.merge, row.declared);
        if (mode, merge) == (queue.mode, queue.merge) {
            return Ok(());
        }
        let lanes = || self.lanes.values().filter(|lane| lane.id.queue == row.number);
        let (holds_jobs, runs) =
            (lanes().next().is_some(), lanes().any(|lane| lane.hold.is_some()));
        Found { mode, merge, declared, holds_jobs, runs }.check(queue)
    }

    fn create_queue(&mut self, queue: Queue, declared: bool) -> Result<u32> {
        let number = self.queues.free();
        if number > QUEUES_MAX {
            return Err(too_many_queues());
        }
        let name = Arc::from(queue.name.as_str());
        let (paused, closing) = (false, false);
        let row = QueueRow { number, name, queue, declared, paused, closing };
        self.queues.insert(row);
        Ok(number)
    }

    fn redefine(&mut self, now: Timestamp, number: u32, queue: Queue) {
        let Some(row) = self.queues.get_mut(&number) else {
            return;
        };
        let changes = (row.queue.mode, row.queue.merge) != (queue.mode, queue.merge);
        let was = std::mem::replace(&mut row.queue, queue);
        row.declared = true;
        if was.rates() != row.queue.rates() {
            self.sharing.forget_paces(number);
        }
        if changes {
            self.push_again(now, number);
        }
    }

    /// Pushes the jobs of a queue again, after its mode changed. Those without a score of their own get that of the new
    /// mode, and paused keys stay paused.
    fn push_again(&mut self, now: Timestamp, queue: u32) {
        let numbers: Vec<u64> = self
            .lanes
            .values()
            .filter(|lane| lane.id.queue == queue)
            .map(|lane| lane.id.number)
            .collect();
        let (mut jobs, mut paused) = (Vec::new(), Vec::new());
        for number in numbers {
            let Some(lane) = self.lanes.get_mut(&number) else {
                continue;
            };
            let (key, route) = (lane.key.clone(), lane.route);
            paused.extend(key.clone().filter(|_| lane.paused));
            jobs.extend(
                lane.take_all().into_iter().map(|job| (key.clone(), route.max(job.route), job)),
            );
            self.position(number, now);
        }
        jobs.sort_unstable_by_key(|(_, _, job)| job.id.seq());
        let is_fifo = self.queues[&queue].queue.mode == Mode::Fifo;
        for (key, route, mut job) in jobs {
            job.digest = None;
            if is_fifo && job.score.to_bits() == job.created_at.as_secs_f64().to_bits() {
                job.score = 0.0;
            }
            self.put_back(now, queue, key, route, job);
        }
        for key in paused {
            let number = self.keys[&(queue, key)];
            if let Some(lane) = self.lanes.get_mut(&number) {
                lane.paused = true;
            }
            self.position(number, now);
        }
    }

    pub(in crate::stores) fn push(
        &mut self,
        now: Timestamp,
        jobs: Vec<Job>,
    ) -> Result<Vec<Pushed>> {
        self.check_batch(now, &jobs)?;
        self.check_batches(now, &jobs)?;
        jobs.into_iter().map(|job| self.push_one(now, job)).collect()
    }

    /// Creates the queues and routes that these jobs name, as a push would.
    #[cfg(feature = "mysql")]
    pub(in crate::stores) fn define(&mut self, now: Timestamp, jobs: &[Job]) -> Result<()> {
        self.check_batch(now, jobs)?;
        for job in jobs {
            if self.queue(&job.queue).is_err() {
                self.create_queue(Queue::implied(&job.queue, job.key.is_some()), false)?;
            }
            self.route(&job.options, job.options.node.as_deref());
        }
        Ok(())
    }

    /// Checks a whole batch before the first write.
    fn check_batch(&self, now: Timestamp, jobs: &[Job]) -> Result<()> {
        let mut created: HashMap<&str, Queue> = HashMap::new();
        let mut routes: HashMap<(&str, &str), Route<'_>> = HashMap::new();
        for (i, job) in jobs.iter().enumerate() {
            let queue = match self.queue(&job.queue) {
                Ok(row) if row.closing => {
                    return Err(is_closing(&job.queue).in_field(format!("jobs[{i}]")));
                }
                Ok(row) => &row.queue,
                Err(_) => created
                    .entry(&job.queue)
                    .or_insert_with(|| Queue::implied(&job.queue, job.key.is_some())),
            };
            validate_job(queue, job, i)?;
            let has_route = queue.mode.route_belongs_to_lane() && job.dead_at().is_none();
            let Some(key) = job.key.as_deref().filter(|_| has_route) else {
                continue;
            };
            let options = &job.options;
            let group = group_number(options.group.as_deref());
            let wanted = (options.node.as_deref(), options.consumer_group.as_deref(), group);
            let known = self.lane_route(&job.queue, key);
            let route = *routes.entry((&job.queue, key)).or_insert(known.unwrap_or(wanted));
            if route != wanted && !self.is_repeat(now, job) {
                return Err(other_route(key, i));
            }
        }
        let options = jobs.iter().map(|job| &job.options);
        self.check_routes(options.map(|o| (o.node.as_deref(), o.consumer_group.as_deref())))?;
        if self.queues.len() + created.len() > QUEUES_MAX as usize {
            let message = format!("the store can hold at most {QUEUES_MAX} queues");
            return Err(Error::invalid("queue", message));
        }
        Ok(())
    }

    fn lane_route(&self, queue: &str, key: &str) -> Option<Route<'_>> {
        let number = self.keys.get(&(self.queue(queue).ok()?.number, Arc::from(key)))?;
        let route = self.lanes.get(number)?.route;
        let (node, consumers) = self.route_text(route);
        Some((node, consumers, group_of(route)))
    }

    fn is_repeat(&self, now: Timestamp, job: &Job) -> bool {
        // A queue that this push makes has no names yet; the store may.
        let number = self.queue(&job.queue).map(|row| row.number).unwrap_or_default();
        repeat_of(number, job).is_some_and(|repeat| self.remembered(now, &repeat).is_some())
    }

    /// Refuses jobs whose batches take none. A repeat joins none.
    fn check_batches(&self, now: Timestamp, jobs: &[Job]) -> Result<()> {
        for (i, job) in jobs.iter().enumerate() {
            let Some(batch) = job.options.batch.as_deref() else { continue };
            if !self.is_repeat(now, job) {
                self.batches.check(batch).map_err(|e| e.in_field(format!("jobs[{i}]")))?;
            }
        }
        Ok(())
    }

    fn push_one(&mut self, now: Timestamp, job: Job) -> Result<Pushed> {
        let number = match self.queue(&job.queue) {
            Ok(row) => row.number,
            Err(_) => self.create_queue(Queue::implied(&job.queue, job.key.is_some()), false)?,
        };
        let row = self.queues.shared(&number).ok_or_else(|| no_queue(&job.queue))?;
        let queue = &row.queue;
        let repeat = repeat_of(number, &job);
        if let Some(first) = repeat.as_ref().and_then(|repeat| self.remembered(now, repeat)) {
            return Ok(Pushed::new(first, PushStatus::Duplicate));
        }
        if let Some(at) = job.dead_at() {
            let job_id = self.push_dead(now, queue, number, at, job);
            if let Some(repeat) = repeat {
                self.idempotency.insert(repeat, (job_id, now + queue.idempotency_ttl));
            }
            return Ok(Pushed::new(job_id, PushStatus::Queued));
        }
        let throttle = queue.throttle.map(|period| (throttle_of(number, &job), now + period));
        let throttling = throttle.as_ref().and_then(|(name, _)| self.throttling(now, name));
        if let Some((first, until)) = throttling {
            if let Some(repeat) = repeat.filter(|_| queue.throttled == Throttled::Merge) {
                self.idempotency.insert(repeat, (first, now + queue.idempotency_ttl));
            }
            return Ok(Pushed::throttled(queue, first, until));
        }
        let key: Option<Arc<str>> = job.key.as_deref().map(Arc::from);
        let batch = job.options.batch.clone();
        let entry = self.new_entry(now, queue, number, job);
        let id = entry.id;
        let (job_id, status) = match self.put(now, number, key, entry) {
            Put::Queued => (id, PushStatus::Queued),
            Put::Merged(into) => (into, PushStatus::Merged),
        };
        self.join_batch(batch.as_deref(), status);
        if let Some(repeat) = repeat {
            self.idempotency.insert(repeat, (job_id, now + queue.idempotency_ttl));
        }
        if let Some((name, until)) = throttle {
            self.idempotency.insert(name, (job_id, until));
        }
        Ok(Pushed::new(job_id, status))
    }

    /// Puts a job into the morgue that died elsewhere.
    fn push_dead(
        &mut self,
        now: Timestamp,
        queue: &Queue,
        number: u32,
        at: Timestamp,
        job: Job,
    ) -> JobId {
        let key = job.key.as_deref().map(Arc::from);
        let entry = self.new_entry(now, queue, number, job);
        let id = entry.id;
        self.bury(at, number, key, entry, None);
        id
    }

    fn new_entry(&mut self, now: Timestamp, queue: &Queue, number: u32, job: Job) -> Entry {
        let created = job.past.as_ref().and_then(|past| past.created_at).unwrap_or(now);
        let id = JobId::new(created, number, 0, self.next_seq());
        let route = self.route(&job.options, job.options.node.as_deref());
        entry_of(id, now, queue, route, job)
    }

    /// The job that throttles its key now, and until when. Unlike an idempotency key, it does so no longer while it is stored.
    fn throttling(&self, now: Timestamp, name: &IdempotencyKey) -> Option<(JobId, Timestamp)> {
        self.idempotency.get(name).copied().filter(|(_, until)| *until > now)
    }

    fn remembered(&self, now: Timestamp, repeat: &IdempotencyKey) -> Option<JobId> {
        let (first, until) = self.idempotency.get(repeat)?;
        (*until > now || self.jobs.contains_key(first)).then_some(*first)
    }

    /// Puts a new job into its lane.
    fn put(&mut self, now: Timestamp, queue: u32, key: Option<Arc<str>>, mut entry: Entry) -> Put {
        let number = self.lane_for(queue, key, &entry, entry.route);
        let definition = &self.queues[&queue].queue;
        let Some(lane) = self.lanes.get_mut(&number) else {
            return Put::Queued;
        };
        let run_at = entry.run_at;
        let equal = entry.digest.and_then(|digest| lane.equal(&digest));
        let merged = equal.and_then(|rank| lane.take(rank));
        match &definition.window {
            Some(window) => collect(lane, window, (run_at, now), merged.is_some()),
            None => arrive(lane, definition.due, run_at, merged.is_some()),
        }
        let put = match merged {
            Some(mut queued) => {
                queued.score = definition.merge.score(queued.score, entry.score);
                queued.priority = queued.priority.min(entry.priority);
                let id = queued.id;
                lane.insert(queued);
                Put::Merged(id)
            }
            None => {
                lane.take_failures(&mut entry);
                self.jobs.insert(entry.id, Location::Lane(number));
                lane.insert(entry);
                Put::Queued
            }
        };
        lane.end_full_window(definition.window.as_ref(), now);
        self.position(number, now);
        put
    }

    /// The lane of a key, created if there is none. Without a key: a new lane with the job's number.
    fn lane_for(&mut self, queue: u32, key: Option<Arc<str>>, entry: &Entry, route: u64) -> u64 {
        if let Some(key) = &key
            && let Some(number) = self.keys.get(&(queue, key.clone()))
        {
            return *number;
        }
        // Lane numbers are never reused: a job that returns to a key without a lane opens a lane with a new number.
        let is_new = !self.jobs.contains_key(&entry.id);
        let number = if key.is_none() || is_new { entry.id.seq() } else { self.next_seq() };
        let mode = self.queues[&queue].queue.mode;
        let id = LaneId { queue, shard: 0, number };
        if let Some(key) = &key {
            self.keys.insert((queue, key.clone()), number);
        }
        self.lanes.insert(number, Lane::new(id, mode, key, entry.run_at, route));
        number
    }

    /// Puts a job with a history back into its lane: requeued, or kept while its queue changed. If an equal job waits
    /// there, they merge under the older id, and the other id becomes an alias. Returns the lane.
    pub(in crate::stores) fn put_back(
        &mut self,
        now: Timestamp,
        queue: u32,
        key: Option<Arc<str>>,
        route: u64,
        mut entry: Entry,
    ) -> u64 {
        let definition = &self.queues[&queue].queue;
        let (due, merges) = (definition.due, definition.merges());
        if merges && entry.digest.is_none() {
            let digest = crate::model::payload::digest(entry.task.as_deref(), &entry.payload);
            let options = entry.options.as_deref();
            entry.digest = Some(options.map_or(digest, |options| options.merge_digest(digest)));
        }
        let number = self.lane_for(queue, key, &entry, route);
        if let Some(lane) = self.lanes.get_mut(&number) {
            arrive(lane, due, entry.run_at, false);
        }
        self.unite(number, entry);
        self.position(number, now);
        number
    }

    /// Inserts a job into a lane. If an equal job waits there, they merge and the older id survives.
    pub(in crate::stores) fn unite(&mut self, number: u64, entry: Entry) {
        let Some(lane) = self.lanes.get_mut(&number) else {
            return;
        };
        let definition = &self.queues[&lane.id.queue].queue;
        let (merge, merges) = (definition.merge, definition.merges());
        // A dead job has a digest of the time when its queue compared payloads.
        let equal = entry.digest.filter(|_| merges).and_then(|digest| lane.equal(&digest));
        let Some(other) = equal.and_then(|rank| lane.take(rank)) else {
            self.jobs.insert(entry.id, Location::Lane(number));
            lane.insert(entry);
            return;
        };
        let (mut survivor, other) =
            if other.id.seq() < entry.id.seq() { (other, entry) } else { (entry, other) };
        self.batches.leave(&other, Leave::Merged);
        survivor.score = merge.score(survivor.score, other.score);
        survivor.priority = survivor.priority.min(other.priority);
        survivor.attempts = survivor.attempts.max(other.attempts);
        survivor.aliases.push(other.id);
        survivor.aliases.extend(other.aliases);
        self.jobs.insert(other.id, Location::Alias(survivor.id));
        self.jobs.insert(survivor.id, Location::Lane(number));
        lane.insert(survivor);
    }
}

/// Under what its idempotency key is remembered, in a queue with this number.
pub(in crate::stores) fn repeat_of(queue: u32, job: &Job) -> Option<IdempotencyKey> {
    job.repeat(queue).map(owned)
}

/// Under what the job is remembered that throttles the key of this one.
pub(in crate::stores) fn throttle_of(queue: u32, job: &Job) -> IdempotencyKey {
    owned(job.throttle(queue))
}

fn owned((queue, key, name): (u32, Option<&str>, &str)) -> IdempotencyKey {
    (queue, key.map(str::to_owned), name.to_owned())
}

/// Updates the due time of an `accumulate` lane for an arrival. A job with a history moves no window.
fn arrive(lane: &mut Lane, rule: DueRule, run_at: Timestamp, merged: bool) {
    if lane.mode != Mode::Accumulate {
        return;
    }
    if lane.hold.is_some() {
        lane.next_due = Some(match (lane.next_due, rule) {
            (Some(due), DueRule::First) => due,
            (Some(due), DueRule::Earliest) => due.min(run_at),
            (None, _) => run_at,
        });
    } else if lane.has_no_open() && !merged {
        lane.due = run_at;
    } else if rule == DueRule::Earliest {
        lane.due = lane.due.min(run_at);
    }
}

/// The same in a queue with a window, for a push.
fn collect(lane: &mut Lane, window: &Window, (run_at, now): (Timestamp, Timestamp), merged: bool) {
    let mut dues = lane.dues();
    if lane.hold.is_some() {
        window.push_in_turn(&mut dues, now);
    } else if lane.has_no_open() && !merged {
        dues = window.open(run_at, now);
    } else {
        window.push(&mut dues, run_at, now);
    }
    lane.set_dues(dues);
}

fn entry_of(id: JobId, now: Timestamp, queue: &Queue, route: u64, job: Job) -> Entry {
    let default_score = if queue.mode == Mode::Fifo { 0.0 } else { now.as_secs_f64() };
    let has_options = job.options != crate::model::JobOptions::default();
    let past = job.past.as_deref().cloned().unwrap_or_default();
    Entry {
        id,
        digest: queue.merges().then(|| job.merge_digest()),
        score: job.score.unwrap_or(default_score) + 0.0,
        priority: job.priority,
        run_at: queue.due_at(&job, now),
        created_at: past.created_at.unwrap_or(now),
        started_at: past.started_at,
        attempts: past.failures,
        retry_count: past.retry_count(),
        crashes: 0,
        error: past.error,
        route,
        flagged: false,
        aliases: Vec::new(),
        task: job.task.map(Arc::from),
        payload: job.payload,
        options: has_options.then(|| Arc::new(job.options)),
    }
}
