//! Jobs as a producer pushes them.

use std::time::Duration;

use serde::Serialize;

use crate::model::batch::{EndedBatch, digest_in, digest_of_callback};
use crate::model::build::group_of_build;
use crate::model::clock::Timestamp;
use crate::model::error::{Error, Result};
use crate::model::limits::{
    ATTEMPTS_MAX, DELAY_MAX, KEY_BYTES_MAX, NAME_BYTES_MAX, PRIORITY_DEFAULT, PRIORITY_MAX,
    QUEUE_NAME_BYTES_MAX,
};
use crate::model::past::Past;
use crate::model::payload::{Digest, Payload, digest};

/// A job to push.
///
/// ```
/// # fn main() -> seriatim::Result<()> {
/// use seriatim::Job;
/// let job = Job::new("orders", &serde_json::json!({"status": "paid"}))?.key("order-42").score(7.0);
/// # Ok(()) }
/// ```
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub struct Job {
    /// The queue to push to. If it does not exist it is created: `exclusive` if the job has a key, `parallel` if not.
    pub queue: String,
    /// The entity that the job concerns; jobs of one (queue, key) never overlap.
    pub key: Option<String>,
    /// Which of the queue's tasks this is, if it has several.
    pub task: Option<String>,
    /// The input of the handler.
    pub payload: Payload,
    /// Its order among the jobs of its key, lowest first. Default: the store's clock in Unix seconds (0 in `fifo`).
    pub score: Option<f64>,
    /// 0 to 32,767; lower runs sooner. Default: 100.
    pub priority: u16,
    /// When it is due.
    pub run_at: RunAt,
    /// Settings that override the queue's, and rarely used fields.
    pub options: JobOptions,
    /// The digest of the task and payload, if it was computed before the push; `None`: the store computes it.
    pub digest: Option<Digest>,
    /// What happened to it elsewhere, before this push.
    pub past: Option<Box<Past>>,
}

/// When a job is due.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub enum RunAt {
    /// Immediately, by the store's clock.
    #[default]
    Now,
    /// This long after the store's now.
    In(Duration),
    /// At this time.
    At(Timestamp),
}

/// Where an idempotency key is unique.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, serde::Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum IdempotencyScope {
    /// Among the jobs of one queue and key.
    #[default]
    Key,
    /// In the whole store. Not in a Redis cluster, whose queues are on different servers.
    Store,
}

impl IdempotencyScope {
    /// Whether it is the default.
    #[expect(clippy::trivially_copy_pass_by_ref, reason = "serde passes it so")]
    fn is_key(&self) -> bool {
        *self == Self::Key
    }
}

/// The options of a job; most jobs have none.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, serde::Deserialize)]
#[serde(default)]
#[non_exhaustive]
pub struct JobOptions {
    /// Overrides the queue's `max_retries`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub max_retries: Option<u32>,
    /// Limits failures and crashes together.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub max_attempts: Option<u32>,
    /// Overrides the queue's backoff.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub backoff: Option<crate::model::retry::Backoff>,
    /// The time limit of a handler call.
    #[serde(with = "crate::model::duration::optional", skip_serializing_if = "Option::is_none")]
    pub timeout: Option<Duration>,
    /// How long a claim of it lasts without a heartbeat.
    #[serde(with = "crate::model::duration::optional", skip_serializing_if = "Option::is_none")]
    pub lease_ttl: Option<Duration>,
    /// If it was not attempted by then, it is cancelled with error `expired`. A snooze or a release is no attempt. A job
    /// that is requeued from the morgue no longer expires. Of jobs that merge, that of the older one counts.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub expires_at: Option<Timestamp>,
    /// A repeat with the same (queue, key, `idempotency_key`) returns the first job and changes nothing.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub idempotency_key: Option<String>,
    /// Where `idempotency_key` is unique.
    #[serde(skip_serializing_if = "IdempotencyScope::is_key")]
    pub idempotency_scope: IdempotencyScope,
    /// Only nodes of this configured name may claim it. A dead job that is requeued onto a key with waiting jobs runs where
    /// these do.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub node: Option<String>,
    /// Only nodes and workers of this consumer group may claim it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub consumer_group: Option<String>,
    /// The group of its key, in a queue with groups, which take turns. See [`crate::Groups`].
    #[serde(skip_serializing_if = "Option::is_none")]
    pub group: Option<String>,
    /// Stored and shown; the engine does not use it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub partition_key: Option<String>,
    /// The producer's name; stored and shown.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub producer: Option<String>,
    /// A label for the intended consumer; stored and shown. Unlike a consumer group, it does not bind the job.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub consumer: Option<String>,
    /// W3C trace context for the handler.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub traceparent: Option<String>,
    /// The batch that it belongs to: see [`Batches`](crate::store::Batches).
    #[serde(skip_serializing_if = "Option::is_none")]
    pub batch: Option<String>,
    /// The batch whose callback it is; written by the store.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub ended_batch: Option<EndedBatch>,
}

