//! The lanes of a queue, one in full, what runs, and what is done to one.

use axum::extract::State;
use serde::Deserialize;
use seriatim::store::{ClaimSelection, LaneAction, LaneSelection, LaneView};
use seriatim::store::{LaneId, Store};

use super::auth::Access;
use super::input::{Part, Query};
use super::jobs::rows_max;
use super::limits::JOB_BYTES;
use super::problem::Problem;
use super::queues::count;
use super::route::{Answer, Route, Written};
use super::schema::Schema;
use super::state::Shared;
use crate::app::lane_pages;
use crate::app::range::By;
use crate::app::{find, lane_jobs, lanes};
use crate::protocol::document;

pub(super) fn routes() -> Vec<Route> {
    let page = || {
        Schema::object(&[
            ("lanes", Schema::list(Schema::named("Lane"))),
            ("next", Schema::text().or_null()),
        ])
    };
    let order = Schema::one_of(&["age", "key", "run_at", "retry_count"]);
    let done = |route: Route| {
        route
            .query("key", Schema::text(), "The key")
            .query("lane", Schema::lane(), "The lane, where jobs have no key")
            .answers(Schema::object(&[("count", Schema::integer())]))
    };
    vec![
        Route::get("/api/v1/queues/{queue}/lanes", Access::Read, list)
            .says("The lanes of a queue, in order; by retry_count those with a failure only, most first")
            .query("order", order, "By what; by default by age")
            .query("from", Schema::text(), "Only from here on: a key, a time or a retry count")
            .query("to", Schema::text(), "Only up to here, this one included")
            .paged()
            .answers(page()),
        Route::get("/api/v1/queues/{queue}/running", Access::Read, running)
            .says("The lanes of a queue that are claimed: running, or prefetched by their node")
            .paged()
            .answers(page()),
        Route::get("/api/v1/queues/{queue}/lane", Access::Read, show)
            .says("The lane of a key, with the jobs that are claimed and that wait")
            .needs("key", Schema::text(), "The key; it may hold any character")
            .answers(Schema::named("Lane")),
        done(Route::post("/api/v1/queues/{queue}/lane/pause", Access::Admin, pause)
            .says("Stops claims of a lane; a turn that runs goes on to its end")),
        done(Route::post("/api/v1/queues/{queue}/lane/resume", Access::Admin, resume)
            .says("Lets a paused or held lane go on")),
        done(Route::post("/api/v1/queues/{queue}/lane/retry", Access::Admin, retry)
            .says("Makes a lane due now; ends a hold")),
        done(Route::post("/api/v1/queues/{queue}/lane/delete", Access::Admin, delete)
            .says("Deletes all that waits in a lane")),
        done(Route::post("/api/v1/queues/{queue}/lane/release", Access::Admin, release)
            .says("Takes a claim from its holder: it counts as a crash, and the holder can settle no more")),
    ]
}

