//! The numbers of all queues, in Lowkiq's shape.

use axum::extract::State;

use super::auth::Access;
use super::limits::JOB_BYTES;
use super::problem::Problem;
use super::route::{Route, Written};
use super::schema::Schema;
use super::state::Shared;
use crate::commands::stats::as_json;

pub(super) fn routes() -> Vec<Route> {
    let numbers = || {
        [
            ("length", Schema::integer()),
            ("morgue_length", Schema::integer()),
            ("lag", Schema::number()),
        ]
    };
    let answer = Schema::object(&[
        ("total", Schema::object(&numbers())),
        ("by_worker", Schema::map(Schema::object(&numbers()))),
    ]);
    vec![
        Route::get("/api/v1/stats", Access::Read, stats)
            .says("The numbers of all queues, in all and one by one")
            .answers(answer),
    ]
}

async fn stats(State(app): State<Shared>) -> Result<Written, Problem> {
    let stats = app.store.stats(None).await?;
    Written::of(stats.len() * JOB_BYTES, move || as_json(&stats)).await
}
