//! A job as a program would push it again: as a request, and as a command.

use serde::Serialize;
use serde_json::value::RawValue;
use seriatim::store::JobView;

use super::link;
use super::payload::Discreet;
use super::ways::post;
use crate::base::text::{json_plain, shell_word};

/// Longest payload that the commands have, in bytes: the page stays small.
const PAYLOAD_BYTES_MAX: usize = 2 << 10;

/// The commands, for a template.
pub(super) struct Again {
    pub(super) curl: String,
    pub(super) command: String,
}

/// What they push.
#[derive(Serialize)]
struct Job<'a> {
    #[serde(skip_serializing_if = "Option::is_none")]
    key: Option<&'a str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    task: Option<&'a str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    group: Option<&'a str>,
    payload: &'a RawValue,
}

impl Again {
    /// None if the visitor does not see all of the payload, or if it is no JSON or too long.
    pub(super) fn of(job: &JobView, discreet: &Discreet) -> Option<Self> {
        let text = discreet.text(&job.payload, PAYLOAD_BYTES_MAX)?;
        let job_again = Job {
            key: job.key.as_deref(),
            task: job.task.as_deref(),
            group: job.options.as_ref().and_then(|options| options.group.as_deref()),
            payload: serde_json::from_str(text).ok()?,
        };
        let json = serde_json::to_string(&job_again).ok()?;
        let word = shell_word(&json_plain(&json));
        let path = format!("/api/v1/queues/{}/jobs", link::encoded(&job.queue));
        Some(Self {
            curl: post(&path, &word),
            command: format!(
                "printf '%s\\n' {word} | seriatim push {} --file -",
                shell_word(&job.queue)
            ),
        })
    }
}
