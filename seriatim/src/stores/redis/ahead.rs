//! What a scan of a queue found behind the page that it was made for, kept for the pages that follow. Without it a walk
//! through all jobs, which have no index by arrival, would scan everything for each of its pages.
//!
//! The cursors of a walk name what is kept for it, so it goes on with what it scanned itself, and shows all that was there when it
//! began. An entry is shown once, and the last page always comes from a scan: asking for a page again shows what is new.

use std::collections::VecDeque;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tokio::time::Instant;

use super::entry::Entry;
use crate::contract::{JobFilter, JobOrder, JobQuery, JobState};
use crate::model::limits::PAGE_ROWS_MAX;

/// Most entries of a scan that are kept, some 5 MB.
pub(super) const ENTRIES_MAX: usize = 50_000;
/// Most walks at once; the oldest one goes on with a scan.
const WALKS_MAX: usize = 4;
/// How long a walk goes on without another scan.
const KEPT_MAX: Duration = Duration::from_secs(15);

/// The jobs that a walk goes through: all of a queue in these states.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) struct Scope {
    queue: u32,
    filter: JobFilter,
    order: JobOrder,
}

/// Entries in the order of the listing.
pub(super) struct Ahead {
    /// None if they serve one page only.
    scope: Option<Scope>,
    /// What cursors name.
    walk: u64,
    entries: VecDeque<Entry>,
    /// No more follow.
    is_all: bool,
    scanned_at: Instant,
}

/// Those of several walks, the oldest first.
#[derive(Default)]
pub(super) struct Kept(Mutex<VecDeque<Ahead>>);

impl Scope {
    /// None if pages of this query are read without a scan, or are the first: most walks end there. In other orders jobs
    /// move while they are walked through; ended ones do not.
    pub(super) fn of(query: &JobQuery, queue: u32) -> Option<Self> {
        let has_ended =
            matches!(query.filter, JobFilter::In(JobState::Succeeded | JobState::Canceled));
        let is_still = match query.order {
            JobOrder::Arrival => true,
            JobOrder::UpdatedAt => has_ended,
            JobOrder::Key | JobOrder::Turn => false,
        };
        let is_walk = is_still && query.key.is_none();
        let of_walk = || Self { queue, filter: query.filter, order: query.order };
        (is_walk && query.after.is_some()).then(of_walk)
    }
}

impl Ahead {
    pub(super) fn new(scope: Option<Scope>, (entries, is_all): (Vec<Entry>, bool)) -> Self {
        let (walk, entries) = (fastrand::u64(..), entries.into());
        Self { scope, walk, entries, is_all, scanned_at: Instant::now() }
    }

    /// What its cursors name, if it is kept.
    pub(super) fn walk(&self) -> Option<u64> {
        self.scope.map(|_| self.walk)
    }

    /// The next ones, at most `most`, and whether more follow.
    pub(super) fn first(&self, most: usize) -> (Vec<Entry>, bool) {
        let first: Vec<Entry> = self.entries.iter().take(most).cloned().collect();
        let more = first.len() < self.entries.len() || !self.is_all;
        (first, more)
    }
}

impl Kept {
    fn walks(&self) -> MutexGuard<'_, VecDeque<Ahead>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Takes what follows this entry of a walk, if it is more than a page.
    pub(super) fn take(
        &self,
        scope: Option<Scope>,
        walk: u64,
        after: &Entry,
        most: usize,
    ) -> Option<Ahead> {
        let mut kept = self.walks();
        kept.retain(|ahead| ahead.scanned_at.elapsed() < KEPT_MAX);
        let follows = |ahead: &Ahead| {
            (ahead.scope, ahead.walk) == (scope, walk) && ahead.entries.binary_search(after).is_ok()
        };
        let at = kept.iter().position(follows)?;
        let mut ahead = kept.remove(at)?;
        drop(kept);
        let behind = ahead.entries.partition_point(|entry| entry <= after);
        ahead.entries.drain(..behind);
        let is_enough = ahead.entries.len() > most.min(PAGE_ROWS_MAX);
        is_enough.then_some(ahead)
    }

    /// Keeps it for the page that follows one of its entries.
    pub(super) fn put(&self, mut ahead: Ahead) {
        if ahead.scope.is_none() || ahead.entries.is_empty() {
            return;
        }
        ahead.is_all &= ahead.entries.len() <= ENTRIES_MAX;
        ahead.entries.truncate(ENTRIES_MAX);
        let mut kept = self.walks();
        kept.push_back(ahead);
        if kept.len() > WALKS_MAX {
            kept.pop_front();
        }
    }
}
