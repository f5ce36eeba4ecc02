//! Queues: what there is, how they are defined, and what is done to a whole one.

use std::collections::BTreeMap;

use axum::extract::State;
use serde::Deserialize;
use serde_json::{Value, json};
use seriatim::limits::{ATTEMPTS_MAX, TURN_JOBS_MAX};
use seriatim::store::{Declare, LaneAction, delete_queue};
use seriatim::{Queue, store::Store};

use super::auth::Access;
use super::caller::Caller;
use super::input::{Json, Object, Part, Query};
use super::limits::JOB_BYTES;
use super::problem::Problem;
use super::route::{Answer, Route, Written};
use super::schema::Schema;
use super::state::Shared;
use super::stats::{figures, mode};
use crate::app::act;
use crate::app::find;
use crate::app::queues;
use crate::config::QueueConfig;

pub(super) fn routes() -> Vec<Route> {
    let queue = || Schema::named("Queue");
    let list = || Schema::object(&[("queues", Schema::list(queue()))]);
    let settings = || Schema::named("QueueSettings");
    let several =
        Schema::object(&[("queues", Schema::map(settings()))]).requiring(&["queues"]).closed();
    let paused = || Schema::object(&[("queue", Schema::text()), ("paused", Schema::truth())]);
    let count = || Schema::object(&[("count", Schema::integer())]);
    let deleted = Schema::object(&[
        ("queue", Schema::text()),
        ("count", Schema::integer()),
        ("released", Schema::integer()),
    ]);
    vec![
        Route::get("/api/v1/queues", Access::Read, list_all)
            .says("All queues")
            .keeps_scope()
            .answers(list()),
        Route::put("/api/v1/queues", Access::Admin, define_all)
            .says("Defines several queues, all or none: {name: settings}")
            .body(several)
            .answers(list()),
        Route::get("/api/v1/queues/{queue}", Access::Read, show)
            .says("One queue: numbers, settings, who works on it")
            .answers(queue()),
        Route::put("/api/v1/queues/{queue}", Access::Admin, define)
            .says("Defines a queue; a setting that is left out has its default, but for the mode")
            .body(settings())
            .answers(queue()),
        Route::delete("/api/v1/queues/{queue}", Access::Admin, delete)
            .says("Deletes a queue with all that is in it; refused while a node works on it, unless by force")
            .query("force", Schema::truth(), "Releases what is claimed, and deletes a queue that a node declares")
            .answers(deleted),
        Route::post("/api/v1/queues/{queue}/drain", Access::Admin, drain)
            .says("Deletes what waits in a queue; what runs, and what waits behind it, stays; of how many lanes")
            .answers(count()),
        Route::post("/api/v1/queues/{queue}/pause", Access::Admin, pause)
            .says("Stops claims of a queue; what runs goes on to its end")
            .answers(paused()),
        Route::post("/api/v1/queues/{queue}/resume", Access::Admin, resume)
            .says("Lets a paused queue go on")
            .answers(paused()),
        Route::post("/api/v1/queues/{queue}/perform-all-now", Access::Admin, perform_all_now)
            .says("Makes all that waits due now; how many lanes")
            .answers(count()),
        Route::post("/api/v1/queues/{queue}/bury-failed", Access::Admin, bury_failed)
            .says("Sends what has failed and waits for a retry to the morgue; of how many lanes")
            .answers(count()),
        Route::post("/api/v1/queues/{queue}/delete-failed", Access::Admin, delete_failed)
            .says("Deletes what has failed and waits for a retry; of how many lanes")
            .answers(count()),
    ]
}

pub(super) fn queue_schema() -> Schema {
    let what = [
        ("queue", Schema::text()),
        ("mode", mode()),
        ("declared", Schema::truth()),
        ("paused", Schema::truth()),
    ];
    let more = [
        ("settings", Schema::any()),
        ("nodes", Schema::list(Schema::text())),
        ("troubles", Schema::list(Schema::named("Trouble"))),
    ];
    Schema::object(&what.into_iter().chain(figures()).chain(more).collect::<Vec<_>>())
}

/// What [`QueueConfig`] takes.
pub(super) fn settings_schema() -> Schema {
    let length = Schema::length_text;
    Schema::object(&[
        ("mode", mode()),
        ("merge", Schema::one_of(&["min", "max", "none"])),
        ("due", Schema::one_of(&["first", "earliest"])),
        ("take", Schema::within(1, TURN_JOBS_MAX as u64)),
        ("batch_size", Schema::within(1, 10_000)),
        ("max_retries", Schema::within(0, u64::from(ATTEMPTS_MAX))),
        ("backoff", Schema::named("Backoff")),
        ("exhausted", Schema::one_of(&["bury", "hold", "drop"])),
        ("max_crashes", Schema::within(1, 1_000)),
        ("timeout", length()),
        ("lease", length()),
        ("lease_max", length()),
        ("retain_completed", length()),
        ("retain_dead", length()),
        ("retain_dead_max", Schema(json!({ "type": "integer", "minimum": 0 }))),
        ("idempotency_ttl", length()),
        ("weight", Schema::within(1, 1_000)),
        ("shards", Schema::within(1, 4_096)),
    ])
    .closed()
}

