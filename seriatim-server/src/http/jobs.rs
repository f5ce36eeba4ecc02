//! Jobs in any state, one in full, and what is done to one.

use axum::extract::State;
use serde::Deserialize;
use serde_json::json;
use seriatim::limits::PAGE_ROWS_MAX;
use seriatim::store::Change;
use seriatim::{JobId, Timestamp};

use super::auth::Access;
use super::caller::Caller;
use super::input::{Json, Part, Query};
use super::limits::PAGE_ROWS_DEFAULT;
use super::problem::Problem;
use super::route::{Answer, Route, Written};
use super::schema::Schema;
use super::state::Shared;
use crate::app::find;
use crate::app::job_pages::{self, Status, Wanted};
use crate::app::jobs;
use crate::protocol::job_input::{Length, When};

const STATES: [&str; 6] = ["live", "queued", "running", "succeeded", "dead", "canceled"];

pub(super) fn routes() -> Vec<Route> {
    let page = Schema::object(&[
        ("jobs", Schema::list(Schema::named("JobView"))),
        ("next", Schema::text().or_null()),
    ]);
    let job = || Schema::named("JobView");
    let when = Schema::object(&[("run_at", Schema::time()), ("delay", Schema::length())])
        .closed()
        .exactly_one(&["run_at", "delay"]);
    let node = Schema::object(&[("node", Schema::text().or_null())]).requiring(&["node"]).closed();
    let deleted = Schema::object(&[("job_id", Schema::text()), ("deleted", Schema::truth())]);
    vec![
        Route::get("/api/v1/jobs", Access::Read, list)
            .says("Jobs in a state, of one queue or all")
            .query("state", Schema::one_of(&STATES), "live (by default): waiting and running; running are those that are claimed")
            .query("queue", Schema::queue(), "Only of this queue")
            .query("key", Schema::text(), "Only of this key")
            .paged()
            .keeps_scope()
            .answers(page),
        Route::get("/api/v1/jobs/{job_id}", Access::Follow, show)
            .says("One job in full")
            .answers(job()),
        Route::post("/api/v1/jobs/{job_id}/retry", Access::Admin, retry)
            .says("Makes a waiting job due now; sends a dead one back to its queue")
            .answers(job()),
        Route::post("/api/v1/jobs/{job_id}/delete", Access::Admin, delete)
            .says("Deletes a waiting or a dead job, without a trace")
            .answers(deleted),
        Route::post("/api/v1/jobs/{job_id}/reschedule", Access::Admin, reschedule)
            .says("Makes a waiting job due at another time (its lane, in accumulate)")
            .body(when)
            .answers(job()),
        Route::post("/api/v1/jobs/{job_id}/reassign", Access::Admin, reassign)
            .says("Binds a waiting job to a node, or with null to none (its lane, in accumulate and fifo)")
            .body(node)
            .answers(job()),
    ]
}

pub(super) fn view_schema() -> Schema {
    let (text, number) = (|| Schema::text().or_null(), Schema::integer);
    Schema::object(&[
        ("job_id", Schema::text()),
        ("queue", Schema::text()),
        ("key", text()),
        ("task", text()),
        ("status", Schema::one_of(&STATES[1..])),
        ("attempt", number()),
        ("started_at", text()),
        ("finished_at", text()),
        ("heartbeat_at", text()),
        ("error", text()),
        ("progress", Schema::any()),
        ("payload", Schema::any()),
        ("score", Schema::number()),
        ("priority", number()),
        ("run_at", Schema::text()),
        ("retry_count", number()),
        ("crashes", number()),
        ("cancel_requested", Schema::truth()),
        ("created_at", Schema::text()),
    ])
}

/// Most rows of a page: what was asked for, within the limit.
pub(super) fn rows_max(limit: Option<usize>) -> Result<usize, Problem> {
    match limit.unwrap_or(PAGE_ROWS_DEFAULT) {
        rows @ 1..=PAGE_ROWS_MAX => Ok(rows),
        _ => Err(Problem::invalid("limit", format!("must be 1 to {PAGE_ROWS_MAX}"))),
    }
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Listing {
    #[serde(default)]
    state: Status,
    queue: Option<String>,
    key: Option<String>,
    limit: Option<usize>,
    after: Option<String>,
}

async fn list(
    State(app): State<Shared>,
    caller: Caller,
    Query(listing): Query<Listing>,
) -> Result<Written, Problem> {
    match &listing.queue {
        Some(queue) => caller.scope.check_queue(queue)?,
        None if caller.scope.is_limited() => {
            return Err(caller.scope.refuse("must name one of its queues here").about("queue"));
        }
        None => {}
    }
    if let Some(queue) = &listing.queue {
        find::queue(&*app.store, queue).await?;
    }
    let wanted = Wanted {
        queue: listing.queue.as_deref(),
        status: listing.state,
        key: listing.key.as_deref(),
        after: listing.after.as_deref(),
        rows_max: rows_max(listing.limit)?,
    };
    let page = job_pages::page(&*app.store, wanted).await?;
    Written::jobs(page).await
}

async fn show(State(app): State<Shared>, Part(id): Part<JobId>) -> Result<Written, Problem> {
    Written::job(find::job(&*app.store, id).await?).await
}

async fn retry(State(app): State<Shared>, Part(id): Part<JobId>) -> Result<Written, Problem> {
    Written::job(jobs::retried(&*app.store, id).await?).await
}

async fn delete(State(app): State<Shared>, Part(id): Part<JobId>) -> Result<Answer, Problem> {
    let job = find::job(&*app.store, id).await?;
    jobs::deleted(&*app.store, &job).await?;
    Ok(Answer(json!({ "job_id": id, "deleted": true })))
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Time {
    #[serde(alias = "available_at", alias = "perform_in")]
    run_at: Option<When>,
    delay: Option<Length>,
}

async fn reschedule(
    State(app): State<Shared>,
    Part(id): Part<JobId>,
    Json(time): Json<Time>,
) -> Result<Written, Problem> {
    let at = match (time.run_at, time.delay) {
        (Some(When(time)), None) => time,
        (None, Some(Length(length))) => app.store.now().await? + length,
        _ => return Err(Problem::invalid("run_at", "write run_at or delay")),
    };
    if !(Timestamp::default()..=Timestamp::MAX).contains(&at) {
        return Err(Problem::invalid("run_at", "must lie between 1970 and 2255"));
    }
    Written::job(jobs::amended(&*app.store, id, Change::RunAt(at)).await?).await
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Node {
    // Present and null is something else than absent, which is a mistake.
    #[serde(deserialize_with = "Option::deserialize")]
    node: Option<String>,
}

async fn reassign(
    State(app): State<Shared>,
    Part(id): Part<JobId>,
    Json(Node { node }): Json<Node>,
) -> Result<Written, Problem> {
    Written::job(jobs::amended(&*app.store, id, Change::Node(node)).await?).await
}
