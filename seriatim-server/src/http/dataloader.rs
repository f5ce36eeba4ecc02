//! Dataloader's three endpoints, as they were (D1 to D4).

use std::time::Duration;

use axum::extract::State;
use axum::http::HeaderMap;
use serde::Deserialize;
use serde_json::value::RawValue;
use serde_json::{Value, json};
use seriatim::limits::{ATTEMPTS_MAX, DELAY_MAX, KEY_BYTES_MAX, NAME_BYTES_MAX};
use seriatim::store::{Cancel, Cancelled, JobState, JobView, PushStatus};
use seriatim::{Backoff, Job, JobId, Payload, RunAt};

use super::auth::Access;
use super::caller::Caller;
use super::input::{Json, Part};
use super::limits::JOB_BYTES;
use super::problem::Problem;
use super::push::traceparent;
use super::route::{Answer, Route, Written};
use super::schema::Schema;
use super::state::Shared;
use crate::app::find;
use crate::protocol::document::{self, Shown};
use crate::protocol::job_input::When;

const ATTEMPTS_DEFAULT: u32 = 5;
const LEASE_DEFAULT: Duration = Duration::from_secs(60);
const BACKOFF: Backoff = Backoff::Linear { base: Duration::from_secs(30) };

pub(super) fn routes() -> Vec<Route> {
    let pushed = Schema::object(&[("job_id", Schema::text()), ("status", Schema::text())]);
    vec![
        Route::post("/api/v1/jobs/trigger", Access::Produce, trigger)
            .says("Pushes a job; the same job for a repeated idempotency_key")
            .body(Schema::named("Trigger"))
            .traffic()
            .keeps_scope()
            .answers(pushed),
        Route::get("/api/v1/jobs/{job_id}/status", Access::Follow, status)
            .says("How far a job is")
            .answers(Schema::named("Status")),
        Route::post("/api/v1/jobs/{job_id}/cancel", Access::Produce, cancel)
            .says("Cancels a job: at once if it waits, at its next heartbeat if it runs")
            .answers(Schema::named("Status")),
    ]
}

/// As Dataloader's own, it does not mind further fields.
#[derive(Deserialize)]
struct Trigger {
    queue: String,
    task: String,
    lock_key: String,
    args: Option<Box<RawValue>>,
    idempotency_key: Option<String>,
    partition_key: Option<String>,
    priority: Option<u16>,
    available_at: Option<When>,
    max_attempts: Option<u32>,
    lease_ttl_sec: Option<u32>,
    producer: Option<String>,
    consumer_group: Option<String>,
}

pub(super) fn trigger_schema() -> Schema {
    let text = || Schema::name(NAME_BYTES_MAX);
    let (name, above) = (text, |most| Schema::within(1, most).or_null());
    Schema::object(&[
        ("queue", Schema::queue()),
        ("task", name()),
        ("lock_key", Schema::name(KEY_BYTES_MAX)),
        ("args", Schema::map(Schema::any()).or_null()),
        ("idempotency_key", text().or_null()),
        ("partition_key", text().or_null()),
        ("priority", Schema::within(0, 32_767).or_null()),
        ("available_at", Schema::time()),
        ("max_attempts", above(u64::from(ATTEMPTS_MAX))),
        ("lease_ttl_sec", above(DELAY_MAX.as_secs())),
        ("producer", text().or_null()),
        ("consumer_group", text().or_null()),
    ])
    .requiring(&["queue", "task", "lock_key"])
    .with_nulls()
}

pub(super) fn status_schema() -> Schema {
    let time = || Schema::text().or_null();
    let states = ["queued", "running", "succeeded", "failed", "canceled"];
    Schema::object(&[
        ("job_id", Schema::text()),
        ("status", Schema::one_of(&states)),
        ("attempt", Schema::integer()),
        ("started_at", time()),
        ("finished_at", time()),
        ("heartbeat_at", time()),
        ("error", Schema::text().or_null()),
        ("progress", Schema::any()),
    ])
}

