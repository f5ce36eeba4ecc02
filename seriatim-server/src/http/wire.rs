//! A turn as a worker outside of this process reads it.

use serde::Serialize;
use serde_json::value::RawValue;
use seriatim::{JobId, LaneId, Token, Turn, TurnJob};

use crate::trace;

/// What a worker is handed for one lane.
#[derive(Serialize)]
pub(super) struct WireTurn<'a> {
    lane: LaneId,
    queue: &'a str,
    key: Option<&'a str>,
    token: Token,
    /// Without it nothing can be said of the claim.
    secret: String,
    retry_count: i32,
    crashes: u32,
    attempt: u32,
    task: Option<&'a str>,
    jobs: Vec<WireJob<'a>>,
}

#[derive(Serialize)]
struct WireJob<'a> {
    job_id: JobId,
    score: f64,
    payload: &'a RawValue,
    #[serde(skip_serializing_if = "Option::is_none")]
    traceparent: Option<&'a str>,
}

impl<'a> WireTurn<'a> {
    /// The turn with those of its jobs that `is_given` lets through.
    pub(super) fn new(turn: &'a Turn, secret: String, is_given: impl Fn(&TurnJob) -> bool) -> Self {
        Self {
            lane: turn.lane,
            queue: &turn.queue,
            key: turn.key.as_deref(),
            token: turn.token,
            secret,
            retry_count: turn.retry_count,
            crashes: turn.crashes,
            attempt: turn.attempt(),
            task: turn.task().map(|task| &**task),
            jobs: turn.jobs.iter().filter(|job| is_given(job)).map(WireJob::new).collect(),
        }
    }
}

impl<'a> WireJob<'a> {
    fn new(job: &'a TurnJob) -> Self {
        // What a codec made is no JSON, and not for workers that have no codec.
        let payload = serde_json::from_slice(job.payload.as_bytes()).unwrap_or(RawValue::NULL);
        Self { job_id: job.id, score: job.score, payload, traceparent: trace::of_job(job) }
    }
}
