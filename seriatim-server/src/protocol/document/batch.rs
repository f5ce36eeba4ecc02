//! Batches of jobs.

use std::sync::Arc;

use schemars::JsonSchema;
use serde::Serialize;
use seriatim::JobId;
use seriatim::store::{self, BatchView, Page};

use crate::protocol::schema::Foreign;
use crate::protocol::value::Time;

/// A batch of jobs.
#[derive(Serialize, JsonSchema)]
pub(crate) struct Batch {
    pub(crate) batch: Arc<str>,
    pub(crate) opened_at: Time,
    /// Whether it ends with the last of its jobs
    pub(crate) sealed: bool,
    /// Jobs that have not ended
    pub(crate) pending: u64,
    /// Jobs that succeeded
    pub(crate) done: u64,
    /// Jobs that failed for good: in the morgue, or dropped
    pub(crate) dead: u64,
    /// Jobs that were cancelled or deleted, or had expired
    pub(crate) cancelled: u64,
    /// Null until it has ended; from then on the counts do not change
    pub(crate) ended_at: Option<Time>,
    /// The job that was pushed when it ended
    #[schemars(with = "Option<Foreign<JobId>>")]
    pub(crate) callback: Option<JobId>,
    /// Why that job could not be pushed
    pub(crate) refused: Option<String>,
}

impl Batch {
    /// What it is, in one word.
    pub(crate) fn state(&self) -> &'static str {
        match (&self.ended_at, self.sealed) {
            (Some(_), _) => "ended",
            (None, true) => "sealed",
            (None, false) => "open",
        }
    }

    /// How many of its jobs are where, in words.
    pub(crate) fn counts(&self) -> String {
        let Self { pending, done, dead, cancelled, .. } = self;
        format!("{pending} pending, {done} done, {dead} dead, {cancelled} cancelled")
    }
}

impl From<BatchView> for Batch {
    fn from(view: BatchView) -> Self {
        Self {
            batch: view.id,
            opened_at: Time(view.opened_at),
            sealed: view.sealed,
            pending: view.pending,
            done: view.done,
            dead: view.dead,
            cancelled: view.cancelled,
            ended_at: view.ended_at.map(Time),
            callback: view.callback,
            refused: view.refused,
        }
    }
}

/// Batches, those opened last first.
#[derive(Serialize, JsonSchema)]
pub(crate) struct Batches {
    pub(crate) batches: Vec<Batch>,
    /// The `after` of the next page
    pub(crate) next: Option<String>,
}

impl From<Page<BatchView>> for Batches {
    fn from(page: Page<BatchView>) -> Self {
        Self { batches: page.rows.into_iter().map(Batch::from).collect(), next: page.next }
    }
}

/// The batch whose callback a job is.
#[derive(Serialize, JsonSchema)]
pub(crate) struct EndedBatch {
    id: String,
    /// Jobs that succeeded
    done: u64,
    /// Jobs that failed for good
    dead: u64,
    /// Jobs that were cancelled or deleted, or had expired
    cancelled: u64,
}

impl From<&store::EndedBatch> for EndedBatch {
    fn from(ended: &store::EndedBatch) -> Self {
        let store::EndedBatch { id, done, dead, cancelled, .. } = ended;
        Self { id: id.clone(), done: *done, dead: *dead, cancelled: *cancelled }
    }
}
