//! Wake-ups: hints that something may have fallen due sooner than the last claim said.

use std::sync::Arc;
use std::time::Duration;

use tokio::sync::watch;

/// What a store rings when something may have become claimable.
#[derive(Clone, Debug)]
pub struct Bell(Arc<watch::Sender<u64>>);

impl Default for Bell {
    fn default() -> Self {
        Self(Arc::new(watch::Sender::new(0)))
    }
}

impl Bell {
    /// Wakes everybody who listens. Rings that nobody has heard yet are one ring.
    pub fn ring(&self) {
        self.0.send_modify(|rings| *rings = rings.wrapping_add(1));
    }

    /// Whether anybody listens.
    pub fn has_listeners(&self) -> bool {
        self.0.receiver_count() > 0
    }

    /// A new listener: hears what rings from now on.
    pub fn listen(&self) -> Wakeups {
        Wakeups { rings: self.0.subscribe() }
    }
}

/// A listener of a store's wake-ups.
#[derive(Debug)]
pub struct Wakeups {
    rings: watch::Receiver<u64>,
}

impl Wakeups {
    /// Waits for a ring since the last time, or for `at_most`. True if it rang.
    pub async fn wait(&mut self, at_most: Duration) -> bool {
        matches!(tokio::time::timeout(at_most, self.rings.changed()).await, Ok(Ok(())))
    }

    /// Forgets what has rung so far.
    pub fn forget(&mut self) {
        self.rings.mark_unchanged();
    }
}
