//! Events: of all turns, live (server-sent events), and of one job.

use std::cmp::Reverse;

use axum::body::Bytes;
use axum::http::HeaderMap;
use axum::response::Response;
use schemars::JsonSchema;
use serde::Deserialize;
use serde_json::Value;
use seriatim::limits::PAGE_ROWS_MAX;
use seriatim::store::{JobState, JobView, QueueView};
use seriatim::{JobId, Queue, Timestamp};
use tokio::sync::SemaphorePermit;
use tokio::time::{MissedTickBehavior, interval};

use super::event_stream::{self, EVENT_STREAM, Source};
use super::jobs::rows_max;
use super::limits::{STATS_INTERVAL, off_thread};
use super::{Access, Answer, App, Caller, Connection, Part, Problem, Query, Result, Route, Shared};
use crate::app::failures::{self, Noted};
use crate::app::figures::Figures;
use crate::app::find;
use crate::app::key;
use crate::app::words::state_name;
use crate::base::time;
use crate::journal::{self, Hearing, News, Wanted};
use crate::protocol::document::{Event, EventPage, JobEvents, JobFailure};
use crate::protocol::schema::{Foreign, queue_pattern};
use crate::protocol::value::Time;

pub(super) const EVENTS_PATH: &str = "/api/v1/events";
/// When a browser reconnects, in milliseconds.
const RETRY: &str = "retry: 2000\n\n";

pub(super) fn routes() -> Vec<Route> {
    vec![
        Route::get("/api/v1/jobs/{job_id}/events", Access::Follow, of_job)
            .says("The events of a job, oldest first; without a journal only those that the store knows"),
        Route::get("/api/v1/queues/{queue}/events", Access::Read, of_queue)
            .says("The events of a queue's jobs, latest first, from the journal"),
        Route::get(EVENTS_PATH, Access::Read, listen)
            .says("Starts and ends of turns, and every second the figures of all queues, as server-sent events")
            .media(EVENT_STREAM),
    ]
}

async fn of_job(app: Shared, Part(id): Part<JobId>) -> Result<Answer<JobEvents>> {
    let (_, events) = story(&app, id).await?;
    Ok(Answer::of(&events))
}

/// What happened to a job, and its queue, as far as the store still knows them.
pub(super) async fn story(app: &App, id: JobId) -> Result<(String, JobEvents)> {
    let job = app.store.job(id).await?;
    let known_queue = match &job {
        Some(job) => Some(job.queue.to_string()),
        None => {
            let known = app.queues.seen.with(&*app.store, std::iter::once(id.queue())).await?;
            known.numbered(id.queue()).map(|view| view.queue.name.clone())
        }
    };
    let Some(queue) = known_queue else {
        let job = find::job(&*app.store, id).await?;
        let events = JobEvents { job_id: id, journal: false, events: known(&job) };
        return Ok((job.queue.to_string(), events));
    };
    let place = search(app).await?;
    let found = journal::of_job(&*app.store, &queue, id).await?;
    drop(place);
    let journal = app.journal.keeps(&queue) || !found.is_empty();
    let events = match (found.is_empty(), job) {
        (false, _) => found,
        (true, Some(job)) => known(&job),
        (true, None) => known(&find::job(&*app.store, id).await?),
    };
    Ok((queue, JobEvents { job_id: id, journal, events }))
}

/// Failed jobs of a queue that are asked for their failures.
const FAILED_ASKED_MAX: usize = 20;
/// Queues whose journal is asked for a key.
const JOURNALS_ASKED_MAX: usize = 50;

/// What is known of a key.
#[derive(Default)]
pub(super) struct Known {
    pub(super) queues: Vec<OfQueue>,
    /// Queues that have no journal.
    pub(super) without_journal: Vec<String>,
    /// Queues whose journal was not asked.
    pub(super) not_asked: usize,
}

/// Events of one queue, the last one first.
pub(super) struct OfQueue {
    pub(super) queue: String,
    pub(super) events: Vec<(Timestamp, Value)>,
    /// They are all from this time on, unless they are as many as were wanted.
    pub(super) complete: Timestamp,
}

