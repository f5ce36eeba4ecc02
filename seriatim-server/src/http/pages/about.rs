//! What runs here: version, store, clocks, licences, and how to use the pages.

use askama::Template;
use axum::response::Response;
use seriatim::Timestamp;
use seriatim::limits::{
    ERROR_BYTES_MAX, KEY_BYTES_MAX, PAYLOAD_BYTES_MAX, PUSH_BYTES_MAX, PUSH_JOBS_MAX,
    RESULT_BYTES_MAX,
};

use super::super::{Result, Shared};
use super::{Frame, Moment, Visit, page};
use crate::base::text::{grouped, size};
use crate::base::time::length;

#[derive(Template)]
#[template(path = "about.html", blocks = ["live"])]
struct About<'a> {
    frame: &'a Frame,
    version: &'static str,
    abilities: Vec<(&'static str, String)>,
    store_clock: Option<Moment>,
    here: Moment,
    apart: String,
    zone: String,
    limits: Vec<(&'static str, String)>,
}

page!(About);

pub(super) async fn show(app: Shared, visit: Visit) -> Result<Response> {
    let here = Timestamp::of_this_machine();
    let there = app.store.now().await.ok();
    let apart = there.map(|there| there.since(here).max(here.since(there)));
    let capabilities = app.store.capabilities();
    let yes = |is: bool| if is { "yes" } else { "no" }.to_owned();
    let abilities = vec![
        ("store", capabilities.name.to_owned()),
        ("shared by processes", yes(capabilities.shared)),
        ("SQL sessions insert tasks", yes(capabilities.inbox)),
        ("batches of jobs", yes(capabilities.batches)),
        ("idempotency keys of the whole store", yes(capabilities.store_scope)),
    ];
    visit.show(&About {
        frame: &visit.frame,
        version: env!("CARGO_PKG_VERSION"),
        abilities,
        store_clock: there.map(|at| visit.clock.of(at)),
        here: visit.clock.of(here),
        apart: apart.map_or_else(|| "unknown".to_owned(), length),
        zone: visit.clock.zone_name(),
        limits: limits(),
    })
}

/// What producers meet first. Others are in the answers that refuse something.
fn limits() -> Vec<(&'static str, String)> {
    vec![
        ("a key", format!("{KEY_BYTES_MAX} bytes")),
        ("a payload", size(PAYLOAD_BYTES_MAX as u64)),
        ("jobs in one push", grouped(PUSH_JOBS_MAX)),
        ("payloads in one push", size(PUSH_BYTES_MAX as u64)),
        ("an error", size(ERROR_BYTES_MAX as u64)),
        ("a result", size(RESULT_BYTES_MAX as u64)),
    ]
}
