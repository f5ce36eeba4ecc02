//! Answers to pushes, remote workers and actions.

use std::sync::Arc;

use schemars::JsonSchema;
use serde::Serialize;
use serde_json::Value;
use seriatim::store::{self, Command, JobView, PushStatus};
use seriatim::{
    JobId, Missed,
    store::{LaneId, NodeId, Token},
};

use super::job::{Job, Pushed, StatusWord};
use crate::protocol::schema::Foreign;
use crate::protocol::value::Time;

/// Of a push.
#[derive(Serialize, JsonSchema)]
#[serde(untagged)]
#[schemars(inline)]
pub(crate) enum PushAnswer {
    Jobs(PushedJobs),
    Stream(Streamed),
}

#[derive(Serialize, JsonSchema)]
pub(crate) struct PushedJobs {
    jobs: Vec<Pushed>,
    /// With `wait`: the job when it had ended, or time was up
    #[serde(skip_serializing_if = "Option::is_none")]
    job: Option<Box<Job>>,
    /// True if the push created the queue
    #[serde(skip_serializing_if = "Option::is_none")]
    created: Option<bool>,
}

#[derive(Default, Serialize, JsonSchema)]
pub(crate) struct Streamed {
    /// All jobs of the stream that were not refused
    pub(crate) pushed: u64,
    pub(crate) merged: u64,
    pub(crate) duplicate: u64,
    /// Refused, because their keys are throttled
    pub(crate) throttled: u64,
    /// If some were refused: when all of them may be pushed again
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) again_at: Option<Time>,
    /// True if the push created the queue
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) created: Option<bool>,
}

impl Streamed {
    /// Counts these too.
    pub(crate) fn add(&mut self, pushed: &[store::Pushed]) {
        let count = |status| pushed.iter().filter(|one| one.status == status).count() as u64;
        let refused = pushed.iter().filter(|one| one.status == PushStatus::Throttled);
        let again_at = refused.filter_map(|one| one.again_at).max();
        self.merged += count(PushStatus::Merged);
        self.duplicate += count(PushStatus::Duplicate);
        self.throttled += count(PushStatus::Throttled);
        self.pushed += pushed.len() as u64 - count(PushStatus::Throttled);
        self.again_at = self.again_at.map(|Time(at)| at).max(again_at).map(Time);
    }
}

impl PushedJobs {
    pub(crate) fn new(pushed: &[store::Pushed], created: bool) -> Self {
        let jobs = pushed.iter().map(Pushed::from).collect();
        Self { jobs, job: None, created: created.then_some(true) }
    }

    pub(crate) fn first(&self) -> Option<JobId> {
        self.jobs.first().map(|pushed| pushed.job_id)
    }

    /// With the job that was waited for.
    pub(crate) fn with_job(self, job: JobView) -> Self {
        Self { job: Some(Box::new(job.into())), ..self }
    }
}

/// Of Dataloader's push.
#[derive(Serialize, JsonSchema)]
pub(crate) struct Triggered {
    #[schemars(with = "Foreign<JobId>")]
    pub(crate) job_id: JobId,
    pub(crate) status: StatusWord,
    /// For a repeated idempotency_key: the queue of the first job, if it is another one than asked for
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) queue: Option<Arc<str>>,
}

/// Of a heartbeat.
#[derive(Serialize, JsonSchema)]
pub(crate) struct Beaten {
    /// Jobs to cancel
    pub(crate) cancel: Vec<CancelledJobs>,
    /// Lanes that the worker no longer holds
    #[schemars(with = "Vec<Foreign<LaneId>>")]
    pub(crate) lost: Vec<LaneId>,
    /// What an operator asked the worker for: `quiet` or `stop`. It gets no more lanes
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(with = "Option<Foreign<Command>>")]
    pub(crate) command: Option<Command>,
    /// What to do about each step that the request names, except of lost lanes
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub(crate) steps: Vec<ToldStep>,
}

/// A step of a lane.
#[derive(Serialize, JsonSchema)]
pub(crate) struct ToldStep {
    #[schemars(with = "Foreign<LaneId>")]
    pub(crate) lane: LaneId,
    pub(crate) step: String,
    /// `run` it; it is `done`, in an earlier run; or its result is `kept` now
    pub(crate) state: StepState,
    /// The result of a step that is `done`
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) result: Option<Value>,
}

/// What a worker is to do about a step.
#[derive(Clone, Copy, Serialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
#[schemars(inline)]
pub(crate) enum StepState {
    Run,
    Done,
    Kept,
}

#[derive(Serialize, JsonSchema)]
pub(crate) struct CancelledJobs {
    #[schemars(with = "Foreign<LaneId>")]
    pub(crate) lane: LaneId,
    #[schemars(with = "Vec<Foreign<JobId>>")]
    pub(crate) job_ids: Vec<JobId>,
}

/// Of a settle.
#[derive(Serialize, JsonSchema)]
pub(crate) struct Settled {
    pub(crate) results: Vec<SettledTurn>,
}

