//! The store's clock, as this process knows it.

use std::sync::Mutex;
use std::time::Duration;

use tokio::time::Instant;

use crate::engine::limits::{CLOCK_JUMP_MIN, CLOCK_LEAP_MIN};
use crate::lock::lock;
use crate::model::Timestamp;

pub(in crate::engine) struct StoreClock(Mutex<Known>);

struct Known {
    /// A time of the store, and the instant to which it belongs.
    time: Timestamp,
    at: Instant,
    /// By how much that may be wrong.
    give_or_take: Duration,
    /// Whether it was read. Before, it is this machine's.
    is_read: bool,
    jumped_at: Option<Instant>,
}

impl StoreClock {
    pub(in crate::engine) fn new() -> Self {
        let (time, at) = (Timestamp::of_this_machine(), Instant::now());
        let give_or_take = Duration::ZERO;
        Self(Mutex::new(Known { time, at, give_or_take, is_read: false, jumped_at: None }))
    }

    /// The time, estimated without asking the store.
    pub(in crate::engine) fn now(&self) -> Timestamp {
        let known = lock(&self.0);
        known.time + known.at.elapsed()
    }

    /// Notes that the store's clock showed `time` when this machine's showed an instant from `asked` on. True if that is
    /// not what was expected: it was set, or this machine was suspended.
    pub(in crate::engine) fn read(&self, time: Timestamp, asked: Instant) -> bool {
        let give_or_take = asked.elapsed() / 2;
        let at = asked + give_or_take;
        let mut known = lock(&self.0);
        let expected = known.time + at.saturating_duration_since(known.at);
        let apart = time.since(expected).max(expected.since(time));
        if known.is_read && apart <= give_or_take && known.give_or_take < give_or_take {
            // A slow answer that agrees with a quicker one says less.
            return false;
        }
        if known.is_read && time.since(expected) >= CLOCK_JUMP_MIN {
            known.jumped_at = Some(at);
            tracing::warn!(
                "the store's clock has jumped forward, or this machine was suspended: this node takes no claims over \
                 until each node can have sent a heartbeat"
            );
        }
        (known.time, known.at, known.is_read) = (time, at, true);
        known.give_or_take = give_or_take;
        apart >= CLOCK_LEAP_MIN
    }

    /// Whether it jumped forward less than a lease ago: then every node seems to have been silent for too long.
    pub(in crate::engine) fn has_jumped_within(&self, lease: Duration) -> bool {
        lock(&self.0).jumped_at.is_some_and(|at| at.elapsed() < lease)
    }
}
