//! Pushing jobs.

use async_trait::async_trait;
use serde::{Deserialize, Serialize};

use crate::model::limits::{PUSH_BYTES_MAX, PUSH_JOBS_MAX};
use crate::model::{Error, ErrorKind, Job, JobId, Queue, Result, Throttled, Timestamp};

/// Pushes jobs.
#[async_trait]
pub trait Producer: Send + Sync {
    /// Adds jobs. The answer has one entry for each, in order.
    ///
    /// - If one job is invalid, none is pushed, and the error names it: `jobs[3].key: …`.
    ///   If a store has pushed a part before the rest is refused (Redis, if a queue is declared meanwhile), the error
    ///   is `Unavailable`: after a refusal nothing is stored.
    /// - An undeclared queue is created: `exclusive` for a job with a key, `parallel` for one without.
    /// - A key on a `parallel` queue, or no key on a keyed one, is `Invalid` (field `key`).
    /// - A `lease_ttl` longer than the queue's `lease_max` is `Invalid` (field `lease_ttl`).
    /// - A repeated (queue, key, idempotency key) answers `Duplicate` with the id of the first job. With
    ///   [`IdempotencyScope::Store`](crate::store::IdempotencyScope::Store) only the idempotency key counts, whatever
    ///   the queues and keys of its jobs; the scopes are separate. It is remembered for the `idempotency_ttl` of the
    ///   first job's queue.
    /// - In `accumulate`, a payload equal to that of a waiting job is merged into it: `Merged` with its id. The score
    ///   becomes the merged one, the priority the more urgent one; nothing else changes.
    /// - A payload equal to one in flight is a new job: it waits for the next turn.
    /// - In a queue with a [throttle](crate::Queue::throttle), a push to a key within that time of the last one that
    ///   made or merged into a job changes nothing. It answers with the id of that job and with `again_at`: `Merged`,
    ///   or, if the queue [refuses](crate::Queue::refuse_throttled) such pushes, `Throttled`. Its idempotency key is
    ///   looked up first. After a merged push the key stands for that job; of a refused push nothing is kept. The other
    ///   jobs of the request are pushed.
    /// - A lane that does not exist is opened. In `accumulate` and `fifo` its first job sets its node, consumer group and
    ///   group, and a push with others is `Conflict`.
    /// - A group in a queue without [groups](crate::Queue::groups) is `Invalid` (field `group`).
    /// - A job with a [past](crate::Job::past) is pushed like any other; if that makes a job, its failures, error and times are
    ///   those of the past. In `accumulate` failures and error belong to the lane, and only the job that opens it sets them.
    /// - A job whose past says that it died goes to the morgue, even if its key is in use, its node or group differs
    ///   from its lane's, or its queue is throttled. Its idempotency key works like any other. A requeue brings it
    ///   back.
    /// - A job that names a batch joins it; a batch that does not exist is `NotFound`, one that has ended is `Conflict`
    ///   (field `batch`). See [`Batches`](super::Batches).
    /// - At most 10,000 jobs and 64 MiB of payload: see [`validate_push`].
    async fn push(&self, request: Push) -> Result<Vec<Pushed>>;
}

/// See [`Producer::push`].
#[derive(Clone, Debug, Default)]
pub struct Push {
    /// The time; the store's clock if unset.
    pub now: Option<Timestamp>,
    /// The jobs, in order of arrival.
    pub jobs: Vec<Job>,
}

/// The result for one pushed job.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub struct Pushed {
    /// The id of the job; if its key is throttled, of the earlier job.
    pub job_id: JobId,
    /// Whether the push created the job.
    pub status: PushStatus,
    /// If its key was throttled: until when, by the store's clock. The pushed job is not stored.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub again_at: Option<Timestamp>,
}

impl Pushed {
    /// An answer about a key that is not throttled.
    pub fn new(job_id: JobId, status: PushStatus) -> Self {
        Self { job_id, status, again_at: None }
    }

