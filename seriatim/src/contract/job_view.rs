//! A job, as listings show it.

use std::sync::Arc;

use serde::{Deserialize, Serialize};

use crate::model::{JobId, JobOptions, LaneId, NodeId, Payload, Timestamp, Token};

/// The states of a job.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum JobState {
    /// It waits.
    Queued,
    /// It runs.
    Running,
    /// It is done.
    Succeeded,
    /// It is in the morgue. (`GET /jobs/{id}/status` answers `failed`, as Dataloader does.)
    Dead,
    /// It was cancelled, or it expired.
    Canceled,
}

/// A job, as listings show it.
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
    /// Its payload; empty if it is longer than the listing's `payload_bytes_max`.
    pub payload: Payload,
    /// The length of its payload, also where that was left out.
    pub payload_bytes: usize,
    /// Its score: its place among the jobs of its key.
    pub score: f64,
    /// Its priority.
    pub priority: u16,
    /// When it is, or was, due.
    pub run_at: Timestamp,
    /// The number of claims that included it.
    pub attempt: u32,
    /// −1 before the first failure (the lane's in `accumulate`).
    pub retry_count: i32,
    /// The number of lost claims of it.
    pub crashes: u32,
    /// The last error; none beside a result.
    pub error: Option<Arc<str>>,
    /// The result of the turn that ended it, as JSON.
    pub result: Option<Arc<str>>,
    /// Whether it is flagged for cancellation.
    pub cancel_requested: bool,
    /// When it was pushed.
    pub created_at: Timestamp,
    /// When it first started; a turn that was released does not count.
    pub started_at: Option<Timestamp>,
    /// When it ended.
    pub finished_at: Option<Timestamp>,
    /// The lane that it is in; `None` if it has ended.
    pub lane: Option<LaneId>,
    /// The token of the claim that it runs under.
    pub token: Option<Token>,
    /// The node that runs it.
    pub node: Option<NodeId>,
    /// The last heartbeat of its holder.
    pub heartbeat_at: Option<Timestamp>,
    /// The last progress that its holder reported, as JSON.
    pub progress: Option<Arc<str>>,
    /// The queue settings that it overrides.
    pub options: Option<Arc<JobOptions>>,
}

impl JobView {
    /// Whether the payload was left out, since it is longer than was asked for.
    pub fn lacks_payload(&self) -> bool {
        self.payload.as_bytes().len() != self.payload_bytes
    }

    /// The bytes of its payload, result, error and progress together: the parts that may be long.
    pub fn bytes(&self) -> usize {
        let of = |text: &Option<Arc<str>>| text.as_deref().map_or(0, str::len);
        self.payload.as_bytes().len() + of(&self.result) + of(&self.error) + of(&self.progress)
    }

    /// Whether it has ended: it succeeded, is dead, or was cancelled.
    pub fn has_ended(&self) -> bool {
        !matches!(self.state, JobState::Queued | JobState::Running)
    }

    /// When it is due; when it ended, if it has.
    pub fn at(&self) -> Timestamp {
        self.finished_at.unwrap_or(self.run_at)
    }
}
