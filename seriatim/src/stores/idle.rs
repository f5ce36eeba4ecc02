//! Connections that wait for the next call.

use std::collections::VecDeque;
use std::sync::Mutex;
use std::time::Duration;

use tokio::time::Instant;

use crate::lock::lock;

/// How long a connection stays open that no call has needed.
const IDLE_MAX: Duration = Duration::from_secs(60);

/// The one that was used last is taken first, so that those which only a burst of calls needed grow old and are closed:
/// a server has few places, and a fleet many processes.
#[derive(Debug)]
pub(super) struct Idle<C>(Mutex<VecDeque<(Instant, C)>>);

impl<C> Default for Idle<C> {
    fn default() -> Self {
        Self(Mutex::default())
    }
}

impl<C> Idle<C> {
    pub(super) fn take(&self) -> Option<C> {
        lock(&self.0).pop_back().map(|(_, connection)| connection)
    }

    /// Keeps the connection, and closes those that have not been needed for [`IDLE_MAX`].
    pub(super) fn put(&self, connection: C) {
        let now = Instant::now();
        let mut kept = lock(&self.0);
        kept.push_back((now, connection));
        let old = kept.partition_point(|(since, _)| now.duration_since(*since) > IDLE_MAX);
        let old: Vec<_> = kept.drain(..old).collect();
        // Closed without the lock.
        drop(kept);
        drop(old);
    }

    pub(super) fn clear(&self) {
        lock(&self.0).clear();
    }

    #[cfg(test)]
    pub(super) fn len(&self) -> usize {
        lock(&self.0).len()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn connections_of_a_burst_are_closed_when_a_minute_passes_without_another_one() {
        let idle = Idle::default();
        (0..8).for_each(|connection| idle.put(connection));
        for _ in 0..60 {
            tokio::time::advance(Duration::from_secs(1)).await;
            let last = idle.take().unwrap();
            assert_eq!(last, 7, "the one that was used last");
            idle.put(last);
        }
        assert_eq!(idle.len(), 8);
        tokio::time::advance(Duration::from_secs(1)).await;
        idle.put(idle.take().unwrap());
        assert_eq!((idle.len(), idle.take()), (1, Some(7)));
    }
}
