//! One invocation of a handler.

use std::sync::Arc;
use std::time::Duration;

use tokio::time::Instant;

use super::control::Control;
use super::surroundings::Surroundings;
use crate::model::id::{JobId, LaneId};
use crate::model::queue::Queue;
use crate::model::turn::Turn;

/// The turns that go to a handler together. Shared by the engine, the batch and the context, so
/// that a call needs one allocation for all of them.
#[derive(Debug)]
pub(crate) struct Call {
    pub(crate) queue: Arc<Queue>,
    pub(crate) turns: Vec<Turn>,
    /// Jobs that should have started before: not handed over.
    pub(crate) expired: Vec<JobId>,
    /// How long it may take, and when that is over.
    pub(crate) timeout: Option<Duration>,
    pub(crate) deadline: Option<Instant>,
    pub(crate) control: Control,
    pub(crate) around: Arc<Surroundings>,
}

impl Call {
    /// A call of turns that go back without having started.
    pub(super) fn unstarted(
        around: Arc<Surroundings>,
        queue: Arc<Queue>,
        turns: Vec<Turn>,
    ) -> Self {
        let control = Control::default();
        let expired = Vec::new();
        Self { queue, turns, expired, timeout: None, deadline: None, control, around }
    }

    /// Whether all jobs of it are flagged for cancellation.
    pub(super) fn is_all_flagged(&self) -> bool {
        let flagged =
            |turn: &Turn| turn.jobs.iter().all(|job| self.control.is_flagged(turn.lane, job.id));
        self.turns.iter().all(flagged)
    }

    /// Its turn of `lane`.
    pub(super) fn turn_of(&self, lane: LaneId) -> Option<&Turn> {
        self.turns.iter().find(|turn| turn.lane == lane)
    }
}
