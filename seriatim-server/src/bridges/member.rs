//! A payload of an id of Lowkiq, as the scripts hand it over: "SHARD PERFORM_IN RETRY_COUNT SCORE LENGTH ID" and the payload.

use seriatim::{Job, RunAt, Timestamp};

use super::route::{Reason, Refusal, Routes, checked_key};

/// What stands before the id.
const NUMBERS: usize = 5;

pub(super) struct Member<'a> {
    pub(super) perform_in: f64,
    pub(super) score: f64,
    pub(super) id: &'a [u8],
    pub(super) payload: &'a [u8],
}

impl<'a> Member<'a> {
    pub(super) fn read(bytes: &'a [u8]) -> Option<Self> {
        let mut parts = bytes.splitn(NUMBERS + 1, |byte| *byte == b' ');
        let mut number = || std::str::from_utf8(parts.next()?).ok()?.parse::<f64>().ok();
        let (_shard, perform_in, _retry_count, score) =
            (number()?, number()?, number()?, number()?);
        let length = std::str::from_utf8(parts.next()?).ok()?.parse().ok()?;
        let (id, payload) = parts.next()?.split_at_checked(length)?;
        Some(Self { perform_in, score, id, payload })
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
        job.run_at = RunAt::At(Timestamp::from_secs_f64(self.perform_in.max(0.0)));
        job.validate().map_err(|error| Reason::Job.because(error.to_string()))?;
        Ok(job)
    }
}
