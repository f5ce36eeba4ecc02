//! What this node pushes by the clock.

use axum::extract::State;
use seriatim::Timestamp;

use super::auth::Access;
use super::route::{Answer, Route};
use super::schema::Schema;
use super::state::Shared;
use crate::app::cron;

pub(super) fn routes() -> Vec<Route> {
    let text = Schema::text;
    let entry = Schema::object(&[
        ("name", text()),
        ("schedule", text()),
        ("time_zone", text()),
        ("queue", text()),
        ("next", Schema::list(text())),
    ]);
    vec![
        Route::get("/api/v1/cron", Access::Read, list)
            .says("The entries of this node's configuration, and when each is due next")
            .answers(Schema::object(&[("cron", Schema::list(entry))])),
    ]
}

async fn list(State(app): State<Shared>) -> Answer {
    Answer(cron::document(&app.cron, Timestamp::of_this_machine()))
}
