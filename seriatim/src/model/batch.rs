//! Batches: sets of jobs, in any queues, whose end pushes one more job.

use serde::{Deserialize, Serialize};

use crate::model::payload::Digest;

/// A batch that has ended, as its callback's job carries it.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct EndedBatch {
    /// Its id.
    pub id: String,
    /// Jobs that succeeded.
    #[serde(default)]
    pub done: u64,
    /// Jobs that failed for good: in the morgue, or dropped.
    #[serde(default)]
    pub dead: u64,
    /// Jobs that were cancelled or deleted, or had expired.
    #[serde(default)]
    pub cancelled: u64,
}

/// How a job leaves its batch.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Leave {
    Done,
    Dead,
    Cancelled,
    /// It merged into an equal job of the batch.
    Merged,
}

/// Counts of a batch, or changes of them.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct BatchCounts {
    /// Jobs that have not ended.
    pub pending: i64,
    pub done: i64,
    pub dead: i64,
    pub cancelled: i64,
}

impl BatchCounts {
    pub(crate) fn join(&mut self) {
        self.pending += 1;
    }

    pub(crate) fn leave(&mut self, how: Leave) {
        self.pending -= 1;
        match how {
            Leave::Done => self.done += 1,
            Leave::Dead => self.dead += 1,
            Leave::Cancelled => self.cancelled += 1,
            Leave::Merged => {}
        }
    }

    /// A dead job waits again.
    pub(crate) fn come_back(&mut self) {
        self.pending += 1;
        self.dead -= 1;
    }
}

/// The digest of a job in a batch: only jobs of one batch are equal.
pub(crate) fn digest_in(batch: Option<&str>, digest: Digest) -> Digest {
    batch.map_or(digest, |batch| digest_with(&digest, "job of", batch))
}

/// The digest of the callback of a batch, which equals no other job.
pub(crate) fn digest_of_callback(batch: &str, digest: Digest) -> Digest {
    digest_with(&digest, "callback of", batch)
}

fn digest_with(digest: &Digest, what: &str, batch: &str) -> Digest {
    let mut hasher = blake3::Hasher::new_derive_key(what);
    hasher.update(digest);
    hasher.update(batch.as_bytes());
    let mut half = Digest::default();
    half.copy_from_slice(&hasher.finalize().as_bytes()[..16]);
    half
}
