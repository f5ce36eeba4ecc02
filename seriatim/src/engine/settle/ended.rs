//! Turns that have ended, on their way to the store.

use std::sync::Arc;

use crate::contract::Settled;
use crate::engine::settle::turn_log::TurnLog;
use crate::engine::shield::shielded;
use crate::handler::call::Call;
use crate::handler::env::CallEnv;
use crate::model::{EndKind, Ending, Job, JobId, Settlement, Turn};

/// A turn that has ended but is not settled yet.
pub(in crate::engine) struct Ended {
    pub(super) settlement: Settlement,
    pub(super) kept: Kept,
    /// The queue, if the lane may have a next turn and nothing failed in this one.
    pub(super) may_go_on: Option<Arc<str>>,
}

/// What is kept of a turn until the store answers.
#[derive(Default)]
pub(super) struct Kept {
    /// `None`: its end is counted elsewhere.
    pub(super) jobs: Option<Jobs>,
    /// The turn itself, kept only for observers and for the log of failures.
    pub(super) witness: Option<(Arc<Call>, usize)>,
    /// The calls of the hook for exhausted jobs that must be pushed before it is settled.
    pub(super) calls: Vec<Job>,
    /// Whether the store refused it before.
    pub(super) aside: bool,
    /// Whether it was sent before, and its lane was locked.
    pub(super) busy: bool,
    /// Whether it may have taken effect before, without an answer.
    pub(super) repeated: bool,
}

impl Ended {
    pub(in crate::engine) fn new(
        settlement: Settlement,
        call: &Arc<Call>,
        place: usize,
        observed: bool,
    ) -> Self {
        let turn = call.claimed(place);
        let jobs = Jobs::of(turn, &settlement);
        let wanted = observed || TurnLog::logs(&settlement);
        let witness = wanted.then(|| (call.clone(), place));
        let goes_on = turn.key.is_some() && settlement.is_all_done();
        let may_go_on = goes_on.then(|| turn.queue.clone());
        let is_flagged = |job| call.control.is_flagged(turn.lane, job);
        let calls = calls_about(&call.env, turn, &settlement, &is_flagged);
        let kept = Kept { jobs: Some(jobs), witness, calls, ..Kept::default() };
        Self { settlement, kept, may_go_on }
    }

    /// A turn that is sent again.
    pub(super) fn again(settlement: Settlement, kept: Kept) -> Self {
        Self { settlement, kept, may_go_on: None }
    }
}

/// The hook's calls that must be pushed before this turn is settled.
pub(super) fn calls_about(
    env: &CallEnv,
    turn: &Turn,
    settlement: &Settlement,
    is_flagged: &dyn Fn(JobId) -> bool,
) -> Vec<Job> {
    shielded(|| env.calls_about(turn, settlement, is_flagged)).unwrap_or_else(|text| {
        tracing::error!("the codec panicked: {text}; the hook for exhausted jobs is not called");
        Vec::new()
    })
}

/// The jobs of a turn, reduced to what its end requires, so that payloads are not kept until the store answers.
pub(in crate::engine) enum Jobs {
    /// All jobs are done; their number.
    Done(usize),
    /// Each job has its own fate.
    Each(Vec<JobId>),
}

impl Jobs {
    pub(in crate::engine) fn of(turn: &Turn, settlement: &Settlement) -> Self {
        match settlement.is_all_done() {
            true => Self::Done(turn.jobs.len()),
            false => Self::Each(turn.jobs.iter().map(|job| job.id).collect()),
        }
    }

    /// How the turn ended; `None` if its settlement was refused.
    pub(in crate::engine) fn ending(
        &self,
        settlement: &Settlement,
        settled: &Settled,
    ) -> Option<Ending> {
        match (settled, self) {
            (Settled::Stale | Settled::Busy | Settled::Unanswered, _) => None,
            (Settled::Ok { .. }, Self::Done(done)) => {
                Some(Ending { kind: EndKind::Done, done: *done })
            }
            (Settled::Ok { cancelled, .. }, Self::Each(jobs)) => {
                Some(settlement.ending(jobs.iter().copied(), cancelled))
            }
        }
    }
}
