//! The figures of all queues, in Lowkiq's shape.

use axum::extract::State;

use super::auth::Access;
use super::caller::Caller;
use super::limits::JOB_BYTES;
use super::problem::Problem;
use super::route::{Route, Written};
use super::schema::Schema;
use super::state::Shared;
use crate::app::figures::{ALL, Figures, as_json};

pub(super) fn routes() -> Vec<Route> {
    let lowkiq = [("length", Schema::integer()), ("morgue_length", Schema::integer())];
    let total: Vec<_> = lowkiq.into_iter().chain(figures()).collect();
    let what = [("mode", mode()), ("paused", Schema::truth())];
    let of_queue: Vec<_> = total.iter().cloned().chain(what).collect();
    let answer = Schema::object(&[
        ("total", Schema::object(&total)),
        ("by_worker", Schema::map(Schema::object(&of_queue))),
    ]);
    vec![
        Route::get("/api/v1/stats", Access::Read, stats)
            .says("The figures of all queues, in all and one by one")
            .keeps_scope()
            .answers(answer),
    ]
}

/// The figures of a queue.
pub(super) fn figures() -> Vec<(&'static str, Schema)> {
    let counts = ALL.iter().map(|figure| (figure.name, Schema::integer()));
    counts.chain([("lag", Schema::number())]).collect()
}

pub(super) fn mode() -> Schema {
    Schema::one_of(&["parallel", "accumulate", "fifo", "exclusive"])
}

async fn stats(State(app): State<Shared>, caller: Caller) -> Result<Written, Problem> {
    let mut figures = Figures::all(&*app.store).await?;
    figures.retain(|of| caller.scope.has_queue(&of.stats.queue));
    Written::of(figures.len() * JOB_BYTES, move || as_json(&figures)).await
}
