//! The contract for operators: cancelling, requeueing, deleting and changing jobs and lanes.

use std::sync::Arc;

use async_trait::async_trait;
use serde::{Deserialize, Serialize};

#[cfg(feature = "mysql")]
use crate::model::Mode;
use crate::model::{JobId, LaneId, Result, Timestamp};

/// What operators can do with jobs and lanes.
#[async_trait]
pub trait Actions: Send + Sync {
    /// Cancels jobs. The answer has one entry for each, in order.
    ///
    /// - A waiting job ends cancelled immediately. A running one is flagged; its node learns it at the next
    ///   heartbeat. Other jobs do not change.
    async fn cancel(&self, request: Cancel) -> Result<Vec<Cancelled>>;

    /// Returns dead jobs to their queue. At most 10,000 in one call; `more` means: call again.
    ///
    /// - Id, score and arrival stay; retry count −1, crashes 0, due now.
    /// - In `accumulate`, a job equal to a waiting one merges with it, under the older id; both ids stay known.
    /// - On a claimed lane it counts as an arrival during the turn.
    async fn requeue(&self, request: Selected) -> Result<Acted>;

    /// Deletes dead jobs. At most 10,000 in one call; `more` means: call again.
    async fn delete_dead(&self, request: Selected) -> Result<Acted>;

    /// Pauses, resumes or runs lanes now; buries or deletes failed jobs. At most 10,000 lanes in one call, oldest
    /// first; `more` means: there are others.
    ///
    /// - A claimed lane keeps its turn: pausing and resuming take effect after it, the other actions do nothing.
    /// - A store may change the jobs of a long lane in several atomic steps. If the call fails between them, call again. In
    ///   `accumulate` the lane counts as failed until its last job has left.
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

/// The result of a cancellation.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Cancelled {
    /// It was waiting and is cancelled now.
    Now,
    /// It is running; its node learns it at the next heartbeat.
    Flagged,
    /// It had ended or is in the morgue; nothing changed.
    Ended,
    /// The store knows no such job.
    Unknown,
}

/// Selects dead jobs of a queue.
#[derive(Clone, Debug)]
pub struct Selected {
    /// The time; the store's clock if unset.
    pub now: Option<Timestamp>,
    /// The queue.
    pub queue: Arc<str>,
    /// Which dead jobs.
    pub which: Selection,
}

/// Which dead jobs.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Selection {
    /// The jobs with these ids.
    Jobs(Vec<JobId>),
    /// All dead jobs of these keys.
    Keys(Vec<String>),
    /// All dead jobs of the queue.
    All,
}

/// The result of a bulk action.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Acted {
    /// The number of jobs or lanes.
    pub count: u64,
    /// Whether the limit of one call was reached: call again.
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
    /// These lanes, as far as they are of this queue.
    Lanes(Vec<LaneId>),
    /// Every lane.
    All,
    /// Every lane that failed and has not succeeded since.
    Failed,
}

/// What to do with a lane.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum LaneAction {
    /// Stop claiming it.
    Pause,
    /// Claim it again; also releases a held lane.
    Resume,
    /// Make it due now; its order stays.
    RunNow,
    /// Bury failed jobs: in `accumulate` all waiting jobs of a lane that failed, in other modes every job that failed.
    Bury,
    /// Delete the jobs that `Bury` buries.
    DeleteFailed,
    /// Delete all its waiting jobs.
    Delete,
}

impl LaneAction {
    /// Whether each of the lane's waiting jobs may have to change.
    #[cfg(feature = "mysql")]
    pub(crate) fn moves_jobs(self, mode: Mode) -> bool {
        match self {
            Self::Pause | Self::Resume => false,
            Self::RunNow => mode == Mode::Exclusive,
            Self::Bury | Self::DeleteFailed | Self::Delete => true,
        }
    }
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

/// A change to a waiting job.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Change {
    /// Makes it due at this time (in `accumulate`, its lane; if that is claimed, what waits for the next turn, with a
    /// window at the latest).
    RunAt(Timestamp),
    /// Binds it to this node, or to none (in `accumulate` and `fifo`, its lane).
    Node(Option<String>),
    /// Deletes it; no record is kept.
    Delete,
}
