//! Search: a job by its id, or a key.

use axum::response::Response;
use serde::Deserialize;
use seriatim::JobId;

use super::super::input::Query;
use super::link;
use super::visit::{Visit, see_other};

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Wish {
    #[serde(default)]
    q: String,
}

/// Leads to the page of what was searched for.
pub(super) async fn show(visit: Visit, Query(Wish { q }): Query<Wish>) -> Response {
    let base = &visit.frame.base;
    let wanted = q.trim();
    match (wanted, wanted.parse::<JobId>()) {
        ("", _) => see_other(&format!("{base}/")),
        (_, Ok(id)) => see_other(&link::job(base, id)),
        (key, Err(_)) => see_other(&link::key(base, key)),
    }
}
