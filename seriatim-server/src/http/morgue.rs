//! The dead jobs of a queue.

use axum::extract::State;
use serde::Deserialize;
use seriatim::JobId;
use seriatim::store::{Selected, Selection};

use super::auth::Access;
use super::input::{Json, Part, Query};
use super::jobs::rows_max;
use super::problem::Problem;
use super::queues::count;
use super::route::{Answer, Route, Written};
use super::schema::Schema;
use super::state::Shared;
use crate::app::act::{self, Bulk};
use crate::app::find;
use crate::app::morgue::{self, By};

pub(super) fn routes() -> Vec<Route> {
    let page = Schema::object(&[
        ("jobs", Schema::list(Schema::named("JobView"))),
        ("next", Schema::text().or_null()),
    ]);
    let acted = || Schema::object(&[("count", Schema::integer())]);
    vec![
        Route::get("/api/v1/queues/{queue}/morgue", Access::Read, list)
            .says("The dead jobs of a queue, newest first or by key")
            .query(
                "order",
                Schema::one_of(&["updated_at", "key", "arrival"]),
                "By what; by default updated_at",
            )
            .query("key", Schema::text(), "Only of this key")
            .paged()
            .answers(page),
        Route::post("/api/v1/queues/{queue}/morgue/requeue", Access::Admin, requeue)
            .says("Sends dead jobs back to their queue, due now")
            .body(Schema::named("DeadJobs"))
            .answers(acted()),
        Route::post("/api/v1/queues/{queue}/morgue/delete", Access::Admin, delete)
            .says("Deletes dead jobs")
            .body(Schema::named("DeadJobs"))
            .answers(acted()),
    ]
}

pub(super) fn dead_schema() -> Schema {
    Schema::object(&[
        ("jobs", Schema::list(Schema::text())),
        ("keys", Schema::list(Schema::text())),
        ("all", Schema(serde_json::json!({ "enum": [true, null] }))),
    ])
    .closed()
    .exactly_one(&["jobs", "keys", "all"])
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Listing {
    #[serde(default)]
    order: By,
    key: Option<String>,
    limit: Option<usize>,
    after: Option<String>,
}

async fn list(
    State(app): State<Shared>,
    Part(queue): Part<String>,
    Query(listing): Query<Listing>,
) -> Result<Written, Problem> {
    let Listing { order, key, limit, after } = listing;
    let page = morgue::page(&*app.store, &queue, order, key, after, rows_max(limit)?).await?;
    Written::jobs(page).await
}

/// Which dead jobs: one of the three.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Which {
    jobs: Option<Vec<JobId>>,
    keys: Option<Vec<String>>,
    all: Option<bool>,
}

impl Which {
    fn selected(self, queue: String) -> Result<Selected, Problem> {
        let which = match (self.jobs, self.keys, self.all) {
            (Some(jobs), None, None) => Selection::Jobs(jobs),
            (None, Some(keys), None) => Selection::Keys(keys),
            (None, None, Some(true)) => Selection::All,
            _ => {
                let detail = r#"say which, in one way: {"jobs":[…]}, {"keys":[…]} or {"all":true}"#;
                return Err(Problem::invalid("jobs", detail));
            }
        };
        Ok(Selected { now: None, queue: queue.into(), which })
    }
}

async fn requeue(
    State(app): State<Shared>,
    Part(queue): Part<String>,
    Json(which): Json<Which>,
) -> Result<Answer, Problem> {
    find::queue(&*app.store, &queue).await?;
    let bulk = Bulk::Requeue(which.selected(queue)?);
    Ok(Answer(count(act::repeat(&*app.store, bulk).await?)))
}

async fn delete(
    State(app): State<Shared>,
    Part(queue): Part<String>,
    Json(which): Json<Which>,
) -> Result<Answer, Problem> {
    find::queue(&*app.store, &queue).await?;
    let bulk = Bulk::DeleteDead(which.selected(queue)?);
    Ok(Answer(count(act::repeat(&*app.store, bulk).await?)))
}
