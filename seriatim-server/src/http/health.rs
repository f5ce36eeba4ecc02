//! Whether this process is alive and ready, and its version.

use std::time::Duration;

use axum::Router;
use axum::routing::get;
use tokio::time::timeout;

use super::{Access, Answer, Problem, Result, Route, Shared};
use crate::protocol::document::{Health, Info};

/// A store that does not answer in this time is down.
const READY_MAX: Duration = Duration::from_secs(2);

pub(super) fn routes() -> Vec<Route> {
    vec![
        Route::get("/health", Access::Open, health)
            .says("Whether the process is alive; does not ask the store")
            .outlives_drain(),
        Route::get("/ready", Access::Open, ready).says(
            "Whether the process accepts requests: it is not draining, and the store answers",
        ),
        Route::get("/info", Access::Open, info)
            .says("Service, version and environment")
            .outlives_drain(),
    ]
}

/// The router of a process whose store has not answered yet.
pub(super) fn early(base_path: &str) -> Router {
    Router::new()
        .route(&format!("{base_path}/health"), get(health))
        .fallback(async || Problem::unavailable("the store has not answered yet; retrying"))
}

async fn health() -> Answer<Health> {
    Answer::of(&Health { status: "healthy" })
}

async fn ready(app: Shared) -> Result<Answer<Health>> {
    match timeout(READY_MAX, app.store.now()).await {
        Ok(Ok(_)) => Ok(Answer::of(&Health { status: "ready" })),
        Ok(Err(error)) => {
            Err(Problem::unavailable(format!("the store is away: {}", error.message())))
        }
        Err(_) => Err(Problem::unavailable("the store does not answer in time")),
    }
}

async fn info(app: Shared) -> Answer<Info> {
    let (service, version) = ("seriatim", env!("CARGO_PKG_VERSION"));
    Answer::of(&Info { service, version, environment: app.environment.clone() })
}