impl JobOptions {
    /// Whether they change nothing of how the job runs: they name its batch, make it unique, or describe it.
    pub(crate) fn are_plain(&self) -> bool {
        let Self {
            batch: _,
            idempotency_key: _,
            idempotency_scope: _,
            partition_key: _,
            producer: _,
            consumer: _,
            traceparent: _,
            max_retries: None,
            max_attempts: None,
            backoff: None,
            timeout: None,
            lease_ttl: None,
            expires_at: None,
            node: None,
            consumer_group: None,
            group: None,
            ended_batch: None,
        } = self
        else {
            return false;
        };
        true
    }

    /// Whether a job that was attempted so many times has expired. One that failed waits for its retry, however long.
    pub(crate) fn have_expired(&self, attempts: u32, now: Timestamp) -> bool {
        attempts == 0 && self.expires_at.is_some_and(|at| at <= now)
    }

    /// The digest by which a job with these options is equal to another: jobs of other batches are not, and callbacks
    /// equal none.
    pub(crate) fn merge_digest(&self, digest: Digest) -> Digest {
        match &self.ended_batch {
            Some(ended) => digest_of_callback(&ended.id, digest),
            None => digest_in(self.batch.as_deref(), digest),
        }
    }
}

impl Job {
    /// A job for `queue` with the JSON of `payload`. `Invalid` if that cannot be written as JSON.
    pub fn new<T: Serialize + ?Sized>(queue: impl Into<String>, payload: &T) -> Result<Self> {
        Ok(Self::with_payload(queue, Payload::json(payload)?))
    }

    /// A job for `queue` with a payload that is already encoded.
    pub fn with_payload(queue: impl Into<String>, payload: Payload) -> Self {
        Self {
            queue: queue.into(),
            key: None,
            task: None,
            payload,
            score: None,
            priority: PRIORITY_DEFAULT,
            run_at: RunAt::Now,
            options: JobOptions::default(),
            digest: None,
            past: None,
        }
    }

    /// Sets the key.
    #[must_use]
    pub fn key(mut self, key: impl Into<String>) -> Self {
        self.key = Some(key.into());
        self
    }

    /// Sets the key from any value with `Display`, for example a number.
    #[must_use]
    pub fn key_from(self, entity: impl std::fmt::Display) -> Self {
        self.key(entity.to_string())
    }

    /// Sets the task.
    #[must_use]
    pub fn task(mut self, task: impl Into<String>) -> Self {
        self.task = Some(task.into());
        self
    }

    /// Sets the score: its order among the jobs of its key.
    #[must_use]
    pub fn score(mut self, score: f64) -> Self {
        self.score = Some(score);
        self
    }

    /// Sets the priority, 0 (soonest) to 32,767.
    #[must_use]
    pub fn priority(mut self, priority: u16) -> Self {
        self.priority = priority;
        self
    }

    /// Makes it due at `time`.
    #[must_use]
    pub fn run_at(mut self, time: Timestamp) -> Self {
        self.run_at = RunAt::At(time);
        self
    }

    /// Makes it due after `delay`.
    #[must_use]
    pub fn run_in(mut self, delay: Duration) -> Self {
        self.run_at = RunAt::In(delay);
        self
    }

    /// Sets the idempotency key.
    #[must_use]
    pub fn idempotency_key(mut self, key: impl Into<String>) -> Self {
        self.options.idempotency_key = Some(key.into());
        self
    }

    /// Sets where the idempotency key is unique.
    #[must_use]
    pub fn idempotency_scope(mut self, scope: IdempotencyScope) -> Self {
        self.options.idempotency_scope = scope;
        self
    }

    /// Overrides the queue's `max_retries`.
    #[must_use]
    pub fn max_retries(mut self, retries: u32) -> Self {
        self.options.max_retries = Some(retries);
        self
    }

