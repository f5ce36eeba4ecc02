//! LANE: a claimed lane with its jobs, as a worker program or a remote worker reads it.

use serde::Serialize;
use serde_json::value::RawValue;
use seriatim::{
    JobId,
    store::{LaneId, Token, Turn, TurnJob},
};

#[derive(Serialize)]
pub(crate) struct Lane<'a> {
    #[serde(rename = "lane")]
    id: LaneId,
    queue: &'a str,
    key: Option<&'a str>,
    token: Token,
    /// Without it a remote worker can say nothing of its claim.
    #[serde(skip_serializing_if = "Option::is_none")]
    secret: Option<String>,
    retry_count: i32,
    crashes: u32,
    attempt: u32,
    task: Option<&'a str>,
    jobs: Vec<LaneJob<'a>>,
}

#[derive(Serialize)]
pub(crate) struct LaneJob<'a> {
    job_id: JobId,
    score: f64,
    payload: &'a RawValue,
    #[serde(skip_serializing_if = "Option::is_none")]
    traceparent: Option<&'a str>,
}

impl<'a> Lane<'a> {
    pub(crate) fn new(
        turn: &'a Turn,
        secret: Option<String>,
        jobs: impl Iterator<Item = LaneJob<'a>>,
    ) -> Self {
        Self {
            id: turn.lane,
            queue: &turn.queue,
            key: turn.key.as_deref(),
            token: turn.token,
            secret,
            retry_count: turn.retry_count,
            crashes: turn.crashes,
            attempt: turn.attempt(),
            task: turn.task().map(|task| &**task),
            jobs: jobs.collect(),
        }
    }
}

impl<'a> LaneJob<'a> {
    pub(crate) fn new(job: &TurnJob, payload: &'a RawValue, traceparent: Option<&'a str>) -> Self {
        Self { job_id: job.id, score: job.score, payload, traceparent }
    }
}
