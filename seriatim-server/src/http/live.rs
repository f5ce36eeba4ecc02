//! Tells open pages that queues changed: that, and not what, at most once a second.

use axum::body::Bytes;
use axum::response::Response;
use tokio::sync::watch;
use tokio::time::{MissedTickBehavior, interval};

use super::changes::fingerprint;
use super::event_stream::{self, Source};
use super::limits::STATS_INTERVAL;
use super::{Caller, Connection, Result, Shared};

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

pub(super) async fn listen(app: Shared, caller: Caller, client: Connection) -> Result<Response> {
    let place = event_stream::place(&app, &caller)?;
    let (changes, begins) = app.changes.listen();
    if begins {
        tokio::spawn(sample(app.clone()));
    }
    Ok(event_stream::answer(app, client, place, Listener(changes)))
}

/// A tab that listens for its browser.
struct Listener(watch::Receiver<u64>);

impl Source for Listener {
    const RETRY: &'static str = FIRST;

    async fn next(&mut self) -> Option<Bytes> {
        self.0.changed().await.ok().map(|()| Bytes::from_static(CHANGED.as_bytes()))
    }
}

#[cfg(test)]
mod tests {
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
        let heard = listen(app.clone(), caller, Connection::default()).await.unwrap();
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