    /// Sets the time limit of a handler call.
    #[must_use]
    pub fn timeout(mut self, length: Duration) -> Self {
        self.options.timeout = Some(length);
        self
    }

    /// Makes it expire at `time`, unless it was attempted by then.
    #[must_use]
    pub fn expires_at(mut self, time: Timestamp) -> Self {
        self.options.expires_at = Some(time);
        self
    }

    /// Binds it to nodes of this configured name.
    #[must_use]
    pub fn node(mut self, name: impl Into<String>) -> Self {
        self.options.node = Some(name.into());
        self
    }

    /// Binds it to nodes and workers of this consumer group.
    #[must_use]
    pub fn consumer_group(mut self, group: impl Into<String>) -> Self {
        self.options.consumer_group = Some(group.into());
        self
    }

    /// Binds it to nodes that run this build of their program, in place of a consumer group: see
    /// [`EngineBuilder::build_of_program`](crate::EngineBuilder::build_of_program).
    #[must_use]
    pub fn build(self, build: impl AsRef<str>) -> Self {
        self.consumer_group(group_of_build(build.as_ref()))
    }

    /// Sets its group, such as a tenant: the groups of a queue take turns.
    #[must_use]
    pub fn group(mut self, name: impl Into<String>) -> Self {
        self.options.group = Some(name.into());
        self
    }

    /// Gives it a history: failures here add to those before, and a job that died goes to the morgue.
    #[must_use]
    pub fn past(mut self, past: Past) -> Self {
        self.past = Some(Box::new(past));
        self
    }

    /// When it died elsewhere: it goes to the morgue.
    pub(crate) fn dead_at(&self) -> Option<Timestamp> {
        self.past.as_ref()?.dead_at
    }

    /// Makes it a job of this batch, which must be open: see [`Client::open_batch`](crate::Client::open_batch).
    #[must_use]
    pub fn batch(mut self, id: impl Into<String>) -> Self {
        self.options.batch = Some(id.into());
        self
    }

    /// Its idempotency key, if that is unique in the whole store.
    pub(crate) fn key_of_store(&self) -> Option<&str> {
        let is_of_store = self.options.idempotency_scope == IdempotencyScope::Store;
        self.options.idempotency_key.as_deref().filter(|_| is_of_store)
    }

    /// The place where its idempotency key is remembered: queue, key, idempotency key. Number 0 is no queue: it is the
    /// whole store. `queue` is the number of its queue.
    pub(crate) fn repeat(&self, queue: u32) -> Option<(u32, Option<&str>, &str)> {
        let name = self.options.idempotency_key.as_deref()?;
        Some(match self.key_of_store() {
            Some(name) => (0, None, name),
            None => (queue, self.key.as_deref(), name),
        })
    }

    /// The place where the job that throttles its key is remembered: an empty idempotency key, which no job has.
    pub(crate) fn throttle(&self, queue: u32) -> (u32, Option<&str>, &'static str) {
        (queue, self.key.as_deref(), "")
    }

    /// The digest by which equal payloads are recognized.
    pub fn payload_digest(&self) -> Digest {
        self.digest.unwrap_or_else(|| digest(self.task.as_deref(), &self.payload))
    }

    /// The digest by which a store finds a waiting job that it merges with: those of other batches are not equal.
    pub(crate) fn merge_digest(&self) -> Digest {
        self.options.merge_digest(self.payload_digest())
    }

    /// When it is due, if it is pushed at `now`.
    pub fn due_at(&self, now: Timestamp) -> Timestamp {
        match self.run_at {
            RunAt::Now => now,
            RunAt::In(delay) => now + delay,
            RunAt::At(time) => time,
        }
    }

    /// Refuses a job that no store may accept; the error names the field.
    pub fn validate(&self) -> Result<()> {
        validate_queue_name(&self.queue)?;
        if let Some(key) = &self.key {
            validate_text("key", key, KEY_BYTES_MAX)?;
        }
        if self.score.is_some_and(|score| !score.is_finite()) {
            return Err(Error::invalid("score", "must be a finite number"));
        }
        if self.priority > PRIORITY_MAX {
            return Err(Error::invalid("priority", format!("must be 0 to {PRIORITY_MAX}")));
        }
        self.validate_times()?;
        self.validate_names()?;
        self.past.as_ref().map_or(Ok(()), |past| past.validate())?;
        if self.dead_at().is_some() && self.options.batch.is_some() {
            let message = "must be absent: the job died before it came here";
            return Err(Error::invalid("batch", message));
        }
        self.payload.validate()
    }

