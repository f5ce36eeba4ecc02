//! The current troubles of this node. The heartbeat reports them, so that operators see them without this node's log.

use std::collections::BTreeMap;
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, Ordering};

use tokio::sync::Notify;
use tokio::time::Instant;

use crate::contract::{Trouble, TroubleKind};
use crate::lock::lock;
use crate::model::Timestamp;
use crate::model::limits::{TROUBLE_TEXT_BYTES_MAX, TROUBLES_MAX};
use crate::model::text::cut_middle;

/// Most locked keys that are told: one transaction may lock any number, and a few tell enough.
const LOCKED_MAX: usize = 8;

/// The troubles of a node, at most [`TROUBLES_MAX`]; a new one replaces the one whose last occurrence is oldest.
#[derive(Debug, Default)]
pub(in crate::engine) struct Troubles {
    board: Mutex<Board>,
    /// Whether there is any, cheap to check after each call.
    any: AtomicBool,
    /// Notified of changes that should be reported soon.
    pub(super) news: Notify,
}

#[derive(Debug, Default)]
struct Board {
    /// By kind and subject.
    entries: BTreeMap<(TroubleKind, String), Entry>,
    /// Grows with each change that should be reported soon.
    version: u64,
    /// The version in the last heartbeat.
    reported: u64,
}

#[derive(Debug)]
struct Entry {
    queue: Option<String>,
    text: String,
    times: u64,
    since: Instant,
    last: Instant,
}

impl Troubles {
    /// Records a trouble or its repeat. `about` distinguishes troubles of one kind; a repeat is counted, and replaces
    /// the text.
    pub(in crate::engine) fn set(
        &self,
        kind: TroubleKind,
        queue: Option<&str>,
        about: &str,
        text: &str,
    ) {
        let (now, text) = (Instant::now(), cut_middle(text, TROUBLE_TEXT_BYTES_MAX));
        let about = cut_middle(about, TROUBLE_TEXT_BYTES_MAX).into_owned();
        let mut board = lock(&self.board);
        if let Some(entry) = board.entries.get_mut(&(kind, about.clone())) {
            entry.times += 1;
            entry.last = now;
            if entry.text != text {
                entry.text = text.into_owned();
                self.changes(&mut board);
            }
            return;
        }
        let alike = board.entries.keys().filter(|(other, _)| *other == kind).count();
        if kind == TroubleKind::SettlesLocked && alike >= LOCKED_MAX {
            return;
        }
        if board.entries.len() >= TROUBLES_MAX {
            let oldest = board.entries.iter().min_by_key(|(_, entry)| entry.last);
            if let Some(key) = oldest.map(|(key, _)| key.clone()) {
                board.entries.remove(&key);
            }
        }
        let queue = queue.map(str::to_owned);
        let entry = Entry { queue, text: text.into_owned(), times: 1, since: now, last: now };
        board.entries.insert((kind, about), entry);
        self.any.store(true, Ordering::Relaxed);
        self.changes(&mut board);
    }

    fn changes(&self, board: &mut Board) {
        board.version += 1;
        self.news.notify_one();
    }

    /// Ends a trouble. True if there was one.
    pub(in crate::engine) fn clear(&self, kind: TroubleKind, about: &str) -> bool {
        let about = cut_middle(about, TROUBLE_TEXT_BYTES_MAX).into_owned();
        let mut board = lock(&self.board);
        let was = board.entries.remove(&(kind, about)).is_some();
        if was {
            self.changes(&mut board);
        }
        self.any.store(!board.entries.is_empty(), Ordering::Relaxed);
        was
    }

    /// Whether there is any trouble; takes no lock.
    pub(in crate::engine) fn any(&self) -> bool {
        self.any.load(Ordering::Relaxed)
    }

    /// Whether a change should be reported before the next heartbeat is due.
    pub(in crate::engine) fn changed(&self) -> bool {
        let board = lock(&self.board);
        board.version != board.reported
    }

