//! Pushing. A batch for one shard is one script, so it is all or nothing. A batch for several queues or shards is
//! checked in all of them before the first write. A part of it may be stored nevertheless: if a connection is lost,
//! memory gets full, or a queue is declared or deleted between two shards. Then the error is `Unavailable`, because a
//! refusal would say that nothing is stored.

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;

use async_trait::async_trait;
use futures_util::future::{join_all, try_join_all};
use redis::Value;

use super::Redis;
use super::args::{Args, micros};
use super::compact::{APART_BYTES_MIN, marked};
use super::layout::{Layout, OLDER_MAX, Step, Take};
use super::link::PUSH;
use super::memo::Known;
use super::queues::ATTEMPTS;
use super::reply::{Fields, Shard, corrupt, score_hex, score_order};
use crate::contract::batches::refuse_batches;
use crate::contract::errors::{is_closing, other_route, too_many_routes};
use crate::contract::{Producer, Push, PushStatus, Pushed, Wake, validate_job, validate_push};
use crate::model::past::Past;
use crate::model::{
    Error, ErrorKind, Job, JobOptions, Queue, Result, RunAt, Throttled, Timestamp, group_number,
};
use crate::stores::json::json;

/// Instead of a status: the shard has no lane or job that this job joins.
const NOT_TAKEN: i64 = 3;
/// The status of a job whose key is throttled.
const THROTTLED: i64 = 4;

/// The part of a batch for one shard.
struct Part {
    known: Arc<Known>,
    shard: Shard,
    /// Jobs that are not accepted continue on their path.
    take: Take,
    /// Indexes in the batch.
    jobs: Vec<usize>,
}

/// A shard's answer to its part.
enum Answer {
    /// One result per job, `None` if it was not accepted; and the shard's last token.
    Pushed(Vec<Option<Pushed>>, i64),
    /// The part was checked against another definition than the shard's.
    Stale,
}

/// A batch in progress.
struct Batch<'a> {
    request: &'a Push,
    pushed: Vec<Option<Pushed>>,
    /// For a repeat of an idempotency key of the whole store: the place of its first job that was not refused. Their shards
    /// are written at once, in no order, so it waits for that one.
    firsts: HashMap<usize, usize>,
    /// The highest last token of the shards that did not accept all jobs.
    floor: i64,
}

impl<'a> Batch<'a> {
    fn new(request: &'a Push) -> Self {
        let pushed = vec![None; request.jobs.len()];
        let mut batch = Self { request, pushed, firsts: HashMap::new(), floor: 0 };
        batch.find_firsts();
        batch
    }

    fn find_firsts(&mut self) {
        let mut seen = HashMap::new();
        self.firsts.clear();
        for (place, job) in self.request.jobs.iter().enumerate() {
            let Some(name) = job.key_of_store() else { continue };
            if self.pushed[place].is_some_and(|one| one.status == PushStatus::Throttled) {
                continue;
            }
            let first = *seen.entry(name).or_insert(place);
            if first != place {
                self.firsts.insert(place, first);
            }
        }
    }

    /// The jobs that no shard has accepted yet.
    fn left(&self) -> Vec<usize> {
        (0..self.pushed.len()).filter(|place| self.pushed[*place].is_none()).collect()
    }

    /// The error for the caller. If it is a refusal, the caller may push the same jobs one by one.
    fn failed(&self, error: Error) -> Error {
        if error.kind() == ErrorKind::Unavailable || self.pushed.iter().all(Option::is_none) {
            return error;
        }
        let message = format!("a part of these jobs is pushed, the rest is not: {error}");
        Error::new(ErrorKind::Unavailable, message)
    }

    /// Those of them that wait for no other.
    fn next(&self) -> Vec<usize> {
        let waits = |place: &usize| {
            self.firsts.get(place).is_some_and(|first| self.pushed[*first].is_none())
        };
        self.left().into_iter().filter(|place| !waits(place)).collect()
    }
}

