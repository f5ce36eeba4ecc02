//! Jobs about jobs that are buried or dropped.

use serde::de::IgnoredAny;
use serde::{Deserialize, Serialize};

use crate::contract::QueueView;
use crate::handler::codec::{Codec, encoded};
use crate::model::{Fate, Job, JobId, Payload, Result, Settlement, Turn, TurnJob};

/// The largest payload that is repeated in such a job.
const PAYLOAD_BYTES_MAX: usize = 64 << 10;

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
    /// The queue of these jobs. They are pushed while the store has it declared, as an engine with a worker for it does.
    pub const QUEUE: &'static str = "seriatim.exhausted";

    /// Whether a store with these queues wants such jobs.
    pub fn is_wanted(queues: &[QueueView]) -> bool {
        queues.iter().any(|view| view.declared && view.queue.name == Self::QUEUE)
    }

    /// The jobs of a turn that end for good with this settlement.
    fn of<'t>(turn: &'t Turn, settlement: &Settlement) -> impl Iterator<Item = &'t TurnJob> {
        let none = settlement.is_all_done() || &*turn.queue == Self::QUEUE;
        let dies = |id| matches!(settlement.fate_of(id), Fate::Bury | Fate::Drop);
        turn.jobs.iter().filter(move |job| !none && dies(job.id))
    }

    /// Whether a job of the turn ends for good with this settlement.
    pub fn concerns(turn: &Turn, settlement: &Settlement) -> bool {
        Self::of(turn, settlement).next().is_some()
    }

    /// The jobs to push before a turn is settled like this: one about each of its jobs that ends for good, but not about
    /// `cancelled` ones. The turn needs its payloads, which `codec` decodes. Pushed twice, they are the same jobs.
    pub fn calls(
        turn: &Turn,
        settlement: &Settlement,
        codec: Option<&dyn Codec>,
        cancelled: &dyn Fn(JobId) -> bool,
    ) -> Vec<Job> {
        let ended = Self::of(turn, settlement).filter(|job| !cancelled(job.id));
        let call = |mut exhausted: Self| {
            let job = exhausted.call(codec).or_else(|_| {
                exhausted.payload = None;
                exhausted.call(codec)
            });
            job.inspect_err(|error| tracing::error!(%error, job = %exhausted.job_id, "the hook for exhausted jobs is not called"))
                .ok()
        };
        let exhausted = ended.map(|job| Self {
            job_id: job.id,
            queue: turn.queue.to_string(),
            key: turn.key.as_deref().map(str::to_owned),
            task: job.task.as_deref().map(str::to_owned),
            attempts: job.attempt,
            error: settlement.keep.error.as_deref().map(str::to_owned),
            payload: payload_of(codec, job),
        });
        exhausted.filter_map(call).collect()
    }

    /// An error if stores refuse it: with it they would refuse those of all jobs that end together.
    fn call(&self, codec: Option<&dyn Codec>) -> Result<Job> {
        // Includes the attempts: a job that is requeued and exhausted again has more.
        let name = format!("{}/{}", self.job_id, self.attempts);
        let job = encoded(codec, Job::new(Self::QUEUE, self)?.idempotency_key(name))?;
        job.validate()?;
        Ok(job)
    }
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

fn payload_of(codec: Option<&dyn Codec>, job: &TurnJob) -> Option<Payload> {
    let payload = match codec {
        Some(codec) => codec.decode(&job.payload).ok()?,
        None => job.payload.clone(),
    };
    let fits = payload.as_bytes().len() <= PAYLOAD_BYTES_MAX;
    (fits && payload.decode::<IgnoredAny>().is_ok()).then_some(payload)
}
