//! Wake-ups: hints that a lane may be due sooner than the last claim reported.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::time::Duration;

use tokio::sync::Notify;

/// The sender of a store's wake-ups: rings when a lane may have become claimable.
#[derive(Clone, Debug, Default)]
pub struct Bell(Arc<Rope>);

/// What the bell and its listeners share. (A `watch` channel would wake its receivers in random order, which no seed
/// could repeat.)
#[derive(Debug, Default)]
struct Rope {
    rings: AtomicU64,
    rung: Notify,
    listeners: AtomicUsize,
}

impl Bell {
    /// Wakes all listeners. Several rings before a listener wakes count as one.
    pub fn ring(&self) {
        self.0.rings.fetch_add(1, Ordering::AcqRel);
        self.0.rung.notify_waiters();
    }

    /// Whether there are listeners.
    pub fn has_listeners(&self) -> bool {
        self.0.listeners.load(Ordering::Acquire) > 0
    }

    /// A new listener, for the rings from now on.
    pub fn listen(&self) -> Wakeups {
        self.0.listeners.fetch_add(1, Ordering::AcqRel);
        Wakeups { rope: self.0.clone(), heard: self.0.rings.load(Ordering::Acquire) }
    }
}

/// A listener to a store's wake-ups.
#[derive(Debug)]
pub struct Wakeups {
    rope: Arc<Rope>,
    heard: u64,
}

impl Wakeups {
    /// Waits for a ring since the last call, at most for `at_most`. True if it rang.
    pub async fn wait(&mut self, at_most: Duration) -> bool {
        tokio::time::timeout(at_most, self.rang()).await.is_ok()
    }

    /// Ignores the rings so far.
    pub fn forget(&mut self) {
        self.heard = self.rope.rings.load(Ordering::Acquire);
    }

    async fn rang(&mut self) {
        loop {
            let rung = self.rope.rung.notified();
            tokio::pin!(rung);
            // Enabled before the check, so that no ring in between is missed.
            rung.as_mut().enable();
            let rings = self.rope.rings.load(Ordering::Acquire);
            if rings != self.heard {
                self.heard = rings;
                return;
            }
            rung.await;
        }
    }
}

impl Drop for Wakeups {
    fn drop(&mut self) {
        self.rope.listeners.fetch_sub(1, Ordering::AcqRel);
    }
}
