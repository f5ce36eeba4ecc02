//! What people and programs see of a store.

use std::sync::Arc;
use std::time::Duration;

use serde::{Deserialize, Serialize};

use crate::contract::request::{Command, NodeInfo};
use crate::model::clock::Timestamp;
use crate::model::id::{JobId, LaneId, NodeId, Token};
use crate::model::job::JobOptions;
use crate::model::payload::Payload;
use crate::model::queue::{Mode, Queue};

/// A page of a listing.
#[derive(Clone, Debug, PartialEq)]
pub struct Page<T> {
    /// The rows.
    pub rows: Vec<T>,
    /// Where the next page begins; `None` at the end. Opaque.
    pub next: Option<String>,
}

impl<T> Default for Page<T> {
    fn default() -> Self {
        Self { rows: Vec::new(), next: None }
    }
}

/// A queue as the store knows it.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct QueueView {
    /// Its number in this store.
    pub number: u32,
    /// Its definition.
    pub queue: Queue,
    /// Whether somebody declared it, or an undeclared push made it.
    pub declared: bool,
    /// Whether none of its lanes may be claimed.
    pub paused: bool,
}

/// The figures of a queue, as `docs/figures.md` defines them.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct QueueStats {
    /// The queue.
    pub queue: Arc<str>,
    /// Its mode.
    pub mode: Option<Mode>,
    /// Whether it is paused.
    pub paused: bool,
    /// Lanes: waiting or claimed.
    pub lanes: u64,
    /// Jobs that have not ended: waiting or claimed.
    pub jobs: u64,
    /// Claimed lanes, and so turns under way: running, or prefetched by their node.
    pub claimed: u64,
    /// Lanes that have failed and are not done since, whether they wait, are held, or are claimed.
    pub retrying: u64,
    /// Dead jobs.
    pub dead: u64,
    /// Jobs that are done.
    pub processed: u64,
    /// Turns that failed or crashed.
    pub failed: u64,
    /// How long the oldest due lane has been due.
    #[serde(skip)]
    pub lag: Duration,
}

impl QueueStats {
    /// Lanes that nobody has claimed: due, scheduled, waiting for a retry, held or paused.
    pub fn waiting(&self) -> u64 {
        self.lanes.saturating_sub(self.claimed)
    }
}

/// By what lanes are listed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum LaneOrder {
    /// By age.
    #[default]
    Age,
    /// By key.
    Key,
    /// By due time.
    Due,
    /// By retry count, those with a failure only, most first.
    RetryCount,
}

/// See [`crate::store::Store::lanes`].
#[derive(Clone, Debug)]
pub struct LaneQuery {
    /// The queue.
    pub queue: Arc<str>,
    /// Only the lane of this key.
    pub key: Option<String>,
    /// Only claimed ones.
    pub claimed: bool,
    /// By what.
    pub order: LaneOrder,
    /// Where to begin: the `next` of the page before.
    pub after: Option<String>,
    /// Most rows.
    pub rows_max: usize,
}

/// A lane as people see it.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct LaneView {
    /// Its name.
    pub lane: LaneId,
    /// Its key.
    pub key: Option<Arc<str>>,
    /// What it does.
    pub state: LaneState,
    /// When it is due; of a claimed one, when it was.
    pub due: Option<Timestamp>,
    /// Its priority.
    pub priority: u16,
    /// Its jobs, those of the turn included.
    pub jobs: u64,
    /// −1 before the first failure.
    pub retry_count: i32,
    /// Claims that were lost.
    pub crashes: u32,
    /// The last error.
    pub error: Option<Arc<str>>,
    /// The token that holds it.
    pub token: Option<Token>,
    /// The node that holds it.
    pub node: Option<NodeId>,
    /// Since when.
    pub claimed_at: Option<Timestamp>,
    /// What its holder last told.
    pub progress: Option<Arc<str>>,
}

/// What a lane does.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum LaneState {
    /// It waits: due, scheduled or for a retry.
    Waiting,
    /// A turn of it runs.
    Claimed,
    /// Its retries are used up and its queue's policy is to hold.
    Held,
    /// A person paused it.
    Paused,
}

/// The states of a job that people see.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum JobState {
    /// It waits.
    Queued,
    /// It runs.
    Running,
    /// It is done.
    Succeeded,
    /// It is in the morgue. (`GET /jobs/{id}/status` says `failed`, as Dataloader does.)
    Dead,
    /// It was cancelled, or expired.
    Canceled,
}

