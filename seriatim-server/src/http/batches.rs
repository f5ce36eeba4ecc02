//! Batches: sets of jobs whose end makes one more job.

use schemars::JsonSchema;
use serde::Deserialize;
use seriatim::limits::PAGE_ROWS_MAX;

use super::input::Object;
use super::jobs::rows_max;
use super::{Access, Answer, Caller, Json, Part, Query, Result, Route, Shared};
use crate::app::batches;
use crate::protocol::document::{Batch, Batches};
use crate::protocol::job_input::JobInput;

pub(super) fn routes() -> Vec<Route> {
    vec![
        Route::get("/api/v1/batches", Access::Read, list)
            .says("Batches, the latest first"),
        Route::put("/api/v1/batches/{batch}", Access::Produce, open)
            .says("Opens a batch: pushes may name it from now on. Repeating it changes nothing")
            .traffic(),
        Route::post("/api/v1/batches/{batch}/seal", Access::Cancel, seal)
            .says("Seals a batch: when its last job has ended, or now if none is left, its callback is pushed, with the counts")
            .traffic(),
        Route::get("/api/v1/batches/{batch}", Access::Follow, show)
            .says("How many jobs of a batch have ended, and how"),
    ]
}

#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
#[schemars(inline)]
struct Opening {
    /// The queue of the callback
    queue: String,
    /// The job to push when the batch ends, due at once. Default: no key, payload null
    #[serde(default)]
    callback: Object<JobInput>,
}

async fn open(
    app: Shared,
    caller: Caller,
    Part(id): Part<String>,
    Json(Opening { queue, callback: Object(callback) }): Json<Opening>,
) -> Result<Answer<Batch>> {
    seriatim::store::validate_queue_name(&queue)?;
    let callback = callback.into_job(&queue).map_err(|error| error.in_field("callback"))?;
    caller.scope.check_push(&callback)?;
    app.queues.makes(&*app.store, &queue).await?;
    Ok(Answer::of(&app.client.open_batch(id, callback).await?.into()))
}

#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
#[schemars(inline)]
struct Listing {
    /// Only batches that have not ended. Default: false
    #[serde(default)]
    live: bool,
    /// Maximum number of rows. Default: 50
    #[schemars(range(min = 1, max = PAGE_ROWS_MAX))]
    limit: Option<usize>,
    /// Continue after this: the `next` of the previous page
    after: Option<String>,
}

async fn list(
    app: Shared,
    Query(Listing { live, limit, after }): Query<Listing>,
) -> Result<Answer<Batches>> {
    Ok(Answer::of(&batches::page(&*app.store, live, after, rows_max(limit)?).await?))
}

async fn seal(app: Shared, Part(id): Part<String>) -> Result<Answer<Batch>> {
    Ok(Answer::of(&app.client.seal_batch(id).await?.into()))
}

async fn show(app: Shared, Part(id): Part<String>) -> Result<Answer<Batch>> {
    Ok(Answer::of(&batches::one(&*app.store, &id).await?))
}