pub(super) fn lane_schema() -> Schema {
    let (text, number) = (|| Schema::text().or_null(), Schema::integer);
    Schema::object(&[
        ("lane", Schema::text()),
        ("key", text()),
        ("state", Schema::one_of(&["waiting", "claimed", "held", "paused"])),
        ("due", text()),
        ("priority", number()),
        ("jobs", number()),
        ("retry_count", number()),
        ("crashes", number()),
        ("error", text()),
        ("token", number().or_null()),
        ("node", text()),
        ("claimed_at", text()),
        ("progress", Schema::any()),
        ("queue", Schema::text()),
        ("claimed", Schema::list(Schema::named("JobView"))),
        ("waiting", Schema::list(Schema::named("JobView"))),
    ])
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Listing {
    #[serde(default)]
    order: By,
    from: Option<String>,
    to: Option<String>,
    limit: Option<usize>,
    after: Option<String>,
}

async fn list(
    State(app): State<Shared>,
    Part(queue): Part<String>,
    Query(listing): Query<Listing>,
) -> Result<Written, Problem> {
    pages(&*app.store, &queue, listing, false).await
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct RunningListing {
    limit: Option<usize>,
    after: Option<String>,
}

async fn running(
    State(app): State<Shared>,
    Part(queue): Part<String>,
    Query(listing): Query<RunningListing>,
) -> Result<Written, Problem> {
    let RunningListing { limit, after } = listing;
    let listing = Listing { order: By::Age, from: None, to: None, limit, after };
    pages(&*app.store, &queue, listing, true).await
}

async fn pages(
    store: &dyn Store,
    queue: &str,
    listing: Listing,
    claimed: bool,
) -> Result<Written, Problem> {
    find::queue(store, queue).await?;
    let wanted = lane_pages::Wanted {
        queue,
        by: listing.order,
        claimed,
        from: listing.from.as_deref(),
        to: listing.to.as_deref(),
        after: listing.after.as_deref(),
        rows_max: rows_max(listing.limit)?,
    };
    let page = lane_pages::page(store, wanted).await?;
    let told = |lane: &LaneView| JOB_BYTES + lane.progress.as_ref().map_or(0, |text| text.len());
    let bytes = page.rows.iter().map(told).sum();
    Written::of(bytes, move || document::page("lanes", &page, document::lane).to_string()).await
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct OfKey {
    key: String,
}

async fn show(
    State(app): State<Shared>,
    Part(queue): Part<String>,
    Query(OfKey { key }): Query<OfKey>,
) -> Result<Written, Problem> {
    let store = &*app.store;
    find::queue(store, &queue).await?;
    let lane = find::lane(store, &queue, &key).await?;
    let (claimed, waiting) = lane_jobs::of(store, &queue, &key).await?;
    let jobs = claimed.iter().chain(&waiting);
    let bytes = jobs.map(|job| JOB_BYTES + job.payload.as_bytes().len()).sum();
    Written::of(bytes, move || lane_jobs::document(&queue, &lane, &claimed, &waiting).to_string())
        .await
}

/// Which lane.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Which {
    key: Option<String>,
    lane: Option<LaneId>,
}

macro_rules! action {
    ($name:ident, $action:expr) => {
        async fn $name(
            State(app): State<Shared>,
            Part(queue): Part<String>,
            Query(which): Query<Which>,
        ) -> Result<Answer, Problem> {
            act(&*app.store, &queue, which, $action).await
        }
    };
}

action!(pause, LaneAction::Pause);
action!(resume, LaneAction::Resume);
action!(retry, LaneAction::RunNow);
action!(delete, LaneAction::Delete);

async fn release(
    State(app): State<Shared>,
    Part(queue): Part<String>,
    Query(which): Query<Which>,
) -> Result<Answer, Problem> {
    let store = &*app.store;
    let number = find::queue(store, &queue).await?.number;
    let claims = match which.chosen()? {
        LaneSelection::Lane(lane) if lane.queue == number => ClaimSelection::Lane(lane),
        LaneSelection::Key(key) => ClaimSelection::Key { queue: queue.as_str().into(), key },
        _ => return Err(Problem::missing("there is no such lane")),
    };
    Ok(Answer(count(lanes::release(store, claims).await?)))
}

impl Which {
    fn chosen(self) -> Result<LaneSelection, Problem> {
        match (self.key, self.lane) {
            (Some(key), None) => Ok(LaneSelection::Key(key)),
            (None, Some(lane)) => Ok(LaneSelection::Lane(lane)),
            _ => Err(Problem::invalid("key", "say which lane: ?key=… or ?lane=…")),
        }
    }
}

async fn act(
    store: &dyn Store,
    queue: &str,
    which: Which,
    action: LaneAction,
) -> Result<Answer, Problem> {
    find::queue(store, queue).await?;
    Ok(Answer(count(lanes::act(store, queue, which.chosen()?, action).await?)))
}
