//! What jobs need in the store before they can be pushed: their queues and routes. The push does not make them, as it may wait for
//! lanes, and a user's transaction may be open for long: until the end, a new queue keeps others from making and changing queues, and
//! a new route all pushes to the same node and consumer group.

use std::collections::HashSet;
use std::hash::Hash;
use std::sync::Mutex;

use crate::lock::lock;
use crate::model::Job;
use crate::model::limits::QUEUES_MAX;

/// Queues and routes that this process knows to exist.
#[derive(Default)]
pub(super) struct Seen {
    queues: Mutex<HashSet<String>>,
    routes: Mutex<HashSet<Route>>,
}

/// A node and a consumer group.
type Route = (Option<String>, Option<String>);

impl Seen {
    /// Queues that were declared.
    pub(super) fn learn<'a>(&self, queues: impl Iterator<Item = &'a str>) {
        add(&self.queues, queues.map(str::to_owned));
    }

    /// One of them was deleted.
    pub(super) fn forget(&self) {
        lock(&self.queues).clear();
        lock(&self.routes).clear();
    }

    pub(super) fn has_queues_of(&self, jobs: &[Job]) -> bool {
        let queues = lock(&self.queues);
        jobs.iter().all(|job| queues.contains(&*job.queue))
    }

    pub(super) fn learn_routes_of(&self, jobs: &[Job]) {
        add(&self.routes, jobs.iter().filter_map(route_of));
    }

    pub(super) fn has_routes_of(&self, jobs: &[Job]) -> bool {
        let routes = lock(&self.routes);
        jobs.iter().filter_map(route_of).all(|route| routes.contains(&route))
    }
}

/// None: the job may run anywhere.
fn route_of(job: &Job) -> Option<Route> {
    let (node, group) = (&job.options.node, &job.options.consumer_group);
    (node.is_some() || group.is_some()).then(|| (node.clone(), group.clone()))
}

fn add<T: Eq + Hash>(known: &Mutex<HashSet<T>>, more: impl Iterator<Item = T>) {
    let mut known = lock(known);
    if known.len() >= QUEUES_MAX as usize {
        known.clear();
    }
    known.extend(more);
}
