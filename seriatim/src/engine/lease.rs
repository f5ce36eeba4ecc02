//! Determines how long the node's claims surely last, by this machine's monotonic clock.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use tokio::time::Instant;

use crate::machine::suspended;

/// The longest margin before its end at which a lease counts as lost.
const MARGIN_MAX: Duration = Duration::from_secs(10);

/// Shorter suspends are not counted: the margin covers them.
const ASLEEP_MIN: Duration = Duration::from_millis(100);

/// The store counts a lease from the receipt of a heartbeat. This clock counts from the moment before the last
/// successful one was sent, so it always ends first, whatever the clocks show. It also counts the time for which the
/// machine was suspended, which the monotonic clock does not.
#[derive(Debug)]
pub(in crate::engine) struct LeaseClock {
    origin: Instant,
    beat_us: AtomicU64,
    /// How long the machine had been suspended then.
    asleep_us: AtomicU64,
}

/// When a heartbeat was sent.
#[derive(Clone, Copy, Debug)]
pub(in crate::engine) struct Sent {
    pub(in crate::engine) at: Instant,
    asleep: Duration,
}

impl Sent {
    /// A heartbeat is about to be sent.
    pub(in crate::engine) fn now() -> Self {
        Self { at: Instant::now(), asleep: suspended() }
    }
}

impl LeaseClock {
    pub(in crate::engine) fn new() -> Self {
        let asleep_us = AtomicU64::new(suspended().as_micros() as u64);
        Self { origin: Instant::now(), beat_us: AtomicU64::new(0), asleep_us }
    }

    /// Records the answer to a heartbeat.
    pub(in crate::engine) fn beat(&self, sent: Sent) {
        let since = sent.at.saturating_duration_since(self.origin).as_micros() as u64;
        self.beat_us.fetch_max(since, Ordering::Release);
        self.asleep_us.fetch_max(sent.asleep.as_micros() as u64, Ordering::Release);
    }

    /// When a handler under a lease of `ttl` is asked to stop.
    pub(in crate::engine) fn end(&self, ttl: Duration) -> Instant {
        let beat = Duration::from_micros(self.beat_us.load(Ordering::Acquire));
        let then = Duration::from_micros(self.asleep_us.load(Ordering::Acquire));
        let asleep = suspended().saturating_sub(then);
        // The two clocks are not read at the same moment.
        let asleep = if asleep < ASLEEP_MIN { Duration::ZERO } else { asleep };
        let left = (beat + ttl.saturating_sub(margin(ttl))).saturating_sub(asleep);
        self.origin + left
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::machine::PRETENDED;

    #[test]
    fn a_lease_ends_while_the_machine_is_suspended() {
        let lease = Duration::from_secs(60);
        let clock = LeaseClock::new();
        clock.beat(Sent::now());
        assert!(clock.stands(lease));
        PRETENDED.set(Duration::from_secs(30));
        assert!(clock.stands(lease));
        PRETENDED.set(Duration::from_secs(60));
        assert!(!clock.stands(lease), "others may have taken its lanes over");
        clock.beat(Sent::now());
        assert!(clock.stands(lease));
    }
}
