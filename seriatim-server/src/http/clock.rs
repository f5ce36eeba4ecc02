//! The time of the store, which pages show: the clock of this machine may be off.

use std::sync::Mutex;
use std::time::Duration;

use seriatim::Timestamp;
use seriatim::store::Store;
use tokio::time::{Instant, timeout};

use crate::base::lock::lock;

/// How long it is counted on without a look at the store.
const FRESH_FOR: Duration = Duration::from_secs(10);
/// How long a request waits for the store.
const WAIT_MAX: Duration = Duration::from_secs(2);

/// What the store said last, and when.
#[derive(Default)]
pub(super) struct Clock {
    said: Mutex<Option<(Timestamp, Instant)>>,
    looked_at: Mutex<Option<Instant>>,
}

impl Clock {
    /// The time, without a look at the store; of this machine, if the store has not said it yet.
    pub(super) fn now(&self) -> Timestamp {
        lock(&self.said).map_or_else(Timestamp::of_this_machine, |(said, at)| said + at.elapsed())
    }

    /// Asks the store, if that was long ago. One request asks; the others go on with what is known.
    pub(super) async fn look(&self, store: &dyn Store) {
        {
            let mut looked_at = lock(&self.looked_at);
            if looked_at.is_some_and(|at| at.elapsed() < FRESH_FOR) {
                return;
            }
            *looked_at = Some(Instant::now());
        }
        if let Ok(Ok(now)) = timeout(WAIT_MAX, store.now()).await {
            *lock(&self.said) = Some((now, Instant::now()));
        }
    }
}