    /// All troubles for a heartbeat at `now`, oldest first, and their version for [`Self::reported`].
    pub(in crate::engine) fn at(&self, now: Timestamp) -> (Vec<Trouble>, u64) {
        let board = lock(&self.board);
        let mut entries: Vec<_> = board.entries.iter().collect();
        entries.sort_by_key(|(_, entry)| entry.since);
        let seen = entries.into_iter().map(|((kind, about), entry)| Trouble {
            kind: *kind,
            queue: entry.queue.clone(),
            about: about.clone(),
            text: entry.text.clone(),
            times: entry.times,
            since: now - entry.since.elapsed(),
            last_at: now - entry.last.elapsed(),
        });
        (seen.collect(), board.version)
    }

    /// Records that a heartbeat reported this version.
    pub(in crate::engine) fn reported(&self, version: u64) {
        lock(&self.board).reported = version;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn a_trouble_that_repeats_is_counted_and_keeps_when_it_began() {
        let troubles = Troubles::default();
        let second = std::time::Duration::from_secs(1);
        troubles.set(TroubleKind::WorkerCannotStart, Some("orders"), "orders", "missing");
        tokio::time::advance(second).await;
        troubles.set(TroubleKind::WorkerCannotStart, Some("orders"), "orders", "a directory");
        tokio::time::advance(second).await;
        let now = Timestamp::from_micros(100_000_000);
        let (seen, _) = troubles.at(now);
        let expected = Trouble {
            kind: TroubleKind::WorkerCannotStart,
            queue: Some("orders".into()),
            about: "orders".into(),
            text: "a directory".into(),
            times: 2,
            since: now - second * 2,
            last_at: now - second,
        };
        assert_eq!(seen, [expected]);
        assert!(troubles.clear(TroubleKind::WorkerCannotStart, "orders"));
        assert!(!troubles.clear(TroubleKind::WorkerCannotStart, "orders"));
        assert_eq!(troubles.at(now).0, []);
    }

    #[test]
    fn any_number_of_locked_keys_displaces_no_other_trouble_and_hurries_one_heartbeat() {
        let troubles = Troubles::default();
        troubles.set(TroubleKind::WorkerCannotStart, None, "orders", "missing");
        let lock_all = || {
            for lane in 0..2 * TROUBLES_MAX {
                troubles.set(TroubleKind::SettlesLocked, None, &lane.to_string(), "locked");
            }
        };
        lock_all();
        let (seen, version) = troubles.at(Timestamp::from_micros(0));
        assert_eq!(seen.len(), 1 + LOCKED_MAX);
        troubles.reported(version);
        lock_all();
        assert!(!troubles.changed());
    }

    #[tokio::test(start_paused = true)]
    async fn only_what_people_do_not_know_yet_hurries_a_heartbeat() {
        let troubles = Troubles::default();
        let now = Timestamp::from_micros(0);
        assert!(!troubles.changed());
        troubles.set(TroubleKind::WorkerSilent, None, "a", "x");
        assert!(troubles.changed());
        let (_, version) = troubles.at(now);
        troubles.set(TroubleKind::WorkerSilent, None, "b", "x");
        troubles.reported(version);
        assert!(troubles.changed(), "the second came after the heartbeat was written");
        troubles.reported(troubles.at(now).1);
        troubles.set(TroubleKind::WorkerSilent, None, "b", "x");
        assert!(!troubles.changed(), "a repeat waits for the next heartbeat");
        troubles.clear(TroubleKind::WorkerSilent, "b");
        assert!(troubles.changed());
    }

    #[tokio::test(start_paused = true)]
    async fn a_full_board_forgets_what_has_not_happened_for_longest() {
        let troubles = Troubles::default();
        let long = "ä".repeat(TROUBLE_TEXT_BYTES_MAX);
        for number in 0..=TROUBLES_MAX {
            troubles.set(TroubleKind::WorkerSilent, None, &number.to_string(), &long);
            tokio::time::advance(std::time::Duration::from_secs(1)).await;
            troubles.set(TroubleKind::WorkerSilent, None, "0", &long);
        }
        let (seen, _) = troubles.at(Timestamp::from_micros(1 << 50));
        assert_eq!(seen.len(), TROUBLES_MAX);
        assert!(
            seen.iter().any(|one| one.about == "0") && !seen.iter().any(|one| one.about == "1")
        );
        assert!(seen.iter().all(|one| one.text.len() <= TROUBLE_TEXT_BYTES_MAX));
    }
}
