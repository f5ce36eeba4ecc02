//! Lanes: listings, one in full, and actions on one.

use schemars::JsonSchema;
use serde::Deserialize;
use seriatim::limits::PAGE_ROWS_MAX;
use seriatim::store::{LaneAction, LaneStage, LaneView};
use seriatim::store::{LaneId, Store};

use super::jobs::{rows_max, scan_max};
use super::limits::JOB_BYTES;
use super::route::bytes_of;
use super::{Access, Answer, Caller, Part, Problem, Query, Result, Route, Shared};
use crate::app::entity::Entity;
use crate::app::job_filters::TABLE_PAYLOAD_BYTES_MAX;
use crate::app::key::{self, InQueue};
use crate::app::lane_filters::Filters;
use crate::app::lane_pages::{self, SCAN_MAX};
use crate::app::lanes::OneLane;
use crate::app::range::By;
use crate::app::{find, lanes, pauses};
use crate::protocol::document::{self, Done, Lane, Lanes};
use crate::protocol::schema::Foreign;

pub(super) fn routes() -> Vec<Route> {
    type Name = Part<String>;
    type Lane = Query<Which>;
    let resume = |app: Shared, name: Name, lane: Lane| act(app, name, lane, LaneAction::Resume);
    let retry = |app: Shared, name: Name, lane: Lane| act(app, name, lane, LaneAction::RunNow);
    let bury = |app: Shared, name: Name, lane: Lane| act(app, name, lane, LaneAction::Bury);
    let delete = |app: Shared, name: Name, lane: Lane| act(app, name, lane, LaneAction::Delete);
    vec![
        Route::get("/api/v1/queues/{queue}/lanes", Access::Read, list)
            .says("The lanes of a queue, in order; by retry_count only those that have failed, most retries first"),
        Route::get("/api/v1/queues/{queue}/running", Access::Read, running)
            .says("The claimed lanes of a queue: running, or prefetched by their node"),
        Route::get("/api/v1/key", Access::Read, everywhere)
            .says("A key in all queues: why it waits, the first of its jobs, and the latest that have ended")
            .keeps_scope(),
        Route::get("/api/v1/queues/{queue}/lane", Access::Read, show)
            .says("The lane of a key: why it waits, its claimed and its waiting jobs"),
        Route::post("/api/v1/queues/{queue}/lane/pause", Access::Operate, pause)
            .says("Stops claims of a lane; a running turn finishes"),
        Route::post("/api/v1/queues/{queue}/lane/resume", Access::Operate, resume)
            .says("Resumes a paused or held lane"),
        Route::post("/api/v1/queues/{queue}/lane/retry", Access::Operate, retry)
            .says("Makes a lane due now; ends a hold"),
        Route::post("/api/v1/queues/{queue}/lane/bury", Access::Admin, bury)
            .says("Moves the failed jobs of a lane to the morgue; in accumulate, all its waiting jobs if it failed"),
        Route::post("/api/v1/queues/{queue}/lane/delete", Access::Admin, delete)
            .says("Deletes the waiting jobs of a lane"),
        Route::post("/api/v1/queues/{queue}/lane/release", Access::Admin, release)
            .says("Takes a claim from its holder: counts as a crash, and the holder can no longer settle"),
    ]
}

#[derive(Default, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
#[schemars(inline)]
struct Listing {
    /// Default: age
    #[serde(default)]
    order: By,
    /// Only from here on: a key, a time or a retry count
    from: Option<String>,
    /// Only up to here, inclusive
    to: Option<String>,
    /// Only lanes that are ready, scheduled, retrying, running, held, paused or crashed; several with commas
    state: Option<String>,
    /// Only this lane
    #[schemars(with = "Option<Foreign<LaneId>>")]
    lane: Option<String>,
    /// Only lanes whose key has this prefix
    prefix: Option<String>,
    /// Only lanes that this node holds: its id or name
    node: Option<String>,
    /// Only lanes due then or later
    due_from: Option<String>,
    /// Only lanes due then or earlier
    due_to: Option<String>,
    /// Only lanes with this retry count or a higher one
    #[schemars(with = "Option<u32>")]
    retries_min: Option<String>,
    /// Only lanes that wait and have been due for this long or longer: 250ms, 10s, 5m
    lag_min: Option<String>,
    /// Maximum number of lanes to read to find matches. Default: 10000
    #[schemars(range(min = 1, max = SCAN_MAX))]
    scan_max: Option<usize>,
    /// Maximum number of rows. Default: 50
    #[schemars(range(min = 1, max = PAGE_ROWS_MAX))]
    limit: Option<usize>,
    /// Continue after this: the `next` of the previous page
    after: Option<String>,
}

async fn list(
    app: Shared,
    Part(queue): Part<String>,
    Query(listing): Query<Listing>,
) -> Result<Answer<Lanes>> {
    pages(&*app.store, &queue, listing).await
}

#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
#[schemars(inline)]
struct RunningListing {
    /// Maximum number of rows. Default: 50
    #[schemars(range(min = 1, max = PAGE_ROWS_MAX))]
    limit: Option<usize>,
    /// Continue after this: the `next` of the previous page
    after: Option<String>,
}

