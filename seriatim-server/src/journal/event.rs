//! One thing that happened to one job.

use serde::Serialize;
use seriatim::{
    JobId, Timestamp,
    store::{Token, Turn},
};

use crate::base::time::absolute;

/// Longest error that is written down, in bytes; the store keeps all of it.
const ERROR_BYTES_MAX: usize = 2_000;

#[derive(Serialize)]
pub(crate) struct Event<'a> {
    pub(crate) at: String,
    #[serde(rename = "event")]
    pub(crate) what: &'static str,
    pub(crate) job_id: JobId,
    pub(crate) queue: &'a str,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) key: Option<&'a str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) attempt: Option<u32>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) token: Option<Token>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) node: Option<&'a str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) error: Option<&'a str>,
}

impl<'a> Event<'a> {
    /// Now, by the clock of this machine.
    pub(crate) fn new(what: &'static str, job_id: JobId, queue: &'a str) -> Self {
        let at = absolute(Timestamp::of_this_machine());
        Self {
            at,
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
        let key = turn.key.as_deref();
        Self { key, token: Some(turn.token), ..Self::new(what, job_id, &turn.queue) }
    }

    /// One line of JSON, with its end.
    pub(crate) fn line(&self) -> String {
        let error = self.error.map(|error| &error[..error.floor_char_boundary(ERROR_BYTES_MAX)]);
        let cut = Event { at: self.at.clone(), error, ..*self };
        // Texts and numbers only: nothing of it can fail to be written.
        serde_json::to_string(&cut).unwrap_or_default() + "\n"
    }
}
