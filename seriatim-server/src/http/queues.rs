//! Queues: listings, definitions, and actions on a whole queue.

use std::collections::BTreeMap;

use schemars::JsonSchema;
use serde::Deserialize;
use seriatim::Queue;
use seriatim::store::{Act, Declare, LaneSelection, delete_queue};

use super::input::Object;
use super::limits::JOB_BYTES;
use super::operator;
use super::{Access, Answer, Caller, Json, Part, Problem, Query, Result, Route, Shared};
use crate::app::find;
use crate::app::operations::{Action, Wish};
use crate::app::pauses;
use crate::app::queues;
use crate::config::QueueConfig;
use crate::protocol::document::{self, BulkDone, QueueDeleted, QueuePaused, Queues};
use crate::protocol::limits;

pub(super) fn routes() -> Vec<Route> {
    type Name = Part<String>;
    let resume = |app: Shared, name: Name| set_paused(app, name, false);
    let drain =
        |app: Shared, who: Caller, name: Name| on_lanes(app, who, name, Action::DeleteWaiting);
    let perform_all_now =
        |app: Shared, who: Caller, name: Name| on_lanes(app, who, name, Action::Retry);
    let bury_failed = |app: Shared, who: Caller, name: Name| on_lanes(app, who, name, Action::Bury);
    let delete_failed =
        |app: Shared, who: Caller, name: Name| on_lanes(app, who, name, Action::DeleteFailed);
    vec![
        Route::get("/api/v1/queues", Access::Read, list_all).says("All queues").keeps_scope(),
        Route::put("/api/v1/queues", Access::Admin, define_all)
            .says("Defines several queues, all or none: {name: settings}"),
        Route::get("/api/v1/queues/{queue}", Access::Read, show)
            .says("One queue: metrics, settings, nodes"),
        Route::put("/api/v1/queues/{queue}", Access::Admin, define)
            .says("Defines a queue; a missing setting gets its default, a missing mode stays"),
        Route::put("/api/v1/queues/{queue}/limits", Access::Admin, set_limits).says(
            "Sets the limit and the groups of a queue; one that is left out is removed. Other settings stay",
        ),
        Route::delete("/api/v1/queues/{queue}", Access::Admin, delete)
            .says("Deletes a queue with its jobs; refused while a node works on it, unless forced"),
        Route::post("/api/v1/queues/{queue}/drain", Access::Admin, drain)
            .says("Deletes the waiting jobs of a queue; claimed lanes stay. Counts lanes")
            .goes_on(),
        Route::post("/api/v1/queues/{queue}/pause", Access::Operate, pause)
            .says("Stops claims of a queue; running turns finish"),
        Route::post("/api/v1/queues/{queue}/resume", Access::Operate, resume)
            .says("Resumes a paused queue"),
        Route::post("/api/v1/queues/{queue}/perform-all-now", Access::Operate, perform_all_now)
            .says("Makes all waiting lanes due now. Counts lanes")
            .goes_on(),
        Route::post("/api/v1/queues/{queue}/bury-failed", Access::Admin, bury_failed)
            .says("Sends failed jobs that wait for a retry to the morgue. Counts lanes")
            .goes_on(),
        Route::post("/api/v1/queues/{queue}/delete-failed", Access::Admin, delete_failed)
            .says("Deletes failed jobs that wait for a retry. Counts lanes")
            .goes_on(),
    ]
}

async fn list_all(app: Shared, caller: Caller) -> Result<Answer<Queues>> {
    let mut document = queues::all(&*app.store).await?;
    document.queues.retain(|queue| caller.scope.has_queue(&queue.queue));
    Answer::written(document.queues.len() * JOB_BYTES, move || document).await
}

async fn show(app: Shared, Part(queue): Part<String>) -> Result<Answer<document::Queue>> {
    Ok(Answer::of(&queues::one(&*app.store, &queue).await?))
}

/// Definitions by name.
#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
#[schemars(inline)]
struct Definitions {
    queues: BTreeMap<String, Object<QueueConfig>>,
}

