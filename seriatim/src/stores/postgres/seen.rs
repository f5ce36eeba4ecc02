//! What jobs need in the store before they can be pushed: their queues and routes. A user's transaction does not make them: until
//! its end, a queue would keep others from making and changing queues, and a route all pushes to the same node and consumer group.

use std::collections::HashSet;
use std::hash::Hash;
use std::sync::Mutex;

use super::Postgres;
use super::push::{PushBatch, push_error};
use crate::lock::lock;
use crate::model::limits::QUEUES_MAX;
use crate::model::{Job, Result};

const MAKE_QUEUES: &str = "SELECT seriatim.queues_for($1::text::jsonb)";
const MAKE_ROUTES: &str = "SELECT seriatim.routes_for($1, $2)";

/// Queues and routes that this process knows to exist.
#[derive(Default)]
pub(super) struct Seen {
    queues: Mutex<HashSet<String>>,
    routes: Mutex<HashSet<Route>>,
}

/// A node and a consumer group.
type Route = (Option<String>, Option<String>);

impl Seen {
    fn has_queues_of(&self, jobs: &[Job]) -> bool {
        let queues = lock(&self.queues);
        jobs.iter().all(|job| queues.contains(&*job.queue))
    }

    fn has_routes_of(&self, jobs: &[Job]) -> bool {
        let routes = lock(&self.routes);
        jobs.iter().filter_map(route_of).all(|route| routes.contains(&route))
    }
}

impl Postgres {
    /// Makes the queues and routes of a batch that this process has not seen yet, each in a transaction of its own.
    pub(super) async fn make_room(&self, batch: &PushBatch<'_>, jobs: &[Job]) -> Result<()> {
        if !self.seen.has_queues_of(jobs) {
            self.pool.query_or(MAKE_QUEUES, &[&batch.policies], |e| push_error(e, jobs)).await?;
            add(&self.seen.queues, jobs.iter().map(|job| job.queue.clone()));
        }
        if !self.seen.has_routes_of(jobs) {
            self.pool.query(MAKE_ROUTES, &[&batch.node, &batch.consumer_group]).await?;
            add(&self.seen.routes, jobs.iter().filter_map(route_of));
        }
        Ok(())
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
