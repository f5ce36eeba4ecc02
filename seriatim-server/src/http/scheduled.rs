//! What waits for a time, over all queues.

use schemars::JsonSchema;
use serde::Deserialize;
use seriatim::limits::PAGE_ROWS_MAX;

use super::jobs::rows_max;
use super::limits::JOB_BYTES;
use super::{Access, Answer, Caller, Query, Result, Route, Shared};
use crate::app::find;
use crate::app::scheduled::{self, Wanted};
use crate::protocol::document::Lanes;
use crate::protocol::schema::queue_pattern;

pub(super) fn routes() -> Vec<Route> {
    vec![
        Route::get("/api/v1/scheduled", Access::Read, list)
            .says("Lanes that are due later, also for a retry, of one queue or all, soonest first")
            .keeps_scope(),
    ]
}

#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
#[schemars(inline)]
struct Listing {
    /// Only of this queue
    #[schemars(regex(pattern = queue_pattern()))]
    queue: Option<String>,
    /// Only lanes whose key has this prefix; those of several queues are then listed queue by queue
    #[serde(default)]
    prefix: String,
    /// Only lanes due then or later
    #[serde(default)]
    due_from: String,
    /// Only lanes due then or earlier
    #[serde(default)]
    due_to: String,
    /// Maximum number of rows. Default: 50
    #[schemars(range(min = 1, max = PAGE_ROWS_MAX))]
    limit: Option<usize>,
    /// Continue after this: the `next` of the previous page
    after: Option<String>,
}

async fn list(
    app: Shared,
    caller: Caller,
    Query(listing): Query<Listing>,
) -> Result<Answer<Lanes>> {
    let store = &*app.store;
    if let Some(queue) = &listing.queue {
        caller.scope.check_queue(queue)?;
        find::queue(store, queue).await?;
    }
    let wanted = Wanted {
        queue: listing.queue.as_deref(),
        prefix: &listing.prefix,
        due_from: &listing.due_from,
        due_to: &listing.due_to,
        after: listing.after.as_deref(),
        rows_max: rows_max(listing.limit)?,
    };
    let queues = scheduled::queues(store, |queue| caller.scope.has_queue(queue)).await?;
    let page = scheduled::page(store, wanted, &queues, store.now().await?).await?.page;
    let bytes = page.rows.len() * JOB_BYTES;
    Answer::written(bytes, move || page.into()).await
}
