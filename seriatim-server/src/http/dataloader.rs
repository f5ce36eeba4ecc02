//! Dataloader's three endpoints, as they were (D1 to D4).

use std::collections::BTreeMap;
use std::time::Duration;

use axum::http::HeaderMap;
use schemars::JsonSchema;
use serde::Deserialize;
use serde_json::Value;
use serde_json::value::RawValue;
use seriatim::limits::{ATTEMPTS_MAX, DELAY_MAX, KEY_BYTES_MAX, NAME_BYTES_MAX, PRIORITY_MAX};
use seriatim::store::{Cancel, Cancelled, IdempotencyScope, JobState, PushStatus};
use seriatim::{Backoff, Job, JobId, Payload, RunAt};

use super::input::UntypedJson;
use super::limits::JOB_BYTES;
use super::push::traceparent;
use super::{Access, Answer, Caller, Part, Problem, Result, Route, Shared};
use crate::app::find;
use crate::config::Zone;
use crate::protocol::document::{JobStatus, Triggered};
use crate::protocol::schema::{Foreign, queue_pattern};
use crate::protocol::value::AnyTime;

const ATTEMPTS_DEFAULT: u32 = 5;
const LEASE_DEFAULT: Duration = Duration::from_secs(60);
const BACKOFF: Backoff = Backoff::Linear { base: Duration::from_secs(30) };

pub(super) fn routes() -> Vec<Route> {
    vec![
        Route::post("/api/v1/jobs/trigger", Access::Produce, trigger)
            .says("Pushes a job; returns the first job of the store for a repeated idempotency_key")
            .traffic()
            .keeps_scope(),
        Route::get("/api/v1/jobs/{job_id}/status", Access::Follow, status)
            .says("The status of a job"),
        Route::post("/api/v1/jobs/{job_id}/cancel", Access::Cancel, cancel)
            .says("Cancels a job: immediately if it waits, at its next heartbeat if it runs"),
    ]
}

/// A job in Dataloader's words. As in Dataloader, unknown fields are ignored.
#[derive(Deserialize, JsonSchema)]
struct Trigger {
    #[schemars(regex(pattern = queue_pattern()))]
    queue: String,
    #[schemars(length(min = 1, max = NAME_BYTES_MAX))]
    task: String,
    /// The key
    #[schemars(length(min = 1, max = KEY_BYTES_MAX))]
    lock_key: String,
    /// The payload. Default: {}
    #[schemars(with = "Option<BTreeMap<String, Value>>")]
    args: Option<Box<RawValue>>,
    #[schemars(length(min = 1, max = NAME_BYTES_MAX))]
    idempotency_key: Option<String>,
    /// Where the idempotency key is unique: in the whole store, as in Dataloader, or for its queue and lock_key. Default: store
    #[schemars(with = "Option<Foreign<IdempotencyScope>>")]
    idempotency_scope: Option<IdempotencyScope>,
    #[schemars(length(min = 1, max = NAME_BYTES_MAX))]
    partition_key: Option<String>,
    /// Lower runs first. Default: 100
    #[schemars(range(max = PRIORITY_MAX))]
    priority: Option<u16>,
    /// When the job is due. Without a zone: in that of the server, `http.time_zone`. Default: now
    available_at: Option<AnyTime>,
    /// Default: 5
    #[schemars(range(min = 1, max = ATTEMPTS_MAX))]
    max_attempts: Option<u32>,
    /// Default: 60
    #[schemars(range(min = 1, max = DELAY_MAX.as_secs()))]
    lease_ttl_sec: Option<u32>,
    #[schemars(length(min = 1, max = NAME_BYTES_MAX))]
    producer: Option<String>,
    /// A label, as in Dataloader: stored and shown as `consumer`
    #[schemars(length(min = 1, max = NAME_BYTES_MAX))]
    consumer_group: Option<String>,
    /// Only members of this consumer group may claim it
    #[schemars(length(min = 1, max = NAME_BYTES_MAX))]
    route_group: Option<String>,
    /// The group of its lock_key, such as a tenant, in a queue with `groups`
    #[schemars(length(min = 1, max = NAME_BYTES_MAX))]
    group: Option<String>,
}

impl Trigger {
    fn into_job(self, zone: &Zone) -> seriatim::Result<Job> {
        seriatim::store::refuse_reserved_queue(&self.queue)?;
        let args = self.args.as_ref().map_or("{}", |args| args.get());
        let payload = Payload::from_json_text(args)
            .map_err(|error| seriatim::Error::invalid("args", error.message().to_owned()))?;
        if !args.trim_start().starts_with('{') {
            return Err(seriatim::Error::invalid("args", "must be an object"));
        }
        let mut job = Job::with_payload(self.queue, payload).key(self.lock_key).task(self.task);
        job.priority = self.priority.unwrap_or(job.priority);
        job.run_at = match self.available_at {
            Some(time) => RunAt::At(time.at(&zone.0).ok_or_else(|| {
                seriatim::Error::invalid("available_at", "is beyond the times that are known")
            })?),
            None => RunAt::Now,
        };
        let lease = self.lease_ttl_sec.map(|seconds| Duration::from_secs(u64::from(seconds)));
        let options = &mut job.options;
        options.max_attempts = Some(self.max_attempts.unwrap_or(ATTEMPTS_DEFAULT));
        options.backoff = Some(BACKOFF);
        options.lease_ttl = Some(lease.unwrap_or(LEASE_DEFAULT));
        let scope = match self.idempotency_key {
            Some(_) => IdempotencyScope::Store,
            None => IdempotencyScope::default(),
        };
        options.idempotency_scope = self.idempotency_scope.unwrap_or(scope);
        options.idempotency_key = self.idempotency_key;
        options.partition_key = self.partition_key;
        options.producer = self.producer;
        options.consumer = self.consumer_group;
        options.consumer_group = self.route_group;
        options.group = self.group;
        Ok(job)
    }
}

