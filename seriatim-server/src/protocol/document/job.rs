//! Jobs: one, a page of them, and how far one is.

use std::sync::Arc;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use seriatim::store::{
    self, IdempotencyScope, JobState, JobView, LaneId, NodeId, Page, PushStatus, Token,
};
use seriatim::{
    Backoff, JobId,
    store::{JobOptions, build_of},
};

use super::batch::EndedBatch;
use super::reported::Reported;
use crate::protocol::schema::Foreign;
use crate::protocol::value::{Length, Raw, Time};

/// A job in any state.
#[derive(Serialize, JsonSchema)]
#[schemars(rename = "JobView")]
pub(crate) struct Job {
    #[schemars(with = "Foreign<JobId>")]
    job_id: JobId,
    queue: Arc<str>,
    key: Option<Arc<str>>,
    task: Option<Arc<str>>,
    /// `running` also covers prefetched jobs
    #[schemars(with = "Foreign<JobState>")]
    status: JobState,
    /// How often the job was claimed
    attempt: u32,
    /// When the job first started
    started_at: Option<Time>,
    finished_at: Option<Time>,
    /// The lane that it is in
    #[schemars(with = "Option<Foreign<LaneId>>")]
    lane: Option<LaneId>,
    /// The fencing token of the claim that it runs under
    #[schemars(with = "Option<Foreign<Token>>")]
    token: Option<Token>,
    /// The node that runs it
    #[schemars(with = "Option<Foreign<NodeId>>")]
    runs_on: Option<NodeId>,
    /// The last heartbeat for the running job
    heartbeat_at: Option<Time>,
    /// The last error
    error: Option<Arc<str>>,
    /// What the handler returned, if the job succeeded; absent if that was nothing
    #[serde(skip_serializing_if = "Option::is_none")]
    result: Option<Raw>,
    /// The latest failures, the last one first; absent in listings
    #[serde(skip_serializing_if = "Option::is_none")]
    failures: Option<Vec<JobFailure>>,
    /// When it first failed; absent in listings, and if it never failed or this is no longer stored
    #[serde(skip_serializing_if = "Option::is_none")]
    failed_at: Option<Time>,
    /// When a retry of it last failed; absent likewise
    #[serde(skip_serializing_if = "Option::is_none")]
    retried_at: Option<Time>,
    #[serde(flatten)]
    reported: Reported,
    /// Null if it is left out of a listing
    payload: Raw,
    /// The length of the payload
    payload_bytes: usize,
    /// Whether the payload is longer than the listing's `payload_bytes_max`, and left out
    #[serde(skip_serializing_if = "is_false")]
    payload_left_out: bool,
    /// The place among the jobs of the key, lowest first
    score: f64,
    /// Lower runs first
    priority: u16,
    /// When the job is, or was, due
    run_at: Time,
    /// -1 before the first failure
    retry_count: i32,
    /// Claims that expired or were released
    crashes: u32,
    cancel_requested: bool,
    created_at: Time,
    #[serde(flatten)]
    options: Options,
}

/// What a job overrides, under the names with which it is pushed.
#[derive(Default, Serialize, JsonSchema)]
struct Options {
    #[serde(skip_serializing_if = "Option::is_none")]
    max_retries: Option<u32>,
    #[serde(skip_serializing_if = "Option::is_none")]
    max_attempts: Option<u32>,
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(with = "Option<Foreign<Backoff>>")]
    backoff: Option<Backoff>,
    #[serde(skip_serializing_if = "Option::is_none")]
    timeout: Option<Length>,
    #[serde(skip_serializing_if = "Option::is_none")]
    lease_ttl: Option<Length>,
    #[serde(skip_serializing_if = "Option::is_none")]
    expires_at: Option<Time>,
    #[serde(skip_serializing_if = "Option::is_none")]
    idempotency_key: Option<String>,
    /// `store` if the idempotency key is unique in the whole store
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(with = "Option<Foreign<IdempotencyScope>>")]
    idempotency_scope: Option<IdempotencyScope>,
    #[serde(skip_serializing_if = "Option::is_none")]
    node: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    consumer_group: Option<String>,
    /// The group of its key, such as a tenant
    #[serde(skip_serializing_if = "Option::is_none")]
    group: Option<String>,
    /// The build of the workers that may claim it
    #[serde(skip_serializing_if = "Option::is_none")]
    build: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    partition_key: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    producer: Option<String>,
    /// The `consumer_group` of a job that `jobs/trigger` pushed: a label
    #[serde(skip_serializing_if = "Option::is_none")]
    consumer: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    traceparent: Option<String>,
    /// The batch that it belongs to
    #[serde(skip_serializing_if = "Option::is_none")]
    batch: Option<String>,
    /// The batch whose callback it is
    #[serde(skip_serializing_if = "Option::is_none")]
    ended_batch: Option<EndedBatch>,
}

#[allow(clippy::trivially_copy_pass_by_ref)] // serde passes it so.
fn is_false(value: &bool) -> bool {
    !value
}

impl From<JobView> for Job {
    fn from(job: JobView) -> Self {
        let payload_left_out = job.lacks_payload();
        Self {
            job_id: job.id,
            queue: job.queue,
            key: job.key,
            task: job.task,
            status: job.state,
            attempt: job.attempt,
            started_at: job.started_at.map(Time),
            finished_at: job.finished_at.map(Time),
            lane: job.lane,
            token: job.token,
            runs_on: job.node,
            heartbeat_at: job.heartbeat_at.map(Time),
            error: job.error,
            result: job.result.map(Raw::Text),
            failures: None,
            failed_at: None,
            retried_at: None,
            reported: job.progress.into(),
            payload: match payload_left_out {
                true => Raw::Text("null".into()),
                false => Raw::Payload(job.payload),
            },
            payload_bytes: job.payload_bytes,
            payload_left_out,
            score: job.score,
            priority: job.priority,
            run_at: Time(job.run_at),
            retry_count: job.retry_count,
            crashes: job.crashes,
            cancel_requested: job.cancel_requested,
            created_at: Time(job.created_at),
            options: job
                .options
                .map(|options| Arc::unwrap_or_clone(options).into())
                .unwrap_or_default(),
        }
    }
}

