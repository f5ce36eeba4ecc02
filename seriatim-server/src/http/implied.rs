//! Queues that pushes create: the server reports them, and limits their number.

use std::collections::{HashMap, HashSet};
use std::sync::Mutex;
use std::time::Instant;

use seriatim::store::{QueueView, declare_each};
use seriatim::{Queue, store::Store};

use super::problem::{Problem, Result};
use super::seen::{KNOWN_FOR, Seen};

use crate::base::lock::lock;

/// The queues that this server knows.
#[derive(Default)]
pub(super) struct Queues {
    /// As the configuration declares them.
    declared: Vec<Queue>,
    /// Most other queues that only a push created.
    implied_max: usize,
    /// All that were in the store a moment ago.
    pub(super) seen: Seen,
    /// Those that pushes are making, and since when: the store may not have them yet.
    making: Mutex<HashMap<String, Instant>>,
}

impl Queues {
    pub(super) fn new(declared: Vec<Queue>, implied_max: usize) -> Self {
        Self { declared, implied_max, seen: Seen::default(), making: Mutex::default() }
    }

    pub(super) fn declared(&self) -> &[Queue] {
        &self.declared
    }

    pub(super) fn declares(&self, name: &str) -> bool {
        self.declared.iter().any(|queue| queue.name == name)
    }

    /// Declares one of the configuration's queues again, which the store lost or a push made. True if it
    /// stands now.
    pub(super) async fn restore(&self, store: &dyn Store, name: &str) -> Result<bool> {
        let Some(queue) = self.declared.iter().find(|queue| queue.name == name) else {
            return Ok(false);
        };
        store.migrate().await?;
        let undeclared = declare_each(store, std::slice::from_ref(queue), true).await?;
        Ok(undeclared.is_empty())
    }

    /// Whether a push makes this queue. Refuses it where pushes may make no more.
    pub(super) async fn makes(&self, store: &dyn Store, name: &str) -> Result<bool> {
        let seen = self.seen.recent();
        if self.declares(name) || seen.is_some_and(|known| known.named(name).is_some()) {
            return Ok(false);
        }
        let known = self.seen.read(store).await?;
        if known.named(name).is_some() {
            return Ok(false);
        }
        let views = &known.views;
        if self.may_make(views, name) {
            return Ok(true);
        }
        let stored = views.iter().map(|view| view.queue.name.as_str());
        let known = stored.chain(self.declared.iter().map(|queue| queue.name.as_str()));
        let near = seriatim::names::did_you_mean(name, known);
        let declare = "declare it first, in the configuration or with PUT /api/v1/queues/{queue}";
        let problem = match self.implied_max {
            0 => Problem::missing(format!(
                "no queue {name:?}{near}, and pushes to this server cannot create queues (http.implied_queues): {declare}"
            )),
            most => Problem::conflict(format!(
                "no queue {name:?}{near}, and pushes have already created {most} queues, the limit of this server \
                 (http.implied_queues): {declare}, or delete unused queues"
            )),
        };
        Err(problem.about("queue"))
    }

    /// Whether there is room for one more undeclared queue.
    fn may_make(&self, views: &[QueueView], name: &str) -> bool {
        let mut making = lock(&self.making);
        let declared: HashSet<&String> =
            views.iter().filter(|view| view.declared).map(|view| &view.queue.name).collect();
        making.retain(|name, since| since.elapsed() < KNOWN_FOR && !declared.contains(name));
        let stored = views.iter().filter(|view| !view.declared).map(|view| &view.queue.name);
        let implied: HashSet<&String> = stored.chain(making.keys()).collect();
        let fits = implied.iter().any(|other| *other == name) || implied.len() < self.implied_max;
        if fits {
            making.insert(name.to_owned(), Instant::now());
        }
        fits
    }

    /// A queue was deleted: its name means none from here on.
    pub(super) fn forget(&self, name: &str) {
        self.seen.forget();
        lock(&self.making).remove(name);
    }
}
