//! Answers that go on: server-sent events.

use std::convert::Infallible;
use std::future::Future;

use axum::body::{Body, Bytes};
use axum::http::{HeaderName, HeaderValue, header};
use axum::response::{IntoResponse, Response};
use futures_util::stream;
use tokio::time::timeout;

use super::limits::LISTENER_BEAT;
use super::pool::Held;
use super::{App, Caller, Connection, Problem, Result, Shared};

pub(super) const EVENT_STREAM: &str = "text/event-stream";
const BEAT: &[u8] = b":\n\n";

/// What a client hears.
pub(super) trait Source: Send + 'static {
    /// The first message: when a browser connects again, in milliseconds.
    const RETRY: &'static str;

    /// The next message; none at the end.
    fn next(&mut self) -> impl Future<Output = Option<Bytes>> + Send;
}

/// A place among those who listen.
pub(super) fn place(app: &App, caller: &Caller) -> Result<Held> {
    let place = app.budgets.listeners.try_take(&caller.party, 1);
    place.ok_or_else(|| Problem::too_many("too many event streams"))
}

/// The messages of a source, until it ends, the client is gone, or the node drains. A connection that takes nothing is
/// not asked for more: it costs no memory.
pub(super) fn answer<S: Source>(
    app: Shared,
    client: Connection,
    place: Held,
    source: S,
) -> Response {
    let first = Some(Bytes::from_static(S::RETRY.as_bytes()));
    let messages = stream::unfold((source, first), move |(mut source, first)| {
        let (app, client) = (app.clone(), client.clone());
        let _ = &place;
        async move {
            let text = match first {
                Some(first) => first,
                None => tokio::select! {
                    biased;
                    () = app.draining() => return None,
                    () = client.left() => return None,
                    next = timeout(LISTENER_BEAT, source.next()) => match next {
                        Ok(next) => next?,
                        Err(_) => Bytes::from_static(BEAT),
                    },
                },
            };
            Some((Ok::<_, Infallible>(text), (source, None)))
        }
    });
    let head = [
        (header::CONTENT_TYPE, HeaderValue::from_static(EVENT_STREAM)),
        (header::CACHE_CONTROL, HeaderValue::from_static("no-store")),
        // So that a proxy passes on what comes when it comes.
        (HeaderName::from_static("x-accel-buffering"), HeaderValue::from_static("no")),
    ];
    (head, Body::from_stream(messages)).into_response()
}
