//! Runs handlers. Each executor takes one call after another.

use std::any::Any;
use std::panic::AssertUnwindSafe;
use std::sync::Arc;

use futures_util::FutureExt;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use super::CANCEL_GRACE;
use super::shared::{Call, Shared};
use crate::batch::{Batch, Context, Outcomes, PauseSink, ProgressSink};
use crate::id::{JobId, LaneId};
use crate::settle::{Outcome, Verdict};
use crate::turn::Turn;
use crate::worker::Answer;

/// Calls after which an executor lets others have a turn on its thread.
const CALLS_BEFORE_YIELD: u32 = 64;

pub(super) async fn run(shared: Arc<Shared>) {
    let (progress, pause) = (shared.progress_sink(), shared.pause_sink());
    let mut calls = 0;
    loop {
        let Some(call) = shared.next_call() else {
            tokio::select! {
                () = shared.filled.notified() => continue,
                () = shared.stop.cancelled() => match shared.buffered() {
                    0 => return,
                    _ => continue,
                },
            }
        };
        if shared.stop.is_cancelled() {
            call.turns.into_iter().for_each(|turn| shared.ended(turn, Outcome::Release.into()));
            continue;
        }
        perform(&shared, call, progress.clone(), pause.clone()).await;
        calls += 1;
        if calls % CALLS_BEFORE_YIELD == 0 {
            // Handlers that never wait would keep the thread from everybody else.
            tokio::task::yield_now().await;
        }
    }
}

async fn perform(
    shared: &Arc<Shared>,
    call: Call,
    progress: Arc<ProgressSink>,
    pause: Arc<PauseSink>,
) {
    let (turns, expired) = without_expired(shared, call.turns);
    if turns.is_empty() {
        return;
    }
    let cancel = CancellationToken::new();
    let deadline = call.timeout.map(|timeout| Instant::now() + timeout);
    let context = Context { cancel: cancel.clone(), deadline, progress, pause };
    shared.begin(&turns, &cancel);
    let handling = call.worker.call(Batch::raw(&turns), context);
    let mut handling = AssertUnwindSafe(handling).catch_unwind();
    let answer = match deadline {
        None => handling.await.unwrap_or_else(panicked),
        Some(deadline) => match tokio::time::timeout_at(deadline, &mut handling).await {
            Ok(answer) => answer.unwrap_or_else(panicked),
            Err(_) => {
                cancel.cancel();
                // Whatever it says now, it was too late; but it may end in its own way.
                let _ = tokio::time::timeout(CANCEL_GRACE, handling).await;
                failed(format!("it took longer than {:?}", call.timeout.unwrap_or_default()))
            }
        },
    };
    settle(shared, turns, &answer, &expired);
}

/// Takes out what should have started before now. A turn of which nothing is left is settled at once.
fn without_expired(
    shared: &Shared,
    turns: Vec<Arc<Turn>>,
) -> (Vec<Arc<Turn>>, Vec<(LaneId, JobId)>) {
    let may_expire = |turn: &Arc<Turn>| turn.jobs.iter().any(|job| job.options.is_some());
    if !turns.iter().any(may_expire) {
        return (turns, Vec::new());
    }
    let now = shared.now();
    let mut expired = Vec::new();
    let mut left = Vec::with_capacity(turns.len());
    for turn in turns {
        let (old, fresh): (Vec<_>, Vec<_>) =
            turn.jobs.iter().cloned().partition(|job| job.has_expired(now));
        if fresh.is_empty() {
            let expired = old.iter().map(|job| job.id).collect();
            shared.ended(turn, Verdict { expired, ..Outcome::Done.into() });
            continue;
        }
        expired.extend(old.iter().map(|job| (turn.lane, job.id)));
        left.push(if old.is_empty() {
            turn
        } else {
            Arc::new(Turn { jobs: fresh, ..(*turn).clone() })
        });
    }
    (left, expired)
}

fn panicked(panic: Box<dyn Any + Send>) -> Answer {
    let text = panic
        .downcast_ref::<&str>()
        .map(|text| (*text).to_owned())
        .or_else(|| panic.downcast_ref::<String>().cloned())
        .unwrap_or_else(|| "of no known kind".to_owned());
    failed(format!("the handler panicked: {text}"))
}

fn failed(error: String) -> Answer {
    Answer { outcomes: Err(error), undecodable: Vec::new() }
}

fn settle(shared: &Shared, turns: Vec<Arc<Turn>>, answer: &Answer, expired: &[(LaneId, JobId)]) {
    let error: Option<Arc<str>> = answer.outcomes.as_ref().err().map(|error| error.as_str().into());
    let done = Outcomes::new();
    let outcomes = answer.outcomes.as_ref().unwrap_or(&done);
    let of = |lane: LaneId, jobs: &[(LaneId, JobId)]| -> Vec<JobId> {
        jobs.iter().filter(|(name, _)| *name == lane).map(|(_, job)| *job).collect()
    };
    for turn in shared.end(turns) {
        let mut verdict = match &error {
            Some(error) => Outcome::Retry { error: error.clone(), retry_in: None }.into(),
            None => outcomes.of(turn.lane),
        };
        if shared.is_giving_up() && matches!(verdict.outcome, Outcome::Retry { .. }) {
            // It was told to end before it could.
            verdict.outcome = Outcome::Release;
        }
        verdict.undecodable = of(turn.lane, &answer.undecodable);
        verdict.expired = of(turn.lane, expired);
        if let Some(observer) = &shared.settings.observer {
            observer.ended(&turn, &verdict);
        }
        shared.ended(turn, verdict);
    }
}
