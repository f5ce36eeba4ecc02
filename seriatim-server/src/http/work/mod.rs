//! Remote workers: claims, heartbeats and settles by HTTP.
//!
//! Each worker is a node of the store, under a name that no engine and no other token can take. A claim has its own lease, so that the death of the
//! process that served it does not touch it; only the worker's heartbeats extend it.

mod claim;
mod deaths;
mod found;
mod heartbeat;
pub(super) mod locked;
mod repeats;
mod reports;
mod secret;
mod settle;
mod stride;
mod taken;
pub(super) mod workers;

pub(super) use found::claims_of;
pub(super) use secret::store_secret;

use super::{Access, Route};
use crate::protocol::lane::Claimed;

pub(super) fn routes() -> Vec<Route> {
    vec![
        Route::post("/api/v1/work/claim", Access::Work, claim::claim)
            .says("Claims lanes to run; waits if there are none")
            .keeps_scope()
            .answers::<Claimed<'static>>(),
        Route::post("/api/v1/work/heartbeat", Access::Work, heartbeat::heartbeat)
            .says("Extends claims, reports progress and steps, and returns cancelled jobs and lost lanes")
            .keeps_scope()
            .outlives_drain(),
        Route::post("/api/v1/work/settle", Access::Work, settle::settle)
            .says("Ends turns, by the token of their claim; a result whose fencing token is not the newest is stale and changes nothing")
            .keeps_scope()
            .outlives_drain(),
    ]
}

#[cfg(test)]
mod tests {
    use axum::body::{Body, to_bytes};
    use axum::http::{Request, StatusCode};
    use hyper::service::Service;
    use hyper_util::service::TowerToHyperService;
    use serde_json::Value;
    use seriatim::SharedStore;

    use super::super::router::router;

    /// Asks a server of its own over the store.
    pub(super) async fn asked(store: &SharedStore, path: &str, body: Value) -> Value {
        let (status, answer) = answered(store, path, body).await;
        assert_eq!(status, StatusCode::OK, "{answer}");
        answer
    }

    /// The same, whatever the answer.
    pub(super) async fn answered(
        store: &SharedStore,
        path: &str,
        body: Value,
    ) -> (StatusCode, Value) {
        let request = Request::post(format!("/api/v1/work/{path}"));
        let request = request.header("content-type", "application/json");
        let request = request.body(Body::from(body.to_string())).unwrap();
        let service = TowerToHyperService::new(router(store.clone()));
        let answer = service.call(request).await.unwrap();
        let status = answer.status();
        let body = to_bytes(answer.into_body(), usize::MAX).await.unwrap();
        (status, serde_json::from_slice(&body).unwrap())
    }
}
