//! Events: of all turns, live (server-sent events), and of one job.

use std::convert::Infallible;

use axum::body::{Body, Bytes};
use axum::extract::State;
use axum::http::{HeaderMap, HeaderValue, header};
use axum::response::{IntoResponse, Response};
use futures_util::{Stream, stream};
use schemars::JsonSchema;
use serde::Deserialize;
use serde_json::Value;
use seriatim::JobId;
use seriatim::store::{JobState, JobView};
use tokio::time::{MissedTickBehavior, interval, timeout};

use super::access::Access;
use super::caller::{Caller, Connection};
use super::input::{Part, Query};
use super::limits::{LISTENER_BEAT, STATS_INTERVAL, off_thread};
use super::pool::Held;
use super::problem::Problem;
use super::route::{Answer, Route};
use super::state::Shared;
use crate::app::figures::Figures;
use crate::app::find;
use crate::app::words::state_name;
use crate::journal::{Hearing, News, Search};
use crate::protocol::document::{Event, JobEvents};
use crate::protocol::schema::queue_pattern;
use crate::protocol::value::Time;

pub(super) const EVENTS_PATH: &str = "/api/v1/events";
/// What a stream of events is called in `Content-Type`.
const EVENT_STREAM: &str = "text/event-stream";
/// When a browser reconnects, in milliseconds.
const RETRY: &str = "retry: 2000\n\n";

pub(super) fn routes() -> Vec<Route> {
    vec![
        Route::get("/api/v1/jobs/{job_id}/events", Access::Follow, of_job)
            .says("The events of a job, oldest first; without a journal only those that the store knows"),
        Route::get(EVENTS_PATH, Access::Read, listen)
            .says("Starts and ends of turns, and every second the figures of all queues, as server-sent events")
            .media(EVENT_STREAM),
    ]
}

async fn of_job(
    State(app): State<Shared>,
    Part(id): Part<JobId>,
) -> Result<Answer<JobEvents>, Problem> {
    let job = app.store.job(id).await?;
    let found = match app.journal.book() {
        None => None,
        Some(book) => match book.search(id).await {
            Ok(Search::Found(events)) => Some(events).filter(|events| !events.is_empty()),
            Ok(Search::Busy) => {
                return Err(Problem::too_many("too many searches of the journal"));
            }
            Err(error) => {
                tracing::warn!(%error, "the journal cannot be read");
                return Err(Problem::unavailable("the journal cannot be read: see the log"));
            }
        },
    };
    let keeps = job.as_ref().is_some_and(|job| app.journal.keeps(&job.queue)) || found.is_some();
    let events = match (found, job) {
        (Some(events), _) => events,
        (None, Some(job)) => known(&job),
        (None, None) => known(&find::job(&*app.store, id).await?),
    };
    Ok(Answer::of(&JobEvents { job_id: id, journal: keeps, events }))
}

/// The events that the store knows.
fn known(job: &JobView) -> Vec<Value> {
    let event = |at, what| Event {
        at: Time(at),
        key: Some(job.key.as_deref()),
        ..Event::new(what, job.id, &job.queue)
    };
    let mut events = vec![event(job.created_at, "queued")];
    events.extend(job.started_at.map(|at| event(at, "claimed")));
    events.extend(job.finished_at.map(|at| {
        let error = (job.state != JobState::Succeeded).then_some(job.error.as_deref());
        Event { error, ..event(at, state_name(job.state)) }
    }));
    events.iter().map(|event| serde_json::to_value(event).unwrap_or_default()).collect()
}

#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
#[schemars(inline)]
struct Wish {
    /// Only turns of this queue
    #[schemars(regex(pattern = queue_pattern()))]
    queue: Option<String>,
}

