//! Determines how long the node's claims surely last, by this machine's monotonic clock.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use tokio::time::Instant;

/// The longest margin before its end at which a lease counts as lost.
const MARGIN_MAX: Duration = Duration::from_secs(10);

/// The store counts a lease from the receipt of a heartbeat. This clock counts from the moment before the last
/// successful one was sent, so it always ends first, whatever the clocks show.
#[derive(Debug)]
pub(in crate::engine) struct LeaseClock {
    origin: Instant,
    beat_us: AtomicU64,
}

impl LeaseClock {
    pub(in crate::engine) fn new() -> Self {
        Self { origin: Instant::now(), beat_us: AtomicU64::new(0) }
    }

    /// Records the answer to a heartbeat sent at `sent`.
    pub(in crate::engine) fn beat(&self, sent: Instant) {
        let since = sent.saturating_duration_since(self.origin).as_micros() as u64;
        self.beat_us.fetch_max(since, Ordering::Release);
    }

    /// When a handler under a lease of `ttl` is asked to stop.
    pub(in crate::engine) fn end(&self, ttl: Duration) -> Instant {
        let beat = Duration::from_micros(self.beat_us.load(Ordering::Acquire));
        self.origin + beat + ttl.saturating_sub(margin(ttl))
    }

    /// Whether a handler under a lease of `ttl` may start.
    pub(in crate::engine) fn stands(&self, ttl: Duration) -> bool {
        Instant::now() < self.end(ttl)
    }
}

/// How long before the end of its lease a handler is asked to stop.
pub(in crate::engine) fn margin(ttl: Duration) -> Duration {
    (ttl / 4).min(MARGIN_MAX)
}
