//! Lists as files: a row on each line, as the API writes it.

use std::io;

use axum::body::{Body, Bytes};
use axum::http::header;
use axum::response::{IntoResponse, Response};
use futures_util::stream;
use serde::Serialize;

use super::super::caller::Party;
use super::super::events;
use super::super::input::given;
use super::super::pool::Held;
use super::super::{Caller, Part, Problem, Query, Result, Scope, Shared};
use super::visit::guarded;
use super::{Visit, audit, batches, jobs, lanes, scheduled as later, timeline};
use crate::app::{self, job_pages, lane_pages};
use crate::protocol::document::{Job, Lane};

/// Most rows of a file. A last line says where it would go on.
pub(super) const ROWS_MAX: usize = 100_000;
/// Rows that are read at a time.
const STEP_ROWS: usize = 1_000;
/// Most steps: a filter may leave out most rows.
const STEPS_MAX: usize = 1_000;

enum List {
    Jobs { wish: jobs::Wish, with_payloads: bool },
    Lanes { queue: String, wish: lanes::Wish },
    Scheduled { wish: later::Wish, scope: Scope },
    Audit { wish: audit::Wish },
    Batches { is_live: bool },
    Happened { wish: timeline::Wish, party: Party, scope: Scope },
}

/// A list on its way to the client.
struct Export {
    app: Shared,
    list: List,
    /// Where the next step begins.
    after: Option<String>,
    is_over: bool,
    rows_left: usize,
    steps_left: usize,
    _place: Held,
}

/// What ends a file that has not all rows.
#[derive(Serialize)]
struct Cut {
    /// Continue behind this
    next: String,
}

pub(super) async fn jobs(
    app: Shared,
    visit: Visit,
    caller: Caller,
    Query(wish): Query<jobs::Wish>,
) -> Result<Response> {
    wish.admit(&visit)?;
    let (after, with_payloads) = (begin(&wish.after), visit.discreet.shows_all());
    answer(app, &caller, List::Jobs { wish, with_payloads }, after, "jobs.ndjson").await
}

pub(super) async fn lanes(
    app: Shared,
    visit: Visit,
    caller: Caller,
    Part(queue): Part<String>,
    Query(wish): Query<lanes::Wish>,
) -> Result<Response> {
    visit.scope.check_queue(&queue)?;
    let after = begin(&wish.after);
    answer(app, &caller, List::Lanes { queue, wish }, after, "lanes.ndjson").await
}

pub(super) async fn scheduled(
    app: Shared,
    visit: Visit,
    caller: Caller,
    Query(wish): Query<later::Wish>,
) -> Result<Response> {
    wish.admit(&visit)?;
    let (after, scope) = (begin(&wish.after), visit.scope);
    answer(app, &caller, List::Scheduled { wish, scope }, after, "scheduled.ndjson").await
}

pub(super) async fn deeds(
    app: Shared,
    visit: Visit,
    caller: Caller,
    Query(wish): Query<audit::Wish>,
) -> Result<Response> {
    audit::whole(&visit)?;
    let after = begin(&wish.after);
    answer(app, &caller, List::Audit { wish }, after, "audit.ndjson").await
}

pub(super) async fn batches(
    app: Shared,
    visit: Visit,
    caller: Caller,
    Query(wish): Query<batches::Wish>,
) -> Result<Response> {
    batches::whole(&visit)?;
    let batches::Wish { live: is_live, after } = wish;
    answer(app, &caller, List::Batches { is_live }, begin(&after), "batches.ndjson").await
}

pub(super) async fn happened(
    app: Shared,
    visit: Visit,
    caller: Caller,
    Query(wish): Query<timeline::Wish>,
) -> Result<Response> {
    let (after, party, scope) = (wish.after.clone(), caller.party.clone(), visit.scope);
    answer(app, &caller, List::Happened { wish, party, scope }, after, "events.ndjson").await
}

/// Where the first page begins.
fn begin(after: &str) -> Option<String> {
    given(after).map(str::to_owned)
}

/// A place for an export.
pub(super) fn place(app: &Shared, caller: &Caller) -> Result<Held> {
    let place = app.budgets.exports.try_take(&caller.party, 1);
    place.ok_or_else(|| Problem::too_many("too many exports at once"))
}

/// The answer with these lines.
pub(super) fn file(body: Body, name: &str) -> Response {
    let disposition = format!("attachment; filename=\"{name}\"");
    let head = [
        (header::CONTENT_TYPE, "application/x-ndjson".to_owned()),
        (header::CONTENT_DISPOSITION, disposition),
    ];
    guarded((head, body).into_response())
}

/// The first step is read before the answer begins, so that what is wrong is answered as such.
async fn answer(
    app: Shared,
    caller: &Caller,
    list: List,
    after: Option<String>,
    file: &str,
) -> Result<Response> {
    let place = place(&app, caller)?;
    let export = Export {
        app,
        list,
        after,
        is_over: false,
        rows_left: ROWS_MAX,
        steps_left: STEPS_MAX,
        _place: place,
    };
    let (first, export) = export.step().await?;
    let rest = stream::try_unfold(export, |export| async {
        if export.is_over {
            return Ok(None);
        }
        let step = export.step().await.map(Some);
        step.map_err(|problem| io::Error::other(problem.into_detail()))
    });
    let first = stream::once(async { Ok(first) });
    Ok(self::file(Body::from_stream(futures_util::StreamExt::chain(first, rest)), file))
}