    fn validate_times(&self) -> Result<()> {
        match self.run_at {
            RunAt::In(delay) if delay > DELAY_MAX => {
                return Err(Error::invalid("delay", "must be at most ten years"));
            }
            RunAt::At(time) if time < Timestamp::default() || time > Timestamp::MAX => {
                return Err(Error::invalid("run_at", "must be between 1970 and 2255"));
            }
            _ => {}
        }
        let options = &self.options;
        for (field, length) in [("timeout", options.timeout), ("lease_ttl", options.lease_ttl)] {
            if length.is_some_and(|length| length.is_zero() || length > DELAY_MAX) {
                return Err(Error::invalid(field, "must be more than zero, at most ten years"));
            }
        }
        options.backoff.map_or(Ok(()), crate::model::retry::Backoff::validate)?;
        if options.expires_at.is_some_and(|t| t < Timestamp::default() || t > Timestamp::MAX) {
            return Err(Error::invalid("expires_at", "must be between 1970 and 2255"));
        }
        if options.max_attempts.is_some_and(|attempts| !(1..=ATTEMPTS_MAX).contains(&attempts)) {
            let message = format!("must be 1 to {ATTEMPTS_MAX}");
            return Err(Error::invalid("max_attempts", message));
        }
        Ok(())
    }

    fn validate_names(&self) -> Result<()> {
        let options = &self.options;
        if options.idempotency_scope == IdempotencyScope::Store && options.idempotency_key.is_none()
        {
            let message = "`store` needs an idempotency_key, which it makes unique";
            return Err(Error::invalid("idempotency_scope", message));
        }
        let names = [
            ("task", &self.task),
            ("idempotency_key", &options.idempotency_key),
            ("node", &options.node),
            ("consumer_group", &options.consumer_group),
            ("group", &options.group),
            ("partition_key", &options.partition_key),
            ("producer", &options.producer),
            ("consumer", &options.consumer),
            ("traceparent", &options.traceparent),
            ("batch", &options.batch),
        ];
        names
            .into_iter()
            .filter_map(|(field, name)| Some((field, name.as_deref()?)))
            .try_for_each(|(field, name)| validate_text(field, name, NAME_BYTES_MAX))
    }
}

/// Refuses a queue name that could not be used in a URL path, a metric label or a file name. `.` and `..` are steps of a
/// path: they would vanish.
pub fn validate_queue_name(name: &str) -> Result<()> {
    let plain = |b: u8| b.is_ascii_alphanumeric() || matches!(b, b'_' | b'-' | b'.' | b':');
    if name.is_empty() || name.len() > QUEUE_NAME_BYTES_MAX || !name.bytes().all(plain) {
        let message =
            format!("must be 1 to {QUEUE_NAME_BYTES_MAX} of the characters A-Z a-z 0-9 _ - . :");
        return Err(Error::invalid("queue", message));
    }
    if matches!(name, "." | "..") {
        return Err(Error::invalid("queue", "must not be . or .., which vanish from URLs"));
    }
    Ok(())
}

/// The start of the names of queues that only engines fill.
const RESERVED: &str = "seriatim.";

/// Refuses a queue that only engines fill, such as `seriatim.exhausted`, because its jobs are trusted. For interfaces
/// through which strangers push.
pub fn refuse_reserved_queue(name: &str) -> Result<()> {
    if name.starts_with(RESERVED) {
        let message = format!(
            "{name} is filled by the engine: names that begin with {RESERVED} are reserved"
        );
        return Err(Error::invalid("queue", message));
    }
    Ok(())
}

/// Refuses a text that is empty, longer than `bytes_max`, or contains NUL, which some databases cannot store in
/// texts.
pub(crate) fn validate_text(field: &'static str, text: &str, bytes_max: usize) -> Result<()> {
    if text.is_empty() {
        return Err(Error::invalid(field, "must not be empty"));
    }
    if text.len() > bytes_max {
        let message = format!("has {} bytes; at most {bytes_max} are taken", text.len());
        return Err(Error::invalid(field, message));
    }
    if text.contains('\0') {
        return Err(Error::invalid(field, "must not contain a NUL character"));
    }
    Ok(())
}
