//! The engine's pushes of jobs about jobs that are buried or dropped, and the worker for their queue.
//!
//! Each is pushed before the turn is settled. So a process that dies in between loses none, and a worker that fails is
//! retried like any other. The job waits until the turn is settled, and does nothing if the settlement was refused.

use std::future::Future;
use std::sync::Arc;
use std::time::Duration;

use crate::contract::{JobState, pushes_of};
use crate::engine::core::Core;
use crate::engine::outage::will_pass;
use crate::engine::settle::ended::{Ended, Kept, calls_about};
use crate::handler::batch::Batch;
use crate::handler::call::Call;
use crate::handler::exhausted::Exhausted;
use crate::handler::failure::Failure;
use crate::handler::outcomes::Outcomes;
use crate::handler::worker::{Handling, Prepared, Worker};
use crate::model::{Job, LaneId, Outcome, Queue, Result, Settlement, Turn};

/// How long a call waits before it checks again whether the turn is settled.
const LOOK_AGAIN: Duration = Duration::from_secs(1);

pub(in crate::engine) fn queue() -> Queue {
    Queue::parallel(Exhausted::QUEUE)
}

/// The worker that calls a hook.
pub(in crate::engine) fn worker<F, Fut>(hook: F) -> Worker
where
    F: Fn(Exhausted) -> Fut + Send + Sync + 'static,
    Fut: Future<Output = Result<(), Failure>> + Send + 'static,
{
    let hook = Arc::new(hook);
    Worker::new(Exhausted::QUEUE, move |batch: Batch<Exhausted>| {
        let hook = hook.clone();
        async move {
            for exhausted in batch.payloads() {
                hook(exhausted.clone()).await?;
            }
            Ok::<_, Failure>(())
        }
    })
}

/// The worker, called only once the jobs have ended as planned.
pub(in crate::engine) fn guarded(worker: Worker) -> Worker {
    let prepare = worker.prepare.clone();
    worker.prepared_by(move |call| {
        let Prepared { handling, undecodable } = prepare(call);
        let call = call.clone();
        let guarded = |handling: Handling| -> Handling {
            Box::pin(async move {
                let lanes = ends(&call).await?;
                if lanes.iter().all(|(_, has_ended)| *has_ended == Some(true)) {
                    return handling.await;
                }
                // The hook hears of all lanes or of none: those that are to be told come again, without the others.
                let mut outcomes = Outcomes::new();
                for (lane, has_ended) in lanes {
                    outcomes.set(
                        lane,
                        match has_ended {
                            Some(false) => Outcome::Done,
                            _ => Outcome::Snooze { length: LOOK_AGAIN },
                        },
                    );
                }
                Ok(outcomes)
            })
        };
        Prepared { handling: handling.map(guarded), undecodable }
    })
}

/// Of each lane of the call: whether the job that it is about has ended; `None` while that is still running. Otherwise the
/// settlement was refused (the claim was taken over, and the job is tried again: if it has died since, another call is
/// about that), or a person had cancelled the job.
async fn ends(call: &Arc<Call>) -> Result<Vec<(LaneId, Option<bool>)>> {
    let mut lanes = Vec::new();
    for lane in Batch::<Exhausted>::read(call).0.lanes() {
        // A lane of a queue without keys has one job.
        for about in lane.payloads() {
            let has_ended = match call.env.store.job(about.job_id).await? {
                Some(job) if job.state == JobState::Running => None,
                Some(job) => Some(job.state == JobState::Dead && job.attempt <= about.attempts),
                None => Some(true),
            };
            lanes.push((lane.id(), has_ended));
        }
    }
    Ok(lanes)
}

/// Pushes the hook's calls of these turns, and answers those that may be settled now. While the store is full, or the
/// part of it with the hook's queue is away, the others wait: they hold up no turn that the hook need not hear of.
pub(super) async fn announce(core: &Core, mut ended: Vec<Ended>) -> Vec<Ended> {
    let calls: Vec<Job> = ended.iter().flat_map(|one| one.kept.calls.iter().cloned()).collect();
    if !push(core, &calls).await {
        let waits = |one: &mut Ended| !one.kept.calls.is_empty();
        core.settles.add_later(ended.extract_if(.., waits).collect::<Vec<_>>());
    }
    ended.iter_mut().for_each(|one| one.kept.calls.clear());
    ended
}

/// The same for turns that were rescued: the settler does not know them, and they have no payloads.
pub(in crate::engine) async fn announced(
    core: &Core,
    turns: Vec<Turn>,
    settlements: Vec<Settlement>,
) -> (Vec<Turn>, Vec<Settlement>) {
    let mut calls = Vec::new();
    for (turn, settlement) in turns.iter().zip(&settlements) {
        // Read for these alone: of most turns nothing is buried.
        let whole = match core.env.hears_of_exhausted() && Exhausted::concerns(turn, settlement) {
            // Without an answer the hook hears of the job without its payload.
            true => core.store.turn(turn.lane, turn.token).await.ok().flatten(),
            false => None,
        };
        let whole = whole.as_ref().unwrap_or(turn);
        calls.push(calls_about(&core.env, whole, settlement, &|_| false));
    }
    if push(core, &calls.concat()).await {
        return (turns, settlements);
    }
    let mut now = (Vec::new(), Vec::new());
    let mut later = Vec::new();
    for ((turn, settlement), calls) in turns.into_iter().zip(settlements).zip(calls) {
        if calls.is_empty() {
            now.0.push(turn);
            now.1.push(settlement);
        } else {
            later.push(Ended::again(settlement, Kept { calls, ..Kept::default() }));
        }
    }
    core.settles.add_later(later);
    now
}

/// Whether the store has answered: refused calls are lost, and logged.
async fn push(core: &Core, calls: &[Job]) -> bool {
    for calls in pushes_of(calls) {
        match core.push(calls.to_vec()).await {
            Ok(_) => {}
            Err(error) if will_pass(&error) => {
                core.outage.failed("pushing exhausted jobs to their hook", &error);
                return false;
            }
            Err(error) => {
                tracing::error!(%error, jobs = calls.len(), "the store refuses the hook's jobs: it is not called for these");
            }
        }
    }
    true
}
