//! Checks, in every case, that a store which says that it loses no wake-up rings for each queue that becomes due sooner.

use std::collections::BTreeMap;
use std::future::Future;
use std::sync::Arc;
use std::time::Duration;

use seriatim::store::{GiveUp, QueueDue, Wakeups, Wrapper};
use seriatim::{Result, SharedStore, Timestamp};
use tokio::sync::Mutex;

/// Operations that change nothing, and the last one.
const SILENT: [&str; 18] = [
    "now",
    "check",
    "secret",
    "close",
    "queues",
    "stats",
    "due",
    "lanes",
    "jobs",
    "job",
    "turn",
    "nodes",
    "vitals",
    "batch",
    "batches",
    "inbox",
    "read_notes",
    "named_notes",
];

/// A store, and what an engine on it knows.
pub(super) struct Witness {
    inner: SharedStore,
    heard: Mutex<Heard>,
}

struct Heard {
    wakeups: Wakeups,
    /// When each queue is due.
    due: BTreeMap<Arc<str>, Option<Timestamp>>,
}

impl Witness {
    /// The store itself, if it may lose wake-ups.
    pub(super) fn of(store: SharedStore) -> SharedStore {
        let wakeups = store.wakeups();
        if !wakeups.are_certain() {
            return store;
        }
        let heard = Mutex::new(Heard { wakeups, due: BTreeMap::new() });
        Arc::new(Self { inner: store, heard })
    }

    /// Without its tables, a store has no queues.
    async fn due(&self) -> Vec<QueueDue> {
        let Ok(queues) = self.inner.queues().await else { return Vec::new() };
        let names = queues.into_iter().map(|view| view.queue.name.into()).collect();
        self.inner.due(names).await.expect("a store says when its queues are due")
    }

    async fn hear(&self, heard: &mut Heard, operation: &str) {
        // A store may ring after it has answered, but before it answers the next write.
        let nothing = GiveUp { node: "nobody".into(), ticket: 0, queue: None };
        let _ = self.inner.give_up(nothing).await;
        let wake = heard.wakeups.wait(Duration::ZERO).await;
        let due = self.due().await.into_iter().map(|of| (of.queue, of.due)).collect();
        let before = std::mem::replace(&mut heard.due, due);
        for (queue, due) in &heard.due {
            let known = before.get(queue).copied().flatten();
            let is_sooner = due.is_some_and(|due| known.is_none_or(|known| due < known));
            let is_told = wake.as_ref().is_some_and(|wake| wake.names(queue));
            assert!(
                !is_sooner || is_told,
                "{operation}: queue {queue} is due at {due:?}, before at {known:?}, and nobody was woken"
            );
        }
    }
}

impl Wrapper for Witness {
    fn inner(&self) -> &SharedStore {
        &self.inner
    }

    async fn around<T: Send + 'static>(
        &self,
        operation: &'static str,
        call: impl Future<Output = Result<T>> + Send + 'static,
    ) -> Result<T> {
        if SILENT.contains(&operation) {
            return call.await;
        }
        let mut heard = self.heard.lock().await;
        let answer = call.await;
        self.hear(&mut heard, operation).await;
        answer
    }
}
