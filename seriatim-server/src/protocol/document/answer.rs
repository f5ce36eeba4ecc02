//! Answers to pushes, remote workers and actions.

use schemars::JsonSchema;
use serde::Serialize;
use seriatim::store::{self, Command};
use seriatim::{
    JobId,
    store::{LaneId, NodeId, Token},
};

use super::job::{Pushed, StatusWord};
use crate::protocol::schema::Foreign;

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
    /// True if the push created the queue
    #[serde(skip_serializing_if = "Option::is_none")]
    created: Option<bool>,
}

#[derive(Default, Serialize, JsonSchema)]
pub(crate) struct Streamed {
    /// All jobs of the stream
    pub(crate) pushed: u64,
    pub(crate) merged: u64,
    pub(crate) duplicate: u64,
    /// True if the push created the queue
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) created: Option<bool>,
}

impl PushedJobs {
    pub(crate) fn new(pushed: &[store::Pushed], created: bool) -> Self {
        let jobs = pushed.iter().map(Pushed::from).collect();
        Self { jobs, created: created.then_some(true) }
    }
}

/// Of Dataloader's push.
#[derive(Serialize, JsonSchema)]
pub(crate) struct Triggered {
    #[schemars(with = "Foreign<JobId>")]
    pub(crate) job_id: JobId,
    pub(crate) status: StatusWord,
}

/// Of a heartbeat.
#[derive(Serialize, JsonSchema)]
pub(crate) struct Beaten {
    /// Jobs to give up
    pub(crate) cancel: Vec<CancelledJobs>,
    /// Lanes that the worker no longer holds
    #[schemars(with = "Vec<Foreign<LaneId>>")]
    pub(crate) lost: Vec<LaneId>,
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
}

/// Of an action on several jobs or lanes.
#[derive(Serialize, JsonSchema)]
pub(crate) struct Done {
    /// Changed jobs or lanes
    pub(crate) count: u64,
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

/// The entries of `[[cron]]`.
#[derive(Serialize, JsonSchema)]
pub(crate) struct CronEntries {
    pub(crate) cron: Vec<CronEntry>,
}

#[derive(Serialize, JsonSchema)]
pub(crate) struct CronEntry {
    pub(crate) name: String,
    pub(crate) schedule: String,
    pub(crate) time_zone: String,
    pub(crate) queue: String,
    /// The next times
    pub(crate) next: Vec<String>,
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
