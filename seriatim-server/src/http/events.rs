//! What happens: to all turns as it happens (server-sent events), and to one job since it was pushed.

use std::convert::Infallible;
use std::sync::Arc;

use axum::body::{Body, Bytes};
use axum::extract::State;
use axum::http::{HeaderMap, HeaderValue, header};
use axum::response::{IntoResponse, Response};
use futures_util::{Stream, stream};
use serde::Deserialize;
use serde_json::{Value, json};
use seriatim::JobId;
use seriatim::store::{JobState, JobView};
use tokio::sync::OwnedSemaphorePermit;
use tokio::sync::broadcast::Receiver;
use tokio::time::{MissedTickBehavior, interval, timeout};

use super::auth::Access;
use super::input::{Part, Query};
use super::limits::{LISTENER_BEAT, STATS_INTERVAL};
use super::problem::Problem;
use super::route::{Answer, Route};
use super::schema::Schema;
use super::state::Shared;
use crate::commands::find;
use crate::commands::stats::as_json;
use crate::figures::Figures;
use crate::journal::{Search, Told};
use crate::output::time::absolute;

/// What a stream of events is called in `Content-Type`.
const EVENT_STREAM: &str = "text/event-stream";
/// After what a browser comes back, in milliseconds.
const RETRY: &str = "retry: 2000\n\n";

pub(super) fn routes() -> Vec<Route> {
    let event = Schema::object(&[
        ("at", Schema::text()),
        ("event", Schema::text()),
        ("job_id", Schema::text()),
        ("queue", Schema::text()),
        ("key", Schema::text().or_null()),
        ("attempt", Schema::integer()),
        ("token", Schema::integer()),
        ("node", Schema::text()),
        ("error", Schema::text().or_null()),
    ]);
    let answer =
        [("job_id", Schema::text()), ("journal", Schema::truth()), ("events", Schema::list(event))];
    vec![
        Route::get("/api/v1/jobs/{job_id}/events", Access::Follow, of_job)
            .says("What happened to a job, oldest first; without a journal only what the store knows of it")
            .answers(Schema::object(&answer)),
        Route::get("/api/v1/events", Access::Read, listen)
            .says("Turns as they begin and end, and every second the numbers of all queues, as server-sent events")
            .query("queue", Schema::queue(), "Only turns of this queue")
            .media(EVENT_STREAM)
            .answers(Schema::text()),
    ]
}

async fn of_job(State(app): State<Shared>, Part(id): Part<JobId>) -> Result<Answer, Problem> {
    let job = app.store.job(id).await?;
    let found = match app.journal.book() {
        None => None,
        Some(book) => match book.search(id).await {
            Ok(Search::Found(events)) => Some(events).filter(|events| !events.is_empty()),
            Ok(Search::Busy) => {
                return Err(Problem::too_many("the journal is being searched for others"));
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
    Ok(Answer(json!({ "job_id": id, "journal": keeps, "events": events })))
}

/// What the store knows of its past.
fn known(job: &JobView) -> Vec<Value> {
    let event = |at, event: &str| {
        json!({ "at": absolute(at), "event": event, "job_id": job.id,
                "queue": &*job.queue, "key": job.key.as_deref() })
    };
    let mut events = vec![event(job.created_at, "queued")];
    events.extend(job.started_at.map(|at| event(at, "claimed")));
    if let Some(at) = job.finished_at {
        let mut end = event(at, json!(job.state).as_str().unwrap_or_default());
        if job.state != JobState::Succeeded {
            end["error"] = job.error.as_deref().into();
        }
        events.push(end);
    }
    events
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Wish {
    queue: Option<String>,
}

async fn listen(
    State(app): State<Shared>,
    Query(wish): Query<Wish>,
    headers: HeaderMap,
) -> Result<Response, Problem> {
    let place = app
        .listeners
        .clone()
        .try_acquire_owned()
        .map_err(|_| Problem::too_many("too many listen to events already"))?;
    let last = headers.get("last-event-id").and_then(|id| id.to_str().ok()?.parse().ok());
    let (missed, told) = app.journal.feed.listen(last);
    if app.journal.feed.begins() {
        tokio::spawn(sample(app.clone()));
    }
    let listener = Listener { app, told, queue: wish.queue, _place: place };
    let missed = missed.iter().filter(|told| listener.wants(told)).map(|told| written(told));
    let first: String = std::iter::once(RETRY.to_owned()).chain(missed).collect();
    let head = [
        (header::CONTENT_TYPE, HeaderValue::from_static(EVENT_STREAM)),
        (header::CACHE_CONTROL, HeaderValue::from_static("no-store")),
        // So that a proxy passes on what comes when it comes.
        (header::HeaderName::from_static("x-accel-buffering"), HeaderValue::from_static("no")),
    ];
    Ok((head, Body::from_stream(listener.stream(first))).into_response())
}

/// Takes the numbers of all queues once for all listeners, as long as there are any.
async fn sample(app: Shared) {
    let mut ticks = interval(STATS_INTERVAL);
    ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
    while !app.journal.feed.is_over() {
        ticks.tick().await;
        // A store that is away has no numbers; /ready tells why.
        if let Ok(figures) = Figures::all(&*app.store).await {
            app.journal.feed.stats(as_json(&figures));
        }
    }
}

fn written(told: &Told) -> String {
    format!("id: {}\nevent: {}\ndata: {}\n\n", told.id, told.event, told.data)
}

/// Somebody who listens.
struct Listener {
    app: Shared,
    told: Receiver<Arc<Told>>,
    queue: Option<String>,
    _place: OwnedSemaphorePermit,
}

impl Listener {
    fn wants(&self, told: &Told) -> bool {
        match (&self.queue, &told.queue) {
            (Some(wanted), Some(queue)) => **wanted == **queue,
            _ => true,
        }
    }

    /// Its messages, until it is too far behind or the node drains. A connection that takes nothing
    /// is not asked for more, and so falls behind: it costs no memory but the feed's own.
    fn stream(self, first: String) -> impl Stream<Item = Result<Bytes, Infallible>> {
        stream::unfold((self, Some(first)), async |(mut listener, first)| {
            let text = match first {
                Some(first) => first,
                None => listener.next().await?,
            };
            Some((Ok(text.into()), (listener, None)))
        })
    }

    async fn next(&mut self) -> Option<String> {
        loop {
            let app = self.app.clone();
            let told = tokio::select! {
                biased;
                () = app.draining() => return None,
                told = timeout(LISTENER_BEAT, self.told.recv()) => told,
            };
            match told {
                Err(_) => return Some(":\n\n".to_owned()),
                Ok(Ok(told)) if self.wants(&told) => return Some(written(&told)),
                Ok(Ok(_)) => {}
                Ok(Err(_)) => return None,
            }
        }
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use futures_util::StreamExt;
    use seriatim::Memory;

    use super::super::state::App;
    use super::*;

    #[tokio::test]
    async fn who_does_not_read_is_cut_off_and_leaves_its_place() {
        let app = App::open(Arc::new(Memory::new()));
        let listen = || listen(State(app.clone()), Query(Wish { queue: None }), HeaderMap::new());
        let places = app.listeners.available_permits();
        let mut slow = listen().await.unwrap().into_body().into_data_stream();
        assert_eq!(app.listeners.available_permits(), places - 1);
        assert_eq!(slow.next().await.unwrap().unwrap(), RETRY);
        for _ in 0..2_000 {
            app.journal.feed.stats(json!({}));
        }
        assert!(slow.next().await.is_none());
        drop(slow);
        assert_eq!(app.listeners.available_permits(), places);
    }
}
