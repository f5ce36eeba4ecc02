//! Cron entries: those of all nodes.

use schemars::JsonSchema;
use serde::Deserialize;
use seriatim::limits::NAME_BYTES_MAX;

use super::{Access, Answer, Caller, Part, Query, Result, Route, Shared};
use crate::app::cron;
use crate::protocol::document::{CronEntries, CronEntry, CronRun};

pub(super) fn routes() -> Vec<Route> {
    vec![
        Route::get("/api/v1/cron", Access::Read, list)
            .says("The cron entries of all nodes: who has them, their last tick, their next times"),
        Route::post("/api/v1/cron/{name}/run", Access::Operate, run)
            .says("Pushes the job of a cron entry now, also while it is paused"),
        Route::post("/api/v1/cron/{name}/pause", Access::Operate, pause)
            .says("Pauses a cron entry: no node pushes its ticks"),
        Route::post("/api/v1/cron/{name}/resume", Access::Operate, resume)
            .says("Resumes a cron entry; the ticks of the pause count as missed"),
    ]
}

#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
#[schemars(inline)]
struct Why {
    /// Why; shown to others
    #[schemars(length(max = NAME_BYTES_MAX))]
    reason: Option<String>,
}

async fn list(app: Shared) -> Result<Answer<CronEntries>> {
    Ok(Answer::of(&cron::all(&*app.store).await?))
}

async fn run(app: Shared, caller: Caller, Part(name): Part<String>) -> Result<Answer<CronRun>> {
    Ok(Answer::of(&cron::run(&*app.store, &name, &caller.name()).await?).counting(1))
}

async fn pause(
    app: Shared,
    caller: Caller,
    Part(name): Part<String>,
    Query(Why { reason }): Query<Why>,
) -> Result<Answer<CronEntry>> {
    let reason = reason.as_deref();
    Ok(Answer::of(&cron::pause(&*app.store, &name, &caller.name(), reason).await?).counting(1))
}

async fn resume(app: Shared, Part(name): Part<String>) -> Result<Answer<CronEntry>> {
    Ok(Answer::of(&cron::resume(&*app.store, &name).await?).counting(1))
}
