//! The hook for jobs that are buried or dropped.
//!
//! Each call of the hook is itself a job, pushed before the turn is settled. So a process that dies in between loses
//! no call, and a hook that fails is retried like any handler. The job waits until the turn is settled, and does
//! nothing if the settlement was refused.

use std::future::Future;
use std::sync::Arc;
use std::time::Duration;

use serde::{Deserialize, Serialize};

use crate::contract::{JobState, Push, SharedStore};
use crate::engine::core::Core;
use crate::engine::shield::shielded;
use crate::handler::batch::Batch;
use crate::handler::env::CallEnv;
use crate::handler::failure::Failure;
use crate::handler::worker::Worker;
use crate::model::error::Result;
use crate::model::id::JobId;
use crate::model::job::Job;
use crate::model::limits::PUSH_JOBS_MAX;
use crate::model::queue::Queue;
use crate::model::settle::{Fate, Outcome, Settlement};
use crate::model::turn::Turn;

/// The queue of the hook's calls.
pub(in crate::engine) const QUEUE: &str = "seriatim.exhausted";
/// How long a call waits before it checks again whether the turn is settled.
const LOOK_AGAIN: Duration = Duration::from_secs(1);

/// A job that was buried or dropped, usually because its retries are used up.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct Exhausted {
    /// The job.
    pub job_id: JobId,
    /// Its queue.
    pub queue: String,
    /// Its key.
    pub key: Option<String>,
    /// Its task.
    pub task: Option<String>,
    /// How often it was started.
    pub attempts: u32,
    /// The last failure.
    pub error: Option<String>,
}

pub(in crate::engine) fn queue() -> Queue {
    Queue::parallel(QUEUE)
}

/// The worker that calls the hook.
pub(in crate::engine) fn worker<F, Fut>(store: SharedStore, hook: F) -> Worker
where
    F: Fn(Exhausted) -> Fut + Send + Sync + 'static,
    Fut: Future<Output = Result<(), Failure>> + Send + 'static,
{
    let hook = Arc::new(hook);
    Worker::new(QUEUE, move |batch: Batch<Exhausted>| {
        let (store, hook) = (store.clone(), hook.clone());
        async move {
            for exhausted in batch.payloads() {
                match store.job(exhausted.job_id).await?.map(|job| job.state) {
                    Some(JobState::Running) => {
                        return Ok::<_, Failure>(Outcome::Snooze { length: LOOK_AGAIN });
                    }
                    // Not settled as planned: the claim was taken over, and the job is tried again.
                    Some(JobState::Queued | JobState::Succeeded) => {}
                    Some(JobState::Dead | JobState::Canceled) | None => {
                        hook(exhausted.clone()).await?;
                    }
                }
            }
            Ok(Outcome::Done)
        }
    })
}

/// Pushes the hook's calls for the jobs that these settlements bury or drop, before they are settled.
pub(in crate::engine) async fn announce<'t>(
    core: &Core,
    turns: impl Iterator<Item = (&'t Turn, &'t Settlement)>,
) {
    let Some(calls) = core.env.exhausted else { return };
    let of = |(turn, settlement)| {
        shielded(|| calls(&core.env, turn, settlement)).unwrap_or_else(|text| {
            tracing::error!(
                "the codec panicked: {text}; the hook for exhausted jobs is not called"
            );
            Vec::new()
        })
    };
    let jobs: Vec<Job> = turns.flat_map(of).collect();
    for jobs in jobs.chunks(PUSH_JOBS_MAX) {
        let push = || core.store.push(Push { now: None, jobs: jobs.to_vec() });
        if let Err(error) =
            core.outage.until_answered("pushing exhausted jobs to their hook", push).await
        {
            tracing::error!(%error, jobs = jobs.len(), "the store refuses the hook's jobs: it is not called for these");
        }
    }
}

/// The hook's calls for the jobs that a settlement buries or drops.
pub(in crate::engine) fn calls(env: &CallEnv, turn: &Turn, settlement: &Settlement) -> Vec<Job> {
    if settlement.is_all_done() || &*turn.queue == QUEUE {
        return Vec::new();
    }
    let is_exhausted = |id| matches!(settlement.fate_of(id), Fate::Bury | Fate::Drop);
    let ended = turn.jobs.iter().filter(|job| is_exhausted(job.id));
    let call = |exhausted: Exhausted| {
        // Includes the attempts: a job that is requeued and exhausted again has more.
        let name = format!("{}/{}", exhausted.job_id, exhausted.attempts);
        let job = Job::new(QUEUE, &exhausted).map(|job| job.idempotency_key(name));
        job.and_then(|job| env.encoded(job))
            .inspect_err(|error| tracing::error!(%error, job = %exhausted.job_id, "the hook for exhausted jobs is not called"))
            .ok()
    };
    let exhausted = ended.map(|job| Exhausted {
        job_id: job.id,
        queue: turn.queue.to_string(),
        key: turn.key.as_deref().map(str::to_owned),
        task: job.task.as_deref().map(str::to_owned),
        attempts: job.attempt,
        error: settlement.keep.error.as_deref().map(str::to_owned),
    });
    exhausted.filter_map(call).collect()
}
