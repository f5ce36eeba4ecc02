//! Builds events of jobs.

use seriatim::{JobId, Timestamp, store::Turn};

use crate::protocol::document::Event;
use crate::protocol::value::Time;

/// Longest recorded error, in bytes: with each byte escaped, the event still fits into a note. The job has all of it.
const ERROR_BYTES_MAX: usize = 1_500;

impl<'a> Event<'a> {
    /// Now, by the clock of this machine.
    pub(crate) fn new(what: &'static str, job_id: JobId, queue: &'a str) -> Self {
        Self {
            at: Time(Timestamp::of_this_machine()),
            what,
            job_id,
            queue,
            key: None,
            attempt: None,
            token: None,
            node: None,
            error: None,
        }
    }

    pub(crate) fn of_turn(what: &'static str, job_id: JobId, turn: &'a Turn) -> Self {
        let key = turn.key.as_deref().map(Some);
        Self { key, token: Some(turn.token), ..Self::new(what, job_id, &turn.queue) }
    }

    /// One line of JSON, with its end.
    pub(crate) fn line(&self) -> String {
        let error = self.error.flatten();
        let error = error.map(|error| Some(&error[..error.floor_char_boundary(ERROR_BYTES_MAX)]));
        let cut = Event { error, ..*self };
        // Texts and numbers only: writing them cannot fail.
        serde_json::to_string(&cut).unwrap_or_default() + "\n"
    }
}
