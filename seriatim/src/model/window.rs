//! The window of an `accumulate` queue: for how long a key collects jobs before its turn.

use std::time::Duration;

use serde::{Deserialize, Serialize};

use crate::model::clock::Timestamp;
use crate::model::error::{Error, Result};
use crate::model::limits::{DELAY_MAX, TURN_BYTES_MAX, TURN_JOBS_MAX};

/// A push moves a lane only if that shifts its due time by more than this part of the quiet time. So pushes at any rate
/// move a lane at most eight times in a quiet time.
const STEPS: u32 = 8;
/// A window for fewer jobs would collect nothing.
const JOBS_MIN: u32 = 2;

/// How long a key of an `accumulate` queue collects jobs: until no push came for `quiet`, at most for `max_wait`, or until
/// enough jobs wait.
///
/// ```
/// use std::time::Duration;
/// use seriatim::{Queue, Window};
/// let window = Window::new(Duration::from_secs(5), Duration::from_secs(60)).max_jobs(500);
/// let search = Queue::accumulate("search").window(window);
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct Window {
    /// The key is due after this long without a push; each push restarts the time. More than zero, at most `max_wait`.
    #[serde(with = "crate::model::duration")]
    pub quiet: Duration,
    /// The longest wait of a job, whatever is pushed. At most ten years.
    #[serde(with = "crate::model::duration")]
    pub max_wait: Duration,
    /// The key is due as soon as this many jobs wait; 2 to 10,000. Default: no limit.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub max_jobs: Option<u32>,
    /// The key is due as soon as the waiting payloads have this many bytes; at most 16 MiB. Default: no limit.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub max_bytes: Option<u64>,
}

/// When an `accumulate` lane is due.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Dues {
    /// When it is due; if it is claimed, when it was.
    pub due: Timestamp,
    /// If it is claimed, when what arrived meanwhile is due, with a window at the latest. If it waits in an open window,
    /// until when pushes may move it.
    pub next: Option<Timestamp>,
}

impl Window {
    /// A window without limits on jobs and bytes.
    pub fn new(quiet: Duration, max_wait: Duration) -> Self {
        Self { quiet, max_wait, max_jobs: None, max_bytes: None }
    }

    /// Makes the key due as soon as this many jobs wait; 2 to 10,000.
    #[must_use]
    pub fn max_jobs(mut self, jobs: u32) -> Self {
        self.max_jobs = Some(jobs);
        self
    }

    /// Makes the key due as soon as the waiting payloads have this many bytes; at most 16 MiB.
    #[must_use]
    pub fn max_bytes(mut self, bytes: u64) -> Self {
        self.max_bytes = Some(bytes);
        self
    }

    /// Refuses a contradictory window; the error names the field.
    pub(crate) fn validate(&self) -> Result<()> {
        if self.quiet.is_zero() || self.quiet > self.max_wait || self.max_wait > DELAY_MAX {
            let message = "quiet must be more than zero and at most max_wait, which must be at most ten years";
            return Err(Error::invalid("window", message));
        }
        let most = TURN_JOBS_MAX as u64;
        if self.max_jobs.is_some_and(|jobs| jobs < JOBS_MIN || u64::from(jobs) > most) {
            let message = format!("max_jobs must be {JOBS_MIN} to {most}");
            return Err(Error::invalid("window", message));
        }
        let most = TURN_BYTES_MAX as u64;
        if self.max_bytes.is_some_and(|bytes| bytes == 0 || bytes > most) {
            return Err(Error::invalid("window", format!("max_bytes must be 1 to {most}")));
        }
        Ok(())
    }

    /// By how much a push must shift a due time at least to move it.
    pub(crate) fn step(&self) -> Duration {
        self.quiet / STEPS
    }

    /// Whether the number or the bytes of waiting jobs must be known.
    pub(crate) fn has_limits(&self) -> bool {
        self.max_jobs.is_some() || self.max_bytes.is_some()
    }

    /// Whether this many waiting jobs with this many bytes are due at once.
    pub(crate) fn is_full(&self, jobs: u64, bytes: u64) -> bool {
        self.max_jobs.is_some_and(|most| jobs >= u64::from(most))
            || self.max_bytes.is_some_and(|most| bytes >= most)
    }

    /// A push opens the lane: it is due at the job's time. A job with a time of its own may be due after `max_wait`.
    pub(crate) fn open(&self, run_at: Timestamp, now: Timestamp) -> Dues {
        Dues { due: run_at, next: Some(run_at.max(now + self.max_wait)) }
    }

    /// A push to a lane that waits. Whether this moves it.
    pub(crate) fn push(&self, dues: &mut Dues, run_at: Timestamp, now: Timestamp) -> bool {
        let Some(latest) = open_until(dues, now) else { return false };
        let wanted = run_at.min(latest);
        let moves = wanted > dues.due + self.step();
        if moves {
            dues.due = wanted;
        }
        moves
    }

    /// A push to a lane that is claimed: the first one opens the next window.
    pub(crate) fn push_in_turn(&self, dues: &mut Dues, now: Timestamp) {
        dues.next = dues.next.or(Some(now + self.max_wait));
    }
}

/// Until when pushes may move a lane that waits; `None` if its window is over, or it has none.
pub(crate) fn open_until(dues: &Dues, now: Timestamp) -> Option<Timestamp> {
    dues.next.filter(|_| dues.due > now)
}

/// A turn has ended, and all its jobs: when what arrived meanwhile is due. The end of a turn counts as a push.
pub(crate) fn after_turn(window: Option<&Window>, dues: Dues, now: Timestamp) -> Dues {
    match (window, dues.next) {
        (_, None) => dues,
        (None, Some(due)) => Dues { due, next: None },
        (Some(window), Some(latest)) => {
            Dues { due: latest.min(now + window.quiet), next: Some(latest) }
        }
    }
}

#[cfg(test)]
mod tests;
