//! Operations: actions on many jobs or lanes.

use std::time::Duration;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use seriatim::store::Store;

use super::operator;
use super::route::OPERATIONS_PATH;
use super::{Access, Answer, Caller, Json, Part, Query, Result, Route, Scope, Shared};
use crate::app::operations::{self, Operation, Preview, Wish, preview};

pub(super) fn routes() -> Vec<Route> {
    vec![
        Route::get(OPERATIONS_PATH, Access::Read, list)
            .says("Operations, the latest first: the last hundred, and those that have not ended")
            .keeps_scope(),
        Route::get("/api/v1/operations/preview", Access::Read, look)
            .says("How many jobs or lanes an operation would change, and five of them")
            .keeps_scope(),
        Route::post(OPERATIONS_PATH, Access::Operate, begin)
            .says("Starts an action on many jobs or lanes, in steps of at most 1,000. Deletions and burials need the role admin")
            .keeps_scope(),
        Route::get("/api/v1/operations/{operation}", Access::Read, show)
            .says("The progress of an operation")
            .keeps_scope(),
        Route::post("/api/v1/operations/{operation}/stop", Access::Operate, stop)
            .says("Stops an operation before its next step; what is done stays done")
            .keeps_scope(),
    ]
}

/// Operations, the latest first.
#[derive(Serialize, JsonSchema)]
pub(super) struct Operations {
    operations: Vec<Operation>,
}

async fn list(app: Shared, caller: Caller) -> Result<Answer<Operations>> {
    let may_use = |queue: &str| caller.scope.has_queue(queue);
    let operations = operations::list_within(&*app.store, may_use).await?;
    Ok(Answer::of(&Operations { operations }))
}

async fn look(app: Shared, caller: Caller, Query(wish): Query<Wish>) -> Result<Answer<Preview>> {
    let wish = meant(&*app.store, &caller.scope, wish).await?;
    Ok(Answer::of(&preview(&*app.store, &wish).await?))
}

/// The wish with the names of its queues; refuses those that the caller may not use.
pub(super) async fn meant(store: &dyn Store, scope: &Scope, wish: Wish) -> Result<Wish> {
    for queue in wish.named_queues() {
        scope.check_queue(queue)?;
    }
    Ok(wish.resolved(store, |queue| scope.has_queue(queue)).await?)
}

/// The number that a caller confirms, beside the wish.
#[derive(Default, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
#[schemars(inline)]
struct Confirmed {
    /// To delete more than 1,000: their number, as the preview returns it
    confirm: Option<u64>,
}

async fn begin(
    app: Shared,
    caller: Caller,
    Query(Confirmed { confirm }): Query<Confirmed>,
    Json(wish): Json<Wish>,
) -> Result<Answer<Operation>> {
    let wish = meant(&*app.store, &caller.scope, wish).await?;
    if wish.action.needs_admin() {
        caller.who.admit(Access::Admin)?;
    }
    let (who, place) = (caller.who.name().to_owned(), wish.place());
    let begun = operator::begin(&app, wish, &who, confirm, Duration::ZERO).await?;
    Ok(Answer::of(&begun).on(place))
}

async fn show(app: Shared, caller: Caller, Part(id): Part<String>) -> Result<Answer<Operation>> {
    Ok(Answer::of(&of_scope(&app, &caller, &id).await?))
}

async fn stop(app: Shared, caller: Caller, Part(id): Part<String>) -> Result<Answer<Operation>> {
    of_scope(&app, &caller, &id).await?;
    Ok(Answer::of(&operations::stop(&*app.store, &id, caller.who.name()).await?))
}

/// The operation, if it is about a queue of the caller's: others do not learn that there is one.
async fn of_scope(app: &Shared, caller: &Caller, id: &str) -> Result<Operation> {
    let operation = operations::show(&*app.store, id).await?;
    match operation.is_within(|queue| caller.scope.has_queue(queue)) {
        true => Ok(operation),
        false => Err(crate::app::error::Error::NoOperation(id.to_owned()).into()),
    }
}
