//! Who did what, as the store remembers it.

use axum::extract::State;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use seriatim::limits::PAGE_ROWS_MAX;

use super::auth::Access;
use super::input::Query;
use super::jobs::rows_max;
use super::problem::Problem;
use super::route::{Answer, Route};
use super::state::Shared;
use crate::app::deeds::{self, Deed, Of};

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
    /// Only what names this key or job id
    of: Option<String>,
    /// Most rows. Default: 50
    #[schemars(range(min = 1, max = PAGE_ROWS_MAX))]
    limit: Option<usize>,
    /// Continue behind this: `next` of the page before
    after: Option<String>,
}

/// A page of the audit log.
#[derive(Serialize, JsonSchema)]
pub(super) struct Deeds {
    deeds: Vec<Deed>,
    /// The `after` of the next page
    next: Option<String>,
}

async fn list(
    State(app): State<Shared>,
    Query(Listing { of, limit, after }): Query<Listing>,
) -> Result<Answer<Deeds>, Problem> {
    let of = of.as_deref().map_or(Of::All, Of::Object);
    let page = deeds::latest(&*app.store, of, after.as_deref(), rows_max(limit)?).await?;
    Ok(Answer::of(&Deeds { deeds: page.deeds, next: page.next }))
}