async fn trigger(
    app: Shared,
    caller: Caller,
    headers: HeaderMap,
    UntypedJson(trigger): UntypedJson<Trigger>,
) -> Result<Answer<Triggered>> {
    let mut job = trigger.into_job(&app.zone)?;
    caller.scope.check_job(&job).map_err(|problem| match problem.field() {
        Some("consumer_group") => problem.about("route_group"),
        _ => problem,
    })?;
    let (queue, key) = (job.queue.clone(), job.key.clone());
    let sending = app.traces.sending(&queue, traceparent(&headers));
    job.options.traceparent = sending.traceparent();
    let pushed = match app.queues.makes(&*app.store, &queue).await {
        Ok(_) => app.client.push(job).await.map_err(in_its_words),
        Err(problem) => Err(problem),
    };
    let pushed = pushed.inspect_err(|problem| sending.failed(problem.status()))?;
    sending.sent(&[pushed]);
    // Its answer has no place for a job that is not stored.
    let job_id = pushed.taken(key.as_deref())?;
    let (status, queue) = match pushed.status {
        PushStatus::Queued | PushStatus::Merged | PushStatus::Throttled => (JobState::Queued, None),
        // The first job, in whatever state and queue; one that has ended so long ago that nothing is kept
        // of it but its idempotency key was done with.
        PushStatus::Duplicate => match app.store.job(job_id).await? {
            Some(job) if *job.queue == *queue => (job.state, None),
            Some(job) if caller.scope.has_queue(&job.queue) => (job.state, Some(job.queue)),
            Some(_) => return Err(foreign()),
            None => (JobState::Succeeded, None),
        },
    };
    Ok(Answer::of(&Triggered { job_id, status: status.into(), queue }))
}

/// Tells nothing of a job in a queue that the token may not use.
fn foreign() -> Problem {
    let detail = "another queue, which this token may not use, has the first job of this key: choose another key, or \
                  idempotency_scope `key`";
    Problem::conflict(detail).about("idempotency_key")
}

/// Names the fields as the client does: `lock_key`, `args` and so on.
fn in_its_words(error: seriatim::Error) -> Problem {
    let name = match error.field() {
        Some("key") => "lock_key",
        Some("payload") => "args",
        Some("run_at") => "available_at",
        Some("lease_ttl") => "lease_ttl_sec",
        Some("consumer") => "consumer_group",
        Some("consumer_group") => "route_group",
        _ => return error.into(),
    };
    match error.kind() {
        seriatim::ErrorKind::Invalid => Problem::invalid(name, error.message().to_owned()),
        _ => error.into(),
    }
}

async fn status(app: Shared, Part(id): Part<JobId>) -> Result<Answer<JobStatus>> {
    let job = find::job(&*app.store, id).await?;
    Answer::written(JOB_BYTES, move || job.into()).await
}

async fn cancel(app: Shared, Part(id): Part<JobId>) -> Result<Answer<JobStatus>> {
    let before = app.store.job(id).await?;
    let cancelled = app.store.cancel(Cancel { now: None, jobs: vec![id] }).await?;
    let job = match (app.store.job(id).await?, before) {
        (Some(job), _) => job,
        // Its queue keeps nothing of what is cancelled.
        (None, Some(mut job)) if cancelled.first() == Some(&Cancelled::Now) => {
            job.state = JobState::Canceled;
            job
        }
        _ => find::job(&*app.store, id).await?,
    };
    Answer::written(JOB_BYTES, move || job.into()).await
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn d1_what_is_left_out_is_as_dataloader_has_it() {
        let trigger: Trigger =
            serde_json::from_str(r#"{"queue":"q","task":"t","lock_key":"k"}"#).unwrap();
        let job = trigger.into_job(&Zone::default()).unwrap();
        assert_eq!(job.options.max_attempts, Some(5));
        assert_eq!(job.options.backoff, Some(BACKOFF));
        assert_eq!(job.options.lease_ttl, Some(Duration::from_secs(60)));
        assert_eq!((job.priority, job.payload.as_bytes()), (100, &b"{}"[..]));
        assert_eq!(job.options.idempotency_scope, IdempotencyScope::Key, "there is no key");
    }
}
