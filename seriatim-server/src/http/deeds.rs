//! Who did what, as the store remembers it.

use schemars::JsonSchema;
use serde::Deserialize;
use seriatim::limits::PAGE_ROWS_MAX;

use super::jobs::rows_max;
use super::{Access, Answer, Query, Result, Route, Shared};
use crate::app::deeds::{self, Page, Wanted};
use crate::protocol::schema::queue_pattern;
use crate::protocol::value::Time;

pub(super) fn routes() -> Vec<Route> {
    vec![
        Route::get("/api/v1/audit", Access::Read, list)
            .says("What people and programs changed, the latest first; kept for a year"),
    ]
}

#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
#[schemars(inline)]
struct Listing {
    /// Only what names this key, job id, queue, node or cron entry
    of: Option<String>,
    /// Only what names this queue
    #[schemars(regex(pattern = queue_pattern()))]
    queue: Option<String>,
    /// Only what this token or person did
    who: Option<String>,
    /// Only actions whose name has this text
    action: Option<String>,
    /// Only from this time on
    since: Option<Time>,
    /// Only up to this time
    until: Option<Time>,
    /// Maximum number of rows. Default: 50
    #[schemars(range(min = 1, max = PAGE_ROWS_MAX))]
    limit: Option<usize>,
    /// Continue after this: the `next` of the previous page
    after: Option<String>,
}

async fn list(app: Shared, Query(listing): Query<Listing>) -> Result<Answer<Page>> {
    let wanted = Wanted {
        of: listing.of.as_deref(),
        queue: listing.queue.as_deref(),
        who: listing.who.as_deref(),
        action: listing.action.as_deref(),
        since: listing.since.map(|Time(since)| since),
        until: listing.until.map(|Time(until)| until),
        after: listing.after.as_deref(),
    };
    Ok(Answer::of(&deeds::latest(&*app.store, wanted, rows_max(listing.limit)?).await?))
}