#[derive(Serialize, JsonSchema)]
pub(crate) struct SettledTurn {
    #[schemars(with = "Foreign<LaneId>")]
    pub(crate) lane: LaneId,
    #[schemars(with = "Foreign<Token>")]
    pub(crate) token: Token,
    pub(crate) status: SettleStatus,
}

#[derive(Serialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
#[schemars(inline)]
pub(crate) enum SettleStatus {
    Ok,
    Stale,
    // Nothing is known to have changed: it is to be sent again.
    Busy,
}

/// Of an action on several jobs or lanes.
#[derive(Serialize, JsonSchema)]
pub(crate) struct Done {
    /// Changed jobs or lanes
    pub(crate) count: u64,
}

/// Of an action on a whole queue, of which a request does a part.
#[derive(Serialize, JsonSchema)]
pub(crate) struct BulkDone {
    /// Changed jobs or lanes
    pub(crate) count: u64,
    /// Whether that is not all: then the status is 202
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub(crate) more: bool,
    /// The operation that does the rest, and counts what it changes. If it is missing, send the request again
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) operation: Option<String>,
}

#[derive(Serialize, JsonSchema)]
pub(crate) struct QueuePaused {
    pub(crate) queue: String,
    pub(crate) paused: bool,
}

#[derive(Serialize, JsonSchema)]
pub(crate) struct QueueDeleted {
    pub(crate) queue: String,
    /// Deleted jobs
    pub(crate) count: u64,
    /// Released claims
    pub(crate) released: u64,
}

#[derive(Serialize, JsonSchema)]
pub(crate) struct JobDeleted {
    #[schemars(with = "Foreign<JobId>")]
    job_id: JobId,
    deleted: bool,
}

impl JobDeleted {
    pub(crate) fn new(job_id: JobId) -> Self {
        Self { job_id, deleted: true }
    }
}

#[derive(Serialize, JsonSchema)]
pub(crate) struct NodeCommanded {
    #[schemars(with = "Foreign<NodeId>")]
    pub(crate) node: NodeId,
    #[schemars(with = "Foreign<Command>")]
    pub(crate) command: Command,
}

#[derive(Serialize, JsonSchema)]
pub(crate) struct NodeReleased {
    #[schemars(with = "Foreign<NodeId>")]
    pub(crate) node: NodeId,
    /// Released lanes
    pub(crate) count: u64,
}

/// The cron entries of all nodes.
#[derive(Serialize, JsonSchema)]
pub(crate) struct CronEntries {
    pub(crate) cron: Vec<CronEntry>,
}

#[derive(Serialize, JsonSchema)]
pub(crate) struct CronEntry {
    pub(crate) name: String,
    /// What live nodes have under this name; several if they differ; none if it is paused and no node has it any more
    pub(crate) definitions: Vec<CronDefinition>,
    /// The pause, if it is paused: no node pushes its ticks
    pub(crate) paused: Option<CronPause>,
    /// The last tick, or the last run by hand
    pub(crate) last: Option<CronLast>,
    /// The next three times, by the first definition; none while it is paused: a pause has no end of its own
    pub(crate) next: Vec<String>,
}

/// What nodes have as an entry.
#[derive(Serialize, JsonSchema)]
pub(crate) struct CronDefinition {
    pub(crate) schedule: String,
    /// The schedule in words
    pub(crate) words: String,
    pub(crate) time_zone: String,
    pub(crate) queue: String,
    pub(crate) key: Option<String>,
    pub(crate) task: Option<String>,
    /// What it does with missed ticks
    #[schemars(with = "Foreign<Missed>")]
    pub(crate) missed: Missed,
    /// The live nodes that have it
    pub(crate) nodes: Vec<String>,
}

#[derive(Serialize, JsonSchema)]
pub(crate) struct CronPause {
    pub(crate) since: Time,
    /// Who paused it
    pub(crate) by: String,
    pub(crate) reason: Option<String>,
}

#[derive(Serialize, JsonSchema)]
pub(crate) struct CronLast {
    /// When it was due
    pub(crate) at: Time,
    /// Who ran it by hand
    pub(crate) by: Option<String>,
    #[schemars(with = "Option<Foreign<JobId>>")]
    pub(crate) job_id: Option<JobId>,
    /// The state of the job; `ended` if its queue no longer keeps it, `refused` if there was none
    pub(crate) outcome: Option<String>,
    /// Why there was no job, or why it died
    pub(crate) error: Option<String>,
}

/// A run by hand.
#[derive(Serialize, JsonSchema)]
pub(crate) struct CronRun {
    pub(crate) name: String,
    #[schemars(with = "Foreign<JobId>")]
    pub(crate) job_id: JobId,
}

#[derive(Serialize, JsonSchema)]
pub(crate) struct Health {
    pub(crate) status: &'static str,
}

#[derive(Serialize, JsonSchema)]
pub(crate) struct Info {
    pub(crate) service: &'static str,
    pub(crate) version: &'static str,
    pub(crate) environment: String,
}
