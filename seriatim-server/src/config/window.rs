//! The window of a queue.

use std::time::Duration;

use schemars::JsonSchema;
use serde::{Deserialize, Deserializer, de};
use seriatim::Window;
use seriatim::limits::{TURN_BYTES_MAX, TURN_JOBS_MAX};

use super::length::length;
use crate::protocol::schema::Foreign;

/// For how long a key collects jobs.
#[derive(Clone, Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
#[schemars(rename = "WindowSettings")]
pub(crate) struct WindowConfig {
    /// How long no push may come before the key is due
    #[serde(deserialize_with = "required")]
    #[schemars(with = "Foreign<Duration>")]
    quiet: Duration,
    /// How long a job waits at most
    #[serde(deserialize_with = "required")]
    #[schemars(with = "Foreign<Duration>")]
    max_wait: Duration,
    /// The key is due as soon as this many jobs wait
    #[schemars(range(min = 2, max = TURN_JOBS_MAX))]
    max_jobs: Option<u32>,
    /// The key is due as soon as the waiting payloads have this many bytes
    #[schemars(range(min = 1, max = TURN_BYTES_MAX))]
    max_bytes: Option<u64>,
}

impl WindowConfig {
    pub(crate) fn window(&self) -> Window {
        let mut window = Window::new(self.quiet, self.max_wait);
        (window.max_jobs, window.max_bytes) = (self.max_jobs, self.max_bytes);
        window
    }
}

fn required<'de, D: Deserializer<'de>>(from: D) -> Result<Duration, D::Error> {
    length(from)?.ok_or_else(|| de::Error::custom("a duration is needed"))
}