impl Trigger {
    fn into_job(self) -> seriatim::Result<Job> {
        let args = self.args.as_ref().map_or("{}", |args| args.get());
        let payload = Payload::from_json_text(args)
            .map_err(|error| seriatim::Error::invalid("args", error.message().to_owned()))?;
        if !args.trim_start().starts_with('{') {
            return Err(seriatim::Error::invalid("args", "must be an object"));
        }
        let mut job = Job::with_payload(self.queue, payload).key(self.lock_key).task(self.task);
        job.priority = self.priority.unwrap_or(job.priority);
        job.run_at = self.available_at.map_or(RunAt::Now, |When(time)| RunAt::At(time));
        let lease = self.lease_ttl_sec.map(|seconds| Duration::from_secs(u64::from(seconds)));
        let options = &mut job.options;
        options.max_attempts = Some(self.max_attempts.unwrap_or(ATTEMPTS_DEFAULT));
        options.backoff = Some(BACKOFF);
        options.lease_ttl = Some(lease.unwrap_or(LEASE_DEFAULT));
        options.idempotency_key = self.idempotency_key;
        options.partition_key = self.partition_key;
        options.producer = self.producer;
        options.consumer_group = self.consumer_group;
        Ok(job)
    }
}

async fn trigger(
    State(app): State<Shared>,
    caller: Caller,
    headers: HeaderMap,
    Json(trigger): Json<Trigger>,
) -> Result<Answer, Problem> {
    let mut job = trigger.into_job()?;
    caller.scope.check_queue(&job.queue)?;
    job.options
        .consumer_group
        .as_deref()
        .map_or(Ok(()), |group| caller.scope.check_group(group))?;
    let sending = app.traces.sending(&job.queue, traceparent(&headers));
    job.options.traceparent = sending.traceparent();
    let pushed = match app.queues.makes(&*app.store, &job.queue).await {
        Ok(_) => app.client.push(job).await.map_err(in_its_words),
        Err(problem) => Err(problem),
    };
    let pushed = pushed.inspect_err(|problem| sending.failed(problem.status()))?;
    sending.sent(&[pushed]);
    let status = match pushed.status {
        PushStatus::Queued | PushStatus::Merged => "queued".into(),
        // The first job, in whatever state; one that has ended so long ago that nothing is kept
        // of it but its idempotency key was done with.
        PushStatus::Duplicate => match app.store.job(pushed.job_id).await? {
            Some(job) => status_name(job.state),
            None => "succeeded".into(),
        },
    };
    Ok(Answer(json!({ "job_id": pushed.job_id, "status": status })))
}

/// Speaks of `lock_key`, `args` and the rest, as the client does.
fn in_its_words(error: seriatim::Error) -> Problem {
    let name = match error.field() {
        Some("key") => "lock_key",
        Some("payload") => "args",
        Some("run_at") => "available_at",
        Some("lease_ttl") => "lease_ttl_sec",
        _ => return error.into(),
    };
    match error.kind() {
        seriatim::ErrorKind::Invalid => Problem::invalid(name, error.message().to_owned()),
        _ => error.into(),
    }
}

async fn status(State(app): State<Shared>, Part(id): Part<JobId>) -> Result<Written, Problem> {
    let job = find::job(&*app.store, id).await?;
    Written::of(JOB_BYTES, move || status_of(&job).to_string()).await
}

/// A job's status in Dataloader's words: what is dead has `failed`.
fn status_name(state: JobState) -> Value {
    if state == JobState::Dead { "failed".into() } else { json!(state) }
}

/// The part of a job's document that Dataloader shows.
fn status_of(job: &JobView) -> Shown<'_> {
    document::job(job).with("status", status_name(job.state)).only(&[
        "job_id",
        "status",
        "attempt",
        "started_at",
        "finished_at",
        "heartbeat_at",
        "error",
        "progress",
    ])
}

async fn cancel(State(app): State<Shared>, Part(id): Part<JobId>) -> Result<Written, Problem> {
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
    Written::of(JOB_BYTES, move || status_of(&job).to_string()).await
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    #[test]
    fn d1_what_is_left_out_is_as_dataloader_has_it() {
        let trigger: Trigger =
            serde_json::from_str(r#"{"queue":"q","task":"t","lock_key":"k"}"#).unwrap();
        let job = trigger.into_job().unwrap();
        assert_eq!(job.options.max_attempts, Some(5));
        assert_eq!(job.options.backoff, Some(BACKOFF));
        assert_eq!(job.options.lease_ttl, Some(Duration::from_secs(60)));
        assert_eq!((job.priority, job.payload.as_bytes()), (100, &b"{}"[..]));
    }
}