    /// An answer about a key of this queue that is throttled until then.
    pub(crate) fn throttled(queue: &Queue, job_id: JobId, again_at: Timestamp) -> Self {
        let status = match queue.throttled {
            Throttled::Merge => PushStatus::Merged,
            Throttled::Refuse => PushStatus::Throttled,
        };
        Self { job_id, status, again_at: Some(again_at) }
    }

    /// The job that stands for the push. `Conflict` if the push was refused, with the time when it may be repeated.
    pub fn taken(&self, key: Option<&str>) -> Result<JobId> {
        if self.status != PushStatus::Throttled {
            return Ok(self.job_id);
        }
        let (key, at) = (key.unwrap_or_default(), self.again_at.unwrap_or_default().utc());
        let message = format!("refused: key {key:?} may be pushed again at {at}");
        Err(Error::new(ErrorKind::Conflict, message))
    }
}

/// Whether a push created a new job.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum PushStatus {
    /// A new job.
    Queued,
    /// It merged into a waiting job with an equal payload; or its key is throttled, and this is the earlier job.
    Merged,
    /// Its idempotency key was known.
    Duplicate,
    /// Refused: its key is throttled until [`again_at`](Pushed::again_at).
    Throttled,
}

/// Refuses a request that is too large or has an invalid job; the error names the job.
pub fn validate_push(request: &Push) -> Result<()> {
    if request.jobs.len() > PUSH_JOBS_MAX {
        let message =
            format!("has {} jobs; at most {PUSH_JOBS_MAX} go in one push", request.jobs.len());
        return Err(Error::invalid("jobs", message));
    }
    let bytes: usize = request.jobs.iter().map(|job| job.payload.as_bytes().len()).sum();
    if bytes > PUSH_BYTES_MAX {
        let message =
            format!("have {bytes} bytes of payload; at most {PUSH_BYTES_MAX} go in one push");
        return Err(Error::invalid("jobs", message));
    }
    request
        .jobs
        .iter()
        .enumerate()
        .try_for_each(|(i, job)| job.validate().map_err(|e| e.in_field(format!("jobs[{i}]"))))
}

/// Divides jobs that are valid into pushes that are no larger than [`validate_push`] allows.
pub fn pushes_of(mut jobs: &[Job]) -> impl Iterator<Item = &[Job]> {
    std::iter::from_fn(move || {
        let mut bytes = 0;
        let fits = jobs.iter().take(PUSH_JOBS_MAX).take_while(|job| {
            bytes += job.payload.as_bytes().len();
            bytes <= PUSH_BYTES_MAX
        });
        let (push, rest) = jobs.split_at(fits.count());
        jobs = rest;
        (!push.is_empty()).then_some(push)
    })
}

/// Refuses a job with a key in a `parallel` queue, without one in a keyed queue, with a group where there are none, or
/// with a longer lease than the queue allows. `i` is the job's place in the request.
pub(crate) fn validate_job(queue: &Queue, job: &Job, i: usize) -> Result<()> {
    let checked = queue.check_key(job.key.is_some());
    let checked = checked.and_then(|()| queue.check_group(job.options.group.as_deref()));
    let checked = checked.and_then(|()| queue.check_job_lease(job.options.lease_ttl));
    checked.map_err(|e| e.in_field(format!("jobs[{i}]")))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::Payload;
    use crate::model::limits::PAYLOAD_BYTES_MAX;

    #[test]
    fn jobs_are_divided_into_pushes_by_number_and_by_bytes() {
        let sizes = |bytes: usize, jobs: usize| -> Vec<usize> {
            let job = Job::with_payload("q", Payload::from_bytes(vec![b'1'; bytes]));
            let jobs = vec![job; jobs];
            pushes_of(&jobs).map(<[Job]>::len).collect()
        };
        assert_eq!(sizes(1, 0), [0; 0]);
        assert_eq!(sizes(1, 2 * PUSH_JOBS_MAX + 1), [PUSH_JOBS_MAX, PUSH_JOBS_MAX, 1]);
        let most = PUSH_BYTES_MAX / PAYLOAD_BYTES_MAX;
        assert_eq!(sizes(PAYLOAD_BYTES_MAX, 2 * most + 1), [most, most, 1]);
    }
}
