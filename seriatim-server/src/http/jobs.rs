//! Jobs: listings, one in full, and actions on one.

use axum::response::{IntoResponse, Response};
use schemars::{JsonSchema, Schema, SchemaGenerator};
use serde::Deserialize;
use seriatim::JobId;
use seriatim::limits::PAGE_ROWS_MAX;
use seriatim::store::{Change, JobView};

use super::limits::{PAGE_ROWS_DEFAULT, held};
use super::route::bytes_of;
use super::waiting::Wait;
use super::{Access, Answer, App, Caller, Json, Part, Problem, Query, Result, Route, Shared};
use crate::app::failures;
use crate::app::find;
use crate::app::job_filters::Filters;
use crate::app::job_pages::{self, By, Status, Wanted};
use crate::app::jobs;
use crate::app::lane_pages::{SCAN_DEFAULT, SCAN_MAX};
use crate::protocol::document::{Job, JobDeleted, Jobs};
use crate::protocol::schema::{exactly_one, queue_pattern};
use crate::protocol::value::{Length, Time};

/// Where a request may wait for the end of a job.
pub(super) const JOB_PATH: &str = "/api/v1/jobs/{job_id}";

pub(super) fn routes() -> Vec<Route> {
    vec![
        Route::get("/api/v1/jobs", Access::Read, list)
            .says("Jobs in a state, of one queue or all")
            .keeps_scope(),
        Route::get(JOB_PATH, Access::Follow, show)
            .says("One job in full; with wait, when it has ended or time is up")
            .answers::<Job>(),
        Route::post("/api/v1/jobs/{job_id}/retry", Access::Operate, retry)
            .says("Makes a waiting job due now; requeues a dead one"),
        Route::post("/api/v1/jobs/{job_id}/delete", Access::Admin, delete)
            .says("Permanently deletes a waiting or dead job"),
        Route::post("/api/v1/jobs/{job_id}/reschedule", Access::Operate, reschedule)
            .says("Makes a waiting job due at another time (its lane, in accumulate)"),
        Route::post("/api/v1/jobs/{job_id}/reassign", Access::Operate, reassign)
            .says("Binds a waiting job to a node, or with null to none (its lane, in accumulate and fifo)"),
    ]
}

/// Most rows that a page looks at: what was asked for, within the limit.
pub(super) fn scan_max(asked: Option<usize>) -> Result<usize> {
    match asked.unwrap_or(SCAN_DEFAULT) {
        rows @ 1..=SCAN_MAX => Ok(rows),
        _ => Err(Problem::invalid("scan_max", format!("must be 1 to {SCAN_MAX}"))),
    }
}

/// Most rows of a page: what was asked for, within the limit.
pub(super) fn rows_max(limit: Option<usize>) -> Result<usize> {
    match limit.unwrap_or(PAGE_ROWS_DEFAULT) {
        rows @ 1..=PAGE_ROWS_MAX => Ok(rows),
        _ => Err(Problem::invalid("limit", format!("must be 1 to {PAGE_ROWS_MAX}"))),
    }
}

#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
#[schemars(inline)]
struct Listing {
    /// Default: live (waiting and claimed); running: claimed
    #[serde(default)]
    state: Status,
    /// Only of this queue
    #[schemars(regex(pattern = queue_pattern()))]
    queue: Option<String>,
    /// Only of this key
    #[serde(default)]
    key: String,
    /// Only jobs whose key has this prefix
    #[serde(default)]
    prefix: String,
    /// Only of this task
    #[serde(default)]
    task: String,
    /// Only jobs with this text in their last error
    #[serde(default)]
    error: String,
    /// Only jobs with this text in their payload or their last error
    #[serde(default)]
    text: String,
    /// Only jobs due then or later; of ended ones, those that ended then or later
    #[serde(default)]
    from: String,
    /// Only jobs due then or earlier; of ended ones, those that ended then or earlier
    #[serde(default)]
    to: String,
    /// Default: time
    #[serde(default)]
    order: By,
    /// Leave out longer payloads
    payload_bytes_max: Option<usize>,
    /// Maximum number of jobs to read to find matches. Default: 10000
    #[schemars(range(min = 1, max = SCAN_MAX))]
    scan_max: Option<usize>,
    /// Maximum number of rows. Default: 50
    #[schemars(range(min = 1, max = PAGE_ROWS_MAX))]
    limit: Option<usize>,
    /// Continue after this: the `next` of the previous page
    after: Option<String>,
}

