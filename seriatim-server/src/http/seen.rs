//! The store's queues as of a moment ago, for requests that need them and do not read them each time.

use std::collections::HashMap;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use seriatim::store::QueueView;
use seriatim::store::Store;

use super::problem::{Problem, Result};

use crate::base::lock::lock;

/// How long they are used: a store may be emptied, and other servers change it.
pub(super) const KNOWN_FOR: Duration = Duration::from_secs(10);

/// The queues, as they were read last.
#[derive(Default)]
pub(super) struct Seen(Mutex<Option<(Instant, Arc<Known>)>>);

/// The queues at one moment, by name and by number.
pub(super) struct Known {
    pub(super) views: Vec<QueueView>,
    names: HashMap<String, usize>,
    numbers: HashMap<u32, usize>,
}

impl Seen {
    /// Those read within [`KNOWN_FOR`].
    pub(super) fn recent(&self) -> Option<Arc<Known>> {
        let last = lock(&self.0);
        let (at, known) = last.as_ref()?;
        (at.elapsed() < KNOWN_FOR).then(|| known.clone())
    }

    /// Reads them from the store.
    pub(super) async fn read(&self, store: &dyn Store) -> Result<Arc<Known>> {
        let known = Arc::new(Known::new(store.queues().await?));
        *lock(&self.0) = Some((Instant::now(), known.clone()));
        Ok(known)
    }

    /// Those read a moment ago, or else those of the store now.
    pub(super) async fn known(&self, store: &dyn Store) -> Result<Arc<Known>> {
        match self.recent() {
            Some(known) => Ok(known),
            None => self.read(store).await,
        }
    }

    /// The same, and those of the store now if one of these numbers was not read.
    pub(super) async fn with(
        &self,
        store: &dyn Store,
        mut numbers: impl Iterator<Item = u32>,
    ) -> Result<Arc<Known>> {
        match self.recent() {
            Some(known) if numbers.all(|number| known.numbered(number).is_some()) => Ok(known),
            _ => self.read(store).await,
        }
    }

    /// This server changed what there is.
    pub(super) fn forget(&self) {
        *lock(&self.0) = None;
    }
}

impl Known {
    fn new(views: Vec<QueueView>) -> Self {
        let names = views.iter().enumerate().map(|(i, view)| (view.queue.name.clone(), i));
        let numbers = views.iter().enumerate().map(|(i, view)| (view.number, i));
        Self { names: names.collect(), numbers: numbers.collect(), views }
    }

    pub(super) fn named(&self, name: &str) -> Option<&QueueView> {
        self.names.get(name).map(|i| &self.views[*i])
    }

    pub(super) fn numbered(&self, number: u32) -> Option<&QueueView> {
        self.numbers.get(&number).map(|i| &self.views[*i])
    }
}

/// Refuses a lease that is longer than one of these queues allows. The store refuses or cuts it too: this
/// refuses it before anything is done.
pub(super) fn check_lease<'a>(
    lease: Duration,
    mut queues: impl Iterator<Item = &'a QueueView>,
) -> Result<()> {
    let refusal = queues.find_map(|view| view.queue.check_lease(lease).err());
    refusal.map_or(Ok(()), |error| Err(lease_refused(&error)))
}

/// The store's refusal of a lease, in the words of the API.
pub(super) fn lease_refused(error: &seriatim::Error) -> Problem {
    Problem::invalid("lease_ttl_sec", error.message().to_owned())
}
