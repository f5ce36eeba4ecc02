//! A turn: one claim of one lane, and the jobs taken together.

use std::sync::Arc;

use crate::model::batch::EndedBatch;
use crate::model::clock::Timestamp;
use crate::model::id::{JobId, LaneId, Token};
use crate::model::job::JobOptions;
use crate::model::limits::CLAIM_JOB_BYTES;
use crate::model::payload::Payload;

/// One claim of one lane: the jobs that are handed over. The holder owns exactly these jobs until it settles; jobs
/// pushed meanwhile wait for the next turn.
#[derive(Clone, Debug, PartialEq)]
pub struct Turn {
    /// The lane.
    pub lane: LaneId,
    /// The queue's name.
    pub queue: Arc<str>,
    /// The key; `None` in `parallel`.
    pub key: Option<Arc<str>>,
    /// The fencing token; every later write of the holder names it.
    pub token: Token,
    /// −1 before the first failure; the lane's in `accumulate`, otherwise the first job's.
    pub retry_count: i32,
    /// The number of lost claims; the lane's in `accumulate`, otherwise the first job's.
    pub crashes: u32,
    /// The last error, of the same owner.
    pub error: Option<Arc<str>>,
    /// When this claim was made.
    pub claimed_at: Timestamp,
    /// In the order of handing over: (score, arrival).
    pub jobs: Vec<TurnJob>,
}

/// A job as its holder sees it.
#[derive(Clone, Debug, PartialEq)]
pub struct TurnJob {
    /// Its id.
    pub id: JobId,
    /// Its task.
    pub task: Option<Arc<str>>,
    /// Its payload. Empty in the turns that `rescue` returns.
    pub payload: Payload,
    /// Its score: its order among the jobs of its key.
    pub score: f64,
    /// Its priority.
    pub priority: u16,
    /// When it was due.
    pub run_at: Timestamp,
    /// The number of claims that included it, this one too; crashes count, releases and snoozes do not.
    pub attempt: u32,
    /// The queue settings that it overrides; `None` for most jobs.
    pub options: Option<Arc<JobOptions>>,
}

impl Turn {
    /// Its size within a claim: its payloads, plus [`CLAIM_JOB_BYTES`] for each job.
    pub fn bytes(&self) -> usize {
        self.jobs.iter().map(|job| job.payload.as_bytes().len() + CLAIM_JOB_BYTES).sum()
    }

    /// The first job, to which a failure of the turn belongs.
    pub fn head(&self) -> Option<&TurnJob> {
        self.jobs.first()
    }

    /// The task that all its jobs have.
    pub fn task(&self) -> Option<&Arc<str>> {
        self.head()?.task.as_ref()
    }

    /// The head's attempt.
    pub fn attempt(&self) -> u32 {
        self.head().map_or(0, |job| job.attempt)
    }

    /// Whether it must be handed over alone, because it failed or crashed before.
    pub fn is_alone(&self) -> bool {
        self.retry_count >= 0 || self.crashes > 0
    }
}

impl TurnJob {
    /// The batch that it belongs to.
    pub fn batch(&self) -> Option<&str> {
        self.options.as_ref()?.batch.as_deref()
    }

    /// The batch that has ended, if it is the callback of one.
    pub fn ended_batch(&self) -> Option<&EndedBatch> {
        self.options.as_ref()?.ended_batch.as_ref()
    }

    /// Whether its `expires_at` has passed at `now`, and this is its first attempt.
    pub fn has_expired(&self, now: Timestamp) -> bool {
        let before = self.attempt.saturating_sub(1);
        self.options.as_ref().is_some_and(|options| options.have_expired(before, now))
    }
}
