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
        app.changes.note(&stats);
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

    use axum::body::{Body, to_bytes};
    use axum::http::Request;
    use futures_util::StreamExt;
    use hyper::service::Service;
    use hyper_util::service::TowerToHyperService;
    use seriatim::store::{Declare, Memory, Push, QueueStats};
    use seriatim::{Job, Queue};

    use super::super::caller::Connection;
    use super::super::router::build;
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
    #[tokio::test(start_paused = true)]
    async fn the_menu_tells_how_many_jobs_are_dead_if_figures_were_read_lately() {
        let app = App::open(Arc::new(Memory::new()));
        let service = TowerToHyperService::new(build(&app));
        let ask = async |parts: &str| {
            let request = Request::get("/queues").header(parts, "1").body(Body::empty()).unwrap();
            let answer = service.call(request).await.unwrap();
            let dead = answer.headers().get("x-dead").cloned();
            let page = to_bytes(answer.into_body(), usize::MAX).await.unwrap();
            (dead, String::from_utf8(page.to_vec()).unwrap())
        };
        let menu = |dead: &str| format!(">Morgue <small data-as=\"x-dead\">{dead}</small></a>");
        assert!(ask("x-other").await.1.contains(&menu("")), "nothing is read for it");
        let dead =
            |queue: &str, dead| QueueStats { queue: queue.into(), dead, ..QueueStats::default() };
        app.changes.note(&[dead("a", 1_200), dead("b", 0), dead("c", 34)]);
        assert_eq!(app.changes.dead(|queue| queue == "c"), Some(34));
        assert!(ask("x-other").await.1.contains(&menu("1,234")));
        assert_eq!(ask("x-parts").await.0.unwrap(), "1,234");
        // The sampler reads that none is left.
        let mut heard = opened(&app).await;
        assert_eq!(heard.next().await.unwrap().unwrap(), FIRST);
        tokio::time::sleep(Duration::from_millis(10)).await;
        assert_eq!(ask("x-parts").await.0.unwrap(), "");
        drop(heard);
        tokio::time::sleep(Duration::from_secs(60)).await;
        assert_eq!(ask("x-parts").await.0, None);
    }
}
