//! The dead jobs of a queue.

use schemars::JsonSchema;
use serde::Deserialize;
use serde_json::value::RawValue;
use seriatim::limits::PAGE_ROWS_MAX;
use seriatim::store::{Selected, Selection};
use seriatim::{JobId, Payload};

use super::jobs::{rows_max, scan_max};
use super::{Access, Answer, Caller, Json, Part, Problem, Query, Result, Route, Shared};
use crate::app::act::{self, Bulk};
use crate::app::job_filters::Filters;
use crate::app::lane_pages::SCAN_MAX;
use crate::app::morgue::{self, By, Wanted};
use crate::app::{causes, find};
use crate::protocol::document::{Causes, Done, EditedJob, Jobs};
use crate::protocol::schema::{Foreign, exactly_one};

pub(super) fn routes() -> Vec<Route> {
    vec![
        Route::get("/api/v1/queues/{queue}/morgue", Access::Read, list)
            .says("The dead jobs of a queue, newest first or by key"),
        Route::get("/api/v1/queues/{queue}/morgue/causes", Access::Read, causes)
            .says("Why the latest dead jobs of a queue died, most frequent first"),
        Route::post("/api/v1/queues/{queue}/morgue/requeue", Access::Operate, requeue)
            .says("Requeues dead jobs, due now"),
        Route::post("/api/v1/queues/{queue}/morgue/delete", Access::Admin, delete)
            .says("Deletes dead jobs"),
        Route::post("/api/v1/queues/{queue}/morgue/edit", Access::Admin, edit)
            .says("Pushes a dead job again with another payload, and deletes the dead one"),
    ]
}

#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
#[schemars(inline)]
struct Listing {
    /// Default: updated_at
    #[serde(default)]
    order: By,
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
    /// Only jobs that died then or later
    #[serde(default)]
    from: String,
    /// Only jobs that died then or earlier
    #[serde(default)]
    to: String,
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

async fn list(
    app: Shared,
    Part(queue): Part<String>,
    Query(listing): Query<Listing>,
) -> Result<Answer<Jobs>> {
    let wanted = Wanted {
        queue: &queue,
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
        after: listing.after.as_deref(),
        rows_max: rows_max(listing.limit)?,
        payload_bytes_max: listing.payload_bytes_max,
        scan_max: scan_max(listing.scan_max)?,
    };
    Answer::jobs(morgue::page(&*app.store, wanted).await?).await
}

async fn causes(app: Shared, Part(queue): Part<String>) -> Result<Answer<Causes>> {
    Ok(Answer::of(&causes::of_queue(&*app.store, &queue).await?))
}

/// Which dead job, and what it is to be about.
#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
#[schemars(rename = "JobEdit")]
struct Edit {
    #[schemars(with = "Foreign<JobId>")]
    job_id: JobId,
    /// The new payload
    #[schemars(with = "serde_json::Value")]
    payload: Box<RawValue>,
}

async fn edit(
    app: Shared,
    caller: Caller,
    Part(queue): Part<String>,
    Json(Edit { job_id, payload }): Json<Edit>,
) -> Result<Answer<EditedJob>> {
    caller.scope.check_id(&*app.store, job_id).await?;
    let payload = Payload::from_raw(payload);
    let pushed = morgue::edit(&*app.store, &queue, job_id, payload).await?;
    Ok(Answer::of(&EditedJob::new(job_id, &pushed)).counting(1))
}

/// Which dead jobs: one of the three.
#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
#[schemars(rename = "DeadJobs", transform = |schema: &mut _| exactly_one(schema, &["jobs", "keys", "all"]))]
struct Which {
    #[schemars(with = "Option<Vec<Foreign<JobId>>>")]
    jobs: Option<Vec<JobId>>,
    keys: Option<Vec<String>>,
    #[schemars(extend("enum" = [true, null]))]
    all: Option<bool>,
}

impl Which {
    fn selected(self, queue: String) -> Result<Selected> {
        let which = match (self.jobs, self.keys, self.all) {
            (Some(jobs), None, None) => Selection::Jobs(jobs),
            (None, Some(keys), None) => Selection::Keys(keys),
            (None, None, Some(true)) => Selection::All,
            _ => {
                let detail =
                    r#"name the jobs in one way: {"jobs":[…]}, {"keys":[…]} or {"all":true}"#;
                return Err(Problem::invalid("jobs", detail));
            }
        };
        Ok(Selected { now: None, queue: queue.into(), which })
    }
}

async fn requeue(
    app: Shared,
    Part(queue): Part<String>,
    Json(which): Json<Which>,
) -> Result<Answer<Done>> {
    find::queue(&*app.store, &queue).await?;
    let bulk = Bulk::Requeue(which.selected(queue)?);
    Ok(Answer::done(act::repeat(&*app.store, bulk).await?))
}

async fn delete(
    app: Shared,
    Part(queue): Part<String>,
    Json(which): Json<Which>,
) -> Result<Answer<Done>> {
    find::queue(&*app.store, &queue).await?;
    let bulk = Bulk::DeleteDead(which.selected(queue)?);
    Ok(Answer::done(act::repeat(&*app.store, bulk).await?))
}
