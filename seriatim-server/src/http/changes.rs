//! Whether queues changed, for all open pages of this server.

use std::hash::{DefaultHasher, Hash, Hasher};
use std::sync::Mutex;

use seriatim::store::QueueStats;
use tokio::sync::watch;

use crate::base::lock::lock;

/// Shared by all listeners: the fingerprint of the figures.
#[derive(Default)]
pub(super) struct Changes {
    figures: watch::Sender<u64>,
    is_sampled: Mutex<bool>,
}

impl Changes {
    /// Whether a visitor listens; the last one to leave ends the sampling.
    pub(super) fn are_heard(&self) -> bool {
        let mut is_sampled = lock(&self.is_sampled);
        *is_sampled = self.figures.receiver_count() > 0;
        *is_sampled
    }

    /// Notifies all listeners.
    pub(super) fn tell(&self, figures: u64) {
        self.figures.send_replace(figures);
    }

    /// Listens; true if the caller has to begin the sampling.
    pub(super) fn listen(&self) -> (watch::Receiver<u64>, bool) {
        let mut is_sampled = lock(&self.is_sampled);
        let mut changes = self.figures.subscribe();
        changes.mark_unchanged();
        (changes, !std::mem::replace(&mut *is_sampled, true))
    }
}

/// Of what a page shows, without lags: those grow by themselves.
pub(super) fn fingerprint(stats: &[QueueStats]) -> u64 {
    let mut hasher = DefaultHasher::new();
    for of in stats {
        (&of.queue, of.paused, of.lanes, of.jobs, of.claimed).hash(&mut hasher);
        (of.retrying, of.dead, of.processed, of.failed).hash(&mut hasher);
    }
    hasher.finish()
}
