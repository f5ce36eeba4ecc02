//! Tells open pages that queues changed: that, and not what, at most once a second.

use std::convert::Infallible;

use axum::body::{Body, Bytes};
use axum::extract::State;
use axum::http::{HeaderName, HeaderValue, header};
use axum::response::{IntoResponse, Response};
use futures_util::{Stream, stream};
use tokio::sync::watch;
use tokio::time::{MissedTickBehavior, interval, timeout};

use super::caller::{Caller, Connection};
use super::changes::fingerprint;
use super::limits::{LISTENER_BEAT, STATS_INTERVAL};
use super::pool::Held;
use super::problem::Problem;
use super::state::Shared;

pub(super) const LIVE_PATH: &str = "/live";
const FIRST: &str = "retry: 5000\n\n";
const CHANGED: &str = "data: changed\n\n";

/// Reads the figures once for all listeners, while there are any.
async fn sample(app: Shared) {
    let mut ticks = interval(STATS_INTERVAL);
    ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
    let mut known = None;
    while app.changes.are_heard() {
        ticks.tick().await;
        let Ok(stats) = app.store.stats(None).await else { continue };
        let now = fingerprint(&stats);
        if known.replace(now).is_some_and(|before| before != now) {
            app.changes.tell(now);
        }
    }
}

pub(super) async fn listen(
    State(app): State<Shared>,
    caller: Caller,
    client: Connection,
) -> Result<Response, Problem> {
    let place = app.budgets.listeners.try_take(&caller.party, 1);
    let place = place.ok_or_else(|| Problem::too_many("too many event streams"))?;
    let (changes, begins) = app.changes.listen();
    if begins {
        tokio::spawn(sample(app.clone()));
    }
    let listener = Listener { app, changes, client, _place: place };
    let head = [
        (header::CONTENT_TYPE, HeaderValue::from_static("text/event-stream")),
        (header::CACHE_CONTROL, HeaderValue::from_static("no-store")),
        // So that a proxy passes on what comes when it comes.
        (HeaderName::from_static("x-accel-buffering"), HeaderValue::from_static("no")),
    ];
    Ok((head, Body::from_stream(listener.stream())).into_response())
}

/// A tab that listens for its browser.
struct Listener {
    app: Shared,
    changes: watch::Receiver<u64>,
    client: Connection,
    _place: Held,
}

impl Listener {
    fn stream(self) -> impl Stream<Item = Result<Bytes, Infallible>> {
        stream::unfold((self, Some(FIRST)), async |(mut listener, first)| {
            let text = match first {
                Some(first) => first,
                None => listener.next().await?,
            };
            Some((Ok(Bytes::from_static(text.as_bytes())), (listener, None)))
        })
    }

    async fn next(&mut self) -> Option<&'static str> {
        let (app, client) = (self.app.clone(), self.client.clone());
        tokio::select! {
            biased;
            () = app.draining() => None,
            () = client.left() => None,
            changed = timeout(LISTENER_BEAT, self.changes.changed()) => match changed {
                Ok(Ok(())) => Some(CHANGED),
                Ok(Err(_)) => None,
                Err(_) => Some(":\n\n"),
            },
        }
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use std::sync::Arc;
    use std::time::Duration;

    use futures_util::StreamExt;
    use seriatim::store::{Declare, Memory, Push};
    use seriatim::{Job, Queue};

    use super::super::caller::Connection;
    use super::super::state::App;
    use super::*;

    async fn opened(app: &Shared) -> axum::body::BodyDataStream {
        let caller = Caller::anybody();
        let heard = listen(State(app.clone()), caller, Connection::default()).await.unwrap();
        heard.into_body().into_data_stream()
    }

    #[tokio::test(start_paused = true)]
    async fn it_says_that_queues_changed_once_a_second_and_nothing_else() {
        let app = App::open(Arc::new(Memory::new()));
        let queues = vec![Queue::parallel("secret-queue")];
        app.store.declare(Declare { now: None, queues }).await.unwrap();
        let mut heard = opened(&app).await;
        assert_eq!(heard.next().await.unwrap().unwrap(), FIRST);
        // The first sample is what later ones are compared with.
        tokio::time::sleep(Duration::from_millis(10)).await;
        let push = |i: u32| {
            let jobs = vec![Job::new("secret-queue", &i).unwrap()];
            app.store.push(Push { now: None, jobs })
        };
        let begun = tokio::time::Instant::now();
        for i in 0..100 {
            push(i).await.unwrap();
        }
        assert_eq!(heard.next().await.unwrap().unwrap(), CHANGED);
        assert!(begun.elapsed() <= STATS_INTERVAL);
        let beat = heard.next().await.unwrap().unwrap();
        assert_eq!(beat, ":\n\n", "one change of a hundred pushes, and then none");
        drop(heard);
        tokio::time::sleep(STATS_INTERVAL * 2).await;
        assert!(!app.changes.are_heard(), "nobody listens, so nobody reads");
        let mut again = opened(&app).await;
        assert_eq!(again.next().await.unwrap().unwrap(), FIRST);
    }
}
