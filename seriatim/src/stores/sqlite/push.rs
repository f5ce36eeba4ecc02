//! Pushing jobs.

use std::collections::HashMap;
use std::time::Duration;

use async_trait::async_trait;
use rusqlite::params;

use super::Sqlite;
use super::flush::Flush;
use super::lane::Work;
use super::line::Rank;
use super::row::{Job, flag, state};
use super::tx::{QueueRow, Tx};
use crate::contract::errors::{is_closing, other_route};
use crate::contract::{JobState, Producer, Push, PushStatus, Pushed, validate_job, validate_push};
use crate::model::clock::micros;
use crate::model::{
    DueRule, Error, ErrorKind, Job as NewJob, JobId, Leave, Merge, Mode, Payload, Queue, Result,
    Throttled, Timestamp,
};

/// Under what an idempotency key is remembered: queue, key, name.
type Name<'a> = (u32, Option<&'a str>, &'a str);

#[async_trait]
impl Producer for Sqlite {
    async fn push(&self, request: Push) -> Result<Vec<Pushed>> {
        validate_push(&request)?;
        let bytes = request.jobs.iter().map(|job| job.payload.as_bytes().len()).sum();
        let body = move |tx: &mut Tx<'_>| tx.at(request.now).push(&request.jobs);
        self.write.call(Rank::Usual, bytes, Flush::Now, body).await
    }
}

/// Whether jobs of one key ask for different nodes or groups.
fn has_routes_apart(jobs: &[NewJob]) -> bool {
    fn route(job: &NewJob) -> [Option<&str>; 3] {
        let options = &job.options;
        [options.node.as_deref(), options.consumer_group.as_deref(), options.group.as_deref()]
    }
    let mut routes = HashMap::new();
    jobs.iter().any(|job| route(job) != [None; 3])
        && jobs
            .iter()
            .filter(|job| job.key.is_some())
            .any(|job| *routes.entry((&job.queue, &job.key)).or_insert(route(job)) != route(job))
}