/// What happened to a key, as far as the store still knows: of each queue as many events as are wanted, or all of the time
/// that was read.
pub(super) async fn of_key(
    app: &App,
    key: &str,
    until: Timestamp,
    rows_max: usize,
    may_see: impl Fn(&str) -> bool,
) -> Result<Known> {
    let store = &*app.store;
    let wanted = key::Wanted::of(key, Some(0));
    let found = key::read(store, wanted, &may_see).await?;
    let mut all = Known::default();
    let mut kept: Vec<String> = Vec::new();
    for of in found.queues {
        let queue = of.queue.queue.name.clone();
        if app.journal.keeps(&queue) {
            kept.push(queue);
            continue;
        }
        let mut events: Vec<Value> = of.jobs().flat_map(known).collect();
        // A job with one attempt has one failure, which the event of its end tells.
        let is_told = |job: &&JobView| job.has_ended() && job.attempt <= 1;
        let failed = of.jobs().filter(|job| job.retry_count >= 0 && !is_told(job));
        for job in failed.take(FAILED_ASKED_MAX) {
            events.extend(failed_so(job, &failures::of(store, job.id).await?));
        }
        // Those of one moment: the last one first, as all of them.
        events.reverse();
        let timed = events.into_iter().filter_map(|event| {
            let at = time::read(event["at"].as_str()?).ok()?;
            (at <= until).then_some((at, event))
        });
        let mut events: Vec<_> = timed.collect();
        events.sort_by_key(|(at, _)| Reverse(*at));
        all.without_journal.push(queue.clone());
        all.queues.push(OfQueue { queue, events, complete: Timestamp::default() });
    }
    // The journal remembers keys of which nothing else is left.
    let known = kept.len();
    for QueueView { queue: Queue { name, mode, .. }, .. } in store.queues().await? {
        let is_kept = mode.is_keyed() && app.journal.keeps(&name) && may_see(&name);
        if is_kept && !kept[..known].contains(&name) {
            kept.push(name);
        }
    }
    all.not_asked = kept.len().saturating_sub(JOURNALS_ASKED_MAX);
    kept.truncate(JOURNALS_ASKED_MAX);
    // Together they read no more than a search of one queue.
    let bytes_max = journal::READ_BYTES_MAX / kept.len().max(1);
    let _place = search(app).await?;
    for queue in kept {
        let wanted = Wanted { key: Some(key), until: Some(until), ..Wanted::all(&queue) };
        let (events, complete) = journal::latest(store, wanted, rows_max, bytes_max).await?;
        all.queues.push(OfQueue { queue, events, complete });
    }
    // In the same order on each page: it is that of events of one moment.
    all.queues.sort_by(|a, b| a.queue.cmp(&b.queue));
    Ok(all)
}

/// A place to search the journal, once the store has what this process gathered.
async fn search(app: &App) -> Result<SemaphorePermit<'_>> {
    let place = app.journal.searches.try_acquire();
    let place = place.map_err(|_| Problem::too_many("too many searches of the journal"))?;
    if let Some(book) = app.journal.book() {
        book.flush(&*app.store).await?;
    }
    Ok(place)
}

#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
#[schemars(inline)]
struct Listing {
    /// Only of this key
    key: Option<String>,
    /// Only of this job
    #[schemars(with = "Option<Foreign<JobId>>")]
    job: Option<JobId>,
    /// Only from this time on
    since: Option<Time>,
    /// Only up to this time
    until: Option<Time>,
    /// Maximum number of rows. Default: 50
    #[schemars(range(min = 1, max = PAGE_ROWS_MAX))]
    limit: Option<usize>,
    /// Continue after this: the `next` of the previous page
    after: Option<String>,
}

async fn of_queue(
    app: Shared,
    Part(queue): Part<String>,
    Query(listing): Query<Listing>,
) -> Result<Answer<EventPage>> {
    find::queue(&*app.store, &queue).await?;
    let wanted = Wanted {
        queue: &queue,
        job: listing.job,
        key: listing.key.as_deref(),
        since: listing.since.map(|Time(since)| since),
        until: listing.until.map(|Time(until)| until),
        after: listing.after.as_deref(),
    };
    let rows_max = rows_max(listing.limit)?;
    let _place = search(&app).await?;
    Ok(Answer::of(&journal::page(&*app.store, wanted, rows_max).await?))
}

/// The failures that the store has noted.
fn failed_so(job: &JobView, noted: &Noted) -> Vec<Value> {
    let event = |failure: &JobFailure| {
        serde_json::to_value(Event {
            at: failure.at,
            attempt: Some(failure.attempt),
            node: failure.node.as_deref(),
            error: Some(Some(&failure.error)),
            ..Event::new("failed", job.id, &job.queue)
        })
    };
    noted.latest.iter().rev().map(|failure| event(failure).unwrap_or_default()).collect()
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
    app: Shared,
    caller: Caller,
    client: Connection,
    Query(wish): Query<Wish>,
    headers: HeaderMap,
) -> Result<Response> {
    let place = event_stream::place(&app, &caller)?;
    let last = headers.get("last-event-id").and_then(|id| id.to_str().ok()?.parse().ok());
    let hearing = app.journal.feed.listen(last);
    if app.journal.feed.begins() {
        tokio::spawn(sample(app.clone()));
    }
    let listener = Listener { hearing, queue: wish.queue };
    Ok(event_stream::answer(app, client, place, listener))
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

/// A client that listens, until it is too far behind.
struct Listener {
    hearing: Hearing,
    queue: Option<String>,
}

impl Source for Listener {
    const RETRY: &'static str = RETRY;

    async fn next(&mut self) -> Option<Bytes> {
        loop {
            match self.hearing.next().await? {
                News::Stats(text) => return Some(text),
                News::Turn(told) => {
                    if self.queue.as_ref().is_none_or(|wanted| **wanted == *told.queue) {
                        return Some(told.text.clone());
                    }
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use futures_util::StreamExt;
    use seriatim::store::Memory;

    use super::super::limits::LISTENERS;
    use super::*;

    #[tokio::test]
    async fn who_does_not_read_is_cut_off_and_leaves_its_place() {
        let app = App::open(Arc::new(Memory::new()));
        let caller = Caller::anybody();
        let listen = || {
            let wish = Query(Wish { queue: None });
            listen(app.clone(), caller.clone(), Connection::default(), wish, HeaderMap::new())
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
