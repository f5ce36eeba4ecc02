//! Queues that pushes make: the server tells of them, and refuses them if it is told to.

use std::collections::HashMap;
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

use seriatim::store::declare_each;
use seriatim::{Queue, Store};

use super::problem::Problem;

/// For so long a queue that was there is taken to be there still: a store may be emptied.
const KNOWN_FOR: Duration = Duration::from_secs(10);

/// The queues that this server knows.
#[derive(Default)]
pub(super) struct Queues {
    /// As the configuration declares them.
    declared: Vec<Queue>,
    /// Whether pushes make no others.
    refuses_implied: bool,
    /// Others that were in the store, and when.
    seen: Mutex<HashMap<String, Instant>>,
}

impl Queues {
    pub(super) fn new(declared: Vec<Queue>, implied: bool) -> Self {
        Self { declared, refuses_implied: !implied, seen: Mutex::default() }
    }

    pub(super) fn declares(&self, name: &str) -> bool {
        self.declared.iter().any(|queue| queue.name == name)
    }

    /// Declares one of the configuration's queues again, which the store lost or a push made. True if it
    /// stands now.
    pub(super) async fn restore(&self, store: &dyn Store, name: &str) -> Result<bool, Problem> {
        let Some(queue) = self.declared.iter().find(|queue| queue.name == name) else {
            return Ok(false);
        };
        store.migrate().await?;
        let undeclared = declare_each(store, std::slice::from_ref(queue), true).await?;
        Ok(undeclared.is_empty())
    }

    /// Whether a push makes this queue. Refuses it where pushes make none.
    pub(super) async fn makes(&self, store: &dyn Store, name: &str) -> Result<bool, Problem> {
        let is_known = |seen: &HashMap<String, Instant>| {
            seen.get(name).is_some_and(|at| at.elapsed() < KNOWN_FOR)
        };
        if self.declares(name) || is_known(&self.lock()) {
            return Ok(false);
        }
        let views = store.queues().await?;
        if views.iter().any(|view| view.queue.name == name) {
            let now = Instant::now();
            let names = views.into_iter().map(|view| (view.queue.name, now));
            *self.lock() = names.collect();
            return Ok(false);
        }
        if !self.refuses_implied {
            return Ok(true);
        }
        let stored = views.iter().map(|view| view.queue.name.as_str());
        let known = stored.chain(self.declared.iter().map(|queue| queue.name.as_str()));
        let near = seriatim::names::did_you_mean(name, known);
        Err(Problem::missing(format!(
            "there is no queue {name:?}{near}, and this server lets no push make one (http.implied_queues): declare it first"
        ))
        .about("queue"))
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, HashMap<String, Instant>> {
        self.seen.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
