//! Pages of jobs with filters that no index has: the same on every store, which lists its jobs without them.

use async_trait::async_trait;

use crate::contract::{JobOrder, JobQuery, JobView, Page, rows_of_page};
use crate::model::limits::{PAGE_BYTES_MAX, PAGE_ROWS_MAX, PAYLOAD_BYTES_MAX, SCAN_BYTES_MAX};
use crate::model::{Cursor, JobId, Result, Timestamp};
use crate::stores::handover::Handover;

/// Jobs of a long step.
const LONG_STEP: usize = 100_000;

/// Jobs in the order of a query, from its cursor on, whether or not they fit its filters.
#[derive(Default)]
pub(super) struct Step {
    pub(super) rows: Vec<JobView>,
    /// Where the next step starts.
    pub(super) next: Option<String>,
    /// How many jobs it looked at: more than rows, if the store left out some that do not fit.
    pub(super) looked: usize,
    /// Bytes of their payloads and other texts.
    pub(super) bytes: usize,
    /// What the store read ahead, which cursors of these jobs name.
    pub(super) walk: Option<u64>,
}

impl Step {
    /// Jobs of which none was left out.
    pub(super) fn of(rows: Vec<JobView>, next: Option<String>) -> Self {
        let bytes = rows.iter().map(JobView::bytes).sum();
        Self { looked: rows.len(), rows, next, bytes, walk: None }
    }
}

/// A store that lists its jobs by queue, state and key.
#[async_trait]
pub(super) trait JobRows: Sync {
    /// Reads a step: at most `looks_max` jobs, up to the one whose payload reaches `PAGE_BYTES_MAX`, payloads longer than
    /// `payload_bytes_max` left out. It may end as soon as `rows_max` jobs fit.
    async fn job_rows(&self, query: &JobQuery, looks_max: usize) -> Result<Step>;

    /// Whether a step reads all jobs of the queue, however few it returns: then steps are long.
    fn reads_all(&self, _query: &JobQuery) -> bool {
        false
    }

    /// The cursor behind this job, or before all at this place; `walk` is that of the job's step.
    fn cursor(&self, job: Option<JobId>, place: String, _walk: Option<u64>) -> String {
        Cursor::behind(job.map_or(0, JobId::seq), place)
    }

    /// The place of a job by arrival, besides its number.
    fn arrival(&self, _job: JobId) -> String {
        String::new()
    }
}

/// The cursor behind a job of a step.
fn behind(store: &impl JobRows, order: JobOrder, job: &JobView, walk: Option<u64>) -> String {
    let place = match order {
        JobOrder::Arrival => store.arrival(job.id),
        order => place_of(order, job),
    };
    store.cursor(Some(job.id), place, walk)
}

/// The place of a job in an order, as cursors hold it.
pub(super) fn place_of(order: JobOrder, job: &JobView) -> String {
    match order {
        JobOrder::Arrival => String::new(),
        JobOrder::UpdatedAt => ended(job.finished_at.map_or(0, Timestamp::as_micros)),
        JobOrder::Key => job.key.as_deref().unwrap_or_default().to_owned(),
        JobOrder::Turn => Handover::of(job).to_string(),
    }
}

/// The place of a job that ended then, newest first.
fn ended(at: i64) -> String {
    at.saturating_neg().to_string()
}

/// Where the first page starts: nothing before it fits.
fn start(store: &impl JobRows, query: &JobQuery) -> Option<String> {
    let place = match query.order {
        JobOrder::UpdatedAt => ended(query.to?.as_micros()),
        JobOrder::Key => query.prefix.clone().filter(|prefix| !prefix.is_empty())?,
        JobOrder::Arrival | JobOrder::Turn => return None,
    };
    Some(store.cursor(None, place, None))
}

/// A page of jobs: see [`Views::jobs`](crate::store::Views::jobs).
pub(super) async fn page(store: &impl JobRows, mut query: JobQuery) -> Result<Page<JobView>> {
    query.check()?;
    // No payload is longer than that, and not every store can compare with any number.
    query.payload_bytes_max = query.payload_bytes_max.filter(|most| *most < PAYLOAD_BYTES_MAX);
    if let (None, Some((at, job))) = (&query.after, query.behind) {
        query.after = Some(store.cursor(Some(job), ended(at.as_micros()), None));
    }
    if !query.is_filtered() {
        let Step { mut rows, mut next, walk, .. } = store.job_rows(&query, query.most()).await?;
        let shown = rows_of_page(rows.iter().map(JobView::bytes));
        if shown < rows.len() {
            next = Some(behind(store, query.order, &rows[shown - 1], walk));
            rows.truncate(shown);
        }
        return Ok(Page { rows, next, cut: false });
    }
    let looks_max = query.scan_max.unwrap_or(usize::MAX).max(1);
    let bytes_max = query.scan_max.map_or(usize::MAX, |_| SCAN_BYTES_MAX);
    let mut step_query = query.clone();
    step_query.after = query.after.clone().or_else(|| start(store, &query));
    if query.text.is_some() {
        // What is left out cannot be searched.
        step_query.payload_bytes_max = None;
    }
    let mut page = Page::default();
    let (mut looked, mut read, mut shown) = (0, 0, 0);
    let mut length = if store.reads_all(&query) { LONG_STEP } else { query.most() };
    loop {
        step_query.rows_max = query.most() - page.rows.len();
        let step = store.job_rows(&step_query, length.min(looks_max - looked)).await?;
        (looked, read) = (looked + step.looked.max(1), read + step.bytes);
        // Most jobs may fit, or hardly any.
        length = (2 * length).min(PAGE_ROWS_MAX).max(length);
        let mut jobs = step.rows.into_iter().peekable();
        while let Some(mut job) = jobs.next() {
            if query.is_past(&job) {
                return Ok(page);
            }
            if !query.shows(&job) {
                continue;
            }
            let here = behind(store, query.order, &job, step.walk);
            query.trim(&mut job);
            shown += job.bytes();
            page.rows.push(job);
            if page.rows.len() >= query.most() || shown >= PAGE_BYTES_MAX {
                page.next = if jobs.peek().is_some() { Some(here) } else { step.next };
                return Ok(page);
            }
        }
        step_query.after = step.next;
        if step_query.after.is_none() {
            return Ok(page);
        }
        if looked >= looks_max || read >= bytes_max {
            (page.next, page.cut) = (step_query.after, true);
            return Ok(page);
        }
    }
}
