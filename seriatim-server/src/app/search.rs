//! Search: what is found by a text, and what was looked at.

use std::sync::Arc;

use futures_util::future::try_join_all;
use seriatim::Mode;
use seriatim::limits::KEY_BYTES_MAX;
use seriatim::store::{
    JobFilter, JobOrder, JobQuery, JobState, JobView, LaneOrder, LaneQuery, LaneView, QueueStats,
    Store,
};

use super::error::Result;
use super::key;
use super::search_terms::Terms;
use crate::protocol::document;

/// Queues that one search asks; each takes up to five calls. The next page asks others.
const QUEUES_ASKED_MAX: usize = 50;
/// Queues that are asked side by side.
const QUEUES_AT_ONCE: usize = 8;
/// Lanes and jobs that are looked at for each kind, over all queues: a person waits for the answer.
const LOOKED_AT_MAX: usize = 1_000;
/// The same for a search by terms: who narrows it down waits longer.
const LOOKED_AT_BY_TERMS_MAX: usize = 10_000;
/// Waiting and running jobs up to which a queue is looked through for a task that nobody asked for by name: of one with more,
/// the first ones say little, and some stores pass by many others to find them.
pub(crate) const LARGE_JOBS: u64 = 10_000;
/// What is shown of each kind, over all queues.
const FOUND_MAX: usize = 20;

/// What a text may mean.
#[derive(Default)]
pub(crate) struct Found {
    /// Queues that have a key equal to the text.
    pub(crate) exact: Vec<Arc<str>>,
    /// Lanes whose key begins with it.
    pub(crate) lanes: Vec<(Arc<str>, LaneView)>,
    /// Dead jobs whose key begins with it.
    pub(crate) dead: Vec<JobView>,
    /// Jobs of a task of this name: that wait or run, and that are dead. They are looked for only if no key begins so, or
    /// if all is asked for, and in large queues only then: stores have no index of tasks.
    pub(crate) tasks: Vec<JobView>,
    /// Whether they were looked for.
    pub(crate) has_tasks: bool,
    /// Queues that were not looked through for them, because they have more than [`LARGE_JOBS`].
    pub(crate) large: usize,
    /// Queues that were asked.
    pub(crate) queues: usize,
    /// Queues that were not, and come after these.
    pub(crate) left_out: usize,
    /// Jobs of each that were looked at for the task, at most.
    pub(crate) scan_max: usize,
    /// Queues in which the search ended early, or found more than it shows.
    pub(crate) cut: Vec<Cut>,
}

/// A queue that may have more than is shown.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Cut {
    pub(crate) queue: Arc<str>,
    /// Of jobs by terms or task, not by keys.
    pub(crate) by_jobs: bool,
    /// Of what waits or runs.
    pub(crate) is_live: bool,
    /// Of its dead jobs.
    pub(crate) is_dead: bool,
}

impl Found {
    /// As programs get it.
    pub(crate) fn document(self, asked: &Asked) -> document::Search {
        let lane = |(queue, lane)| document::Lane::of_queue(lane, queue);
        let mut cut: Vec<Arc<str>> = self.cut.into_iter().map(|cut| cut.queue).collect();
        cut.dedup();
        document::Search {
            queues: self.exact,
            lanes: self.lanes.into_iter().map(lane).collect(),
            dead: document::Search::jobs(self.dead),
            jobs: document::Search::jobs(self.tasks),
            looked_for_jobs: self.has_tasks,
            searched: self.queues,
            scan_max: self.scan_max,
            cut,
            next: asked.next(),
        }
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.exact.is_empty()
            && self.lanes.is_empty()
            && self.dead.is_empty()
            && self.tasks.is_empty()
    }

    /// What another queue has, as far as there is room.
    fn add(&mut self, mut of: Self) {
        self.exact.extend(of.exact);
        self.exact.dedup();
        let is_over = |found: usize, more: usize| more > FOUND_MAX.saturating_sub(found);
        if let Some(cut) = of.cut.first_mut() {
            let dead = of.tasks.iter().filter(|job| job.state == JobState::Dead).count();
            let has_no_room = is_over(self.tasks.len(), of.tasks.len());
            cut.is_live |= is_over(self.lanes.len(), of.lanes.len());
            cut.is_live |= has_no_room && dead < of.tasks.len();
            cut.is_dead |= is_over(self.dead.len(), of.dead.len()) || has_no_room && dead > 0;
        }
        self.large += of.large;
        self.cut.extend(of.cut.into_iter().filter(|cut| cut.is_live || cut.is_dead));
        self.lanes.extend(of.lanes);
        self.lanes.truncate(FOUND_MAX);
        self.dead.extend(of.dead);
        self.dead.truncate(FOUND_MAX);
        self.tasks.extend(of.tasks);
        self.tasks.truncate(FOUND_MAX);
    }
}

