//! A job as a program would push it again.

use serde::Serialize;
use serde_json::value::RawValue;
use seriatim::store::JobView;

use super::link;
use super::payload::Discreet;
use super::ways::{Ways, post};
use crate::base::text::{json_plain, shell_word};

/// Longest payload that the commands have, in bytes: the page stays small.
const PAYLOAD_BYTES_MAX: usize = 2 << 10;

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

/// None if the visitor does not see all of the payload, or if it is no JSON or too long.
pub(super) fn again(job: &JobView, discreet: &Discreet) -> Option<Ways> {
    let text = discreet.text(&job.payload, PAYLOAD_BYTES_MAX)?;
    let job_again = Job {
        key: job.key.as_deref(),
        task: job.task.as_deref(),
        group: job.options.as_ref().and_then(|options| options.group.as_deref()),
        payload: serde_json::from_str(text).ok()?,
    };
    let json = serde_json::to_string(&job_again).ok()?;
    let (word, queue) = (shell_word(&json_plain(&json)), &*job.queue);
    let path = format!("/api/v1/queues/{}/jobs", link::encoded(queue));
    let command = format!("printf '%s\\n' {word} | seriatim push {queue} --file -");
    Some(Ways::new(post(&path, &word), &command))
}