async fn running(
    app: Shared,
    Part(queue): Part<String>,
    Query(listing): Query<RunningListing>,
) -> Result<Answer<Lanes>> {
    let RunningListing { limit, after } = listing;
    let state = Some(LaneStage::Running.as_str().to_owned());
    pages(&*app.store, &queue, Listing { state, limit, after, ..Listing::default() }).await
}

async fn pages(store: &dyn Store, queue: &str, listing: Listing) -> Result<Answer<Lanes>> {
    find::queue(store, queue).await?;
    let wanted = lane_pages::Wanted {
        queue,
        by: listing.order,
        filters: Filters {
            state: listing.state.as_deref().unwrap_or_default(),
            lane: listing.lane.as_deref().unwrap_or_default(),
            prefix: listing.prefix.as_deref().unwrap_or_default(),
            node: listing.node.as_deref().unwrap_or_default(),
            due_from: listing.due_from.as_deref().unwrap_or_default(),
            due_to: listing.due_to.as_deref().unwrap_or_default(),
            retries_min: listing.retries_min.as_deref().unwrap_or_default(),
            lag_min: listing.lag_min.as_deref().unwrap_or_default(),
        },
        from: listing.from.as_deref(),
        to: listing.to.as_deref(),
        after: listing.after.as_deref(),
        rows_max: rows_max(listing.limit)?,
        scan_max: scan_max(listing.scan_max)?,
        now: None,
    };
    let page = lane_pages::page(store, wanted).await?;
    let size = |lane: &LaneView| JOB_BYTES + lane.progress.as_ref().map_or(0, |text| text.len());
    let bytes = page.rows.iter().map(size).sum();
    Answer::written(bytes, move || page.into()).await
}

#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
#[schemars(inline)]
struct OfKey {
    /// The key; may contain any character
    key: String,
}

async fn show(
    app: Shared,
    Part(queue): Part<String>,
    Query(OfKey { key }): Query<OfKey>,
) -> Result<Answer<Lane>> {
    let store = &*app.store;
    let view = find::queue(store, &queue).await?;
    let lane = find::lane(store, &queue, &key).await?;
    let entity = Entity::read(store, &view, lane, None).await?;
    let bytes = entity.jobs.claimed.iter().chain(&entity.jobs.waiting).map(bytes_of).sum();
    let Entity { lane, jobs, why, .. } = entity;
    let document =
        move || Lane::of_queue(lane, queue.into()).in_full(&why, jobs.claimed, jobs.waiting);
    Answer::written(bytes, document).await
}

async fn everywhere(
    app: Shared,
    caller: Caller,
    Query(OfKey { key }): Query<OfKey>,
) -> Result<Answer<document::Key>> {
    let payload_bytes_max = Some(TABLE_PAYLOAD_BYTES_MAX);
    let wanted = key::Wanted::of(&key, payload_bytes_max);
    let found = key::read(&*app.store, wanted, |queue| caller.scope.has_queue(queue)).await?;
    let jobs = found.queues.iter().flat_map(InQueue::jobs);
    let bytes = jobs.map(bytes_of).sum();
    Answer::written(bytes, move || found.document(key)).await
}

/// Which lane: one of the two.
#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
#[schemars(inline)]
struct Which {
    /// The key
    key: Option<String>,
    /// The lane, if its job has no key
    #[schemars(with = "Option<Foreign<LaneId>>")]
    lane: Option<LaneId>,
}

async fn release(
    app: Shared,
    Part(queue): Part<String>,
    Query(which): Query<Which>,
) -> Result<Answer<Done>> {
    Ok(Answer::done(lanes::release(&*app.store, &queue, which.chosen()?).await?))
}

impl Which {
    fn chosen(self) -> Result<OneLane> {
        match (self.key, self.lane) {
            (Some(key), None) => Ok(OneLane::Key(key)),
            (None, Some(lane)) => Ok(OneLane::Lane(lane)),
            _ => Err(Problem::invalid("key", "name the lane: ?key=… or ?lane=…")),
        }
    }
}

/// Which lane is paused, and why.
#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
#[schemars(inline)]
struct Paused {
    /// The key
    key: Option<String>,
    /// The lane, if its job has no key
    #[schemars(with = "Option<Foreign<LaneId>>")]
    lane: Option<LaneId>,
    /// For other people: the audit log and the pages show it
    reason: Option<String>,
}

async fn pause(
    app: Shared,
    queue: Part<String>,
    Query(Paused { key, lane, reason }): Query<Paused>,
) -> Result<Answer<Done>> {
    pauses::check_reason(reason.as_deref())?;
    act(app, queue, Query(Which { key, lane }), LaneAction::Pause).await
}

async fn act(
    app: Shared,
    Part(queue): Part<String>,
    Query(which): Query<Which>,
    action: LaneAction,
) -> Result<Answer<Done>> {
    find::queue(&*app.store, &queue).await?;
    Ok(Answer::done(lanes::act(&*app.store, &queue, which.chosen()?, action).await?))
}
