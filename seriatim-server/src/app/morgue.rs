//! The dead jobs of a queue.

use clap::ValueEnum;
use schemars::JsonSchema;
use serde::Deserialize;
use seriatim::store::Store;
use seriatim::store::{JobOrder, JobQuery, JobState, JobView, Page};

use super::error::Error;
use super::find;

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

/// A page of them.
pub(crate) async fn page(
    store: &dyn Store,
    queue: &str,
    by: By,
    key: Option<String>,
    after: Option<String>,
    rows_max: usize,
) -> Result<Page<JobView>, Error> {
    find::queue(store, queue).await?;
    let order = match by {
        By::Time => JobOrder::UpdatedAt,
        By::Key => JobOrder::Key,
        By::Arrival => JobOrder::Arrival,
    };
    let dead = JobQuery::new(queue, JobState::Dead);
    Ok(store.jobs(JobQuery { key, order, after, rows_max, ..dead }).await?)
}
