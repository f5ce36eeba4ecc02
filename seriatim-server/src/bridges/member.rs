//! A payload of an id of Lowkiq, as the scripts hand it over: "SHARD PERFORM_IN RETRY_COUNT SCORE LENGTHS ID", the error and
//! the payload. LENGTHS are those of the id and of the error, if there is one: `5:30`. In the morgue, PERFORM_IN is when the
//! id died.

use seriatim::limits::ATTEMPTS_MAX;
use seriatim::store::Past;
use seriatim::{Job, RunAt, Timestamp};

use super::element::kept_error;
use super::route::{Reason, Refusal, Routes, checked_key};

/// What stands before the id.
const NUMBERS: usize = 5;

pub(super) struct Member<'a> {
    pub(super) perform_in: f64,
    /// −1 before the first failure.
    pub(super) retry_count: f64,
    pub(super) score: f64,
    pub(super) id: &'a [u8],
    /// Empty if there is none.
    pub(super) error: &'a [u8],
    pub(super) payload: &'a [u8],
}

impl<'a> Member<'a> {
    pub(super) fn read(bytes: &'a [u8]) -> Option<Self> {
        let mut parts = bytes.splitn(NUMBERS + 1, |byte| *byte == b' ');
        let mut number = || std::str::from_utf8(parts.next()?).ok()?.parse::<f64>().ok();
        let (_shard, perform_in, retry_count, score) = (number()?, number()?, number()?, number()?);
        let lengths = std::str::from_utf8(parts.next()?).ok()?;
        let (of_id, of_error) = lengths.split_once(':').unwrap_or((lengths, "0"));
        let (id, rest) = parts.next()?.split_at_checked(of_id.parse().ok()?)?;
        let (error, payload) = rest.split_at_checked(of_error.parse().ok()?)?;
        Some(Self { perform_in, retry_count, score, id, error, payload })
    }

    /// The job that it becomes. `name` identifies it: an equal payload that is pushed again is new work.
    pub(super) fn job(&self, routes: &Routes, name: String) -> Result<Job, Refusal> {
        let id = std::str::from_utf8(self.id).map_err(|_| Reason::Key.because("is not UTF-8"))?;
        let id = checked_key("the id", id.to_owned())?;
        let not_ours = || Reason::Malformed.because("is of no queue of Lowkiq");
        let form = routes.form.as_ref().ok_or_else(not_ours)?;
        let payload = form.payload(&routes.from, &id, self.payload);
        let payload = payload.map_err(|why| Reason::Payload.because(why))?;
        let route = routes.of("").ok_or_else(not_ours)?;
        let queue = route.queue.as_deref().unwrap_or(&routes.from);
        let mut job = Job::with_payload(queue, payload).idempotency_key(name);
        job.key = Some(id);
        job.score = Some(self.score);
        job.priority = route.priority.unwrap_or(job.priority);
        job.run_at = RunAt::At(self.at());
        if self.retry_count >= 0.0 {
            job = job.past(self.past(self.retry_count.min(f64::from(ATTEMPTS_MAX - 1)) as u32 + 1));
        }
        job.validate().map_err(|error| Reason::Job.because(error.to_string()))?;
        Ok(job)
    }

    /// The same in the morgue, which does not tell how often the id failed.
    pub(super) fn dead(&self, routes: &Routes, name: String) -> Result<Job, Refusal> {
        let mut job =
            self.job(routes, name)?.past(Past { dead_at: Some(self.at()), ..self.past(1) });
        job.run_at = RunAt::Now;
        Ok(job)
    }

    fn at(&self) -> Timestamp {
        Timestamp::from_secs_f64(self.perform_in.max(0.0))
    }

    fn past(&self, failures: u32) -> Past {
        let error = String::from_utf8_lossy(self.error);
        let error = (!error.is_empty()).then(|| kept_error(&error));
        Past { failures, error, ..Past::default() }
    }
}