#[async_trait]
impl Producer for Redis {
    async fn push(&self, request: Push) -> Result<Vec<Pushed>> {
        validate_push(&request)?;
        refuse_batches(&request.jobs)?;
        self.check_scopes(&request.jobs)?;
        let mut batch = Batch::new(&request);
        for _ in 0..ATTEMPTS {
            let all_pushed = self.push_in_rounds(&mut batch).await;
            if all_pushed.map_err(|error| batch.failed(error))? {
                self.bell.ring(&Wake::of_jobs(&request.jobs));
                return batch.pushed.into_iter().collect::<Option<_>>().ok_or_else(corrupt);
            }
            batch.left().iter().for_each(|place| self.memo.forget(&request.jobs[*place].queue));
        }
        Err(Error::new(
            ErrorKind::Unavailable,
            "a queue's definition changed while it was pushed to",
        ))
    }
}

impl Redis {
    /// Refuses idempotency keys of the whole store in a cluster: no step reaches the shard of a job and what all shards
    /// share.
    fn check_scopes(&self, jobs: &[Job]) -> Result<()> {
        let place = jobs.iter().position(|job| job.key_of_store().is_some());
        match place.filter(|_| self.link.is_cluster()) {
            Some(place) => {
                let message = "`store` is not possible in a Redis cluster, whose queues are on different servers: use `key`";
                let error = Error::invalid("idempotency_scope", message);
                Err(error.in_field(format!("jobs[{place}]")))
            }
            None => Ok(()),
        }
    }

    /// Pushes all jobs of a batch. False if a definition changed before all were accepted.
    async fn push_in_rounds(&self, batch: &mut Batch<'_>) -> Result<bool> {
        loop {
            let before = batch.left().len();
            if !self.push_checked(batch).await? {
                return Ok(false);
            }
            if batch.firsts.is_empty() || [0, before].contains(&batch.left().len()) {
                return Ok(true);
            }
            batch.find_firsts();
        }
    }

    /// Pushes the jobs of a batch that wait for no other. False if a definition changed before all were accepted.
    async fn push_checked(&self, batch: &mut Batch<'_>) -> Result<bool> {
        let jobs = &batch.request.jobs;
        let (known, missing) = self.definitions(jobs, &batch.left()).await?;
        let (checked, mut left) = (batch.left(), batch.next());
        let way = Way { turn: self.rotate(), known };
        let is_part = left.len() < checked.len();
        if !self.push_dry(batch.request, &way, &checked, (missing.len(), is_part)).await? {
            return Ok(false);
        }
        if !missing.is_empty() {
            // They exist now, and another client's definition may apply.
            for queue in missing.values() {
                self.create(queue).await?;
            }
            return Ok(false);
        }
        for step in 0..=OLDER_MAX {
            let parts = way.parts(jobs, &left, step);
            let writes =
                parts.iter().map(|part| self.push_part(batch.request, part, Some(batch.floor)));
            let answers = join_all(writes).await;
            let (mut stale, mut failed) = (false, None::<Error>);
            for (part, answer) in parts.iter().zip(answers) {
                match answer {
                    Ok(Answer::Pushed(answers, token)) => {
                        if part.take != Take::All {
                            batch.floor = batch.floor.max(token);
                        }
                        for (place, answer) in part.jobs.iter().zip(answers) {
                            batch.pushed[*place] = answer;
                        }
                    }
                    Ok(Answer::Stale) => stale = true,
                    // An error after which something may be stored counts before a refusal.
                    Err(error) if failed.as_ref().is_none_or(Error::is_refusal) => {
                        failed = Some(error);
                    }
                    Err(_) => {}
                }
            }
            if let Some(error) = failed {
                return Err(error);
            }
            if stale {
                return Ok(false);
            }
            left.retain(|place| batch.pushed[*place].is_none());
        }
        Ok(true)
    }

    /// Whether every shard that may get jobs would accept them. Not needed for a single part, which refuses by itself,
    /// unless only a part of it follows (`is_part`).
    async fn push_dry(
        &self,
        request: &Push,
        way: &Way,
        places: &[usize],
        (missing, is_part): (usize, bool),
    ) -> Result<bool> {
        if request.jobs.len() == 1 {
            return Ok(true);
        }
        let steps = (0..=OLDER_MAX).map(|step| way.parts(&request.jobs, places, step));
        let parts: Vec<Part> = steps.flatten().collect();
        if parts.len() + missing <= 1 && !is_part {
            return Ok(true);
        }
        let checks = parts.iter().map(|part| self.push_part(request, part, None));
        let stale = |answer: &Answer| matches!(answer, Answer::Stale);
        Ok(!try_join_all(checks).await?.iter().any(stale))
    }

