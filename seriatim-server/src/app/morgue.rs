//! The dead jobs of a queue.

use clap::ValueEnum;
use schemars::JsonSchema;
use serde::Deserialize;
use seriatim::store::Store;
use seriatim::store::{JobOrder, JobQuery, JobState, JobView, Page};

use super::error::Error;
use super::find;
use super::job_filters::Filters;

/// The order in which dead jobs are listed.
#[derive(Clone, Copy, Debug, Default, ValueEnum, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
#[schemars(inline)]
pub(crate) enum By {
    #[default]
    #[serde(rename = "updated_at")]
    Time,
    Key,
    Arrival,
}

/// Which of them.
pub(crate) struct Wanted<'a> {
    pub(crate) queue: &'a str,
    pub(crate) by: By,
    pub(crate) filters: Filters<'a>,
    pub(crate) after: Option<&'a str>,
    pub(crate) rows_max: usize,
    pub(crate) payload_bytes_max: Option<usize>,
    pub(crate) scan_max: usize,
}

/// A page of them.
pub(crate) async fn page(store: &dyn Store, wanted: Wanted<'_>) -> Result<Page<JobView>, Error> {
    find::queue(store, wanted.queue).await?;
    let dead = JobQuery {
        order: match wanted.by {
            By::Time => JobOrder::UpdatedAt,
            By::Key => JobOrder::Key,
            By::Arrival => JobOrder::Arrival,
        },
        after: wanted.after.map(str::to_owned),
        rows_max: wanted.rows_max,
        payload_bytes_max: wanted.payload_bytes_max,
        scan_max: Some(wanted.scan_max),
        ..JobQuery::new(wanted.queue, JobState::Dead)
    };
    Ok(store.jobs(wanted.filters.of(dead)?).await?)
}
