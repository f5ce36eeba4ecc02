//! Whether this process lives, whether it is of use, and what it is.

use std::time::Duration;

use axum::Router;
use axum::extract::State;
use axum::routing::get;
use serde_json::json;
use tokio::time::timeout;

use super::auth::Access;
use super::problem::Problem;
use super::route::{Answer, Route};
use super::schema::Schema;
use super::state::Shared;

/// A store that has not told its time by then is away.
const READY_MAX: Duration = Duration::from_secs(2);

pub(super) fn routes() -> Vec<Route> {
    let status = || Schema::object(&[("status", Schema::text())]);
    let info =
        [("service", Schema::text()), ("version", Schema::text()), ("environment", Schema::text())];
    vec![
        Route::get("/health", Access::Open, health)
            .says("Whether the process lives; the store is not asked")
            .answers(status())
            .outlives_drain(),
        Route::get("/ready", Access::Open, ready)
            .says("Whether it takes requests: it does not drain, and the store answers")
            .answers(status()),
        Route::get("/info", Access::Open, info_of)
            .says("What this is")
            .answers(Schema::object(&info))
            .outlives_drain(),
    ]
}

/// What a process answers whose store has not answered yet.
pub(super) fn early(base_path: &str) -> Router {
    Router::new()
        .route(&format!("{base_path}/health"), get(health))
        .fallback(async || Problem::unavailable("the store has not answered yet: it is waited for"))
}

async fn health() -> Answer {
    Answer(json!({ "status": "healthy" }))
}

async fn ready(State(app): State<Shared>) -> Result<Answer, Problem> {
    match timeout(READY_MAX, app.store.now()).await {
        Ok(Ok(_)) => Ok(Answer(json!({ "status": "ready" }))),
        Ok(Err(error)) => {
            Err(Problem::unavailable(format!("the store is away: {}", error.message())))
        }
        Err(_) => Err(Problem::unavailable("the store does not answer in time")),
    }
}

async fn info_of(State(app): State<Shared>) -> Answer {
    let version = env!("CARGO_PKG_VERSION");
    Answer(json!({ "service": "seriatim", "version": version, "environment": app.environment }))
}
