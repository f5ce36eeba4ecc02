//! What happens around every request: it gets an id, is let in or not, and is counted.

use axum::extract::{Request, State};
use axum::http::{HeaderName, HeaderValue, StatusCode};
use axum::middleware::Next;
use axum::response::{IntoResponse, Response};
use tracing::Instrument;

use super::audit::Entry;
use super::auth::{Access, Who};
use super::limits::BODY_BYTES_MAX;
use super::problem::Problem;
use super::route::{Met, method_word};
use super::state::Shared;
use crate::trace;

pub(super) const REQUEST_ID: HeaderName = HeaderName::from_static("x-request-id");
/// Longest request id that is taken over from a client.
const REQUEST_ID_BYTES_MAX: usize = 128;

/// What stands before one endpoint.
#[derive(Clone)]
pub(super) struct Gate {
    pub(super) app: Shared,
    pub(super) access: Access,
    pub(super) path: &'static str,
    pub(super) outlives_drain: bool,
    pub(super) is_traffic: bool,
}

/// Lets a request in, or not.
pub(super) async fn gate(State(gate): State<Gate>, request: Request, next: Next) -> Response {
    let known = gate.app.guard.know(gate.access, request.method(), request.headers());
    let mut response = match known {
        Err(problem) => problem.into_response(),
        Ok(who) if gate.app.audit.wants(request.method(), gate.is_traffic) => {
            gate.audited(&who, request, next).await
        }
        Ok(who) => gate.pass(&who, request, next).await,
    };
    response.extensions_mut().insert(Met(gate.path));
    response
}

impl Gate {
    async fn pass(&self, who: &Who, request: Request, next: Next) -> Response {
        if let Err(problem) = who.admit(self.access) {
            return problem.into_response();
        }
        if self.app.is_draining() && !self.outlives_drain {
            let draining = Problem::unavailable("this node is draining: ask another one");
            return draining.into_response();
        }
        next.run(request).await
    }

    /// Passes it, and writes down who asked for what.
    async fn audited(&self, who: &Who, request: Request, next: Next) -> Response {
        let mut entry = Entry::of(&request, who);
        let request = match self.is_traffic || who.admit(self.access).is_err() {
            true => request,
            // What is done may stand in the body, which is small.
            false => match self.told(request, &mut entry).await {
                Ok(request) => request,
                Err(problem) => return problem.into_response(),
            },
        };
        let response = self.pass(who, request, next).await;
        self.app.audit.write(entry, response.status());
        response
    }

    async fn told(&self, request: Request, entry: &mut Entry) -> Result<Request, Problem> {
        let (parts, body) = request.into_parts();
        let bytes = self.app.bodies.read(body, BODY_BYTES_MAX).await?.bytes;
        entry.told(&bytes);
        Ok(Request::from_parts(parts, bytes.into()))
    }
}

/// Gives the request an id, the client's own where it sent one, and sends it back.
pub(super) async fn identify(mut request: Request, next: Next) -> Response {
    let fits = |id: &&HeaderValue| {
        !id.is_empty() && id.len() <= REQUEST_ID_BYTES_MAX && id.to_str().is_ok()
    };
    let own = request.headers().get(&REQUEST_ID).filter(fits).cloned();
    let id = own.or_else(|| format!("{:032x}", fastrand::u128(..)).parse().ok());
    if let Some(id) = &id {
        request.headers_mut().insert(REQUEST_ID, id.clone());
    }
    let span = span(&request);
    let mut response = next.run(request).instrument(span).await;
    if let Some(id) = id {
        response.headers_mut().insert(REQUEST_ID, id);
    }
    response
}

/// What each log line of a request says of it.
fn span(request: &Request) -> tracing::Span {
    let header = |name| request.headers().get(name).and_then(|value| value.to_str().ok());
    let request_id = header("x-request-id");
    let trace_id = header("traceparent").and_then(trace::id);
    tracing::info_span!("request", request_id, trace_id)
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
