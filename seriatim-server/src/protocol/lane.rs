//! LANE: a claimed lane with its jobs, as worker programs and remote workers receive it.

use schemars::JsonSchema;
use serde::Serialize;
use serde_json::value::RawValue;
use seriatim::store::Command;
use seriatim::{
    JobId, Timestamp,
    store::{LaneId, Token, Turn, TurnJob, build_of},
};

use super::document::EndedBatch;
use super::schema::Foreign;
use super::value::Time;

#[derive(Serialize, JsonSchema)]
#[schemars(rename = "Turn")]
pub(crate) struct Lane<'a> {
    /// The lane, for heartbeats and settles
    #[serde(rename = "lane")]
    #[schemars(with = "Foreign<LaneId>")]
    id: LaneId,
    queue: &'a str,
    key: Option<&'a str>,
    /// The fencing token of the claim
    #[schemars(with = "Foreign<Token>")]
    token: Token,
    /// Proves that a remote worker holds the claim
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(regex(pattern = SECRET_PATTERN))]
    secret: Option<String>,
    /// -1 before the first failure
    retry_count: i32,
    /// Claims that expired or were released
    crashes: u32,
    /// The number of this claim, from 1
    attempt: u32,
    /// Retries after the first try
    max_retries: u32,
    /// When its first attempt began; null if that is no longer known
    #[schemars(with = "Option<String>", extend("format" = "date-time"))]
    first_attempt_at: Option<Time>,
    task: Option<&'a str>,
    /// The jobs, in the order in which to run them
    jobs: Vec<LaneJob<'a>>,
}

#[derive(Serialize, JsonSchema)]
pub(crate) struct LaneJob<'a> {
    #[schemars(with = "Foreign<JobId>")]
    job_id: JobId,
    score: f64,
    payload: &'a RawValue,
    /// As pushed
    #[serde(skip_serializing_if = "Option::is_none")]
    consumer_group: Option<&'a str>,
    /// The build that it asks for
    #[serde(skip_serializing_if = "Option::is_none")]
    build: Option<&'a str>,
    /// The group of its key, such as a tenant
    #[serde(skip_serializing_if = "Option::is_none")]
    group: Option<&'a str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    partition_key: Option<&'a str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    producer: Option<&'a str>,
    /// The `consumer_group` of a job that `jobs/trigger` pushed: a label
    #[serde(skip_serializing_if = "Option::is_none")]
    consumer: Option<&'a str>,
    /// W3C trace context
    #[serde(skip_serializing_if = "Option::is_none")]
    traceparent: Option<&'a str>,
    /// The batch that it belongs to
    #[serde(skip_serializing_if = "Option::is_none")]
    batch: Option<&'a str>,
    /// The batch whose callback it is
    #[serde(skip_serializing_if = "Option::is_none")]
    ended_batch: Option<EndedBatch>,
}

/// What a worker learns about the attempts of a lane, besides its turn.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Tries {
    pub(crate) max_retries: u32,
    pub(crate) first_attempt_at: Option<Timestamp>,
}

/// The answer to a claim.
#[derive(Serialize, JsonSchema)]
pub(crate) struct Claimed<'a> {
    /// The claimed lanes
    pub(crate) lanes: Vec<Lane<'a>>,
    /// Queues of the claim that do not exist
    #[serde(skip_serializing_if = "<[String]>::is_empty")]
    pub(crate) unknown_queues: &'a [String],
    /// What an operator asked the worker for: `quiet` or `stop`. It gets no more lanes
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(with = "Option<Foreign<Command>>")]
    pub(crate) command: Option<Command>,
}

/// How a claim's secret is written.
pub(crate) const SECRET_PATTERN: &str = "^[0-9a-f]{64}$";

impl<'a> Lane<'a> {
    pub(crate) fn new(
        turn: &'a Turn,
        secret: Option<String>,
        tries: Tries,
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
            max_retries: tries.max_retries,
            first_attempt_at: tries.first_attempt_at.map(Time),
            task: turn.task().map(|task| &**task),
            jobs: jobs.collect(),
        }
    }
}

impl<'a> LaneJob<'a> {
    pub(crate) fn new(
        job: &'a TurnJob,
        payload: &'a RawValue,
        traceparent: Option<&'a str>,
    ) -> Self {
        let options = job.options.as_deref();
        let group = options.and_then(|options| options.consumer_group.as_deref());
        Self {
            job_id: job.id,
            score: job.score,
            payload,
            consumer_group: group.filter(|group| build_of(group).is_none()),
            build: group.and_then(build_of),
            group: options.and_then(|options| options.group.as_deref()),
            partition_key: options.and_then(|options| options.partition_key.as_deref()),
            producer: options.and_then(|options| options.producer.as_deref()),
            consumer: options.and_then(|options| options.consumer.as_deref()),
            traceparent,
            batch: job.batch(),
            ended_batch: job.ended_batch().map(Into::into),
        }
    }
}