/// Whether one of these queues knows a key that is the text.
pub(crate) async fn is_key(store: &dyn Store, asked: &Asked, text: &str) -> Result<bool> {
    if text.len() > KEY_BYTES_MAX {
        return Ok(false);
    }
    let queues = &asked.queues[..asked.queues.len().min(key::QUEUES_ASKED_MAX)];
    for some in queues.chunks(QUEUES_AT_ONCE) {
        let exact = some.iter().map(|stats| has_key(store, stats, text));
        if try_join_all(exact).await?.contains(&true) {
            return Ok(true);
        }
    }
    Ok(false)
}

async fn has_key(store: &dyn Store, stats: &QueueStats, text: &str) -> Result<bool> {
    let (key, rows_max) = (Some(text.to_owned()), 1);
    if stats.lanes > 0 {
        let query = LaneQuery { key: key.clone(), rows_max, ..LaneQuery::new(stats.queue.clone()) };
        if !store.lanes(query).await?.rows.is_empty() {
            return Ok(true);
        }
    }
    if stats.dead == 0 {
        return Ok(false);
    }
    let of_queue = JobQuery::new(stats.queue.clone(), JobState::Dead);
    let query = JobQuery { key, rows_max, payload_bytes_max: Some(0), ..of_queue };
    Ok(!store.jobs(query).await?.rows.is_empty())
}

/// The queues with jobs, and those of them that this page asks.
pub(crate) struct Asked {
    queues: Vec<QueueStats>,
    from: usize,
}

impl Asked {
    fn here(&self) -> &[QueueStats] {
        &self.queues[self.from..self.to()]
    }

    fn to(&self) -> usize {
        self.queues.len().min(self.from + QUEUES_ASKED_MAX)
    }

    /// The queue behind which the next page begins; none if there is no other.
    pub(crate) fn next(&self) -> Option<Arc<str>> {
        (self.to() < self.queues.len()).then(|| self.here().last().map(|of| of.queue.clone()))?
    }

    /// Before anything is looked at: so many lanes or jobs of each kind at most, over all queues.
    fn nothing(&self, looked_at_max: usize) -> Found {
        let queues = self.here().len();
        Found {
            queues,
            left_out: self.queues.len() - self.to(),
            scan_max: looked_at_max / queues.max(1),
            ..Found::default()
        }
    }
}

/// The queues with jobs for which `may` holds; only the one that the terms name. A search asks some of them, those behind
/// `after`.
pub(crate) async fn asked(
    store: &dyn Store,
    terms: Option<&Terms>,
    after: &str,
    may: impl Fn(&str) -> bool,
) -> Result<Asked> {
    let only = terms.and_then(|terms| terms.queue.as_deref());
    let mut queues = store.stats(None).await?;
    queues.retain(|stats| {
        let is_asked = only.is_none_or(|only| *stats.queue == *only) && may(&stats.queue);
        is_asked && (stats.dead > 0 || stats.jobs > 0)
    });
    queues.sort_by(|a, b| a.queue.cmp(&b.queue));
    Ok(Asked { from: queues.partition_point(|stats| *stats.queue <= *after), queues })
}

/// Searches for jobs by terms, if there are any; else for keys that begin with the text, and tasks.
pub(crate) async fn of_text(
    store: &dyn Store,
    asked: &Asked,
    (text, terms): (&str, Option<&Terms>),
    all: bool,
) -> Result<Found> {
    match terms {
        Some(terms) => by_terms(store, asked, terms).await,
        None => search(store, asked, text, all).await,
    }
}

/// Searches these queues. `all`: also for tasks if keys are found.
async fn search(store: &dyn Store, asked: &Asked, text: &str, all: bool) -> Result<Found> {
    let mut found = asked.nothing(LOOKED_AT_MAX);
    if text.len() > KEY_BYTES_MAX {
        return Ok(found);
    }
    found.add_all(store, asked.here(), &Sought::Keys(text)).await?;
    found.has_tasks = all || found.is_empty();
    if found.has_tasks {
        let task = Terms { task: Some(text.to_owned()), ..Terms::default() };
        let sought = if all { Sought::Jobs(&task) } else { Sought::Task(&task) };
        found.add_all(store, asked.here(), &sought).await?;
    }
    Ok(found)
}

/// Searches the jobs that wait, run or are dead by terms.
async fn by_terms(store: &dyn Store, asked: &Asked, terms: &Terms) -> Result<Found> {
    let mut found = Found { has_tasks: true, ..asked.nothing(LOOKED_AT_BY_TERMS_MAX) };
    found.add_all(store, asked.here(), &Sought::Jobs(terms)).await?;
    Ok(found)
}

