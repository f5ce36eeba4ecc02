//! Jobs about jobs that are buried or dropped, if the engine has a worker for their queue.
//!
//! Each is pushed before the turn is settled. So a process that dies in between loses none, and a worker that fails is
//! retried like any other. The job waits until the turn is settled, and does nothing if the settlement was refused.

use std::future::Future;
use std::sync::Arc;
use std::time::Duration;

use serde::de::IgnoredAny;
use serde::{Deserialize, Serialize};

use crate::contract::{JobState, pushes_of};
use crate::engine::core::Core;
use crate::engine::outage::will_pass;
use crate::engine::settle::ended::{Ended, Kept, calls_about};
use crate::handler::batch::Batch;
use crate::handler::call::Call;
use crate::handler::env::CallEnv;
use crate::handler::failure::Failure;
use crate::handler::worker::{Handling, Prepared, Worker};
use crate::model::{Fate, Job, JobId, Outcome, Payload, Queue, Result, Settlement, Turn, TurnJob};

/// The largest payload that is repeated in such a job.
const PAYLOAD_BYTES_MAX: usize = 64 << 10;
/// How long a call waits before it checks again whether the turn is settled.
const LOOK_AGAIN: Duration = Duration::from_secs(1);

/// A job that was buried or dropped, usually because its retries are used up: the payload of the queue
/// `seriatim.exhausted`.
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
    /// Its payload, decoded. None above 64 KiB, if it is nested as deep as a payload may be, or if the codec cannot read
    /// it: the morgue has it.
    #[serde(default, with = "document")]
    pub payload: Option<Payload>,
}

impl Exhausted {
    /// The queue of these jobs. They are pushed if an engine has a worker for it.
    pub const QUEUE: &'static str = "seriatim.exhausted";
}

/// A payload as a part of another one.
mod document {
    use serde::{Deserialize, Deserializer, Serialize, Serializer};
    use serde_json::value::RawValue;

    use crate::model::Payload;

    #[expect(clippy::ref_option, reason = "serde calls it with this type")]
    pub(super) fn serialize<S: Serializer>(
        payload: &Option<Payload>,
        to: S,
    ) -> Result<S::Ok, S::Error> {
        let raw =
            payload.as_ref().map(|payload| serde_json::from_slice::<&RawValue>(payload.as_bytes()));
        raw.transpose().map_err(serde::ser::Error::custom)?.serialize(to)
    }

    pub(super) fn deserialize<'de, D: Deserializer<'de>>(
        from: D,
    ) -> Result<Option<Payload>, D::Error> {
        Ok(Option::<Box<RawValue>>::deserialize(from)?.map(Payload::from_raw))
    }
}

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
                match ended(&call).await? {
                    Some(true) => handling.await,
                    Some(false) => Ok(Outcome::Done.into()),
                    None => Ok(Outcome::Snooze { length: LOOK_AGAIN }.into()),
                }
            })
        };
        Prepared { handling: handling.map(guarded), undecodable }
    })
}

/// Whether a job of the call has ended; `None` while one is still running. Otherwise the settlement was refused (the
/// claim was taken over, and the job is tried again), or a person had cancelled the job.
async fn ended(call: &Arc<Call>) -> Result<Option<bool>> {
    let mut has_ended = false;
    for about in Batch::<Exhausted>::read(call).0.payloads() {
        match call.env.store.job(about.job_id).await?.map(|job| job.state) {
            Some(JobState::Running) => return Ok(None),
            Some(JobState::Queued | JobState::Succeeded | JobState::Canceled) => {}
            Some(JobState::Dead) | None => has_ended = true,
        }
    }
    Ok(Some(has_ended))
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
    let told_of = |turn: &Turn, settlement| calls_about(&core.env, turn, settlement, &|_| false);
    let mut calls = Vec::new();
    for (turn, settlement) in turns.iter().zip(&settlements) {
        let about = told_of(turn, settlement);
        // Read for these alone: of most turns nothing is buried.
        let whole = match about.is_empty() {
            true => None,
            // Without an answer the hook hears of the job without its payload.
            false => core.store.turn(turn.lane, turn.token).await.ok().flatten(),
        };
        calls.push(whole.map_or(about, |whole| told_of(&whole, settlement)));
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

/// See [`ExhaustedCalls`](crate::handler::env::ExhaustedCalls).
pub(in crate::engine) fn calls(
    env: &CallEnv,
    turn: &Turn,
    settlement: &Settlement,
    is_flagged: &dyn Fn(JobId) -> bool,
) -> Vec<Job> {
    if settlement.is_all_done() || &*turn.queue == Exhausted::QUEUE {
        return Vec::new();
    }
    let is_exhausted = |id| matches!(settlement.fate_of(id), Fate::Bury | Fate::Drop);
    let ended = turn.jobs.iter().filter(|job| is_exhausted(job.id) && !is_flagged(job.id));
    let call = |mut exhausted: Exhausted| {
        let job = call_about(env, &exhausted).or_else(|_| {
            exhausted.payload = None;
            call_about(env, &exhausted)
        });
        job.inspect_err(|error| tracing::error!(%error, job = %exhausted.job_id, "the hook for exhausted jobs is not called"))
            .ok()
    };
    let exhausted = ended.map(|job| Exhausted {
        job_id: job.id,
        queue: turn.queue.to_string(),
        key: turn.key.as_deref().map(str::to_owned),
        task: job.task.as_deref().map(str::to_owned),
        attempts: job.attempt,
        error: settlement.keep.error.as_deref().map(str::to_owned),
        payload: payload_of(env, job),
    });
    exhausted.filter_map(call).collect()
}

/// The hook's call. An error if stores refuse it: with it they would refuse those of all jobs that end together.
fn call_about(env: &CallEnv, exhausted: &Exhausted) -> Result<Job> {
    // Includes the attempts: a job that is requeued and exhausted again has more.
    let name = format!("{}/{}", exhausted.job_id, exhausted.attempts);
    let job = Job::new(Exhausted::QUEUE, exhausted)?.idempotency_key(name);
    let job = env.encoded(job)?;
    job.validate()?;
    Ok(job)
}

fn payload_of(env: &CallEnv, job: &TurnJob) -> Option<Payload> {
    let payload = match &env.codec {
        Some(codec) => codec.decode(&job.payload).ok()?,
        None => job.payload.clone(),
    };
    let fits = payload.as_bytes().len() <= PAYLOAD_BYTES_MAX;
    (fits && payload.decode::<IgnoredAny>().is_ok()).then_some(payload)
}
