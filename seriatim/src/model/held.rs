//! A job that is kept to be pushed later, without its payload.

use serde::{Deserialize, Serialize};

use crate::model::job::{Job, JobOptions};
#[cfg(any(feature = "cron", feature = "sqlite"))]
use crate::model::payload::Payload;

/// What is pushed besides the payload. Due when it is pushed.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(crate) struct HeldJob {
    queue: String,
    pub(crate) key: Option<String>,
    pub(crate) task: Option<String>,
    score: Option<f64>,
    priority: u16,
    options: JobOptions,
}

impl HeldJob {
    pub(crate) fn of(job: &Job) -> Self {
        Self {
            queue: job.queue.clone(),
            key: job.key.clone(),
            task: job.task.clone(),
            score: job.score,
            priority: job.priority,
            options: job.options.clone(),
        }
    }

    #[cfg(any(feature = "cron", feature = "sqlite"))]
    pub(crate) fn with(&self, payload: Vec<u8>) -> Job {
        let mut job = Job::with_payload(self.queue.as_str(), Payload::from_bytes(payload));
        job.key.clone_from(&self.key);
        job.task.clone_from(&self.task);
        (job.score, job.priority) = (self.score, self.priority);
        job.options = self.options.clone();
        job
    }
}