/// What is looked for in a queue.
enum Sought<'a> {
    /// Keys that begin so.
    Keys(&'a str),
    Jobs(&'a Terms),
    /// The same, but not among those that wait or run in large queues.
    Task(&'a Terms),
}

impl Found {
    /// Adds what these queues have.
    async fn add_all(
        &mut self,
        store: &dyn Store,
        asked: &[QueueStats],
        sought: &Sought<'_>,
    ) -> Result<()> {
        for some in asked.chunks(QUEUES_AT_ONCE) {
            let each = some.iter().map(|stats| of_queue(store, stats, self.scan_max, sought));
            try_join_all(each).await?.into_iter().for_each(|of| self.add(of));
        }
        self.cut.sort_unstable();
        self.cut.dedup();
        Ok(())
    }
}

async fn of_queue(
    store: &dyn Store,
    stats: &QueueStats,
    scan_max: usize,
    sought: &Sought<'_>,
) -> Result<Found> {
    let queue = &stats.queue;
    let mut found = Found { scan_max, ..Found::default() };
    let (mut is_live, mut is_dead) = (false, false);
    if stats.lanes > 0 {
        is_live = match sought {
            Sought::Task(_) if stats.jobs > LARGE_JOBS => {
                found.large = 1;
                true
            }
            Sought::Keys(_) if stats.mode == Some(Mode::Parallel) => false,
            Sought::Keys(text) => lanes(store, queue, text, &mut found).await?,
            Sought::Jobs(terms) | Sought::Task(terms) => {
                jobs(store, queue, JobFilter::Live, terms, &mut found).await?
            }
        };
    }
    if stats.dead > 0 {
        is_dead = match sought {
            Sought::Keys(text) => dead(store, queue, text, &mut found).await?,
            Sought::Jobs(terms) | Sought::Task(terms) => {
                jobs(store, queue, JobState::Dead.into(), terms, &mut found).await?
            }
        };
    }
    let by_jobs = !matches!(sought, Sought::Keys(_));
    found.cut.push(Cut { queue: queue.clone(), by_jobs, is_live, is_dead });
    Ok(found)
}

async fn lanes(store: &dyn Store, queue: &Arc<str>, text: &str, found: &mut Found) -> Result<bool> {
    let query = LaneQuery {
        prefix: Some(text.to_owned()),
        order: LaneOrder::Key,
        rows_max: FOUND_MAX,
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

async fn dead(store: &dyn Store, queue: &Arc<str>, text: &str, found: &mut Found) -> Result<bool> {
    let query = JobQuery {
        prefix: Some(text.to_owned()),
        order: JobOrder::Key,
        rows_max: FOUND_MAX,
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

async fn jobs(
    store: &dyn Store,
    queue: &Arc<str>,
    filter: JobFilter,
    terms: &Terms,
    found: &mut Found,
) -> Result<bool> {
    let query = JobQuery {
        order: match filter {
            JobFilter::Live => JobOrder::Arrival,
            JobFilter::In(_) => JobOrder::UpdatedAt,
        },
        rows_max: FOUND_MAX,
        payload_bytes_max: Some(0),
        scan_max: Some(found.scan_max),
        ..JobQuery::new(queue.clone(), filter)
    };
    let page = store.jobs(terms.of(query)).await?;
    found.tasks.extend(page.rows);
    Ok(page.next.is_some())
}

#[cfg(test)]
mod tests {
    use seriatim::Job;
    use seriatim::store::{Memory, Producer, Push};

    use super::*;

    async fn push(store: &Memory, queue: &str, jobs: u64) {
        let job = |tag: u64| Job::new(queue, &tag).unwrap().task("ship");
        store.push(Push { now: None, jobs: (0..jobs).map(job).collect() }).await.unwrap();
    }

    #[tokio::test]
    async fn a_large_queue_is_looked_through_for_a_task_only_if_all_is_asked_for() {
        let store = Memory::new();
        push(&store, "large", LARGE_JOBS).await;
        push(&store, "small", 2).await;
        let found = async |all| {
            let asked = asked(&store, None, "", |_| true).await.unwrap();
            let found = of_text(&store, &asked, ("ship", None), all).await.unwrap();
            let mut of: Vec<String> = found.tasks.iter().map(|job| job.queue.to_string()).collect();
            of.dedup();
            let cut: Vec<String> = found.cut.iter().map(|cut| cut.queue.to_string()).collect();
            (of.join(" "), cut.join(" "), found.large)
        };
        let is = |of: &str, cut: &str, large| (of.to_owned(), cut.to_owned(), large);
        assert_eq!(found(false).await, is("large", "large small", 0), "20 of a kind are shown");
        push(&store, "large", 1).await;
        assert_eq!(found(false).await, is("small", "large", 1));
        assert_eq!(found(true).await.0, "large");
    }
}
