//! Pages of jobs in one state, over one queue or all of them.

use std::sync::Arc;

use clap::ValueEnum;
use schemars::JsonSchema;
use serde::Deserialize;
use seriatim::limits::PAGE_BYTES_MAX;
use seriatim::store::Store;
use seriatim::store::{JobFilter, JobOrder, JobQuery, JobState, JobView, Page};

use super::error::Error;
use super::find;

/// In which state jobs are listed.
#[derive(Clone, Copy, Debug, Default, ValueEnum, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
#[schemars(inline)]
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

    fn order(self) -> JobOrder {
        match self {
            Self::Live | Self::Queued | Self::Claimed => JobOrder::Arrival,
            Self::Succeeded | Self::Dead | Self::Canceled => JobOrder::UpdatedAt,
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
    let queues = match wanted.queue {
        Some(queue) => vec![find::queue(store, queue).await?],
        None => store.queues().await?,
    };
    let (first, mut after) = match wanted.after.map(|cursor| cursor.split_once('/')) {
        None => ("", None),
        Some(Some((queue, cursor))) => (queue, Some(cursor.to_owned()).filter(|c| !c.is_empty())),
        Some(None) => return Err(Error::Cursor),
    };
    let names: Vec<Arc<str>> = queues
        .iter()
        .map(|view| view.queue.name.as_str().into())
        .filter(|name: &Arc<str>| **name >= *first)
        .collect();
    let mut rows = Vec::new();
    for (i, name) in names.iter().enumerate() {
        // The cursor belongs to the queue that it names, which may be gone.
        let after = after.take().filter(|_| **name == *first);
        let query = JobQuery {
            key: wanted.key.map(str::to_owned),
            order: wanted.status.order(),
            after,
            rows_max: wanted.rows_max - rows.len(),
            ..JobQuery::new(name.clone(), wanted.status.filter())
        };
        let page = store.jobs(query).await?;
        rows.extend(page.rows);
        if let Some(next) = page.next {
            return Ok(Page { rows, next: Some(format!("{name}/{next}")), cut: page.cut });
        }
        if rows.len() >= wanted.rows_max || is_full(&rows) {
            let next = names.get(i + 1).map(|name| format!("{name}/"));
            return Ok(Page { rows, next, cut: false });
        }
    }
    Ok(Page { rows, next: None, cut: false })
}

/// Whether the payloads of a page are as much as a page may hold.
fn is_full(rows: &[JobView]) -> bool {
    rows.iter().map(|job| job.payload.as_bytes().len()).sum::<usize>() >= PAGE_BYTES_MAX
}