    /// The definitions of the queues in a batch, and those that must be created. Refuses a job whose key contradicts
    /// its queue's mode.
    async fn definitions(
        &self,
        jobs: &[Job],
        places: &[usize],
    ) -> Result<(HashMap<String, Arc<Known>>, BTreeMap<String, Queue>)> {
        let (mut known, mut missing) = (HashMap::new(), BTreeMap::new());
        for (i, job) in places.iter().map(|i| (*i, &jobs[*i])) {
            if !known.contains_key(&job.queue) && !missing.contains_key(&job.queue) {
                match self.known(&job.queue).await? {
                    Some(queue) => drop(known.insert(job.queue.clone(), queue)),
                    None => {
                        let implied = Queue::implied(&job.queue, job.key.is_some());
                        missing.insert(job.queue.clone(), implied);
                    }
                }
            }
            let there = known.get(&job.queue);
            if there.is_some_and(|known| known.closing) {
                // The cache may be outdated: the next push reloads it.
                self.memo.forget(&job.queue);
                return Err(is_closing(&job.queue).in_field(format!("jobs[{i}]")));
            }
            let queue = there.map(|known| &known.queue);
            if let Some(queue) = queue.or_else(|| missing.get(&job.queue)) {
                validate_job(queue, job, i)?;
            }
        }
        Ok((known, missing))
    }

    /// Pushes a part, with tokens above `floor`; without `floor` it only checks.
    async fn push_part(&self, request: &Push, part: &Part, floor: Option<i64>) -> Result<Answer> {
        let mut args = Args::default();
        args.flag(floor.is_none()).now(request.now);
        args.int(part.known.version).text(part.take.text()).int(floor.unwrap_or(0));
        let sets_apart = self.sets_apart();
        let is_plain = |job: &Job| is_plain(job, sets_apart);
        let is_apart = |job: &Job| sets_apart && job.payload.as_bytes().len() >= APART_BYTES_MIN;
        let is_bare =
            |job: &Job| is_plain(job) && !is_apart(job) && job.options.idempotency_key.is_none();
        let all_bare = part.jobs.iter().all(|i| is_bare(&request.jobs[*i]));
        args.int(part.known.queue.throttle.map_or(0, micros));
        args.flag(part.known.queue.throttled == Throttled::Refuse);
        args.text(if all_bare { "s" } else { "m" });
        for i in &part.jobs {
            let job = &request.jobs[*i];
            let is_of_store = job.key_of_store().is_some();
            if !is_plain(job) {
                job_args(args.text(letter(job, is_of_store)), job, &part.known)?;
                continue;
            }
            let apart = is_apart(job);
            if !all_bare {
                args.text(plain_letter(job, is_of_store, apart));
                args.0.extend(job.options.idempotency_key.as_ref().map(|key| key.clone().into()));
            }
            args.bytes(plain(job, &part.known, apart)?);
            args.0.extend(apart.then(|| job.payload.as_bytes().to_vec()));
        }
        let mut answer = self.link.call_durably(&PUSH, &self.key(part.shard, ""), &args).await?;
        match &*answer.text()? {
            "OK" if floor.is_none() => Ok(Answer::Pushed(Vec::new(), 0)),
            "OK" => {
                let (now, mut list) = (answer.int()?, answer.list()?);
                let mut pushed = Vec::with_capacity(part.jobs.len());
                while !list.is_empty() {
                    pushed.push(pushed_of(&mut list, &part.known.queue, part.shard, now)?);
                }
                Ok(Answer::Pushed(pushed, answer.int()?))
            }
            "ROUTE" => {
                let place = usize::try_from(answer.int()?).map_err(|_| corrupt())?;
                let i = *part.jobs.get(place).ok_or_else(corrupt)?;
                Err(other_route(request.jobs[i].key.as_deref().unwrap_or_default(), i))
            }
            "ROUTES" => Err(too_many_routes()),
            _ => {
                // Another shard may not have adopted the latest definition yet.
                if part.shard.shard > 0
                    && let Some(known) = self.reload(&part.known.name).await?
                {
                    self.adopt_in_reach(&known).await?;
                }
                Ok(Answer::Stale)
            }
        }
    }
}

