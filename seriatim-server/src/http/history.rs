//! The history of figures.

use schemars::JsonSchema;
use serde::Deserialize;

use super::{Access, Answer, Caller, Part, Query, Result, Route, Shared};
use crate::app::find;
use crate::app::history::{self, History, Span, Tasks};
use crate::protocol::schema::queue_pattern;

pub(super) fn routes() -> Vec<Route> {
    vec![
        Route::get("/api/v1/history", Access::Read, show)
            .says("Past metrics: by the minute for a day, by the hour for 30 days. Times without work are left out")
            .keeps_scope(),
        Route::get("/api/v1/queues/{queue}/tasks", Access::Read, show_tasks)
            .says("How long the turns of each task took: by the minute for a day, by the hour for 30 days"),
    ]
}

#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
#[schemars(inline)]
struct Wish {
    /// Only of this queue; default: all together
    #[schemars(regex(pattern = queue_pattern()))]
    queue: Option<String>,
    /// How far back. Default: 1h
    #[serde(default)]
    span: Span,
}

async fn show(
    app: Shared,
    caller: Caller,
    Query(Wish { queue, span }): Query<Wish>,
) -> Result<Answer<History>> {
    caller.scope.check_named(queue.as_deref())?;
    if let Some(queue) = &queue {
        find::queue(&*app.store, queue).await?;
    }
    Ok(Answer::of(&history::document(&*app.store, queue.as_deref(), span).await?))
}

#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
#[schemars(inline)]
struct Back {
    /// How far back. Default: 1h
    #[serde(default)]
    span: Span,
}

async fn show_tasks(
    app: Shared,
    Part(queue): Part<String>,
    Query(Back { span }): Query<Back>,
) -> Result<Answer<Tasks>> {
    find::queue(&*app.store, &queue).await?;
    let now = app.store.now().await?;
    Ok(Answer::of(&history::tasks(&*app.store, &queue, span, now).await?))
}
