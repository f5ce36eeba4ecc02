//! What operators do to jobs and lanes.

use std::sync::Arc;

use async_trait::async_trait;
use serde::{Deserialize, Serialize};

use crate::model::clock::Timestamp;
use crate::model::error::Result;
use crate::model::id::{JobId, LaneId};

/// What operators do to jobs and lanes.
#[async_trait]
pub trait Actions: Send + Sync {
    /// Cancels jobs. The answer has one entry for each, in order.
    ///
    /// - A waiting job ends cancelled at once. A running one is flagged; its holder learns it at the next heartbeat.
    ///   Other jobs do not change.
    async fn cancel(&self, request: Cancel) -> Result<Vec<Cancelled>>;

    /// Returns dead jobs to their queue. At most 10,000 in one call; `more` means: call again.
    ///
    /// - Id, score and arrival stay; retry count −1, crashes 0, due now.
    /// - In `accumulate`, one equal to a waiting job becomes one with it, under the older id; both ids stay known.
    /// - On a claimed lane it counts as an arrival.
    async fn requeue(&self, request: Selected) -> Result<Acted>;

    /// Deletes dead jobs. At most 10,000 in one call; `more` means: call again.
    async fn delete_dead(&self, request: Selected) -> Result<Acted>;

    /// Pauses, resumes or runs lanes now; buries or deletes what has failed. At most 10,000 lanes in one call, the
    /// oldest; `more` says that there are others.
    ///
    /// - A claimed lane keeps its turn: pausing and resuming take effect after it, the other actions do nothing.
    async fn act(&self, request: Act) -> Result<Acted>;

    /// Changes one waiting job: its time or its node, or deletes it.
    ///
    /// - A job that does not wait is `NotFound` (field `job_id`).
    async fn amend(&self, request: Amend) -> Result<()>;
}

/// See [`Actions::cancel`].
#[derive(Clone, Debug)]
pub struct Cancel {
    /// The time; the store's clock if unset.
    pub now: Option<Timestamp>,
    /// The jobs.
    pub jobs: Vec<JobId>,
}

/// What a cancellation did.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Cancelled {
    /// It waited; it is cancelled.
    Now,
    /// It runs; its holder learns it at its next heartbeat.
    Flagged,
    /// It had ended, or is in the morgue; nothing changed.
    Ended,
    /// No such job is known.
    Unknown,
}

/// Some dead jobs of a queue.
#[derive(Clone, Debug)]
pub struct Selected {
    /// The time; the store's clock if unset.
    pub now: Option<Timestamp>,
    /// The queue.
    pub queue: Arc<str>,
    /// Which of them.
    pub which: Selection,
}

/// Which dead jobs.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Selection {
    /// These.
    Jobs(Vec<JobId>),
    /// All of these keys.
    Keys(Vec<String>),
    /// All.
    All,
}

/// What a bulk action did.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Acted {
    /// How many jobs or lanes.
    pub count: u64,
    /// Whether the limit of one call was reached.
    pub more: bool,
}

/// See [`Actions::act`].
#[derive(Clone, Debug)]
pub struct Act {
    /// The time; the store's clock if unset.
    pub now: Option<Timestamp>,
    /// The queue.
    pub queue: Arc<str>,
    /// Which lanes.
    pub lanes: LaneSelection,
    /// What to do.
    pub action: LaneAction,
}

/// Which lanes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum LaneSelection {
    /// The lane of this key.
    Key(String),
    /// This lane.
    Lane(LaneId),
    /// Every lane.
    All,
    /// Every lane with a failure behind it.
    Failed,
}

/// What to do with a lane.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum LaneAction {
    /// Claim it no more.
    Pause,
    /// Claim it again; also ends a hold.
    Resume,
    /// Make it due now; order is kept.
    RunNow,
    /// Bury what has failed: the lane's head.
    Bury,
    /// Delete all that waits in it.
    Delete,
}

/// See [`Actions::amend`].
#[derive(Clone, Debug)]
pub struct Amend {
    /// The time; the store's clock if unset.
    pub now: Option<Timestamp>,
    /// The job.
    pub job: JobId,
    /// What to change.
    pub change: Change,
}

/// What to change of a waiting job.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Change {
    /// Due at this time (of its lane, in `accumulate`).
    RunAt(Timestamp),
    /// Bound to this node, or to none (its lane is, in `accumulate` and `fifo`).
    Node(Option<String>),
    /// Gone, without a trace.
    Delete,
}