/// One entry of the answer: the number of a new job, or number and creation time of an earlier one, and until when that
/// throttles the key; `None` for one that was not accepted.
fn pushed_of(list: &mut Fields, queue: &Queue, shard: Shard, now: i64) -> Result<Option<Pushed>> {
    let (number, status) = (list.value()?, list.value()?);
    if status == Value::Int(NOT_TAKEN) {
        return Ok(None);
    }
    let job_id = match number {
        Value::Int(seq) => shard.job(seq, now),
        known => {
            let mut names = Fields::of(known)?;
            let seq = names.int()?;
            let place = match names.is_empty() {
                true => shard,
                false => Shard {
                    queue: names.int()?.try_into().map_err(|_| corrupt())?,
                    shard: names.int()?.try_into().map_err(|_| corrupt())?,
                },
            };
            place.job(seq, list.int()?)
        }
    };
    Ok(Some(match status {
        Value::Int(0) => Pushed::new(job_id, PushStatus::Queued),
        Value::Int(1) => Pushed::new(job_id, PushStatus::Merged),
        Value::Int(2) => Pushed::new(job_id, PushStatus::Duplicate),
        Value::Int(THROTTLED) => {
            Pushed::throttled(queue, job_id, Timestamp::from_micros(list.int()?))
        }
        _ => return Err(corrupt()),
    }))
}

/// The paths of a batch's jobs.
struct Way {
    known: HashMap<String, Arc<Known>>,
    /// Jobs without a name go to the shards in turn.
    turn: u64,
}

impl Way {
    /// The next parts of a batch by shard, after `step` shards that did not accept the jobs.
    fn parts(&self, jobs: &[Job], places: &[usize], step: usize) -> Vec<Part> {
        let mut parts: BTreeMap<Step, BTreeMap<u32, Part>> = BTreeMap::new();
        for i in places {
            let job = &jobs[*i];
            let Some(known) = self.known.get(&job.queue) else { continue };
            let Some(step) = self.step(&known.layout, job, step) else { continue };
            let is_named = job.options.idempotency_key.is_some() || known.queue.throttle.is_some();
            if step.take == Take::Repeated && !is_named {
                continue;
            }
            let part = parts.entry(step).or_default().entry(known.number).or_insert_with(|| Part {
                known: known.clone(),
                shard: Layout::shard(known.number, step),
                take: step.take,
                jobs: Vec::new(),
            });
            part.jobs.push(*i);
        }
        parts.into_values().flat_map(BTreeMap::into_values).collect()
    }

    /// By its key, so that a key has one place; without one by its idempotency key, so that a repeat finds it; else in
    /// turn.
    fn step(&self, layout: &Layout, job: &Job, step: usize) -> Option<Step> {
        match job.key.as_deref().or(job.options.idempotency_key.as_deref()) {
            Some(name) => layout.step(name, step),
            None => {
                let shard = (self.turn % u64::from(layout.shards)) as u16;
                (step == 0).then_some(Step { shard, take: Take::All })
            }
        }
    }
}

/// A longer payload is stored separately: `INLINE_BYTES_MAX` of `shard.lua`.
const INLINE_BYTES_MAX: usize = 64 << 10;

/// The digest of a job's task and payload if its queue may compare them. A queue that a push created may be declared
/// with another mode while it has jobs.
fn digest(job: &Job, known: &Known) -> Vec<u8> {
    let compares = known.queue.merges() || !known.declared && known.queue.mode.is_keyed();
    if compares { job.payload_digest().to_vec() } else { Vec::new() }
}

/// The arguments of `push.lua` for one job.
fn job_args<'a>(args: &'a mut Args, job: &Job, known: &Known) -> Result<&'a mut Args> {
    let options = &job.options;
    args.name(job.key.as_deref()).name(job.task.as_deref()).bytes(job.payload.as_bytes());
    args.bytes(digest(job, known));
    args.name(job.score.map(score_hex).as_deref()).int(job.priority);
    args.bytes(run_at(job));
    args.name(options.node.as_deref()).text(&consumers_and_group(options));
    args.int(options.lease_ttl.map_or(0, micros));
    args.int(options.expires_at.map_or(0, |at| at.as_micros().max(1)));
    args.name(options.idempotency_key.as_deref()).text(&options_text(options)?);
    if let Some(past) = &job.past {
        args.text(&past_text(past));
    }
    Ok(args)
}

