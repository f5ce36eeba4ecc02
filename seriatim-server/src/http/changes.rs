//! Whether queues changed, for all open pages of this server.

use std::hash::{DefaultHasher, Hash, Hasher};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use seriatim::store::QueueStats;
use tokio::sync::watch;
use tokio::time::Instant;

use crate::base::lock::lock;

/// How long figures are told after they were read.
const TOLD_FOR: Duration = Duration::from_secs(10);

/// Shared by all listeners: the fingerprint of the figures.
#[derive(Default)]
pub(super) struct Changes {
    figures: watch::Sender<u64>,
    is_sampled: Mutex<bool>,
    dead: Mutex<Option<Dead>>,
}

/// When dead jobs were counted, and those of each queue that has some.
type Dead = (Instant, Vec<(Arc<str>, u64)>);

impl Changes {
    /// Whether a visitor listens; the last one to leave ends the sampling.
    pub(super) fn are_heard(&self) -> bool {
        let mut is_sampled = lock(&self.is_sampled);
        *is_sampled = self.figures.receiver_count() > 0;
        *is_sampled
    }

    /// Remembers figures for what all pages have.
    pub(super) fn note(&self, stats: &[QueueStats]) {
        let some = stats.iter().filter(|of| of.dead > 0);
        let dead = some.map(|of| (of.queue.clone(), of.dead)).collect();
        *lock(&self.dead) = Some((Instant::now(), dead));
    }

    /// How many jobs are dead in the queues that the visitor may see, if that is known: no page asks for it.
    pub(super) fn dead(&self, may_see: impl Fn(&str) -> bool) -> Option<u64> {
        let dead = lock(&self.dead);
        let (_, dead) = dead.as_ref().filter(|(at, _)| at.elapsed() < TOLD_FOR)?;
        Some(dead.iter().filter(|(queue, _)| may_see(queue)).map(|(_, dead)| dead).sum())
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
