//! What operators do to jobs and lanes.

use std::sync::Arc;

use serde::{Deserialize, Serialize};

use crate::model::clock::Timestamp;
use crate::model::id::{JobId, LaneId};

/// See [`crate::Store::cancel`].
#[derive(Clone, Debug)]
pub struct Cancel {
    /// The time; the store's when none.
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
    /// It runs; its holder will learn it.
    Flagged,
    /// It had ended (also: it is in the morgue); nothing changed.
    Ended,
    /// No such job is known.
    Unknown,
}

/// Some dead jobs of a queue.
#[derive(Clone, Debug)]
pub struct Selected {
    /// The time; the store's when none.
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
    /// So many jobs or lanes.
    pub count: u64,
    /// Whether the limit of one call was reached: call again.
    pub more: bool,
}

/// See [`crate::Store::act`].
#[derive(Clone, Debug)]
pub struct Act {
    /// The time; the store's when none.
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

/// See [`crate::Store::amend`].
#[derive(Clone, Debug)]
pub struct Amend {
    /// The time; the store's when none.
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
