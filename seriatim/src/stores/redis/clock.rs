//! Jumps of the server's clock, as this process sees them. Leases are counted by that clock: after a jump forward every node
//! seems to have been silent for too long.

use std::sync::Mutex;
use std::time::Duration;

use tokio::time::Instant;

use crate::lock::lock;
use crate::model::Timestamp;

/// How much faster than this machine's the server's clock may run between two looks.
const JUMP_MIN: Duration = Duration::from_secs(5);

#[derive(Default)]
pub(super) struct Clock(Mutex<Known>);

#[derive(Default)]
struct Known {
    /// The server's time, and when it was read.
    read: Option<(Timestamp, Instant)>,
    jumped_at: Option<Instant>,
}

impl Clock {
    /// The latest time that the server's clock can show unless it jumps. `None` before the first look.
    pub(super) fn latest(&self) -> Option<Timestamp> {
        let (time, at) = lock(&self.0).read?;
        Some(time + at.elapsed() + JUMP_MIN)
    }

    pub(super) fn read(&self, time: Timestamp, jumped: bool) {
        let mut known = lock(&self.0);
        known.read = Some((time, Instant::now()));
        if jumped {
            known.jumped_at = Some(Instant::now());
            tracing::warn!(
                "the clock of Redis has jumped forward, or this machine was suspended: no node is declared dead until \
                 each can have sent a heartbeat"
            );
        }
    }

    /// Whether the clock has jumped within this time.
    pub(super) fn is_spared(&self, lease: Duration) -> bool {
        lock(&self.0).jumped_at.is_some_and(|at| at.elapsed() < lease)
    }

    /// As if the clock had been at `time` just now.
    #[cfg(test)]
    pub(super) fn pretend(&self, time: Timestamp) {
        *lock(&self.0) = Known { read: Some((time, Instant::now())), jumped_at: None };
    }
}