impl Export {
    async fn step(mut self) -> Result<(Bytes, Self)> {
        let most = self.rows_left.min(STEP_ROWS);
        let (mut text, rows, next) = self.list.page(&self.app, self.after.take(), most).await?;
        self.rows_left -= rows.min(self.rows_left);
        self.steps_left -= 1;
        self.is_over = next.is_none() || self.rows_left == 0 || self.steps_left == 0;
        match next {
            Some(next) if self.is_over => write(&mut text, &Cut { next }),
            next => self.after = next,
        }
        Ok((text.into(), self))
    }
}

impl List {
    /// Lines, how many they are, and where the next page begins.
    async fn page(
        &self,
        shared: &Shared,
        after: Option<String>,
        most: usize,
    ) -> Result<(Vec<u8>, usize, Option<String>)> {
        let (store, mut text) = (&*shared.store, Vec::new());
        match self {
            Self::Jobs { wish, with_payloads } => {
                let payload_bytes_max = (!with_payloads).then_some(0);
                let wanted = wish.wanted(after.as_deref(), most, payload_bytes_max);
                let page = job_pages::page(store, wanted).await?.page;
                let rows = page.rows.len();
                for mut job in page.rows {
                    // A visitor who does not see payloads sees no results.
                    job.result = job.result.filter(|_| *with_payloads);
                    write(&mut text, &Job::from(job));
                }
                Ok((text, rows, page.next))
            }
            Self::Lanes { queue, wish } => {
                let wanted = wish.wanted(queue, after.as_deref(), most);
                let page = lane_pages::page(store, wanted).await?;
                let rows = page.rows.len();
                page.rows.into_iter().for_each(|lane| write(&mut text, &Lane::from(lane)));
                Ok((text, rows, page.next))
            }
            Self::Scheduled { wish, scope } => {
                let sees = |queue: &str| scope.has_queue(queue);
                let queues = app::scheduled::queues(store, sees).await?;
                let (wanted, now) = (wish.wanted(after.as_deref(), most), store.now().await?);
                let page = app::scheduled::page(store, wanted, &queues, now).await?.page;
                let rows = page.rows.len();
                for (queue, lane) in page.rows {
                    write(&mut text, &Lane::of_queue(lane, queue));
                }
                Ok((text, rows, page.next))
            }
            Self::Audit { wish } => {
                let page = wish.page(store, after.as_deref(), most).await?;
                page.entries.iter().for_each(|deed| write(&mut text, deed));
                Ok((text, page.entries.len(), page.next))
            }
            Self::Happened { wish, party, scope } => {
                let wanted = wish.wanted(after.as_deref(), most);
                let story = events::of_key(shared, party, scope, wanted).await?;
                story.rows.iter().for_each(|(_, told)| write(&mut text, told));
                Ok((text, story.rows.len(), story.next))
            }
            Self::Batches { .. } if !store.capabilities().batches => Ok((text, 0, None)),
            Self::Batches { is_live } => {
                let page = app::batches::page(store, *is_live, after, most).await?;
                page.batches.iter().for_each(|batch| write(&mut text, batch));
                Ok((text, page.batches.len(), page.next))
            }
        }
    }
}

/// A document on a line.
pub(super) fn write(text: &mut Vec<u8>, document: &impl Serialize) {
    text.extend(serde_json::to_vec(document).unwrap_or_default());
    text.push(b'\n');
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use axum::body::Body;
    use axum::http::{Request, StatusCode};
    use hyper::service::Service;
    use hyper_util::service::TowerToHyperService;
    use seriatim::Queue;
    use seriatim::store::{Declare, Memory, Queues};

    use super::super::super::limits::EXPORTS;
    use super::super::super::router::router;

    #[tokio::test(start_paused = true)]
    async fn pages_are_shown_while_exports_of_the_same_visitor_are_not_read_on() {
        let store = Arc::new(Memory::new());
        let queues = vec![Queue::fifo("orders")];
        store.declare(Declare { now: None, queues }).await.unwrap();
        let service = TowerToHyperService::new(router(store));
        let ask = async |path: &str| {
            let request = Request::get(path).body(Body::empty()).unwrap();
            service.call(request).await.unwrap()
        };
        let mut unread = Vec::new();
        for _ in 0..EXPORTS.party {
            let answer = ask("/export/lanes/orders").await;
            assert_eq!(answer.status(), StatusCode::OK);
            unread.push(answer.into_body());
        }
        assert_eq!(ask("/export/lanes/orders").await.status(), StatusCode::TOO_MANY_REQUESTS);
        assert_eq!(ask("/queues").await.status(), StatusCode::OK);
        drop(unread);
        assert_eq!(ask("/export/lanes/orders").await.status(), StatusCode::OK);
    }
}
