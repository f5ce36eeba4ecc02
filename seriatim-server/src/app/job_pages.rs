//! Pages of jobs in one state, over one queue or all of them.

use std::cmp::Reverse;
use std::collections::{BTreeSet, HashMap};
use std::sync::Arc;

use clap::ValueEnum;
use futures_util::future::try_join_all;
use futures_util::{FutureExt, TryFutureExt};
use schemars::JsonSchema;
use serde::Deserialize;
use seriatim::limits::PAGE_BYTES_MAX;
use seriatim::store::Store;
use seriatim::store::{JobFilter, JobOrder, JobQuery, JobState, JobView, Page, QueueStats};
use seriatim::{JobId, Timestamp};

use super::error::{Error, Result};
use super::find;
use super::job_filters::{Filters, TABLE_PAYLOAD_BYTES_MAX};
use super::merged::{self, Place, QUEUES_MERGED_MAX, Rows, Source, Start};

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

    /// Whether stores list them by time without reading all that a queue keeps.
    fn is_by_time(self, store: &dyn Store) -> bool {
        match self {
            Self::Live | Self::Queued | Self::Claimed => false,
            Self::Dead => true,
            Self::Succeeded | Self::Canceled => store.capabilities().finished_by_time,
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
    /// A queue's name, a slash and the cursor within it. Where several queues are listed by time, a [`Place`].
    pub(crate) after: Option<&'a str>,
    pub(crate) rows_max: usize,
}

/// A page of jobs.
#[derive(Default)]
pub(crate) struct Listed {
    pub(crate) page: Page<JobView>,
    /// Whether jobs of several queues come queue by queue, in the order of their names.
    pub(crate) is_by_queue: bool,
}

/// A page, and where the next one begins. Ended jobs of several queues come by time, unless these are too many, or the store looks for
/// them one by one.
pub(crate) async fn page(store: &dyn Store, wanted: Wanted<'_>) -> Result<Listed> {
    if wanted.queue.is_none() && wanted.by == By::Turn {
        let why = "turns are those of one key of one queue: name the queue".to_owned();
        return Err(Error::Bound { field: "queue", why });
    }
    let place = wanted.after.filter(|after| Place::<JobId>::is_in(after));
    let place = place.map(Place::read).transpose()?;
    if wanted.queue.is_none() && wanted.status.is_by_time(store) && !wanted.filters.seeks() {
        let counts = counts(store, wanted.status).await?.into_iter();
        let queues: Vec<Arc<str>> =
            counts.filter(|(_, count)| *count > 0).map(|(queue, _)| queue).collect();
        // Who has begun so goes on so.
        if place.is_some() || wanted.after.is_none() && queues.len() <= QUEUES_MERGED_MAX {
            let page = newest(store, &wanted, queues, place).await?;
            return Ok(Listed { page, is_by_queue: false });
        }
    } else if place.is_some() {
        return Err(Error::Cursor);
    }
    let is_by_queue = wanted.queue.is_none();
    Ok(Listed { page: by_queue(store, wanted).await?, is_by_queue })
}

/// A page of the jobs of one queue, or of all, queue by queue.
async fn by_queue(store: &dyn Store, wanted: Wanted<'_>) -> Result<Page<JobView>> {
    let queues = match wanted.queue {
        Some(queue) => vec![find::queue(store, queue).await?],
        None => store.queues().await?,
    };
    let (first, mut after) = merged::in_queue(wanted.after)?;
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
        let found = store.jobs(query).await.map_err(Error::from);
        let page = if counts.is_some() { merged::or_gone(found)? } else { found? };
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

/// The jobs of several queues that have ended, the last first.
struct Ended<'a> {
    store: &'a dyn Store,
    of_queue: JobQuery,
}

impl Rows for Ended<'_> {
    type Row = JobView;
    type Id = JobId;

    fn at(&self, job: &JobView) -> i64 {
        job.finished_at.map_or(0, |at| -at.as_micros())
    }

    fn id(&self, job: &JobView) -> JobId {
        job.id
    }

    async fn read(
        &self,
        queue: &Arc<str>,
        start: Start<JobId>,
        rows_max: usize,
    ) -> Result<Page<JobView>> {
        let ended = |at: i64| Timestamp::from_micros(at.saturating_neg());
        let (after, behind) = start.of_query(ended, BEFORE_ALL);
        let queue = queue.clone();
        let query = JobQuery { queue, after, behind, rows_max, ..self.of_queue.clone() };
        Ok(self.store.jobs(query).await?)
    }
}

/// Comes before all jobs of a time.
const BEFORE_ALL: JobId = JobId::from_bytes([0; 16]);

/// A page of the jobs of these queues that have ended. Long payloads are read only for those that are shown.
async fn newest(
    store: &dyn Store,
    wanted: &Wanted<'_>,
    queues: Vec<Arc<str>>,
    after: Option<Place<JobId>>,
) -> Result<Page<JobView>> {
    let bytes_max = wanted.payload_bytes_max.unwrap_or(usize::MAX);
    let of_status = JobQuery {
        order: wanted.status.order(By::Time),
        payload_bytes_max: Some(bytes_max.min(TABLE_PAYLOAD_BYTES_MAX)),
        ..JobQuery::new("", wanted.status.filter())
    };
    let list = Ended { store, of_queue: wanted.filters.of(store, of_status).await? };
    let sources = queues.into_iter().map(|queue| Source::new(queue, i64::MIN, after.as_ref()));
    let found = merged::page(&list, sources.collect(), wanted.rows_max).await?;
    let (mut rows, mut next) = (Vec::new(), found.next);
    let mut left = found.rows.into_iter().peekable();
    while let Some((queue, job)) = left.next() {
        let place = Place { at: list.at(&job), queue, row: job.id };
        if job.lacks_payload() && job.payload_bytes <= bytes_max {
            // It may have been sent back meanwhile.
            let whole = store.job(job.id).await?.filter(|whole| whole.state == job.state);
            rows.extend(whole);
        } else {
            rows.push(job);
        }
        if is_full(&rows) && left.peek().is_some() {
            next = Some(place.text());
            break;
        }
    }
    Ok(Page { rows, next, cut: found.cut })
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
            store.jobs(query).map_err(Error::from).map(merged::or_gone)
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
