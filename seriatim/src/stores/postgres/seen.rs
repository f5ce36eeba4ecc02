//! What jobs need in the store before they can be pushed: their queues and routes. The push does not make them, as it may wait for
//! lanes, and a user's transaction may be open for long: until the end, a new queue keeps others from making and changing queues, and
//! a new route all pushes to the same node and consumer group.

use std::collections::HashSet;
use std::hash::Hash;
use std::sync::Mutex;

use super::Postgres;
use super::pool::Pool;
use super::push::{PushBatch, push_error};
use crate::lock::lock;
use crate::model::limits::QUEUES_MAX;
use crate::model::{Job, Result};

/// None is made if one of the jobs could not be pushed to its queue whatever that holds.
const MAKE_QUEUES: &str = "SELECT seriatim.check_jobs(ARRAY(SELECT q.numbers[j.place] \
     FROM unnest($2) WITH ORDINALITY j (place, nth) ORDER BY j.nth), $3, $4, $5) \
     FROM (SELECT seriatim.queues_for($1::text::jsonb) AS numbers OFFSET 0) q";
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
    /// Queues that were declared.
    pub(super) fn learn<'a>(&self, queues: impl Iterator<Item = &'a str>) {
        add(&self.queues, queues.map(str::to_owned));
    }

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
    pub(super) async fn make_room(
        &self,
        pool: &Pool,
        batch: &PushBatch<'_>,
        jobs: &[Job],
    ) -> Result<()> {
        if !self.seen.has_queues_of(jobs) {
            let refused = |e| push_error(e, jobs);
            pool.query_or(MAKE_QUEUES, &batch.params_of_queues(), refused).await?;
            add(&self.seen.queues, jobs.iter().map(|job| job.queue.clone()));
        }
        if !self.seen.has_routes_of(jobs) {
            pool.query(MAKE_ROUTES, &batch.params_of_routes()).await?;
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
