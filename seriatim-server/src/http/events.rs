//! Events: of all turns, live (server-sent events), and of one job.

use axum::body::Bytes;
use axum::http::HeaderMap;
use axum::response::Response;
use schemars::JsonSchema;
use serde::Deserialize;
use seriatim::JobId;
use seriatim::limits::PAGE_ROWS_MAX;
use tokio::time::{MissedTickBehavior, interval};

use super::caller::Party;
use super::event_stream::{self, EVENT_STREAM, Source};
use super::jobs::rows_max;
use super::limits::{ANSWER_WAIT_MAX, STATS_INTERVAL, off_thread};
use super::pool::Held;
use super::{
    Access, Answer, App, Caller, Connection, Part, Problem, Query, Result, Route, Scope, Shared,
};
use crate::app::figures::Figures;
use crate::app::find;
use crate::journal::{self, Hearing, KeyEvents, News, OfKey, Story, Wanted, known};
use crate::protocol::document::{EventPage, JobEvents};
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
        Route::get("/api/v1/key/events", Access::Read, everywhere)
            .says("What happened to a key in all queues, latest first: the events of its jobs, and what people did")
            .keeps_scope(),
        Route::get(EVENTS_PATH, Access::Read, listen)
            .says("Starts and ends of turns, and every second the metrics of all queues, as server-sent events")
            .media(EVENT_STREAM),
    ]
}

async fn of_job(app: Shared, caller: Caller, Part(id): Part<JobId>) -> Result<Answer<JobEvents>> {
    let (_, events) = story(&app, &caller.party, id).await?;
    Ok(Answer::of(&events))
}

/// What happened to a job, and its queue, as far as the store still knows them.
pub(super) async fn story(app: &App, party: &Party, id: JobId) -> Result<(String, JobEvents)> {
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
    let place = search(app, party).await?;
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

/// What happened to a key, as far as a caller may see it.
pub(super) async fn of_key(
    app: &App,
    party: &Party,
    scope: &Scope,
    wanted: OfKey<'_>,
) -> Result<Story> {
    let wanted = OfKey { deeds: !scope.is_limited(), ..wanted };
    let _place = search(app, party).await?;
    let keeps = |queue: &str| app.journal.keeps(queue);
    let sees = |queue: &str| scope.has_queue(queue);
    Ok(journal::of_key(&*app.store, wanted, keeps, sees).await?)
}

/// A place to search the journal, once the store has what this process gathered. It is waited for: an export needs one for
/// each step, and would end in the middle if others search.
async fn search(app: &App, party: &Party) -> Result<Held> {
    let Some(place) = app.budgets.searches.take(party, 1, ANSWER_WAIT_MAX).await else {
        return Err(Problem::too_many("too many searches of the journal"));
    };
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
    caller: Caller,
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
    let _place = search(&app, &caller.party).await?;
    Ok(Answer::of(&journal::page(&*app.store, wanted, rows_max).await?))
}

#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
#[schemars(inline)]
struct KeyListing {
    /// The key; may contain any character
    key: String,
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

async fn everywhere(
    app: Shared,
    caller: Caller,
    Query(listing): Query<KeyListing>,
) -> Result<Answer<KeyEvents>> {
    let wanted = OfKey {
        key: &listing.key,
        since: listing.since.map(|Time(since)| since),
        until: listing.until.map(|Time(until)| until),
        after: listing.after.as_deref(),
        rows_max: rows_max(listing.limit)?,
        deeds: true,
    };
    Ok(Answer::of(&of_key(&app, &caller.party, &caller.scope, wanted).await?.document()))
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
