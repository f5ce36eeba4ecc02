//! One invocation of a handler.

use std::sync::Arc;
use std::time::Duration;

use tokio::time::Instant;

use crate::handler::control::Control;
use crate::handler::env::CallEnv;
use crate::handler::outcomes::Outcomes;
use crate::model::id::{JobId, LaneId};
use crate::model::queue::Queue;
use crate::model::settle::{Outcome, Verdict};
use crate::model::turn::Turn;

/// The turns that go to a handler together. Shared by the engine, the batch and the context, so that a call needs one
/// allocation for all of them.
#[derive(Debug)]
pub(crate) struct Call {
    pub(crate) queue: Arc<Queue>,
    pub(crate) turns: Vec<Turn>,
    /// Jobs whose `expires_at` has passed: not handed over.
    pub(crate) expired: Vec<JobId>,
    /// The time limit, and when it ends.
    pub(crate) timeout: Option<Duration>,
    pub(crate) deadline: Option<Instant>,
    pub(crate) control: Control,
    pub(crate) env: Arc<CallEnv>,
}

impl Call {
    /// A call whose turns are returned without having started.
    pub(crate) fn unstarted(env: Arc<CallEnv>, queue: Arc<Queue>, turns: Vec<Turn>) -> Self {
        let control = Control::default();
        let expired = Vec::new();
        Self { queue, turns, expired, timeout: None, deadline: None, control, env }
    }

    /// Whether all its jobs are flagged for cancellation.
    pub(crate) fn is_all_flagged(&self) -> bool {
        let flagged =
            |turn: &Turn| turn.jobs.iter().all(|job| self.control.is_flagged(turn.lane, job.id));
        self.turns.iter().all(flagged)
    }

    /// The task of all its jobs, if they name one.
    pub(crate) fn task(&self) -> Option<&str> {
        self.turns.first()?.task().map(AsRef::as_ref)
    }

    /// Its turn of `lane`.
    pub(crate) fn turn_of(&self, lane: LaneId) -> Option<&Turn> {
        self.turns.iter().find(|turn| turn.lane == lane)
    }

    /// The verdict of one of its turns if the handler is done.
    pub(crate) fn done_verdict(&self, turn: &Turn) -> Verdict {
        self.verdict(turn, &Ok(Outcomes::new()), &self.control.undecodable())
    }

    /// The verdict that an answer gives one of its turns.
    pub(crate) fn verdict(
        &self,
        turn: &Turn,
        answer: &Result<Outcomes, Outcome>,
        undecodable: &[(JobId, Arc<str>)],
    ) -> Verdict {
        let mut verdict = match answer {
            Ok(outcomes) => outcomes.of(turn.lane),
            Err(outcome) => outcome.clone().into(),
        };
        let own = |id: JobId| turn.jobs.iter().any(|job| job.id == id);
        verdict.undecodable = undecodable.iter().filter(|(id, _)| own(*id)).cloned().collect();
        verdict.result = verdict.result.or_else(|| self.control.result(turn.lane));
        verdict.expired = self.expired.iter().filter(|id| own(**id)).copied().collect();
        verdict
    }
}
