//! Bridges: those of all nodes.

use schemars::JsonSchema;
use serde::Deserialize;
use seriatim::limits::NAME_BYTES_MAX;

use super::{Access, Answer, Caller, Part, Query, Result, Route, Shared};
use crate::app::bridges::{self, Which};
use crate::protocol::document::{Bridge, Bridges};

pub(super) fn routes() -> Vec<Route> {
    vec![
        Route::get("/api/v1/bridges", Access::Read, list).says(
            "The bridges of all nodes: what each moved, what is left, what stands in the way",
        ),
        Route::post("/api/v1/bridges/{bridge}/pause", Access::Operate, pause)
            .says("Pauses a bridge, or one of its sources: nothing more is taken"),
        Route::post("/api/v1/bridges/{bridge}/resume", Access::Operate, resume)
            .says("Resumes a bridge, or one of its sources"),
    ]
}

#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
#[schemars(inline)]
struct Paused {
    /// One source: a queue of the other system, `schedule`, `retry`, `dead`, or `morgue:NAME` of Lowkiq
    source: Option<String>,
    /// Why; shown to others
    #[schemars(length(max = NAME_BYTES_MAX))]
    reason: Option<String>,
}

#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
#[schemars(inline)]
struct OneSource {
    /// One source: a queue of the other system, `schedule`, `retry`, `dead`, or `morgue:NAME` of Lowkiq
    source: Option<String>,
}

async fn list(app: Shared) -> Result<Answer<Bridges>> {
    Ok(Answer::of(&Bridges { bridges: bridges::all(&*app.store).await? }))
}

async fn pause(
    app: Shared,
    caller: Caller,
    Part(name): Part<String>,
    Query(Paused { source, reason }): Query<Paused>,
) -> Result<Answer<Bridge>> {
    let which = Which { bridge: &name, source: source.as_deref(), configured: &[] };
    let bridge = bridges::pause(&*app.store, which, &caller.name(), reason.as_deref()).await?;
    Ok(Answer::of(&bridge).counting(1))
}

async fn resume(
    app: Shared,
    Part(name): Part<String>,
    Query(OneSource { source }): Query<OneSource>,
) -> Result<Answer<Bridge>> {
    let which = Which { bridge: &name, source: source.as_deref(), configured: &[] };
    Ok(Answer::of(&bridges::resume(&*app.store, which).await?).counting(1))
}
