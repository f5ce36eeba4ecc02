//! Lists that are read at once, as files: see `export.rs`.

use axum::body::Body;
use axum::response::Response;
use serde::Serialize;
use seriatim::JobId;

use super::super::limits::held;
use super::super::pool::Held;
use super::super::{Caller, Part, Query, Result, Shared};
use super::export::{ROWS_MAX, file, place, write};
use super::{Visit, cron, events as of_job, jobs, nodes as workers, queues as listed};
use crate::app;

pub(super) async fn queues(
    shared: Shared,
    visit: Visit,
    caller: Caller,
    Query(wish): Query<listed::Wish>,
) -> Result<Response> {
    let place = place(&shared, &caller)?;
    let (queues, nodes, now) = listed::sorted(&wish, &*shared.store, &visit).await?;
    Ok(answer(place, app::queues::documents(&queues, &nodes, now), "queues.ndjson"))
}

pub(super) async fn causes(
    shared: Shared,
    visit: Visit,
    caller: Caller,
    Query(wish): Query<jobs::Wish>,
) -> Result<Response> {
    let place = place(&shared, &caller)?;
    let causes = jobs::causes(&*shared.store, &visit, &wish).await?;
    Ok(answer(place, causes, "causes.ndjson"))
}

pub(super) async fn nodes(shared: Shared, visit: Visit, caller: Caller) -> Result<Response> {
    workers::whole(&visit)?;
    let place = place(&shared, &caller)?;
    Ok(answer(place, app::nodes::all(&*shared.store).await?.nodes, "nodes.ndjson"))
}

pub(super) async fn entries(shared: Shared, visit: Visit, caller: Caller) -> Result<Response> {
    cron::whole(&visit)?;
    let place = place(&shared, &caller)?;
    Ok(answer(place, app::cron::all(&*shared.store).await?.cron, "cron.ndjson"))
}

pub(super) async fn bridges(shared: Shared, visit: Visit, caller: Caller) -> Result<Response> {
    workers::whole(&visit)?;
    let place = place(&shared, &caller)?;
    Ok(answer(place, app::bridges::all(&*shared.store).await?, "bridges.ndjson"))
}

pub(super) async fn operations(shared: Shared, visit: Visit, caller: Caller) -> Result<Response> {
    let place = place(&shared, &caller)?;
    let may_use = |queue: &str| visit.scope.has_queue(queue);
    let all = app::operations::list_within(&*shared.store, may_use).await?;
    Ok(answer(place, all, "operations.ndjson"))
}

pub(super) async fn events(
    shared: Shared,
    visit: Visit,
    caller: Caller,
    Part(id): Part<JobId>,
) -> Result<Response> {
    let place = place(&shared, &caller)?;
    let (_, story) = of_job::seen(&shared, &visit, &caller.party, id).await?;
    Ok(answer(place, story.events, "events.ndjson"))
}

/// The place was taken before the list was read: that costs as much as to send it.
fn answer(place: Held, rows: impl IntoIterator<Item = impl Serialize>, name: &str) -> Response {
    let mut text = Vec::new();
    rows.into_iter().take(ROWS_MAX).for_each(|row| write(&mut text, &row));
    held(file(Body::from(text), name), place)
}
