//! The dead jobs of a queue.

use schemars::JsonSchema;
use serde::Deserialize;
use serde_json::value::RawValue;
use seriatim::limits::PAGE_ROWS_MAX;
use seriatim::store::{Acted, Selected, Selection};
use seriatim::{JobId, Payload};

use super::jobs::{rows_max, scan_max};
use super::operator;
use super::{Access, Answer, Caller, Json, Part, Problem, Query, Result, Route, Shared};
use crate::app::job_filters::Filters;
use crate::app::lane_pages::SCAN_MAX;
use crate::app::morgue::{self, By, Wanted};
use crate::app::operations::{Action, Wish};
use crate::app::{causes, find};
use crate::protocol::document::{BulkDone, Causes, EditedJob, Jobs};
use crate::protocol::schema::{Foreign, exactly_one, queue_pattern};

/// Calls of the store that one request for dead jobs of several keys makes. Each reaches 10,000 jobs.
const CALLS_MAX: usize = 10;

pub(super) fn routes() -> Vec<Route> {
    vec![
        Route::get("/api/v1/queues/{queue}/morgue", Access::Read, list)
            .says("The dead jobs of a queue, newest first or by key"),
        Route::get("/api/v1/queues/{queue}/morgue/causes", Access::Read, causes)
            .says("Why the latest dead jobs of a queue died, most frequent first"),
        Route::get("/api/v1/causes", Access::Read, causes_everywhere)
            .says("Why the latest dead jobs died, of one queue or all, most frequent first")
            .keeps_scope(),
        Route::post("/api/v1/queues/{queue}/morgue/requeue", Access::Operate, requeue)
            .says("Requeues dead jobs, due now")
            .goes_on(),
        Route::post("/api/v1/queues/{queue}/morgue/delete", Access::Admin, delete)
            .says("Deletes dead jobs")
            .goes_on(),
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

async fn causes(app: Shared, caller: Caller, Part(queue): Part<String>) -> Result<Answer<Causes>> {
    let deaths = Deaths { queue: Some(queue), ..Deaths::default() };
    causes_everywhere(app, caller, Query(deaths)).await
}

/// Which dead jobs.
#[derive(Default, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
#[schemars(inline)]
struct Deaths {
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
    /// Only jobs that died then or later
    #[serde(default)]
    from: String,
    /// Only jobs that died then or earlier
    #[serde(default)]
    to: String,
}

async fn causes_everywhere(
    app: Shared,
    caller: Caller,
    Query(deaths): Query<Deaths>,
) -> Result<Answer<Causes>> {
    let store = &*app.store;
    if let Some(queue) = &deaths.queue {
        caller.scope.check_queue(queue)?;
        find::queue(store, queue).await?;
    }
    let filters = Filters {
        key: &deaths.key,
        prefix: &deaths.prefix,
        task: &deaths.task,
        error: &deaths.error,
        text: &deaths.text,
        from: &deaths.from,
        to: &deaths.to,
    };
    let sees = |queue: &str| caller.scope.has_queue(queue);
    let latest = causes::latest(store, deaths.queue.as_deref(), filters, sees).await?;
    Ok(Answer::of(&causes::document(&latest)))
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
    caller: Caller,
    Part(queue): Part<String>,
    Json(which): Json<Which>,
) -> Result<Answer<BulkDone>> {
    act(&app, &caller, queue, which, Action::Requeue).await
}

async fn delete(
    app: Shared,
    caller: Caller,
    Part(queue): Part<String>,
    Json(which): Json<Which>,
) -> Result<Answer<BulkDone>> {
    act(&app, &caller, queue, which, Action::DeleteDead).await
}

/// Acts on dead jobs: on all in one call of the store, which may reach 10,000 of them, and then by an operation; on those
/// that are named in a few calls.
async fn act(
    app: &Shared,
    caller: &Caller,
    queue: String,
    which: Which,
    action: Action,
) -> Result<Answer<BulkDone>> {
    let store = &*app.store;
    find::queue(store, &queue).await?;
    let selected = which.selected(queue.clone())?;
    let is_all = selected.which == Selection::All;
    let mut done = Acted::default();
    for _ in 0..if is_all { 1 } else { CALLS_MAX } {
        let acted = match action {
            Action::Requeue => store.requeue(selected.clone()).await?,
            _ => store.delete_dead(selected.clone()).await?,
        };
        done = Acted { count: done.count + acted.count, more: acted.more && acted.count > 0 };
        if !done.more {
            break;
        }
    }
    match is_all {
        true => {
            let wish = Wish::new(action, queue);
            Ok(operator::rest(app, wish, caller.who.name(), done).await?)
        }
        false if done.more => Ok(Answer::in_part(app, done.count, None)),
        false => Ok(Answer::bulk(done.count)),
    }
}