/// What `push.lua` is told of a job that is not plain.
fn letter(job: &Job, is_of_store: bool) -> &'static str {
    match (&job.past, job.dead_at().is_some(), is_of_store) {
        (None, _, false) => "g",
        (None, _, true) => "G",
        (Some(_), false, false) => "h",
        (Some(_), false, true) => "H",
        (Some(_), true, false) => "d",
        (Some(_), true, true) => "D",
    }
}

fn past_text(past: &Past) -> String {
    // 0 is unset.
    let time = |at: Option<Timestamp>| at.map_or(0, |at| at.as_micros().max(1));
    let [made, tried, died] = [past.created_at, past.started_at, past.dead_at].map(time);
    let error = past.error.as_ref().map_or_else(|| "-".to_owned(), |error| format!("+{error}"));
    format!("{} {made} {tried} {died} {error}", past.failures)
}

/// The consumer group of a route; with a group, NUL and its number: see `route_of` in `shard.lua`.
fn consumers_and_group(options: &JobOptions) -> String {
    let consumers = options.consumer_group.as_deref().unwrap_or_default();
    match &options.group {
        Some(group) => format!("{consumers}\0{}", group_number(Some(group))),
        None => consumers.to_owned(),
    }
}

/// The letter before a plain job in the arguments of `push.lua`, if not all jobs are bare.
fn plain_letter(job: &Job, is_of_store: bool, apart: bool) -> &'static str {
    match (job.options.idempotency_key.is_some(), is_of_store, apart) {
        (false, _, false) => "s",
        (false, _, true) => "p",
        (true, false, false) => "i",
        (true, false, true) => "j",
        (true, true, false) => "I",
        (true, true, true) => "J",
    }
}

/// Whether this job fits a record of a plain job (`compact.lua`), its payload apart if that is possible.
fn is_plain(job: &Job, sets_apart: bool) -> bool {
    let options = &job.options;
    job.past.is_none()
        && options.node.is_none()
        && options.consumer_group.is_none()
        && options.group.is_none()
        && options.lease_ttl.is_none()
        && options.expires_at.is_none()
        && (sets_apart || job.payload.as_bytes().len() <= INLINE_BYTES_MAX)
}

/// When a job runs, for `push.lua`.
fn run_at(job: &Job) -> [u8; 8] {
    let (kind, time) = match job.run_at {
        RunAt::Now => (b'n', 0),
        RunAt::In(delay) => (b'i', micros(delay)),
        RunAt::At(time) => (b'@', time.clamp(Timestamp::default(), Timestamp::MAX).as_micros()),
    };
    let mut bytes = time.to_be_bytes();
    bytes[0] = kind;
    bytes
}

/// The argument of `push.lua` for a plain job; it ends like a compact record. A payload that is apart is the next argument.
fn plain(job: &Job, known: &Known, apart: bool) -> Result<Vec<u8>> {
    let mut text = options_text(&job.options)?;
    let mut body = job.payload.as_bytes();
    if apart {
        (text, body) = (marked(&text, body.len()), &[]);
    }
    let (key, task) = (job.key.as_deref().unwrap_or(""), job.task.as_deref().unwrap_or(""));
    let digest = digest(job, known);
    let lengths = 28 + key.len() + task.len() + digest.len() + text.len();
    let mut bytes = Vec::with_capacity(lengths + body.len());
    bytes.extend(run_at(job));
    bytes.extend(job.priority.to_be_bytes());
    bytes.push(if job.score.is_some() { b'1' } else { b'0' });
    bytes.extend(job.score.map_or([0; 8], |score| score_order(score).to_be_bytes()));
    bytes.extend((key.len() as u16).to_be_bytes());
    bytes.extend((task.len() as u16).to_be_bytes());
    bytes.push(digest.len() as u8);
    bytes.extend((text.len() as u32).to_be_bytes());
    for part in [key.as_bytes(), task.as_bytes(), &digest, text.as_bytes(), body] {
        bytes.extend(part);
    }
    Ok(bytes)
}

pub(super) fn options_text(options: &JobOptions) -> Result<String> {
    if *options == JobOptions::default() {
        return Ok(String::new());
    }
    json(options)
}
