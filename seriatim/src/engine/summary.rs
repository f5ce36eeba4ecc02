//! The counts of an engine's run.

use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, Ordering};

use crate::lock::lock;
use crate::model::{EndKind, Ending};

/// The counts of an engine from start to end, in the terms of `docs/figures.md`. Each turn that a handler was called
/// with is counted in exactly one of `done`, `failed`, `put_off`, `cancelled`, `stale` and `unsettled`. `put_off`
/// also counts turns that were returned before a handler was called with them.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Summary {
    /// Handler calls.
    pub calls: u64,
    /// Jobs that are done.
    pub processed: u64,
    /// Turns that ended done.
    pub done: u64,
    /// Turns that failed, including those with a job that could not be decoded.
    pub failed: u64,
    /// Turns returned uncounted: released, or snoozed by their handler.
    pub put_off: u64,
    /// Turns whose jobs were cancelled or had expired.
    pub cancelled: u64,
    /// Turns whose claim was taken over before they were settled.
    pub stale: u64,
    /// Turns that could not be settled before the end; their leases expire.
    pub unsettled: u64,
    /// Claims of other nodes that were rescued, and ended as crashes. The other counts exclude them.
    pub rescued: u64,
}

impl Summary {
    /// Counts a turn that the store has settled; `None`: its settlement was refused as stale.
    pub fn count(&mut self, ending: Option<Ending>) {
        self.processed += ending.map_or(0, |ending| ending.done as u64);
        let turns = match ending.map(|ending| ending.kind) {
            None => &mut self.stale,
            Some(EndKind::Done) => &mut self.done,
            Some(EndKind::Failed) => &mut self.failed,
            Some(EndKind::PutOff) => &mut self.put_off,
            Some(EndKind::Cancelled) => &mut self.cancelled,
        };
        *turns += 1;
    }
}

#[derive(Debug, Default)]
pub(in crate::engine) struct Counters {
    calls: AtomicU64,
    rescued: AtomicU64,
    turns: Mutex<Summary>,
}

impl Counters {
    pub(in crate::engine) fn called(&self) {
        self.calls.fetch_add(1, Ordering::Relaxed);
    }

    pub(in crate::engine) fn rescued(&self, turns: usize) {
        self.rescued.fetch_add(turns as u64, Ordering::Relaxed);
    }

    /// Counts an answered batch of settlements.
    pub(in crate::engine) fn settled(&self, endings: impl Iterator<Item = Option<Ending>>) {
        let mut turns = lock(&self.turns);
        endings.for_each(|ending| turns.count(ending));
    }

    pub(in crate::engine) fn summary(&self, unsettled: usize) -> Summary {
        let read = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
        Summary {
            calls: read(&self.calls),
            rescued: read(&self.rescued),
            unsettled: unsettled as u64,
            ..*lock(&self.turns)
        }
    }
}
