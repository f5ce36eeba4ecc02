//! One invocation of a handler.

use std::sync::Arc;
use std::time::Duration;

use tokio::time::Instant;

use crate::handler::control::Control;
use crate::handler::env::CallEnv;
use crate::handler::outcomes::Outcomes;
use crate::model::{JobId, LaneId, NextRetry, Outcome, Queue, Settlement, Turn, Verdict, plan};

/// The turns that go to a handler together. Shared by the engine, the batch and the context, so that a call needs one
/// allocation for all of them.
#[derive(Debug)]
pub(crate) struct Call {
    /// As it holds for the worker.
    pub(crate) queue: Arc<Queue>,
    pub(crate) turns: Vec<Turn>,
    /// Where the jobs of its turn are handed over one after the other: the whole turn.
    pub(crate) series: Option<Series>,
    /// Jobs whose `expires_at` has passed: not handed over.
    pub(crate) expired: Vec<JobId>,
    /// The time limit, and when it ends.
    pub(crate) timeout: Option<Duration>,
    pub(crate) deadline: Option<Instant>,
    pub(crate) control: Control,
    pub(crate) env: Arc<CallEnv>,
}

/// A turn whose jobs are handed over one after the other, a call for each.
#[derive(Clone, Debug)]
pub(crate) struct Series {
    pub(crate) whole: Arc<Turn>,
    /// The place of the call's job.
    pub(crate) at: usize,
    pub(crate) began: Instant,
}

impl Series {
    pub(crate) fn of(whole: Turn) -> Self {
        Self { whole: Arc::new(whole), at: 0, began: Instant::now() }
    }

    /// The turn that a handler sees: the job alone.
    pub(crate) fn turn(&self) -> Turn {
        let whole = &*self.whole;
        let jobs = vec![whole.jobs[self.at].clone()];
        // Only the first job may have been tried before.
        let (retry_count, crashes, error) = match self.at {
            0 => (whole.retry_count, whole.crashes, whole.error.clone()),
            _ => (-1, 0, None),
        };
        Turn {
            lane: whole.lane,
            queue: whole.queue.clone(),
            key: whole.key.clone(),
            token: whole.token,
            claimed_at: whole.claimed_at,
            retry_count,
            crashes,
            error,
            jobs,
        }
    }

    /// The series at its next job, if there is one.
    pub(crate) fn next(&self) -> Option<Self> {
        let at = self.at + 1;
        (at < self.whole.jobs.len()).then(|| Self { at, ..self.clone() })
    }

    /// How the whole turn ends if its last call ends like this: the jobs behind it go back unstarted.
    fn whole_verdict(&self, verdict: Verdict) -> Verdict {
        // Such a job is not among those that are done or not.
        let is_left_out = !verdict.expired.is_empty() || !verdict.undecodable.is_empty();
        let is_done = verdict.done > 0 || verdict.outcome == Outcome::Done;
        let is_last = self.at + 1 == self.whole.jobs.len();
        let done = self.at + usize::from(is_done && !is_left_out);
        let outcome = match verdict.outcome {
            _ if (is_done || is_left_out) && !is_last => Outcome::Release,
            outcome => outcome,
        };
        // A result would be that of all jobs: the queue kept no results when this turn was claimed.
        Verdict { done, outcome, result: None, ..verdict }
    }
}

impl Call {
    /// A call whose turns are returned without having started.
    pub(crate) fn unstarted(env: Arc<CallEnv>, queue: Arc<Queue>, turns: Vec<Turn>) -> Self {
        let control = Control::default();
        let expired = Vec::new();
        Self { queue, turns, series: None, expired, timeout: None, deadline: None, control, env }
    }

    /// The turn at this place as the store handed it over.
    pub(crate) fn claimed(&self, place: usize) -> &Turn {
        self.series.as_ref().map_or(&self.turns[place], |series| &series.whole)
    }

    /// How the store ends the turn at this place, if the call ends like this.
    pub(crate) fn plan(
        &self,
        place: usize,
        queue: &Queue,
        verdict: Verdict,
        wait: &dyn Fn(NextRetry<'_>) -> Duration,
    ) -> Settlement {
        match &self.series {
            None => plan(&self.turns[place], queue, &verdict, wait),
            Some(series) => {
                let verdict = series.whole_verdict(verdict);
                let mut settlement = plan(&series.whole, queue, &verdict, wait);
                settlement.keep.others_unstarted = true;
                settlement
            }
        }
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