async fn list_all(State(app): State<Shared>, caller: Caller) -> Result<Written, Problem> {
    let mut document = queues::all(&*app.store).await?;
    let is_its = |queue: &Value| queue["queue"].as_str().is_some_and(|q| caller.scope.has_queue(q));
    document["queues"].as_array_mut().into_iter().for_each(|queues| queues.retain(is_its));
    let queues = document["queues"].as_array().map_or(0, Vec::len);
    Written::of(queues * JOB_BYTES, move || document).await
}

async fn show(State(app): State<Shared>, Part(queue): Part<String>) -> Result<Answer, Problem> {
    Ok(Answer(queues::one(&*app.store, &queue).await?))
}

/// Definitions by name.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Definitions {
    queues: BTreeMap<String, Object<QueueConfig>>,
}

async fn define_all(
    State(app): State<Shared>,
    Json(definitions): Json<Definitions>,
) -> Result<Answer, Problem> {
    let known = app.store.queues().await?;
    let mut queues = Vec::new();
    for (name, Object(settings)) in &definitions.queues {
        let known = known.iter().find(|view| view.queue.name == *name);
        let queue = settings.define(name, known.map(|view| view.queue.mode));
        queues.push(queue.map_err(|error| error.in_field(format!("queues.{name}")))?);
    }
    declare(&app, queues).await?;
    Ok(Answer(queues::all(&*app.store).await?))
}

async fn define(
    State(app): State<Shared>,
    Part(name): Part<String>,
    Json(settings): Json<QueueConfig>,
) -> Result<Answer, Problem> {
    let known = app.store.queues().await?;
    let mode = known.iter().find(|view| view.queue.name == name).map(|view| view.queue.mode);
    let queues = vec![settings.define(&name, mode)?];
    declare(&app, queues).await?;
    Ok(Answer(queues::one(&*app.store, &name).await?))
}

async fn declare(app: &Shared, queues: Vec<Queue>) -> Result<(), Problem> {
    app.store.declare(Declare { now: None, queues }).await?;
    app.queues.seen.forget();
    Ok(())
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct How {
    #[serde(default)]
    force: bool,
}

async fn delete(
    State(app): State<Shared>,
    Part(queue): Part<String>,
    Query(How { force }): Query<How>,
) -> Result<Answer, Problem> {
    find::queue(&*app.store, &queue).await?;
    let declares = app.queues.declares(&queue);
    if declares && !force {
        let detail = "this server's configuration declares the queue: take it out there; by force it is deleted, and made again, empty";
        return Err(Problem::conflict(detail));
    }
    let deleted = delete_queue(&*app.store, &queue, force).await?;
    app.queues.forget(&queue);
    if declares {
        app.queues.restore(&*app.store, &queue).await?;
    }
    let (jobs, released) = (deleted.jobs, deleted.released);
    Ok(Answer(json!({ "queue": queue, "count": jobs, "released": released })))
}

async fn drain(State(app): State<Shared>, Part(queue): Part<String>) -> Result<Answer, Problem> {
    find::queue(&*app.store, &queue).await?;
    Ok(Answer(count(act::drain(&app.store, &queue).await?)))
}

async fn pause(State(app): State<Shared>, Part(queue): Part<String>) -> Result<Answer, Problem> {
    set_paused(&*app.store, &queue, true).await
}

async fn resume(State(app): State<Shared>, Part(queue): Part<String>) -> Result<Answer, Problem> {
    set_paused(&*app.store, &queue, false).await
}

async fn set_paused(store: &dyn Store, queue: &str, paused: bool) -> Result<Answer, Problem> {
    find::queue(store, queue).await?;
    store.pause_queue(queue, paused).await?;
    Ok(Answer(json!({ "queue": queue, "paused": paused })))
}

async fn perform_all_now(
    State(app): State<Shared>,
    Part(queue): Part<String>,
) -> Result<Answer, Problem> {
    find::queue(&*app.store, &queue).await?;
    Ok(Answer(count(act::on_all(&app.store, &queue, LaneAction::RunNow).await?)))
}

async fn bury_failed(
    State(app): State<Shared>,
    Part(queue): Part<String>,
) -> Result<Answer, Problem> {
    to_failed(&*app.store, &queue, LaneAction::Bury).await
}

async fn delete_failed(
    State(app): State<Shared>,
    Part(queue): Part<String>,
) -> Result<Answer, Problem> {
    to_failed(&*app.store, &queue, LaneAction::Delete).await
}

async fn to_failed(store: &dyn Store, queue: &str, action: LaneAction) -> Result<Answer, Problem> {
    find::queue(store, queue).await?;
    Ok(Answer(count(act::on_failed(store, queue, action).await?)))
}

/// To how many it was done.
pub(super) fn count(count: u64) -> Value {
    json!({ "count": count })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_documentation_names_what_a_queue_takes() {
        let error = serde_json::from_str::<QueueConfig>(r#"{"":0}"#).map(|_| ()).unwrap_err();
        let error = error.to_string();
        let known: Vec<&str> = error.split('`').skip(3).step_by(2).collect();
        let mut documented = settings_schema().fields();
        documented.sort_by_key(|name| known.iter().position(|known| known == name));
        assert_eq!(documented, known, "{error}");
    }
}