async fn define_all(app: Shared, Json(definitions): Json<Definitions>) -> Result<Answer<Queues>> {
    let known = app.store.queues().await?;
    let mut queues = Vec::new();
    for (name, Object(settings)) in &definitions.queues {
        let known = known.iter().find(|view| view.queue.name == *name);
        let queue = settings.define(name, known.map(|view| view.queue.mode));
        queues.push(queue.map_err(|error| error.in_field(format!("queues.{name}")))?);
    }
    declare(&app, queues).await?;
    let names: Vec<&str> = definitions.queues.keys().map(String::as_str).collect();
    Ok(Answer::of(&queues::all(&*app.store).await?).on(("queues", names.join(","))))
}

async fn define(
    app: Shared,
    Part(name): Part<String>,
    Json(settings): Json<QueueConfig>,
) -> Result<Answer<document::Queue>> {
    let mode = find::known(&*app.store, &name).await?.map(|view| view.queue.mode);
    declare(&app, vec![settings.define(&name, mode)?]).await?;
    Ok(Answer::of(&queues::one(&*app.store, &name).await?))
}

/// What a queue and its groups may use.
#[derive(Default, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
#[schemars(inline)]
struct Limits {
    /// Of all turns of the queue. Default: no limit
    limit: Option<limits::Limit>,
    /// If set, jobs may have a group, and groups take turns. Default: they may not
    groups: Option<limits::Groups>,
}

async fn set_limits(
    app: Shared,
    Part(name): Part<String>,
    Json(Limits { limit, groups }): Json<Limits>,
) -> Result<Answer<document::Queue>> {
    let set = |queue: &mut Queue| {
        queue.limit = limit.unwrap_or_default().into();
        queue.groups = groups.map(Into::into);
        Ok(())
    };
    crate::app::limits::change(&*app.store, &name, set).await?;
    app.queues.seen.forget();
    Ok(Answer::of(&queues::one(&*app.store, &name).await?))
}

async fn declare(app: &Shared, queues: Vec<Queue>) -> Result<()> {
    app.store.declare(Declare { now: None, queues }).await?;
    app.queues.seen.forget();
    Ok(())
}

#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
#[schemars(inline)]
struct How {
    /// Releases claims, and deletes a queue that a node declares
    #[serde(default)]
    force: bool,
}

async fn delete(
    app: Shared,
    Part(queue): Part<String>,
    Query(How { force }): Query<How>,
) -> Result<Answer<QueueDeleted>> {
    find::queue(&*app.store, &queue).await?;
    let declares = app.queues.declares(&queue);
    if declares && !force {
        let detail = "this server's configuration declares the queue: remove it there, or use force, which deletes the queue and recreates it empty";
        return Err(Problem::conflict(detail));
    }
    let deleted = delete_queue(&*app.store, &queue, force).await?;
    app.queues.forget(&queue);
    if declares {
        app.queues.restore(&*app.store, &queue).await?;
    }
    let (count, released) = (deleted.jobs, deleted.released);
    Ok(Answer::of(&QueueDeleted { queue, count, released }).counting(count))
}

/// Why it is paused.
#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
#[schemars(inline)]
struct Reason {
    /// For other people: the audit log and the pages show it
    reason: Option<String>,
}

async fn pause(
    app: Shared,
    queue: Part<String>,
    Query(Reason { reason }): Query<Reason>,
) -> Result<Answer<QueuePaused>> {
    pauses::check_reason(reason.as_deref())?;
    set_paused(app, queue, true).await
}

async fn set_paused(
    app: Shared,
    Part(queue): Part<String>,
    paused: bool,
) -> Result<Answer<QueuePaused>> {
    find::queue(&*app.store, &queue).await?;
    app.store.pause_queue(queue.as_str().into(), paused).await?;
    Ok(Answer::of(&QueuePaused { queue, paused }))
}

/// Acts on the lanes of a queue, in one call of the store: it may reach 10,000 of them. An operation does the rest.
async fn on_lanes(
    app: Shared,
    caller: Caller,
    Part(queue): Part<String>,
    action: Action,
) -> Result<Answer<BulkDone>> {
    find::queue(&*app.store, &queue).await?;
    let Some(does) = action.on_lanes() else { return Ok(Answer::bulk(0)) };
    let lanes = match action {
        Action::Bury | Action::DeleteFailed => LaneSelection::Failed,
        _ => LaneSelection::All,
    };
    let act = Act { now: None, queue: queue.as_str().into(), lanes, action: does };
    let acted = app.store.act(act).await?;
    Ok(operator::rest(&app, Wish::new(action, queue), caller.who.name(), acted).await?)
}