/// By what jobs are listed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum JobOrder {
    /// By arrival.
    #[default]
    Arrival,
    /// By when they last changed, newest first (dead and finished ones).
    UpdatedAt,
    /// By key (dead ones).
    Key,
}

/// Of payloads of these lengths, how many make a page: up to the one that reaches
/// [`PAGE_BYTES_MAX`](crate::limits::PAGE_BYTES_MAX).
pub(crate) fn rows_of_page(lengths: impl IntoIterator<Item = usize>) -> usize {
    let (mut rows, mut bytes) = (0, 0);
    for length in lengths {
        if bytes >= crate::model::limits::PAGE_BYTES_MAX {
            break;
        }
        (rows, bytes) = (rows + 1, bytes + length);
    }
    rows
}

/// See [`crate::store::Store::jobs`].
#[derive(Clone, Debug)]
pub struct JobQuery {
    /// The queue.
    pub queue: Arc<str>,
    /// In which state; `Queued` and `Running` are listed together with both.
    pub state: JobState,
    /// Only of this key.
    pub key: Option<String>,
    /// By what.
    pub order: JobOrder,
    /// Where to begin: the `next` of the page before.
    pub after: Option<String>,
    /// Most rows.
    pub rows_max: usize,
}

/// A job as people see it.
#[derive(Clone, Debug, PartialEq)]
pub struct JobView {
    /// Its id.
    pub id: JobId,
    /// Its queue.
    pub queue: Arc<str>,
    /// Its key.
    pub key: Option<Arc<str>>,
    /// Its task.
    pub task: Option<Arc<str>>,
    /// Its state.
    pub state: JobState,
    /// What it carries.
    pub payload: Payload,
    /// Its place among the jobs of its key.
    pub score: f64,
    /// Its priority.
    pub priority: u16,
    /// When it is, or was, due.
    pub run_at: Timestamp,
    /// Claims that included it.
    pub attempt: u32,
    /// −1 before the first failure (the lane's in `accumulate`).
    pub retry_count: i32,
    /// Claims of it that were lost.
    pub crashes: u32,
    /// The last error.
    pub error: Option<Arc<str>>,
    /// Whether somebody wants it cancelled.
    pub cancel_requested: bool,
    /// When it was pushed.
    pub created_at: Timestamp,
    /// When it first started.
    pub started_at: Option<Timestamp>,
    /// When it ended.
    pub finished_at: Option<Timestamp>,
    /// When its holder last beat.
    pub heartbeat_at: Option<Timestamp>,
    /// What its holder last told.
    pub progress: Option<Arc<str>>,
    /// What it overrides.
    pub options: Option<Box<JobOptions>>,
}

/// A node as people see it.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct NodeView {
    /// What it tells of itself.
    pub info: NodeInfo,
    /// When it last beat.
    pub heartbeat_at: Timestamp,
    /// Whether it has been declared dead, or has stopped: it will never claim again. See
    /// [`Self::state`].
    pub dead: bool,
    /// What an operator told it, and has not taken back.
    pub command: Option<Command>,
}

/// What a node does.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum NodeState {
    /// It works.
    Alive,
    /// A person told it to take no more work.
    Quiet,
    /// A person told it to stop.
    Stopping,
    /// Its last beat is older than its lease: it will be declared dead.
    Late,
    /// It ended as it should, and said so.
    Stopped,
    /// It fell silent and was declared dead.
    Dead,
}

impl NodeState {
    /// The name, as listings show it.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Alive => "alive",
            Self::Quiet => "quiet",
            Self::Stopping => "stopping",
            Self::Late => "late",
            Self::Stopped => "stopped",
            Self::Dead => "dead",
        }
    }
}

impl NodeView {
    /// What it does at `now`, by the store's clock.
    pub fn state(&self, now: Timestamp) -> NodeState {
        match (self.dead, self.command) {
            _ if self.info.has_stopped() => NodeState::Stopped,
            (true, _) => NodeState::Dead,
            (false, _) if self.heartbeat_at + self.info.lease < now => NodeState::Late,
            (false, Some(Command::Stop)) => NodeState::Stopping,
            (false, Some(Command::Quiet)) => NodeState::Quiet,
            (false, Some(Command::Resume) | None) => NodeState::Alive,
        }
    }
}
