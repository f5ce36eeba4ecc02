//! Wake-ups between processes: while there are listeners, one task polls when lanes of all queues are due.

use std::collections::HashMap;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use tokio::task::JoinHandle;
use tokio::time::Instant;

use super::Inner;
use super::work::Lock;
use crate::contract::{QueueDue, Wake};
use crate::lock::lock;
use crate::model::clock::Timestamp;
use crate::model::error::Result;

/// Time to the next poll after a change was found.
const POLL_MIN: Duration = Duration::from_millis(20);
/// Longest time between polls while nothing changes.
const POLL_MAX: Duration = Duration::from_millis(200);
/// The pause is at least so many times as long as the poll took, so that many queues do not keep the server busy…
const POLL_SHARE: u32 = 20;
/// …up to this.
const POLL_REST_MAX: Duration = Duration::from_secs(1);

/// The polling task. It ends with the store.
#[derive(Default)]
pub(super) struct Poll(Mutex<Option<JoinHandle<()>>>);

impl Poll {
    /// Starts polling, unless it is running.
    pub(super) fn start(&self, store: &Arc<Inner>) {
        let Ok(runtime) = tokio::runtime::Handle::try_current() else { return };
        let mut task = lock(&self.0);
        if task.as_ref().is_none_or(JoinHandle::is_finished) {
            *task = Some(runtime.spawn(ask(Arc::downgrade(store))));
        }
    }

    pub(super) fn stop(&self) {
        if let Some(task) = lock(&self.0).take() {
            task.abort();
        }
    }
}

async fn due_now(store: &Inner) -> Result<Vec<QueueDue>> {
    transact!(store, Lock::Look, None, work => super::due::due(work, &[]))
}

/// Rings if a lane is due that was not, or earlier. Polls less often while nothing changes.
async fn ask(store: std::sync::Weak<Inner>) {
    let mut pause = POLL_MIN;
    let mut known: HashMap<Arc<str>, Option<Timestamp>> = HashMap::new();
    loop {
        tokio::time::sleep(pause).await;
        let Some(store) = store.upgrade().filter(|store| store.bell.has_listeners()) else {
            return;
        };
        let asked_at = Instant::now();
        // A server that does not answer is asked again.
        let Ok(dues) = due_now(&store).await else {
            pause = POLL_MAX;
            continue;
        };
        let took = asked_at.elapsed();
        let found: HashMap<_, _> =
            dues.into_iter().map(|source| (source.queue, source.due)).collect();
        let is_news = |queue: &Arc<str>, due: Option<Timestamp>| {
            due.is_some() && known.get(queue).copied().flatten() != due
        };
        let news = found.iter().filter(|(queue, due)| is_news(queue, **due));
        let wake = Wake::of(news.map(|(queue, _)| &**queue));
        pause = if wake.is_empty() { (pause * 2).min(POLL_MAX) } else { POLL_MIN };
        pause = pause.max((took * POLL_SHARE).min(POLL_REST_MAX));
        store.bell.ring(&wake);
        known = found;
    }
}