async fn listen(
    State(app): State<Shared>,
    caller: Caller,
    client: Connection,
    Query(wish): Query<Wish>,
    headers: HeaderMap,
) -> Result<Response, Problem> {
    let place = app.budgets.listeners.try_take(&caller.party, 1);
    let place = place.ok_or_else(|| Problem::too_many("too many event streams"))?;
    let last = headers.get("last-event-id").and_then(|id| id.to_str().ok()?.parse().ok());
    let hearing = app.journal.feed.listen(last);
    if app.journal.feed.begins() {
        tokio::spawn(sample(app.clone()));
    }
    let listener = Listener { app, hearing, client, queue: wish.queue, _place: place };
    let head = [
        (header::CONTENT_TYPE, HeaderValue::from_static(EVENT_STREAM)),
        (header::CACHE_CONTROL, HeaderValue::from_static("no-store")),
        // So that a proxy passes on what comes when it comes.
        (header::HeaderName::from_static("x-accel-buffering"), HeaderValue::from_static("no")),
    ];
    Ok((head, Body::from_stream(listener.stream())).into_response())
}

/// Reads the figures of all queues, once for all listeners, while there are any.
async fn sample(app: Shared) {
    let mut ticks = interval(STATS_INTERVAL);
    ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
    while !app.journal.feed.is_over() {
        ticks.tick().await;
        // Without the store there are no figures; /ready reports why.
        if let Ok(figures) = Figures::all(&*app.store).await {
            let app = app.clone();
            // Of ten thousand queues that takes a while.
            let _ = off_thread(usize::MAX, move || app.journal.feed.stats(figures)).await;
        }
    }
}

/// A client that listens.
struct Listener {
    app: Shared,
    hearing: Hearing,
    client: Connection,
    queue: Option<String>,
    _place: Held,
}

impl Listener {
    /// Its messages, until it is too far behind, gone, or the node drains. A connection that takes nothing
    /// is not asked for more, and so falls behind: it costs no memory but the feed's own.
    fn stream(self) -> impl Stream<Item = Result<Bytes, Infallible>> {
        stream::unfold((self, Some(RETRY)), async |(mut listener, first)| {
            let text = match first {
                Some(first) => Bytes::from_static(first.as_bytes()),
                None => listener.next().await?,
            };
            Some((Ok(text), (listener, None)))
        })
    }

    async fn next(&mut self) -> Option<Bytes> {
        loop {
            let (app, client) = (self.app.clone(), self.client.clone());
            let news = tokio::select! {
                biased;
                () = app.draining() => return None,
                () = client.left() => return None,
                news = timeout(LISTENER_BEAT, self.hearing.next()) => news,
            };
            match news {
                Err(_) => return Some(Bytes::from_static(b":\n\n")),
                Ok(Some(News::Stats(text))) => return Some(text),
                Ok(Some(News::Turn(told))) => {
                    if self.queue.as_ref().is_none_or(|wanted| **wanted == *told.queue) {
                        return Some(told.text.clone());
                    }
                }
                Ok(None) => return None,
            }
        }
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use std::sync::Arc;

    use futures_util::StreamExt;
    use seriatim::store::Memory;

    use super::super::limits::LISTENERS;
    use super::super::state::App;
    use super::*;

    #[tokio::test]
    async fn who_does_not_read_is_cut_off_and_leaves_its_place() {
        let app = App::open(Arc::new(Memory::new()));
        let caller = Caller::anybody();
        let listen = || {
            let wish = Query(Wish { queue: None });
            listen(
                State(app.clone()),
                caller.clone(),
                Connection::default(),
                wish,
                HeaderMap::new(),
            )
        };
        let mut slow = listen().await.unwrap().into_body().into_data_stream();
        assert_eq!(slow.next().await.unwrap().unwrap(), RETRY);
        let mut others = Vec::new();
        while let Ok(other) = listen().await {
            others.push(other);
        }
        assert_eq!(others.len() as u32, LISTENERS.party - 1);
        // More events than the feed keeps.
        app.journal.feed.flood();
        assert!(slow.next().await.is_none());
        drop(slow);
        assert!(listen().await.is_ok());
    }
}
