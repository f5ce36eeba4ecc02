//! Search: what is found by a text, and what was looked at.

use std::sync::Arc;

use seriatim::limits::KEY_BYTES_MAX;
use seriatim::store::{
    JobFilter, JobOrder, JobQuery, JobState, JobView, LaneOrder, LaneQuery, LaneView, Store,
};

use super::error::Error;

/// Queues that are asked; each takes up to five calls.
const QUEUES_ASKED_MAX: usize = 50;
/// Lanes and jobs that are looked at for each kind, over all queues: a person waits for the answer.
const LOOKED_AT_MAX: usize = 1_000;
/// What is shown of each kind, over all queues.
const FOUND_MAX: usize = 20;

/// What a text may mean.
#[derive(Default)]
pub(crate) struct Found {
    /// Queues that know a key that is the text.
    pub(crate) exact: Vec<Arc<str>>,
    /// Lanes whose key begins with it.
    pub(crate) lanes: Vec<(Arc<str>, LaneView)>,
    /// Dead jobs whose key begins with it.
    pub(crate) dead: Vec<JobView>,
    /// Jobs of a task of this name: that wait or run, and that are dead.
    pub(crate) tasks: Vec<JobView>,
    /// Queues that were asked.
    pub(crate) queues: usize,
    /// Queues that were not.
    pub(crate) left_out: usize,
    /// Jobs of each that were looked at for the task, at most.
    pub(crate) scan_max: usize,
    /// Queues of which only so many were looked at, or of which more was found.
    pub(crate) cut: Vec<Arc<str>>,
}

impl Found {
    pub(crate) fn is_empty(&self) -> bool {
        self.exact.is_empty()
            && self.lanes.is_empty()
            && self.dead.is_empty()
            && self.tasks.is_empty()
    }
}

/// Searches the queues for which `may` holds.
pub(crate) async fn search(
    store: &dyn Store,
    text: &str,
    may: impl Fn(&str) -> bool,
) -> Result<Found, Error> {
    let mut found = Found::default();
    let stats = store.stats(None).await?;
    let has_some = |dead, jobs| dead > 0 || jobs > 0;
    let asked: Vec<_> = stats
        .iter()
        .filter(|stats| has_some(stats.dead, stats.jobs) && may(&stats.queue))
        .collect();
    found.queues = asked.len().min(QUEUES_ASKED_MAX);
    found.left_out = asked.len() - found.queues;
    found.scan_max = LOOKED_AT_MAX / found.queues.max(1);
    if text.len() > KEY_BYTES_MAX {
        return Ok(found);
    }
    for stats in asked.into_iter().take(QUEUES_ASKED_MAX) {
        let queue = &stats.queue;
        let mut is_cut = false;
        if stats.lanes > 0 {
            is_cut |= lanes(store, queue, text, &mut found).await?;
            is_cut |= tasks(store, queue, JobFilter::Live, text, &mut found).await?;
        }
        if stats.dead > 0 {
            is_cut |= dead(store, queue, text, &mut found).await?;
            is_cut |= tasks(store, queue, JobState::Dead.into(), text, &mut found).await?;
        }
        if is_cut {
            found.cut.push(queue.clone());
        }
    }
    found.exact.dedup();
    Ok(found)
}

async fn lanes(
    store: &dyn Store,
    queue: &Arc<str>,
    text: &str,
    found: &mut Found,
) -> Result<bool, Error> {
    let query = LaneQuery {
        prefix: Some(text.to_owned()),
        order: LaneOrder::Key,
        rows_max: FOUND_MAX - found.lanes.len().min(FOUND_MAX - 1),
        scan_max: Some(found.scan_max),
        ..LaneQuery::new(queue.clone())
    };
    let page = store.lanes(query).await?;
    let keyed = page.rows.into_iter().filter(|lane| lane.key.is_some());
    let keyed: Vec<LaneView> = keyed.collect();
    // In the order of keys, that which is the text comes first.
    let is_exact = keyed.first().is_some_and(|lane| lane.key.as_deref() == Some(text));
    found.exact.extend(is_exact.then(|| queue.clone()));
    found.lanes.extend(keyed.into_iter().map(|lane| (queue.clone(), lane)));
    Ok(page.next.is_some())
}

async fn dead(
    store: &dyn Store,
    queue: &Arc<str>,
    text: &str,
    found: &mut Found,
) -> Result<bool, Error> {
    let query = JobQuery {
        prefix: Some(text.to_owned()),
        order: JobOrder::Key,
        rows_max: FOUND_MAX - found.dead.len().min(FOUND_MAX - 1),
        payload_bytes_max: Some(0),
        scan_max: Some(found.scan_max),
        ..JobQuery::new(queue.clone(), JobState::Dead)
    };
    let page = store.jobs(query).await?;
    let is_exact = page.rows.iter().any(|job| job.key.as_deref() == Some(text));
    found.exact.extend(is_exact.then(|| queue.clone()));
    found.dead.extend(page.rows);
    Ok(page.next.is_some())
}

async fn tasks(
    store: &dyn Store,
    queue: &Arc<str>,
    filter: JobFilter,
    text: &str,
    found: &mut Found,
) -> Result<bool, Error> {
    let query = JobQuery {
        task: Some(text.to_owned()),
        order: match filter {
            JobFilter::Live => JobOrder::Arrival,
            JobFilter::In(_) => JobOrder::UpdatedAt,
        },
        rows_max: FOUND_MAX - found.tasks.len().min(FOUND_MAX - 1),
        payload_bytes_max: Some(0),
        scan_max: Some(found.scan_max),
        ..JobQuery::new(queue.clone(), filter)
    };
    let page = store.jobs(query).await?;
    found.tasks.extend(page.rows);
    Ok(page.next.is_some())
}
