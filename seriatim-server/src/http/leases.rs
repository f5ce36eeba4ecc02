//! The longest lease that each queue allows, told before a claim or heartbeat that asks for more.

use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use seriatim::Store;
use seriatim::store::QueueView;

use super::problem::Problem;

/// For so long what was read of the queues is taken to hold; the store refuses or cuts what it does not allow.
const KNOWN_FOR: Duration = Duration::from_secs(10);

/// What the queues allow, and when it was read.
#[derive(Default)]
pub(super) struct Leases(Mutex<Option<(Instant, Arc<Vec<QueueView>>)>>);

impl Leases {
    /// Refuses a lease that is longer than one of the queues meant allows.
    pub(super) async fn check(
        &self,
        store: &dyn Store,
        lease: Duration,
        is_meant: impl Fn(&QueueView) -> bool + Send,
    ) -> Result<(), Problem> {
        let queues = self.known(store).await?;
        let refusal = |view: &QueueView| view.queue.check_lease(lease).err();
        match queues.iter().filter(|view| is_meant(view)).find_map(refusal) {
            Some(error) => Err(Self::refusal(&error)),
            None => Ok(()),
        }
    }

    /// The store's refusal of a lease, in the words of the API.
    pub(super) fn refusal(error: &seriatim::Error) -> Problem {
        Problem::invalid("lease_ttl_sec", error.message().to_owned())
    }

    async fn known(&self, store: &dyn Store) -> Result<Arc<Vec<QueueView>>, Problem> {
        let read = |known: &Option<(Instant, Arc<Vec<QueueView>>)>| match known {
            Some((at, queues)) if at.elapsed() < KNOWN_FOR => Some(queues.clone()),
            _ => None,
        };
        if let Some(queues) = read(&self.0.lock().unwrap_or_else(PoisonError::into_inner)) {
            return Ok(queues);
        }
        let queues = Arc::new(store.queues().await?);
        let mut known = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        *known = Some((Instant::now(), queues.clone()));
        Ok(queues)
    }
}
