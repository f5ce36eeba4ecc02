//! What happens around every request: it gets an id, is let in or not, and is counted.

use axum::extract::{Request, State};
use axum::http::{HeaderName, HeaderValue, StatusCode};
use axum::middleware::Next;
use axum::response::{IntoResponse, Response};

use super::auth::Access;
use super::problem::Problem;
use super::route::{Met, method_word};
use super::state::Shared;

const REQUEST_ID: HeaderName = HeaderName::from_static("x-request-id");
/// Longest request id that is taken over from a client.
const REQUEST_ID_BYTES_MAX: usize = 128;

/// What stands before one endpoint.
#[derive(Clone)]
pub(super) struct Gate {
    pub(super) app: Shared,
    pub(super) access: Access,
    pub(super) path: &'static str,
    pub(super) outlives_drain: bool,
}

/// Lets a request in, or not.
pub(super) async fn gate(State(gate): State<Gate>, request: Request, next: Next) -> Response {
    let checked = gate.app.guard.check(gate.access, request.method(), request.headers());
    let mut response = match checked {
        Err(problem) => problem.into_response(),
        Ok(()) if gate.app.is_draining() && !gate.outlives_drain => {
            Problem::unavailable("this node is draining: ask another one").into_response()
        }
        Ok(()) => next.run(request).await,
    };
    response.extensions_mut().insert(Met(gate.path));
    response
}

/// Gives the request an id, the client's own where it sent one, and sends it back.
pub(super) async fn identify(request: Request, next: Next) -> Response {
    let fits = |id: &&HeaderValue| {
        !id.is_empty() && id.len() <= REQUEST_ID_BYTES_MAX && id.to_str().is_ok()
    };
    let own = request.headers().get(&REQUEST_ID).filter(fits).cloned();
    let id = own.or_else(|| format!("{:032x}", fastrand::u128(..)).parse().ok());
    let mut response = next.run(request).await;
    if let Some(id) = id {
        response.headers_mut().insert(REQUEST_ID, id);
    }
    response
}

/// Counts the request by route and status.
pub(super) async fn count(State(app): State<Shared>, request: Request, next: Next) -> Response {
    let method = method_word(&request);
    let response = next.run(request).await;
    let route = response.extensions().get::<Met>().map_or("other", |met| met.0);
    app.meter.requested(method, route, response.status().as_u16());
    response
}

/// There is no such path.
pub(super) async fn nothing_here(request: Request) -> Problem {
    Problem::missing(format!(
        "there is nothing at {}; /openapi.json lists what there is",
        request.uri().path()
    ))
}

/// There is such a path, for other methods; the router adds which.
pub(super) async fn not_so(request: Request) -> Problem {
    Problem::new(
        StatusCode::METHOD_NOT_ALLOWED,
        format!("{} is not answered here; the header Allow says what is", request.method()),
    )
}
