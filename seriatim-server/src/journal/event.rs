//! Builds events of jobs.

use seriatim::text::cut_middle;
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
        let error = self.error.map(|error| error.map(|error| cut_middle(error, ERROR_BYTES_MAX)));
        let cut = Event { error: error.as_ref().map(Option::as_deref), ..*self };
        // Texts and numbers only: writing them cannot fail.
        serde_json::to_string(&cut).unwrap_or_default() + "\n"
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    #[test]
    fn l14_a_long_error_keeps_its_beginning_and_its_last_words() {
        let error = format!("it began{}and so it ended", "é".repeat(5_000));
        let job = JobId::new(Timestamp::default(), 1, 0, 1);
        let event = Event { error: Some(Some(&error)), ..Event::new("retry", job, "orders") };
        let read: serde_json::Value = serde_json::from_str(&event.line()).unwrap();
        let kept = read["error"].as_str().unwrap();
        assert!(kept.len() <= ERROR_BYTES_MAX, "{kept}");
        assert!(kept.starts_with("it began") && kept.ends_with("and so it ended"), "{kept}");
    }
}
