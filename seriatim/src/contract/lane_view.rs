//! A lane, as listings show it.

use std::sync::Arc;
use std::time::Duration;

use serde::{Deserialize, Serialize};

use crate::model::{JobId, JobOptions, LaneId, NodeId, Timestamp, Token};

/// A lane, as listings show it.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct LaneView {
    /// Its id.
    pub lane: LaneId,
    /// Its key.
    pub key: Option<Arc<str>>,
    /// Its state.
    pub state: LaneState,
    /// When it is due; for a claimed one, when it was due.
    pub due: Option<Timestamp>,
    /// If it waits in a queue with a [`Window`](crate::Window) and is not due yet: until when pushes may delay it.
    pub collects_until: Option<Timestamp>,
    /// Its priority.
    pub priority: u16,
    /// The number of its jobs, including those of the turn.
    pub jobs: u64,
    /// −1 before the first failure.
    pub retry_count: i32,
    /// The number of lost claims.
    pub crashes: u32,
    /// The last error.
    pub error: Option<Arc<str>>,
    /// The token of its claim.
    pub token: Option<Token>,
    /// The node that holds its claim.
    pub node: Option<NodeId>,
    /// When it was claimed.
    pub claimed_at: Option<Timestamp>,
    /// Until when its claim holds, if nothing extends it; `None` also if its node is forgotten.
    pub lease_until: Option<Timestamp>,
    /// The last progress that its holder reported, as JSON.
    pub progress: Option<Arc<str>>,
    /// Its job, if it has only one: lanes without a key always do.
    pub only: Option<LaneJob>,
}

/// The only job of a lane, without its payload.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct LaneJob {
    /// Its id.
    pub id: JobId,
    /// Its task.
    pub task: Option<Arc<str>>,
    /// The queue settings that it overrides.
    pub options: Option<Arc<JobOptions>>,
}

/// The states of a lane.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum LaneState {
    /// It waits: due, scheduled or for a retry.
    Waiting,
    /// It has a turn, running or prefetched.
    Claimed,
    /// Its retries are used up and its queue has `exhausted = "hold"`.
    Held,
    /// An operator paused it.
    Paused,
}

/// The state of a lane, finer than [`LaneState`](super::LaneState); listings filter by it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum LaneStage {
    /// It waits and is due; it has not failed since it last succeeded.
    Ready,
    /// It waits and is due later; it has not failed since it last succeeded.
    Scheduled,
    /// It waits after a failure, due or not.
    Retrying,
    /// It is claimed: it runs, or its node prefetched it.
    Running,
    /// Its retries are used up and its queue has `exhausted = "hold"`.
    Held,
    /// An operator paused it.
    Paused,
    /// It has lost claims, whatever else it does.
    Crashed,
}

impl LaneStage {
    /// All of them.
    pub const ALL: [Self; 7] = [
        Self::Ready,
        Self::Scheduled,
        Self::Retrying,
        Self::Running,
        Self::Held,
        Self::Paused,
        Self::Crashed,
    ];
    /// Those of a lane that waits: `LaneState::Waiting`.
    pub const WAITING: [Self; 3] = [Self::Ready, Self::Scheduled, Self::Retrying];

    /// The name, as listings show it.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Ready => "ready",
            Self::Scheduled => "scheduled",
            Self::Retrying => "retrying",
            Self::Running => "running",
            Self::Held => "held",
            Self::Paused => "paused",
            Self::Crashed => "crashed",
        }
    }
}

impl LaneView {
    /// A lane of which no more is known.
    #[cfg(feature = "redis")]
    pub(crate) fn new(lane: LaneId, state: LaneState) -> Self {
        Self {
            lane,
            key: None,
            state,
            due: None,
            collects_until: None,
            priority: 0,
            jobs: 0,
            retry_count: -1,
            crashes: 0,
            error: None,
            token: None,
            node: None,
            claimed_at: None,
            lease_until: None,
            progress: None,
            only: None,
        }
    }

    /// How long it has been due at `now`, if it waits and is due.
    pub fn lag(&self, now: Timestamp) -> Option<Duration> {
        let due = self.due.filter(|due| self.state == LaneState::Waiting && *due <= now);
        due.map(|due| now.since(due))
    }

    /// Its stage at `now`. Never [`LaneStage::Crashed`], which is in addition to another stage.
    pub fn stage(&self, now: Timestamp) -> LaneStage {
        match self.state {
            LaneState::Claimed => LaneStage::Running,
            LaneState::Paused => LaneStage::Paused,
            LaneState::Held => LaneStage::Held,
            LaneState::Waiting if self.retry_count >= 0 => LaneStage::Retrying,
            LaneState::Waiting if self.due.is_some_and(|due| due > now) => LaneStage::Scheduled,
            LaneState::Waiting => LaneStage::Ready,
        }
    }
}
