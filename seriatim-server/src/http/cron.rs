//! Cron entries of this node.

use axum::extract::State;
use seriatim::Timestamp;

use super::auth::Access;
use super::route::{Answer, Route};
use super::state::Shared;
use crate::app::cron;
use crate::protocol::document::CronEntries;

pub(super) fn routes() -> Vec<Route> {
    vec![
        Route::get("/api/v1/cron", Access::Read, list)
            .says("The cron entries of this node's configuration, with their next times"),
    ]
}

async fn list(State(app): State<Shared>) -> Answer<CronEntries> {
    Answer::of(&cron::document(&app.cron, Timestamp::of_this_machine()))
}