impl Tx<'_> {
    pub(super) fn push(&mut self, jobs: &[NewJob]) -> Result<Vec<Pushed>> {
        let mut pushed = Vec::with_capacity(jobs.len());
        let mut last: Option<QueueRow> = None;
        let before = self.last_seq();
        self.collecting.clear();
        if has_routes_apart(jobs) {
            self.check_routes(jobs)?;
        }
        for (i, job) in jobs.iter().enumerate() {
            let queue = match last.take().filter(|row| *row.name == *job.queue) {
                Some(row) => row,
                None => self.queue_for(job)?,
            };
            if queue.closing {
                return Err(is_closing(&job.queue).in_field(format!("jobs[{i}]")));
            }
            validate_job(&queue.queue, job, i)?;
            pushed.push(self.push_one(&queue, job, i)?);
            last = Some(queue);
        }
        if jobs.iter().any(|job| job.key.is_none()) {
            self.line_up(before)?;
        }
        self.end_full_windows()?;
        Ok(pushed)
    }

    /// Refuses jobs of a key with another route than the ones before them, also if they are repeats of these.
    fn check_routes(&mut self, jobs: &[NewJob]) -> Result<()> {
        let mut routes: HashMap<(&str, &str), i64> = HashMap::new();
        for (i, job) in jobs.iter().enumerate() {
            let queue = self.queue_for(job)?;
            if queue.closing {
                return Err(is_closing(&job.queue).in_field(format!("jobs[{i}]")));
            }
            validate_job(&queue.queue, job, i)?;
            let has_route = queue.queue.mode.route_belongs_to_lane() && job.dead_at().is_none();
            let Some(key) = job.key.as_deref().filter(|_| has_route) else { continue };
            let wanted = self.route(&job.options, job.options.node.as_deref())?;
            let known = match routes.get(&(&*job.queue, key)) {
                Some(known) => *known,
                None => match self.lane_of_key(queue.number, key)? {
                    Some(work) => work.row.head.route,
                    None => wanted,
                },
            };
            routes.insert((&job.queue, key), known);
            let is_repeat = match job.repeat(queue.number) {
                Some(repeat) => self.remembered(repeat)?.is_some(),
                None => false,
            };
            if known != wanted && !is_repeat {
                return Err(other_route(key, i));
            }
        }
        Ok(())
    }

    /// Puts the lanes without a key that were opened after this number into `ready`.
    fn line_up(&mut self, after: i64) -> Result<()> {
        // Those of jobs with a past are there already.
        let sql = "INSERT OR IGNORE INTO ready SELECT q, class, prio, due, id FROM lane
                   WHERE id > ?1 AND key IS NULL AND st = 0";
        self.execute(sql, [after]).map(drop)
    }

    fn queue_for(&mut self, job: &NewJob) -> Result<QueueRow> {
        match self.queue(&job.queue)? {
            Some(row) => Ok(row),
            None => self.create_queue(&Queue::implied(&job.queue, job.key.is_some()), false),
        }
    }

    fn push_one(&mut self, queue: &QueueRow, new: &NewJob, i: usize) -> Result<Pushed> {
        let repeat = new.repeat(queue.number);
        if let Some(repeat) = repeat
            && let Some(job_id) = self.remembered(repeat)?
        {
            return Ok(Pushed::new(job_id, PushStatus::Duplicate));
        }
        if let Some(batch) = &new.options.batch {
            self.check_batch(batch).map_err(|e| e.in_field(format!("jobs[{i}]")))?;
        }
        if let Some(at) = new.dead_at() {
            let job_id = self.push_dead(queue, new, at)?;
            self.remember(repeat, job_id, queue.queue.idempotency_ttl)?;
            return Ok(Pushed::new(job_id, PushStatus::Queued));
        }
        if let Some((job_id, until)) = self.throttling(queue, new, i)? {
            if queue.queue.throttled == Throttled::Merge {
                self.remember(repeat, job_id, queue.queue.idempotency_ttl)?;
            }
            return Ok(Pushed::throttled(&queue.queue, job_id, until));
        }
        let job = self.new_job(queue, new)?;
        let (seq, id) = (job.seq, job.id(queue.number));
        let (job_id, status) = match self.place(queue, new.key.as_deref(), job, i)? {
            None => {
                new.options.batch.iter().for_each(|batch| self.join_batch(batch));
                (id, PushStatus::Queued)
            }
            Some((into, created)) => {
                if new.payload.as_bytes().len() > super::body::INLINE_BYTES_MAX {
                    self.delete_body(seq)?;
                }
                (job_id(created, queue.number, into), PushStatus::Merged)
            }
        };
        self.remember(repeat, job_id, queue.queue.idempotency_ttl)?;
        if let Some(period) = queue.queue.throttle {
            self.remember(Some(new.throttle(queue.number)), job_id, period)?;
        }
        Ok(Pushed::new(job_id, status))
    }

    /// Puts a job into the morgue that died elsewhere.
    fn push_dead(&mut self, queue: &QueueRow, new: &NewJob, at: Timestamp) -> Result<JobId> {
        let job = self.new_job(queue, new)?;
        let id = job.id(queue.number);
        self.record(queue, new.key.as_deref(), job, JobState::Dead, None, at.as_micros())?;
        Ok(id)
    }

    fn remember(&mut self, name: Option<Name<'_>>, job: JobId, length: Duration) -> Result<()> {
        let Some((queue, key, name)) = name else { return Ok(()) };
        let until = self.now + micros(length);
        let sql = "INSERT INTO idempotency VALUES (?1, ?2, ?3, ?4, ?5, ?5)
                   ON CONFLICT DO UPDATE SET job = ?4, until = ?5, look_at = ?5";
        let row = params![queue, key.unwrap_or_default(), name, job.to_bytes(), until];
        self.execute(sql, row).map(drop)
    }

    /// The job that throttles the key of this one now, and until when. Unlike an idempotency key, it does so no longer while
    /// it is stored.
    fn throttling(
        &mut self,
        queue: &QueueRow,
        new: &NewJob,
        i: usize,
    ) -> Result<Option<(JobId, Timestamp)>> {
        if queue.queue.throttle.is_none() {
            return Ok(None);
        }
        let Some((id, until)) = self.named(new.throttle(queue.number))? else { return Ok(None) };
        if until <= self.now {
            return Ok(None);
        }
        let key = new.key.as_deref().unwrap_or_default();
        if queue.queue.mode.route_belongs_to_lane()
            && let Some(work) = self.lane_of_key(queue.number, key)?
            && work.row.head.route != self.route(&new.options, new.options.node.as_deref())?
        {
            return Err(other_route(key, i));
        }
        Ok(Some((id, Timestamp::from_micros(until))))
    }

    fn new_job(&mut self, queue: &QueueRow, new: &NewJob) -> Result<Job> {
        let definition = &queue.queue;
        let now = Timestamp::from_micros(self.now);
        let default_score = if definition.mode == Mode::Fifo { 0.0 } else { now.as_secs_f64() };
        let options = &new.options;
        let past = new.past.as_deref().cloned().unwrap_or_default();
        let seq = self.next_seq();
        Ok(Job {
            seq,
            gen_: 0,
            created: past.created_at.unwrap_or(now).as_micros(),
            score: new.score.unwrap_or(default_score) + 0.0,
            prio: i64::from(new.priority),
            run_at: definition.due_at(new, now).as_micros(),
            attempts: i64::from(past.failures),
            started: past.started_at.map(Timestamp::as_micros),
            flagged: false,
            expires: options.expires_at.map(Timestamp::as_micros),
            route: self.route(options, options.node.as_deref())?,
            retry: i64::from(past.retry_count()),
            crashes: 0,
            error: past.error,
            task: new.task.as_deref().map(Into::into),
            digest: definition.merges().then(|| new.merge_digest()),
            options: self.write_options.json(options)?,
            aliases: None,
            payload: self.store_body(seq, new.payload.as_bytes())?,
        })
    }

    fn remembered(&mut self, name: Name<'_>) -> Result<Option<JobId>> {
        let Some((id, until)) = self.named(name)? else { return Ok(None) };
        let known = until > self.now || self.find(id)?.is_some();
        Ok(known.then_some(id))
    }

    /// The job of a name, and until when it is remembered at least.
    fn named(&mut self, (queue, key, name): Name<'_>) -> Result<Option<(JobId, i64)>> {
        let sql = "SELECT job, until FROM idempotency WHERE q = ?1 AND key = ?2 AND name = ?3";
        let row: Option<([u8; 16], i64)> =
            self.first(sql, params![queue, key.unwrap_or_default(), name], |r| {
                Ok((r.get(0)?, r.get(1)?))
            })?;
        Ok(row.map(|(bytes, until)| (JobId::from_bytes(bytes), until)))
    }

    /// Puts a new job into its lane. Returns the job that it merged into, if any.
    fn place(
        &mut self,
        queue: &QueueRow,
        key: Option<&str>,
        mut job: Job,
        i: usize,
    ) -> Result<Option<(i64, i64)>> {
        let is_open = match job.has_past() {
            true => self.open_with_past(queue, key, &job)?,
            false => self.open_with(queue, key, &job)?,
        };
        if is_open {
            self.open_window(queue, key, &job)?;
            let delta = self.delta(queue.number);
            (delta.lanes, delta.jobs) = (delta.lanes + 1, delta.jobs + 1);
            self.ring(&queue.name);
            return Ok(None);
        }
        let Some(mut work) = self.lane_of_key(queue.number, key.unwrap_or_default())? else {
            return Err(Error::new(ErrorKind::Internal, "a lane exists and was not found"));
        };
        if queue.queue.mode.route_belongs_to_lane() && work.row.head.route != job.route {
            return Err(other_route(key.unwrap_or_default(), i));
        }
        if queue.queue.mode == Mode::Accumulate {
            (job.retry, job.error) = (-1, None);
        }
        let (run_at, prio) = (job.run_at, job.prio);
        let before = work.row.head.clone();
        if let Some(merged) = self.merge(&mut work, &job)? {
            self.note_arrival(&mut work, run_at, true);
            work.row.head.prio = work.row.head.prio.min(prio);
            self.note_window(&work);
            self.save(work)?;
            return Ok(Some(merged));
        }
        self.delta(queue.number).jobs += 1;
        self.note_arrival(&mut work, run_at, false);
        if queue.queue.mode == Mode::Accumulate && !work.row.head.is_claimed() {
            work.row.head.prio = work.row.head.prio.min(prio);
        }
        if let Some(job) = self.add_behind(&mut work, job)? {
            self.put(&mut work, job)?;
            self.note_window(&work);
            return self.save(work).map(|()| None);
        }
        self.note_window(&work);
        let head = &work.row.head;
        let is_placed = head.wake.is_none_or(|wake| wake > self.now);
        if is_placed && (head.due, head.prio, head.flags) == (before.due, before.prio, before.flags)
        {
            let sql = "UPDATE lane SET n = ?2, next_due = ?3 WHERE id = ?1";
            self.execute(sql, params![head.id, head.items, head.next_due])?;
            return Ok(None);
        }
        self.save(work)?;
        Ok(None)
    }

    /// The common case: the key has no lane. One statement creates it with its job.
    fn open_with(&mut self, queue: &QueueRow, key: Option<&str>, j: &Job) -> Result<bool> {
        let is_due = j.run_at <= self.now;
        let st = if is_due { state::READY } else { state::SCHEDULED };
        let wake = (!is_due).then_some(j.run_at);
        let sql = "INSERT INTO lane (id, q, key, st, class, prio, due, wake, route, seq, gen, created, score, jprio, run_at,
                   attempts, flagged, expires, jroute, task, digest, opts, payload, flags)
                   VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?1, 0, ?10, ?11, ?6, ?7, 0, 0, ?12, ?9, ?13, ?14, ?15, ?16, ?17)
                   ON CONFLICT DO NOTHING";
        let flags = if j.payload.is_none() { flag::BODIES } else { 0 };
        let flags = if j.may_have_batch() { flags | flag::BATCH } else { flags };
        let opened = self.execute(
            sql,
            params![
                j.seq,
                queue.number,
                key,
                st,
                j.route * 2,
                j.prio,
                j.run_at,
                wake,
                j.route,
                j.created,
                j.score,
                j.expires,
                j.task,
                j.digest,
                j.options,
                j.payload,
                flags
            ],
        )?;
        if opened == 1 && key.is_some() && is_due {
            let sql = "INSERT INTO ready VALUES (?1, ?2, ?3, ?4, ?5)";
            self.execute(sql, params![queue.number, j.route * 2, j.prio, j.run_at, j.seq])?;
        }
        Ok(opened == 1)
    }

    /// The same for a job that failed elsewhere.
    fn open_with_past(&mut self, queue: &QueueRow, key: Option<&str>, job: &Job) -> Result<bool> {
        if let Some(key) = key
            && self.lane_of_key(queue.number, key)?.is_some()
        {
            return Ok(false);
        }
        let mut work = self.open_lane(queue, key, job.seq, job)?;
        // The caller counts it.
        self.delta(queue.number).lanes -= 1;
        let mut job = job.clone();
        if queue.queue.mode == Mode::Accumulate {
            (work.row.head.retry, work.row.head.error) = (job.retry, job.error.take());
            job.retry = -1;
        }
        self.put(&mut work, job)?;
        self.save(work)?;
        Ok(true)
    }

    /// Merges a job into an equal waiting one. Returns that job's number and creation time.
    fn merge(&mut self, work: &mut Work, job: &Job) -> Result<Option<(i64, i64)>> {
        let Some(digest) = job.digest else { return Ok(None) };
        let merge = work.definition().merge;
        if work.row.open_slot().is_some_and(|slot| slot.digest == Some(digest)) {
            let Some(slot) = work.slot_mut() else { return Ok(None) };
            slot.score = merge.score(slot.score, job.score);
            slot.prio = slot.prio.min(job.prio);
            return Ok(Some((slot.seq, slot.created)));
        }
        if work.row.head.items == 0 {
            return Ok(None);
        }
        let sql = match merge {
            Merge::Max => {
                "UPDATE item INDEXED BY item_order SET score = max(score, ?4), jprio = min(jprio, ?5) WHERE lane = ?1 AND gen = ?2 AND ord = ?3 RETURNING seq, created"
            }
            _ => {
                "UPDATE item INDEXED BY item_order SET score = min(score, ?4), jprio = min(jprio, ?5) WHERE lane = ?1 AND gen = ?2 AND ord = ?3 RETURNING seq, created"
            }
        };
        let values = params![work.row.head.id, work.row.head.open, digest, job.score, job.prio];
        self.first(sql, values, |row| Ok((row.get(0)?, row.get(1)?)))
    }

    /// Puts a job with a history back into its lane: requeued, or kept while its queue changed. If an equal job waits
    /// there, they merge under the older id, and the other id becomes an alias.
    pub(super) fn put_back(&mut self, queue: u32, key: Option<&str>, mut job: Job) -> Result<()> {
        let Some(row) = self.queue_number(queue)? else { return Ok(()) };
        if row.queue.merges() && job.digest.is_none() {
            let payload = Payload::from_bytes(self.payload_of(&job)?);
            let digest = crate::model::payload::digest(job.task.as_deref(), &payload);
            job.digest = Some(job.options().map_or(digest, |options| options.merge_digest(digest)));
        }
        let known = match key {
            Some(key) => self.lane_of_key(queue, key)?,
            None => None,
        };
        let mut work = match known {
            Some(work) => work,
            None => {
                let id = if key.is_none() { job.seq } else { self.next_seq() };
                self.open_lane(&row, key, id, &job)?
            }
        };
        arrive(&mut work, job.run_at, false);
        self.unite(&mut work, job)?;
        self.settle_priority(&mut work)?;
        self.save(work)
    }

    /// Inserts a job into a lane. If an equal job waits there, they merge and the older id survives.
    pub(super) fn unite(&mut self, work: &mut Work, job: Job) -> Result<()> {
        let Some(other) = self.take_equal(work, &job)? else { return self.put(work, job) };
        let merge = work.definition().merge;
        let (mut survivor, other) = if other.seq < job.seq { (other, job) } else { (job, other) };
        self.leave_batch(&other, Leave::Merged);
        survivor.score = merge.score(survivor.score, other.score);
        survivor.prio = survivor.prio.min(other.prio);
        survivor.attempts = survivor.attempts.max(other.attempts);
        let names = [survivor.aliases.take(), Some(other.seq.to_string()), other.aliases.clone()];
        survivor.aliases = Some(names.into_iter().flatten().collect::<Vec<_>>().join(","));
        let sql = "INSERT INTO alias VALUES (?1, ?2, ?3)
                   ON CONFLICT DO UPDATE SET created = ?2, target = ?3";
        self.execute(sql, params![other.seq, other.created, survivor.seq])?;
        if other.aliases.is_some() {
            let sql = "UPDATE alias SET target = ?2 WHERE target = ?1";
            self.execute(sql, params![other.seq, survivor.seq])?;
        }
        if other.payload.is_none() {
            self.delete_body(other.seq)?;
        }
        self.delta(work.queue.number).jobs -= 1;
        self.put(work, survivor)
    }

    /// Sets the priority of an unclaimed `accumulate` lane to the lowest number of its open jobs.
    pub(super) fn settle_priority(&self, work: &mut Work) -> Result<()> {
        if work.definition().mode == Mode::Accumulate
            && !work.row.head.is_claimed()
            && let Some(soonest) = self.soonest_priority(work)?
        {
            work.row.head.prio = soonest;
        }
        Ok(())
    }
}

/// Updates the due time of an `accumulate` lane for an arrival. A job with a history moves no window.
pub(super) fn arrive(work: &mut Work, run_at: i64, merged: bool) {
    if work.definition().mode != Mode::Accumulate {
        return;
    }
    let rule = work.definition().due;
    let head = &mut work.row.head;
    if head.is_claimed() {
        head.next_due = Some(match (head.next_due, rule) {
            (Some(due), DueRule::First) => due,
            (Some(due), DueRule::Earliest) => due.min(run_at),
            (None, _) => run_at,
        });
    } else if head.items == 0 && work.row.slot.is_none() && !merged {
        head.due = run_at;
    } else if rule == DueRule::Earliest {
        head.due = head.due.min(run_at);
    }
}

pub(super) fn job_id(created: i64, queue: u32, seq: i64) -> JobId {
    JobId::new(Timestamp::from_micros(created), queue, 0, seq as u64)
}
