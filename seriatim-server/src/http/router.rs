//! The router and the document of the API, both made of the list of all endpoints.

use axum::Router;
use axum::http::request::Parts;
use axum::middleware::{from_fn, from_fn_with_state};
use seriatim::SharedStore;

use super::around::{self, Gate};
use super::auth::Guard;
use super::person::{Host, Person};
use super::{App, Route, Shared};
use super::{
    batches, bridges, cron, dataloader, deeds, doctor, events, health, history, jobs, lanes,
    metrics, morgue, nodes, openapi, operations, pages, push, queues, scheduled, search, stats,
    work,
};

/// The HTTP API over a store, for a service to mount in its own router.
///
/// It checks no tokens and limits neither connections nor the time that a request may take to arrive:
/// access control is up to the service. The [dashboard](dashboard()) is a part of it, with all rights for everybody who
/// reaches it; mount that alone to name visitors and their roles.
///
/// ```
/// # fn mount(store: seriatim::SharedStore) -> axum::Router {
/// axum::Router::new().nest("/jobs", seriatim_server::router(store))
/// # }
/// ```
pub fn router(store: SharedStore) -> Router {
    build(&App::open(store))
}

/// The dashboard over a store, without the API, for a service to mount in its own router.
///
/// ```
/// # fn mount(store: seriatim::SharedStore) -> axum::Router {
/// use seriatim_server::Person;
/// let dashboard = seriatim_server::dashboard(store).who(|parts| {
///     // What the service's own login has put there: an extension, or a cookie in `parts.headers`.
///     let name = parts.extensions.get::<String>()?;
///     Some(if name == "ann" { Person::operator(name) } else { Person::reader(name) })
/// });
/// axum::Router::new().nest("/jobs", dashboard.router())
/// # }
/// ```
pub fn dashboard(store: SharedStore) -> Dashboard {
    Dashboard { store, guard: Guard::default() }
}

/// See [`dashboard()`].
#[must_use]
pub struct Dashboard {
    store: SharedStore,
    guard: Guard,
}

impl Dashboard {
    /// Calls this for each request to identify the visitor: the name is in the audit log, the role decides what they
    /// may do. `None` is refused. Without it everybody who reaches the pages may do everything.
    pub fn who(mut self, ask: impl Fn(&Parts) -> Option<Person> + Send + Sync + 'static) -> Self {
        self.guard.host = Some(Host::new(ask));
        self
    }

    /// The pages, to be mounted.
    pub fn router(self) -> Router {
        made_of(pages::routes(), &App::mounted(self.store, self.guard))
    }
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
        batches::routes(),
        queues::routes(),
        lanes::routes(),
        scheduled::routes(),
        search::routes(),
        morgue::routes(),
        jobs::routes(),
        nodes::routes(),
        bridges::routes(),
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

/// The router of a server, with everything below the prefix.
pub(super) fn build(app: &Shared) -> Router {
    let pages = app.dashboard.enabled.then(pages::routes).into_iter().flatten();
    made_of(routes().into_iter().chain(pages), app)
}

fn made_of(routes: impl IntoIterator<Item = Route>, app: &Shared) -> Router {
    let mut router = Router::new();
    for route in routes {
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

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use axum::body::Body;
    use axum::http::{Request, StatusCode};
    use hyper::service::Service;
    use hyper_util::service::TowerToHyperService;
    use seriatim::Queue;
    use seriatim::store::{Declare, Memory, Queues, Views};

    use super::*;
    use crate::app::deeds::{Wanted, latest};

    #[tokio::test]
    async fn a_service_says_who_looks_and_what_they_may_do() {
        let store = Arc::new(Memory::new());
        let queues = vec![Queue::fifo("orders")];
        store.declare(Declare { now: None, queues }).await.unwrap();
        let pages = dashboard(store.clone()).who(|parts| {
            match parts.headers.get("x-me")?.to_str().ok()? {
                "ann" => Some(Person::operator("ann")),
                "bob" => Some(Person::reader("bob")),
                _ => None,
            }
        });
        let service = Router::new().nest("/jobs", pages.router());
        let page = async |path: &str, me: &str| {
            let request = Request::get(path).header("x-me", me).body(Body::empty()).unwrap();
            let answer = TowerToHyperService::new(service.clone()).call(request).await.unwrap();
            let body = axum::body::to_bytes(answer.into_body(), usize::MAX).await.unwrap();
            String::from_utf8(body.to_vec()).unwrap()
        };
        let about = page("/jobs/about", "ann").await;
        let mark = about.split_once("name=\"mark\" value=\"").unwrap().1.split('"').next().unwrap();
        let ask = async |method: &str, path: &str, me: &str| {
            let form = format!("deed=queue.pause&queue=orders&back=/jobs/queues&mark={mark}");
            let request = Request::builder().method(method).uri(path).header("x-me", me);
            let request = request.header("sec-fetch-site", "same-origin");
            let request = request.header("content-type", "application/x-www-form-urlencoded");
            let request = request.body(Body::from(form)).unwrap();
            TowerToHyperService::new(service.clone()).call(request).await.unwrap().status()
        };
        let menu = page("/jobs/queues", "bob").await;
        assert!(menu.contains("<a href=\"/jobs\">Overview</a>"), "{menu}");
        assert!(!menu.contains("\"/jobs/\""), "a nested router has no such address");
        assert!(page("/jobs", "bob").await.contains("<h1 class=\"unseen\">Overview</h1>"));
        assert_eq!(ask("GET", "/jobs/queues", "bob").await, StatusCode::OK);
        assert_eq!(ask("GET", "/jobs/queues", "eve").await, StatusCode::FORBIDDEN);
        assert_eq!(ask("GET", "/jobs/api/v1/queues", "ann").await, StatusCode::NOT_FOUND);
        assert_eq!(ask("POST", "/jobs/do", "bob").await, StatusCode::FORBIDDEN);
        assert!(!store.queues().await.unwrap()[0].paused);
        assert_eq!(ask("POST", "/jobs/do", "ann").await, StatusCode::SEE_OTHER);
        assert!(store.queues().await.unwrap()[0].paused);
        let deeds = latest(&*store, Wanted::default(), 10).await.unwrap().entries;
        assert_eq!(deeds[0].who, "ann");
    }
}
