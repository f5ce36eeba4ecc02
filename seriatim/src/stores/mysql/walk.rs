//! When rescues read all claims.

use std::sync::Mutex;
use std::time::Duration;

use crate::lock::lock;
use crate::model::Timestamp;

/// A claim that began before its node died is written by then.
const CLAIM_ENDS: Duration = Duration::from_secs(60);

/// The last time that a rescue of this process read all claims.
#[derive(Default)]
pub(super) struct LastWalk(Mutex<Walk>);

#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Walk {
    pub at: Timestamp,
    /// When the next of the claims ends that neither end with a living node nor are marked.
    pub next: Timestamp,
}

impl LastWalk {
    pub(super) fn get(&self) -> Walk {
        *lock(&self.0)
    }

    /// After the commit: a rescue that is undone has taken nothing.
    pub(super) fn set(&self, walk: Walk) {
        *lock(&self.0) = walk;
    }
}

impl Walk {
    /// Whether to read all claims. `died`: when the last node did.
    pub(super) fn is_due(&self, now: Timestamp, died: Option<Timestamp>) -> bool {
        let was_set_back = now < self.at;
        was_set_back || now >= self.next || died.is_some_and(|at| at + CLAIM_ENDS > self.at)
    }
}
