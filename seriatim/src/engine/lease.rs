//! Determines how long the node's claims surely last, by this machine's monotonic clock.

use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use tokio::time::Instant;

use crate::lock::lock;
use crate::machine::suspended;
use crate::model::Timestamp;

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
    /// Whether a heartbeat ever succeeded.
    has_begun: AtomicBool,
    /// When one last succeeded after the node's lease had ended.
    returned_at: Mutex<Option<Instant>>,
}

/// When a heartbeat was sent.
#[derive(Clone, Copy, Debug)]
pub(in crate::engine) struct Sent {
    pub(in crate::engine) at: Instant,
    /// By this machine's clock.
    pub(in crate::engine) time: Timestamp,
    asleep: Duration,
}

impl Sent {
    /// A heartbeat is about to be sent.
    pub(in crate::engine) fn now() -> Self {
        Self { at: Instant::now(), time: Timestamp::of_this_machine(), asleep: suspended() }
    }
}

impl LeaseClock {
    pub(in crate::engine) fn new() -> Self {
        let asleep_us = AtomicU64::new(suspended().as_micros() as u64);
        Self {
            origin: Instant::now(),
            beat_us: AtomicU64::new(0),
            asleep_us,
            has_begun: AtomicBool::new(false),
            returned_at: Mutex::default(),
        }
    }

    /// Records the answer to a heartbeat of a node with this lease.
    pub(in crate::engine) fn beat(&self, sent: Sent, lease: Duration) {
        // The first one ends no silence: the engine may have been built long before. How long the answer took is none:
        // on a slow store each one would end some.
        if self.has_begun.swap(true, Ordering::AcqRel) && sent.at >= self.end(lease) {
            self.returned();
        }
        let since = sent.at.saturating_duration_since(self.origin).as_micros() as u64;
        self.beat_us.fetch_max(since, Ordering::Release);
        self.asleep_us.fetch_max(sent.asleep.as_micros() as u64, Ordering::Release);
    }

    /// The store answers again after longer than a lease. The other nodes may not have reached it either.
    pub(in crate::engine) fn returned(&self) {
        tracing::info!(
            "no heartbeat succeeded for longer than a lease: this node takes no claims over until each node can have \
             sent one"
        );
        *lock(&self.returned_at) = Some(Instant::now());
    }

    /// Whether that was less than a lease ago.
    pub(in crate::engine) fn has_returned_within(&self, lease: Duration) -> bool {
        lock(&self.returned_at).is_some_and(|at| at.elapsed() < lease)
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
        clock.beat(Sent::now(), lease);
        assert!(clock.stands(lease));
        PRETENDED.set(Duration::from_secs(30));
        assert!(clock.stands(lease));
        PRETENDED.set(Duration::from_secs(60));
        assert!(!clock.stands(lease), "others may have taken its lanes over");
        assert!(!clock.has_returned_within(lease));
        clock.beat(Sent::now(), lease);
        assert!(clock.stands(lease) && clock.has_returned_within(lease));
    }
}
