//! What an engine did.

use std::sync::atomic::{AtomicU64, Ordering};

use crate::settle::{Fate, Settlement};
use crate::store::Settled;

/// Counted from the start to the end of an engine.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Summary {
    /// Handler calls.
    pub calls: u64,
    /// Turns that ended with all their jobs done.
    pub done: u64,
    /// Turns that ended as a failure, and those of which a job could not be decoded.
    pub failed: u64,
    /// Turns that went back uncounted: released, or put off by their handler.
    pub released: u64,
    /// Turns whose claim had been taken over by the time they were settled.
    pub stale: u64,
    /// Claims of others that were taken over.
    pub rescued: u64,
    /// Turns that could not be settled before the end; their leases run out by themselves.
    pub unsettled: u64,
}

#[derive(Debug, Default)]
pub(super) struct Counters {
    calls: AtomicU64,
    done: AtomicU64,
    failed: AtomicU64,
    released: AtomicU64,
    stale: AtomicU64,
    rescued: AtomicU64,
}

impl Counters {
    pub(super) fn called(&self) {
        self.calls.fetch_add(1, Ordering::Relaxed);
    }

    pub(super) fn rescued(&self, turns: usize) {
        self.rescued.fetch_add(turns as u64, Ordering::Relaxed);
    }

    pub(super) fn settled(&self, settlement: &Settlement, settled: &Settled) {
        let counter = match (settled, settlement.keep.counted, settlement.rest) {
            (Settled::Stale, _, _) => &self.stale,
            (Settled::Ok { .. }, true, _) => &self.failed,
            (Settled::Ok { .. }, false, Fate::Keep) => &self.released,
            (Settled::Ok { .. }, false, _) => &self.done,
        };
        counter.fetch_add(1, Ordering::Relaxed);
    }

    pub(super) fn summary(&self, unsettled: usize) -> Summary {
        let read = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
        Summary {
            calls: read(&self.calls),
            done: read(&self.done),
            failed: read(&self.failed),
            released: read(&self.released),
            stale: read(&self.stale),
            rescued: read(&self.rescued),
            unsettled: unsettled as u64,
        }
    }
}
