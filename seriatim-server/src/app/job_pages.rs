//! Pages of jobs in one state, over one queue or all of them.

use std::cmp::Reverse;
use std::collections::{BTreeSet, HashMap};
use std::sync::Arc;

use clap::ValueEnum;
use futures_util::future::try_join_all;
use schemars::JsonSchema;
use serde::Deserialize;
use seriatim::limits::PAGE_BYTES_MAX;
use seriatim::store::Store;
use seriatim::store::{JobFilter, JobOrder, JobQuery, JobState, JobView, Page, QueueStats};

use super::error::{Error, Result};
use super::find;
use super::job_filters::Filters;

/// Queues that are asked for their latest jobs, at most, and at once.
const QUEUES_ASKED_MAX: usize = 100;
const ASKED_AT_ONCE: usize = 10;

/// In which state jobs are listed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, ValueEnum, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
#[schemars(inline)]
pub(crate) enum Status {
    /// Waiting and claimed
    #[default]
    Live,
    Queued,
    /// Running, or prefetched by their node
    #[serde(rename = "running")]
    #[value(alias = "running")]
    Claimed,
    Succeeded,
    /// In the morgue
    Dead,
    #[serde(alias = "cancelled")]
    #[value(alias = "cancelled")]
    Canceled,
}

impl Status {
    fn filter(self) -> JobFilter {
        JobFilter::In(match self {
            Self::Live => return JobFilter::Live,
            Self::Queued => JobState::Queued,
            Self::Claimed => JobState::Running,
            Self::Succeeded => JobState::Succeeded,
            Self::Dead => JobState::Dead,
            Self::Canceled => JobState::Canceled,
        })
    }

    fn order(self, by: By) -> JobOrder {
        match (by, self) {
            (By::Turn, _) => JobOrder::Turn,
            (By::Time, Self::Live | Self::Queued | Self::Claimed) => JobOrder::Arrival,
            (By::Time, Self::Succeeded | Self::Dead | Self::Canceled) => JobOrder::UpdatedAt,
        }
    }

    /// How many jobs of a queue are in it, or more.
    fn count(self, stats: &QueueStats) -> u64 {
        match self {
            Self::Live | Self::Queued | Self::Claimed => stats.jobs,
            Self::Dead => stats.dead,
            Self::Succeeded | Self::Canceled => u64::MAX,
        }
    }
}

/// The order of a page of jobs.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, ValueEnum, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
#[schemars(inline)]
pub(crate) enum By {
    /// By arrival; jobs that have ended newest first
    #[default]
    Time,
    /// As the lane of the key hands them over; needs a queue, a key, and queued or running
    Turn,
}

/// Which jobs.
pub(crate) struct Wanted<'a> {
    pub(crate) queue: Option<&'a str>,
    pub(crate) status: Status,
    pub(crate) by: By,
    pub(crate) filters: Filters<'a>,
    pub(crate) payload_bytes_max: Option<usize>,
    pub(crate) scan_max: usize,
    /// A queue's name, a slash (which no name holds) and the cursor within it.
    pub(crate) after: Option<&'a str>,
    pub(crate) rows_max: usize,
}