impl Job {
    /// With its latest failures, the time of the first one and that of the last retry's.
    pub(crate) fn with_failures(
        self,
        failures: Vec<JobFailure>,
        failed_at: Option<Time>,
        retried_at: Option<Time>,
    ) -> Self {
        Self { failures: Some(failures), failed_at, retried_at, ..self }
    }
}

/// A failure of a job.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub(crate) struct JobFailure {
    #[schemars(with = "String", extend("format" = "date-time"))]
    pub(crate) at: Time,
    /// Which attempt it was
    pub(crate) attempt: u32,
    /// The name of the node that ran it; null for a lost claim and a remote worker
    pub(crate) node: Option<String>,
    pub(crate) error: String,
}

impl From<JobOptions> for Options {
    fn from(options: JobOptions) -> Self {
        Self {
            max_retries: options.max_retries,
            max_attempts: options.max_attempts,
            backoff: options.backoff,
            timeout: options.timeout.map(Length),
            lease_ttl: options.lease_ttl.map(Length),
            expires_at: options.expires_at.map(Time),
            idempotency_key: options.idempotency_key,
            idempotency_scope: Some(options.idempotency_scope)
                .filter(|scope| *scope != IdempotencyScope::default()),
            node: options.node,
            build: options.consumer_group.as_deref().and_then(build_of).map(str::to_owned),
            consumer_group: options.consumer_group.filter(|group| build_of(group).is_none()),
            group: options.group,
            partition_key: options.partition_key,
            producer: options.producer,
            consumer: options.consumer,
            traceparent: options.traceparent,
            ended_batch: options.ended_batch.as_ref().map(Into::into),
            batch: options.batch,
        }
    }
}

/// A page of jobs.
#[derive(Serialize, JsonSchema)]
pub(crate) struct Jobs {
    jobs: Vec<Job>,
    /// The `after` of the next page
    next: Option<String>,
    /// Whether the page ended after reading `scan_max` jobs; the next page continues
    cut: bool,
}

impl From<Page<JobView>> for Jobs {
    fn from(page: Page<JobView>) -> Self {
        let Page { rows, next, cut } = page;
        Self { jobs: rows.into_iter().map(Job::from).collect(), next, cut }
    }
}

/// How far a job is, in Dataloader's words.
#[derive(Serialize, JsonSchema)]
#[schemars(rename = "Status")]
pub(crate) struct JobStatus {
    #[schemars(with = "Foreign<JobId>")]
    job_id: JobId,
    status: StatusWord,
    /// How often the job was claimed
    attempt: u32,
    started_at: Option<Time>,
    finished_at: Option<Time>,
    heartbeat_at: Option<Time>,
    error: Option<Arc<str>>,
    /// What the handler returned, if the job succeeded; absent if that was nothing
    #[serde(skip_serializing_if = "Option::is_none")]
    result: Option<Raw>,
    #[serde(flatten)]
    reported: Reported,
}

/// Dataloader's word for a state: a dead job has `failed`.
#[derive(Serialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
#[schemars(inline)]
pub(crate) enum StatusWord {
    Queued,
    Running,
    Succeeded,
    Failed,
    Canceled,
}

impl From<JobState> for StatusWord {
    fn from(state: JobState) -> Self {
        match state {
            JobState::Queued => Self::Queued,
            JobState::Running => Self::Running,
            JobState::Succeeded => Self::Succeeded,
            JobState::Dead => Self::Failed,
            JobState::Canceled => Self::Canceled,
        }
    }
}

impl From<JobView> for JobStatus {
    fn from(job: JobView) -> Self {
        Self {
            job_id: job.id,
            status: job.state.into(),
            attempt: job.attempt,
            started_at: job.started_at.map(Time),
            finished_at: job.finished_at.map(Time),
            heartbeat_at: job.heartbeat_at.map(Time),
            error: job.error,
            result: job.result.map(Raw::Text),
            reported: job.progress.into(),
        }
    }
}

/// A pushed job.
#[derive(Serialize, JsonSchema)]
pub(crate) struct Pushed {
    #[schemars(with = "Foreign<JobId>")]
    pub(super) job_id: JobId,
    /// `merged`: an equal payload was waiting, or the key is throttled; `duplicate`: the idempotency key was known;
    /// `throttled`: refused, and `job_id` is the job that came before
    #[schemars(with = "Foreign<PushStatus>")]
    status: PushStatus,
    /// If the key is throttled: when it may be pushed again
    #[serde(skip_serializing_if = "Option::is_none")]
    again_at: Option<Time>,
}

/// A dead job that was pushed again with another payload.
#[derive(Serialize, JsonSchema)]
pub(crate) struct EditedJob {
    /// The dead job, which was deleted
    #[schemars(with = "Foreign<JobId>")]
    edited: JobId,
    #[serde(flatten)]
    pushed: Pushed,
}

impl EditedJob {
    pub(crate) fn new(edited: JobId, pushed: &store::Pushed) -> Self {
        Self { edited, pushed: pushed.into() }
    }
}

impl From<&store::Pushed> for Pushed {
    fn from(pushed: &store::Pushed) -> Self {
        Self { job_id: pushed.job_id, status: pushed.status, again_at: pushed.again_at.map(Time) }
    }
}
