//! The router and the document of the API, both made of the list of all endpoints.

use axum::Router;
use axum::middleware::{from_fn, from_fn_with_state};
use seriatim::SharedStore;

use super::around::{self, Gate};
use super::route::Route;
use super::state::{App, Shared};
use super::{
    cron, dataloader, deeds, doctor, events, health, history, jobs, lanes, metrics, morgue, nodes,
    openapi, operations, pages, push, queues, stats, work,
};

/// The HTTP API over a store, for a service to mount in its own router.
///
/// It checks no tokens and limits neither connections nor the time that a request may take to arrive:
/// access control is up to the service.
///
/// ```
/// # fn mount(store: seriatim::SharedStore) -> axum::Router {
/// axum::Router::new().nest("/jobs", seriatim_server::router(store))
/// # }
/// ```
pub fn router(store: SharedStore) -> Router {
    build(&App::open(store))
}

/// The OpenAPI document of an API below this prefix.
pub(crate) fn api_document(base_path: &str) -> serde_json::Value {
    openapi::document(&routes(), base_path)
}

/// Every endpoint.
pub(super) fn routes() -> Vec<Route> {
    [
        health::routes(),
        metrics::routes(),
        openapi::routes(),
        stats::routes(),
        dataloader::routes(),
        push::routes(),
        queues::routes(),
        lanes::routes(),
        morgue::routes(),
        jobs::routes(),
        nodes::routes(),
        cron::routes(),
        events::routes(),
        work::routes(),
        doctor::routes(),
        history::routes(),
        deeds::routes(),
        operations::routes(),
    ]
    .into_iter()
    .flatten()
    .collect()
}

/// The router of a process that has no store yet.
pub(super) fn before_the_store(base_path: &str) -> Router {
    health::early(base_path).layer(from_fn(around::identify))
}

/// The router, with everything below the prefix.
pub(super) fn build(app: &Shared) -> Router {
    let mut router = Router::new();
    for route in routes().into_iter().chain(pages::routes()) {
        let gate = Gate {
            app: app.clone(),
            access: route.access,
            door: route.door,
            path: route.path,
            reach: route.reach,
            outlives_drain: route.outlives_drain,
            is_traffic: route.is_traffic,
        };
        let handler = route.handler.route_layer(from_fn_with_state(gate, around::gate));
        if route.path == "/" && !app.base_path.is_empty() {
            router = router.route(&app.base_path, handler.clone());
        }
        router = router.route(&format!("{}{}", app.base_path, route.path), handler);
    }
    router
        .fallback(around::nothing_here)
        .method_not_allowed_fallback(around::not_so)
        .layer(from_fn(around::identify))
        .layer(from_fn_with_state(app.clone(), around::count))
        .with_state(app.clone())
}