/// A page, and where the next one begins.
pub(crate) async fn page(store: &dyn Store, wanted: Wanted<'_>) -> Result<Page<JobView>> {
    let queues = match wanted.queue {
        Some(queue) => vec![find::queue(store, queue).await?],
        None => store.queues().await?,
    };
    let (first, mut after) = match wanted.after.map(|cursor| cursor.split_once('/')) {
        None => ("", None),
        Some(Some((queue, cursor))) => (queue, Some(cursor.to_owned()).filter(|c| !c.is_empty())),
        Some(None) => return Err(Error::Cursor),
    };
    if wanted.queue.is_none() && wanted.by == By::Turn {
        let why = "turns are those of one key of one queue: name the queue".to_owned();
        return Err(Error::Bound { field: "queue", why });
    }
    let names: Vec<Arc<str>> = queues
        .iter()
        .map(|view| view.queue.name.as_str().into())
        .filter(|name: &Arc<str>| **name >= *first)
        .collect();
    // Of several queues, those without such jobs are skipped, and the limit of jobs to read is for all of them
    // together.
    let counts = match wanted.queue {
        None => Some(counts(store, wanted.status).await?),
        Some(_) => None,
    };
    let looks = counts.is_some() && wanted.filters.looks();
    let mut looks_left = wanted.scan_max as u64;
    let of_status = JobQuery {
        order: wanted.status.order(wanted.by),
        payload_bytes_max: wanted.payload_bytes_max,
        ..JobQuery::new("", wanted.status.filter())
    };
    let of_queue = wanted.filters.of(store, of_status).await?;
    let mut rows = Vec::new();
    for (i, name) in names.iter().enumerate() {
        // The cursor belongs to the queue that it names, which may be gone.
        let after = after.take().filter(|_| **name == *first);
        let count = counts.as_ref().map_or(1, |counts| counts.get(name).copied().unwrap_or(0));
        if count == 0 {
            continue;
        }
        let query = JobQuery {
            queue: name.clone(),
            after,
            rows_max: wanted.rows_max - rows.len(),
            scan_max: Some(looks_left as usize),
            ..of_queue.clone()
        };
        let page = store.jobs(query).await?;
        rows.extend(page.rows);
        if let Some(next) = page.next {
            return Ok(Page { rows, next: Some(format!("{name}/{next}")), cut: page.cut });
        }
        let next = || names.get(i + 1).map(|name| format!("{name}/"));
        if rows.len() >= wanted.rows_max || is_full(&rows) {
            return Ok(Page { rows, next: next(), cut: false });
        }
        if looks {
            looks_left = looks_left.saturating_sub(count);
            let next = next().filter(|_| looks_left == 0);
            if next.is_some() {
                return Ok(Page { rows, next, cut: true });
            }
        }
    }
    Ok(Page { rows, next: None, cut: false })
}

/// The latest jobs of each queue, of all together as many as of one.
#[derive(Default)]
pub(crate) struct Latest {
    pub(crate) rows: Vec<JobView>,
    /// Queues that have more.
    pub(crate) more: BTreeSet<Arc<str>>,
    /// Whether not all jobs of a queue were looked at for those that fit.
    pub(crate) cut: bool,
    /// Queues with such jobs that were not asked.
    pub(crate) left_out: usize,
}

/// The latest jobs of the queue that is wanted, or of each that is seen: of the [`QUEUES_ASKED_MAX`] with the most.
pub(crate) async fn latest(
    store: &dyn Store,
    wanted: Wanted<'_>,
    sees: impl Fn(&str) -> bool,
) -> Result<Latest> {
    let is_wanted = |queue: &str| wanted.queue.map_or_else(|| sees(queue), |named| named == queue);
    let counts = counts(store, wanted.status).await?.into_iter();
    let mut queues: Vec<(Arc<str>, u64)> =
        counts.filter(|(queue, count)| *count > 0 && is_wanted(queue)).collect();
    queues.sort_by_key(|(queue, count)| (Reverse(*count), queue.clone()));
    let left_out = queues.len().saturating_sub(QUEUES_ASKED_MAX);
    queues.truncate(QUEUES_ASKED_MAX);
    let shares = queues.len().max(1);
    let of_status = JobQuery {
        order: wanted.status.order(wanted.by),
        payload_bytes_max: wanted.payload_bytes_max,
        rows_max: wanted.rows_max / shares,
        scan_max: Some(wanted.scan_max / shares),
        ..JobQuery::new("", wanted.status.filter())
    };
    let of_each = wanted.filters.of(store, of_status).await?;
    let mut latest = Latest { left_out, ..Latest::default() };
    for some in queues.chunks(ASKED_AT_ONCE) {
        let pages = some.iter().map(|(queue, _)| {
            let query = JobQuery { queue: queue.clone(), ..of_each.clone() };
            store.jobs(query)
        });
        for ((queue, _), page) in some.iter().zip(try_join_all(pages).await?) {
            latest.rows.extend(page.rows);
            latest.cut |= page.cut;
            latest.more.extend(page.next.map(|_| queue.clone()));
        }
    }
    Ok(latest)
}

/// How many jobs in this state each queue has, or more.
async fn counts(store: &dyn Store, status: Status) -> Result<HashMap<Arc<str>, u64>> {
    let stats = store.stats(None).await?;
    Ok(stats.into_iter().map(|stats| (stats.queue.clone(), status.count(&stats))).collect())
}

/// Whether the jobs of a page are as much as a page may hold.
fn is_full(rows: &[JobView]) -> bool {
    rows.iter().map(JobView::bytes).sum::<usize>() >= PAGE_BYTES_MAX
}
