//! What was not loaded of a lane, for stores that load lanes in part.

use std::collections::HashSet;
use std::sync::atomic::{AtomicBool, Ordering};

use super::rank::{LAST, LAST_PLACE, Rank};
use crate::model::{Digest, Timestamp};

/// The part of a lane that was not loaded. Whoever asks the lane for something that this part decides gets an answer
/// that must not be used, and [`Unread::was_missed`] says so.
#[derive(Debug, Default)]
pub(in crate::stores) struct Unread {
    /// How many open jobs were not loaded.
    pub open: u64,
    /// The bytes of their payloads, if the lane's queue has a window that is full by them.
    pub bytes: u64,
    /// How many closed jobs were not loaded.
    pub closed: u64,
    /// The open jobs up to this rank were loaded.
    pub to: Option<Rank>,
    /// In `exclusive`, those that are not due up to this place were loaded.
    pub later_to: Option<(Timestamp, u64)>,
    /// Whether the best priority of the open ones is known.
    pub soonest: bool,
    /// Jobs with these digests were loaded, if there are any.
    pub digests: HashSet<Digest>,
    missed: AtomicBool,
}

impl Clone for Unread {
    fn clone(&self) -> Self {
        Self {
            digests: self.digests.clone(),
            missed: AtomicBool::new(self.missed.load(Ordering::Relaxed)),
            ..*self
        }
    }
}

impl Unread {
    /// Whether something was asked that only the other part knows: the call must be repeated with all of it.
    #[cfg(feature = "mysql")]
    pub(in crate::stores) fn was_missed(&self) -> bool {
        self.missed.load(Ordering::Relaxed)
    }

    /// Whether the first open job is known.
    #[cfg(feature = "mysql")]
    pub(in crate::stores) fn knows_head(&self) -> bool {
        self.open == 0 || self.to.is_some()
    }

    fn need(&self, known: bool) {
        if !known {
            self.missed.store(true, Ordering::Relaxed);
        }
    }

    /// All open jobs are needed.
    pub(super) fn need_open(&self) {
        self.need(self.open == 0);
    }

    /// The jobs of the turn are needed.
    pub(super) fn need_closed(&self) {
        self.need(self.closed == 0);
    }

    /// The open jobs up to this one are needed; `None`: the first one, and no loaded one is there.
    pub(super) fn need_to(&self, rank: Option<&Rank>) {
        self.need(
            self.open == 0 || rank.is_some_and(|rank| self.knows(rank)) || self.to == Some(LAST),
        );
    }

    /// The first job that is not due is needed: this one.
    pub(super) fn need_later(&self, first: Option<&(Timestamp, u64)>) {
        let first = first.copied().unwrap_or(LAST_PLACE);
        self.need(self.open == 0 || self.later_to.is_some_and(|to| first <= to));
    }

    /// The best priority of the open jobs is needed.
    pub(super) fn need_soonest(&self) {
        self.need(self.open == 0 || self.soonest);
    }

    /// Whether there is a job with this digest is needed.
    pub(super) fn need_equal(&self, digest: &Digest) {
        self.need(self.open == 0 || self.digests.contains(digest));
    }

    /// Whether all open jobs up to this one were loaded.
    pub(super) fn knows(&self, rank: &Rank) -> bool {
        self.open == 0 || self.to.is_some_and(|to| *rank <= to)
    }
}

#[cfg(all(test, feature = "mysql"))]
mod tests {
    use crate::model::{LaneId, Mode};
    use crate::stores::state::lane::Lane;

    fn lane(mode: Mode, unread: u64) -> Lane {
        let id = LaneId { queue: 1, shard: 0, number: 1 };
        let mut lane = Lane::new(id, mode, Some("k".into()), super::Timestamp::default(), 0);
        lane.unread.open = unread;
        lane
    }

    /// Whether asking this of a lane with unread jobs is refused.
    fn is_missed(mode: Mode, ask: impl FnOnce(&mut Lane)) -> bool {
        let mut complete = lane(mode, 0);
        let mut partial = lane(mode, 1);
        ask(&mut partial);
        complete.positioned(super::Timestamp::default());
        assert!(!complete.unread.was_missed(), "a complete lane knows everything");
        partial.unread.was_missed()
    }

    #[test]
    fn a_lane_that_was_not_loaded_is_not_empty_and_refuses_what_it_cannot_know() {
        assert!(!lane(Mode::Fifo, 1).is_empty());
        let now = super::Timestamp::default();
        for mode in [Mode::Fifo, Mode::Exclusive, Mode::Accumulate] {
            assert!(
                is_missed(mode, |lane| {
                    let _ = lane.positioned(now);
                }),
                "{mode}"
            );
            assert!(
                is_missed(mode, |lane| {
                    let _ = lane.take_all();
                }),
                "{mode}"
            );
            assert!(
                is_missed(mode, |lane| {
                    let _ = lane.take_seq(7);
                }),
                "{mode}"
            );
            assert!(
                is_missed(mode, |lane| {
                    let _ = lane.equal(&[0; 16]);
                }),
                "{mode}"
            );
            assert!(
                is_missed(mode, |lane| {
                    let _ = lane.head().is_some();
                }),
                "{mode}"
            );
            assert!(
                !is_missed(mode, |lane| {
                    let _ = lane.is_empty();
                }),
                "{mode}"
            );
        }
    }
}
