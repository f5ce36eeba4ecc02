//! The input of a handler: the lanes of one call, with their payloads.

use std::borrow::Cow;
use std::fmt;
use std::sync::Arc;

use crate::handler::call::Call;
use crate::handler::control::Undecodable;
use crate::handler::from_payload::FromPayload;
use crate::model::{Error, JobId, LaneId, Token, Turn, TurnJob, retries_max};

/// The lanes of one handler call, up to the queue's `batch_size`; at least one.
///
/// ```
/// # use seriatim::Batch;
/// async fn sync(orders: Batch<String>) {
///     for order in orders.lanes() {
///         // A database can refuse a write whose token is lower than the last.
///         println!("{} with token {}: {:?}", order.key(), order.token(), order.payloads());
///     }
/// }
/// ```
pub struct Batch<T> {
    call: Arc<Call>,
    lanes: Vec<Lane<T>>,
}

/// One lane of a call: jobs of one key, in order.
pub struct Lane<T> {
    call: Arc<Call>,
    place: usize,
    payloads: Vec<T>,
    /// Jobs of the turn that are not handed over; usually none.
    left_out: Vec<JobId>,
}

impl<T> Batch<T> {
    /// The queue's name.
    pub fn queue(&self) -> &str {
        &self.call.queue.name
    }

    /// The task of all jobs of the call, if they name one.
    pub fn task(&self) -> Option<&str> {
        self.call.task()
    }

    /// The lanes.
    pub fn lanes(&self) -> &[Lane<T>] {
        &self.lanes
    }

    /// The lanes, by value.
    pub fn into_lanes(self) -> Vec<Lane<T>> {
        self.lanes
    }

    /// All payloads, lane by lane, in order within each.
    pub fn payloads(&self) -> impl Iterator<Item = &T> {
        self.lanes.iter().flat_map(|lane| &lane.payloads)
    }
}

impl<T> Lane<T> {
    /// The lane's id, which outcomes and progress refer to.
    pub fn id(&self) -> LaneId {
        self.turn().lane
    }

    /// The key. Empty in a `parallel` queue, whose jobs have none; no other key is empty ([`Self::turn`] has it as an
    /// `Option`).
    pub fn key(&self) -> &str {
        self.turn().key.as_deref().unwrap_or("")
    }

    /// The fencing token: a number that only grows for a key. If the handler stores it with its writes elsewhere,
    /// that system can refuse writes with a lower one.
    pub fn token(&self) -> Token {
        self.turn().token
    }

    /// The payloads, lowest score first.
    pub fn payloads(&self) -> &[T] {
        &self.payloads
    }
    /// The payloads, by value: after [`Batch::into_lanes`], for code that needs to own them.
    pub fn into_payloads(self) -> Vec<T> {
        self.payloads
    }

    /// The jobs with their payloads, lowest score first.
    pub fn jobs(&self) -> impl Iterator<Item = (&TurnJob, &T)> {
        let jobs = self.turn().jobs.iter().filter(|job| !self.left_out.contains(&job.id));
        jobs.zip(&self.payloads)
    }

    /// How often the first job was started, this call included.
    pub fn attempt(&self) -> u32 {
        self.turn().attempt()
    }

    /// −1 before the first failure.
    pub fn retry_count(&self) -> i32 {
        self.turn().retry_count
    }

    /// Retries after the first try: those of its first job, its worker or the queue.
    pub fn max_retries(&self) -> u32 {
        let options = self.turn().head().and_then(|job| job.options.as_deref());
        retries_max(options, &self.call.queue)
    }

    /// The turn as the store handed it over.
    pub fn turn(&self) -> &Turn {
        &self.call.turns[self.place]
    }
}

impl<T: FromPayload> Batch<T> {
    /// Reads the payloads, through the codec if there is one. Also returns the jobs whose payloads cannot be decoded,
    /// and why. A lane without any job left is not handed over.
    pub(crate) fn read(call: &Arc<Call>) -> (Self, Undecodable) {
        let mut undecodable = Vec::new();
        let mut lanes = Vec::with_capacity(call.turns.len());
        for (place, turn) in call.turns.iter().enumerate() {
            let mut payloads = Vec::with_capacity(turn.jobs.len());
            let mut left_out = Vec::new();
            for job in &turn.jobs {
                if call.expired.contains(&job.id) {
                    left_out.push(job.id);
                    continue;
                }
                let payload = match &call.env.codec {
                    None => Ok(Cow::Borrowed(&job.payload)),
                    Some(codec) => codec.decode(&job.payload).map(Cow::Owned),
                };
                let decoded = match payload {
                    Ok(payload) => T::from_payload(&payload),
                    Err(failure) => {
                        Err(Error::invalid("payload", "the codec cannot decode it")
                            .because(failure))
                    }
                };
                match decoded {
                    Ok(payload) => payloads.push(payload),
                    Err(error) => {
                        left_out.push(job.id);
                        undecodable.push((job.id, error.to_string().into()));
                    }
                }
            }
            if !payloads.is_empty() {
                lanes.push(Lane { call: call.clone(), place, payloads, left_out });
            }
        }
        (Self { call: call.clone(), lanes }, undecodable)
    }
}

impl<T: fmt::Debug> fmt::Debug for Batch<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Batch")
            .field("queue", &self.queue())
            .field("lanes", &self.lanes)
            .finish_non_exhaustive()
    }
}

impl<T: fmt::Debug> fmt::Debug for Lane<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Lane")
            .field("key", &self.turn().key)
            .field("token", &self.token())
            .field("payloads", &self.payloads)
            .finish_non_exhaustive()
    }
}
