//! Outcomes of lanes that do not all end the same way.

use std::fmt::Display;

use crate::model::{LaneId, Outcome, Turn, Verdict};

/// How the lanes of one call end: one outcome for all, and exceptions by lane.
///
/// ```
/// # use seriatim::{Batch, Outcome, Outcomes};
/// fn only_paid(batch: &Batch<String>) -> Outcomes {
///     let mut outcomes = Outcomes::new();
///     for lane in batch.lanes() {
///         if lane.payloads().iter().any(|status| status != "paid") {
///             outcomes.fail(lane.id(), "not paid yet");
///         }
///     }
///     outcomes
/// }
/// ```
#[derive(Clone, Debug, Default)]
pub struct Outcomes {
    rest: Option<Outcome>,
    lanes: Vec<(LaneId, Verdict)>,
}

impl Outcomes {
    /// Done, for every lane without an outcome of its own.
    pub fn new() -> Self {
        Self::default()
    }

    /// `outcome`, for every lane without an outcome of its own.
    pub fn all(outcome: Outcome) -> Self {
        Self { rest: Some(outcome), lanes: Vec::new() }
    }

    /// Sets how a lane ends; replaces an earlier setting.
    pub fn set(&mut self, lane: LaneId, verdict: impl Into<Verdict>) -> &mut Self {
        self.lanes.push((lane, verdict.into()));
        self
    }

    /// Sets the first `done` jobs of a lane as done, and `outcome` for the next one.
    pub fn set_after(&mut self, lane: LaneId, done: usize, outcome: Outcome) -> &mut Self {
        self.set(lane, Verdict { done, ..outcome.into() })
    }

    /// Sets that a lane failed; it is retried after the queue's backoff.
    pub fn fail(&mut self, lane: LaneId, error: impl Display) -> &mut Self {
        self.set(lane, Outcome::Retry { error: error.to_string().into(), retry_in: None })
    }

    /// Whether every lane is done: the common case.
    pub fn is_all_done(&self) -> bool {
        self.lanes.is_empty() && matches!(self.rest, None | Some(Outcome::Done))
    }

    /// Whether these turns are done, without a result.
    pub(crate) fn is_done(&self, turns: &[Turn]) -> bool {
        let is_plain = |verdict: Verdict| verdict == Outcome::Done.into();
        self.is_all_done() || turns.iter().all(|turn| is_plain(self.of(turn.lane)))
    }

    /// How `lane` ends.
    pub fn of(&self, lane: LaneId) -> Verdict {
        let said = self.lanes.iter().rev().find(|(name, _)| *name == lane);
        match said {
            Some((_, verdict)) => verdict.clone(),
            None => self.rest.clone().unwrap_or(Outcome::Done).into(),
        }
    }
}

impl From<Outcome> for Outcomes {
    fn from(outcome: Outcome) -> Self {
        Self::all(outcome)
    }
}
