//! How failed jobs of a worker are retried, if that differs from its queue.

use std::sync::Arc;
use std::time::Duration;

use crate::model::limits::ATTEMPTS_MAX;
use crate::model::{Error, Exhaustion, NextRetry, Queue, Result, Turn, TurnJob};

pub(crate) type Wait = dyn Fn(&Failed<'_>) -> Duration + Send + Sync;

/// A turn that failed and waits for a retry.
#[derive(Clone, Copy, Debug)]
pub struct Failed<'a> {
    pub(crate) turn: &'a Turn,
    pub(crate) retry: NextRetry<'a>,
    pub(crate) error: &'a str,
}

impl Failed<'_> {
    /// The number of the next retry: 0 for the first.
    pub fn retry_count(&self) -> u32 {
        self.retry.count
    }

    /// The job that failed, in `accumulate` the first of those that did not succeed.
    pub fn job(&self) -> Option<&TurnJob> {
        self.retry.job
    }

    /// Why it failed, as kept with its jobs: what `error_format` made of it.
    pub fn error(&self) -> &str {
        self.error
    }

    /// Its key, and its jobs with their task, attempt and payload as stored.
    pub fn turn(&self) -> &Turn {
        self.turn
    }
}

/// Settings of a worker that replace its queue's. A job's own settings take precedence.
#[derive(Clone, Default)]
pub(crate) struct Retrying {
    pub(crate) max_retries: Option<u32>,
    pub(crate) exhausted: Option<Exhaustion>,
    pub(crate) wait: Option<Arc<Wait>>,
}

impl Retrying {
    /// The queue's definition as it holds for jobs of this worker.
    pub(crate) fn of(&self, queue: &Arc<Queue>) -> Arc<Queue> {
        if self.max_retries.is_none() && self.exhausted.is_none() {
            return queue.clone();
        }
        Arc::new(Queue {
            max_retries: self.max_retries.unwrap_or(queue.max_retries),
            exhausted: self.exhausted.unwrap_or(queue.exhausted),
            ..Queue::clone(queue)
        })
    }

    pub(crate) fn validate(&self) -> Result<()> {
        match self.max_retries {
            Some(retries) if retries > ATTEMPTS_MAX => Err(Error::invalid(
                "max_retries",
                format!("must be 0 to {ATTEMPTS_MAX}, not {retries}"),
            )),
            _ => Ok(()),
        }
    }
}