async fn list(app: Shared, caller: Caller, Query(listing): Query<Listing>) -> Result<Answer<Jobs>> {
    caller.scope.check_named(listing.queue.as_deref())?;
    let wanted = Wanted {
        queue: listing.queue.as_deref(),
        status: listing.state,
        by: listing.order,
        filters: Filters {
            key: &listing.key,
            prefix: &listing.prefix,
            task: &listing.task,
            error: &listing.error,
            text: &listing.text,
            from: &listing.from,
            to: &listing.to,
        },
        payload_bytes_max: listing.payload_bytes_max,
        scan_max: scan_max(listing.scan_max)?,
        after: listing.after.as_deref(),
        rows_max: rows_max(listing.limit)?,
    };
    Answer::jobs(job_pages::page(&*app.store, wanted).await?.page).await
}

async fn show(app: Shared, Part(id): Part<JobId>, wait: Wait) -> Result<Response> {
    let Some(place) = wait.place(&app)? else {
        let job = find::job(&*app.store, id).await?;
        return Ok(in_full(&app, job).await?.into_response());
    };
    let (job, share) = place.end_of(&app, id).await?;
    Ok(held(in_full(&app, job).await?.into_response(), share))
}

async fn in_full(app: &App, job: JobView) -> Result<Answer<Job>> {
    let store = &*app.store;
    let noted = failures::of(store, job.id).await?;
    let (first, retried) = (noted.first, noted.retried());
    let bytes = bytes_of(&job);
    Answer::written(bytes, move || Job::from(job).with_failures(noted.latest, first, retried)).await
}

async fn retry(app: Shared, Part(id): Part<JobId>) -> Result<Answer<Job>> {
    Answer::job(jobs::retried(&*app.store, id).await?).await
}

async fn delete(app: Shared, Part(id): Part<JobId>) -> Result<Answer<JobDeleted>> {
    let job = find::job(&*app.store, id).await?;
    jobs::deleted(&*app.store, &job).await?;
    Ok(Answer::of(&JobDeleted::new(id)))
}

/// One of the two.
#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
#[schemars(inline, transform = |schema: &mut _| exactly_one(schema, &["run_at", "delay"]))]
struct When {
    #[serde(alias = "available_at", alias = "perform_in")]
    run_at: Option<Time>,
    /// From now
    delay: Option<Length>,
}

async fn reschedule(
    app: Shared,
    Part(id): Part<JobId>,
    Json(when): Json<When>,
) -> Result<Answer<Job>> {
    let at = match (when.run_at, when.delay) {
        (Some(Time(time)), None) => time,
        (None, Some(Length(length))) => app.store.now().await? + length,
        _ => return Err(Problem::invalid("run_at", "write run_at or delay")),
    };
    Answer::job(jobs::amended(&*app.store, id, Change::RunAt(at)).await?).await
}

#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
#[schemars(inline)]
struct Node {
    /// The configured name of a node, or null
    // Null is a value; a missing field is a mistake.
    #[serde(deserialize_with = "Option::deserialize")]
    #[schemars(schema_with = "nullable_text")]
    node: Option<String>,
}

fn nullable_text(generator: &mut SchemaGenerator) -> Schema {
    generator.subschema_for::<Option<String>>()
}

async fn reassign(
    app: Shared,
    Part(id): Part<JobId>,
    Json(Node { node }): Json<Node>,
) -> Result<Answer<Job>> {
    Answer::job(jobs::amended(&*app.store, id, Change::Node(node)).await?).await
}
