//! Pages of jobs in one state, over one queue or all of them.

use std::sync::Arc;

use clap::ValueEnum;
use serde::Deserialize;
use seriatim::limits::PAGE_BYTES_MAX;
use seriatim::store::{JobOrder, JobQuery, JobState, JobView, LaneOrder, LaneQuery, Page};
use seriatim::{JobId, store::Store};

use super::error::Error;

/// Live jobs that one call looks at in search of waiting ones.
const LOOKED_MAX: usize = 100_000;

/// In which state jobs are listed.
#[derive(Clone, Copy, Debug, Default, ValueEnum, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Status {
    /// Waiting and claimed
    #[default]
    Live,
    Queued,
    /// Running, or prefetched by their node
    #[serde(rename = "running")]
    Claimed,
    Succeeded,
    /// In the morgue
    Dead,
    Canceled,
}

impl Status {
    fn state(self) -> Option<JobState> {
        match self {
            Self::Live => None,
            Self::Queued => Some(JobState::Queued),
            Self::Claimed => Some(JobState::Running),
            Self::Succeeded => Some(JobState::Succeeded),
            Self::Dead => Some(JobState::Dead),
            Self::Canceled => Some(JobState::Canceled),
        }
    }
}

/// Which jobs.
pub(crate) struct Wanted<'a> {
    pub(crate) queue: Option<&'a str>,
    pub(crate) status: Status,
    pub(crate) key: Option<&'a str>,
    /// A queue's name, a slash (which no name holds) and the cursor within it.
    pub(crate) after: Option<&'a str>,
    pub(crate) rows_max: usize,
}

/// A page, and where the next one begins.
pub(crate) async fn page(store: &dyn Store, wanted: Wanted<'_>) -> Result<Page<JobView>, Error> {
    let (first, mut after) = match wanted.after.map(|cursor| cursor.split_once('/')) {
        None => ("", None),
        Some(Some((queue, cursor))) => (queue, Some(cursor.to_owned()).filter(|c| !c.is_empty())),
        Some(None) => return Err(Error::Cursor),
    };
    let queues = store.queues().await?;
    let names: Vec<Arc<str>> = queues
        .iter()
        .map(|view| view.queue.name.as_str().into())
        .filter(|name: &Arc<str>| wanted.queue.is_none_or(|queue| **name == *queue))
        .filter(|name| **name >= *first)
        .collect();
    let mut rows = Vec::new();
    for (i, name) in names.iter().enumerate() {
        // The cursor belongs to the queue that it names, which may be gone.
        let after = after.take().filter(|_| **name == *first);
        let room = wanted.rows_max - rows.len();
        let page = match wanted.status.state() {
            Some(JobState::Running) => running(store, name, wanted.key, after, room).await?,
            state => in_state(store, name, state, wanted.key, after, room).await?,
        };
        rows.extend(page.rows);
        if let Some(next) = page.next {
            return Ok(Page { rows, next: Some(format!("{name}/{next}")) });
        }
        if rows.len() >= wanted.rows_max || is_full(&rows) {
            let next = names.get(i + 1).map(|name| format!("{name}/"));
            return Ok(Page { rows, next });
        }
    }
    Ok(Page { rows, next: None })
}

/// Whether the payloads of a page are as much as a page may hold.
fn is_full(rows: &[JobView]) -> bool {
    rows.iter().map(|job| job.payload.as_bytes().len()).sum::<usize>() >= PAGE_BYTES_MAX
}

/// What does not run, and with no state everything that lives.
async fn in_state(
    store: &dyn Store,
    queue: &Arc<str>,
    state: Option<JobState>,
    key: Option<&str>,
    mut after: Option<String>,
    rows_max: usize,
) -> Result<Page<JobView>, Error> {
    let (mut rows, mut looked) = (Vec::new(), 0);
    loop {
        let query = JobQuery {
            queue: queue.clone(),
            state: state.unwrap_or(JobState::Queued),
            key: key.map(str::to_owned),
            order: match state {
                Some(JobState::Succeeded | JobState::Dead | JobState::Canceled) => {
                    JobOrder::UpdatedAt
                }
                _ => JobOrder::Arrival,
            },
            after,
            rows_max: rows_max - rows.len(),
        };
        let page = store.jobs(query).await?;
        looked += page.rows.len();
        rows.extend(page.rows.into_iter().filter(|job| state.is_none_or(|s| job.state == s)));
        after = page.next;
        let is_enough = rows.len() >= rows_max || looked >= LOOKED_MAX || is_full(&rows);
        if after.is_none() || is_enough {
            return Ok(Page { rows, next: after });
        }
    }
}

/// What runs, turn by turn: among a million that wait it would be hard to find. A turn is never
/// split, so that a page may be longer by what its last turn holds.
async fn running(
    store: &dyn Store,
    queue: &Arc<str>,
    key: Option<&str>,
    mut after: Option<String>,
    rows_max: usize,
) -> Result<Page<JobView>, Error> {
    let mut rows = Vec::new();
    loop {
        let query = LaneQuery {
            queue: queue.clone(),
            key: key.map(str::to_owned),
            claimed: true,
            order: LaneOrder::Age,
            after,
            rows_max: 1,
        };
        let page = store.lanes(query).await?;
        for lane in &page.rows {
            let turn = match lane.token {
                Some(token) => store.turn(lane.lane, token).await?,
                None => None,
            };
            // Without the payloads, which come again with the jobs.
            let jobs: Vec<JobId> =
                turn.into_iter().flat_map(|turn| turn.jobs).map(|job| job.id).collect();
            for job in jobs {
                rows.extend(store.job(job).await?);
            }
        }
        after = page.next;
        if after.is_none() || rows.len() >= rows_max || is_full(&rows) {
            return Ok(Page { rows, next: after });
        }
    }
}
