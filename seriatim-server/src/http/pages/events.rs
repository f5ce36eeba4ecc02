//! What happened to a job.

use askama::Template;
use axum::response::Response;
use serde::Deserialize;
use serde_json::Value;
use seriatim::JobId;

use super::super::caller::Party;
use super::super::events::story;
use super::super::{App, Caller, Part, Query, Result, Shared};
use super::row::told;
use super::{Frame, Moment, Visit, link, page};
use crate::base::time;
use crate::protocol::document::JobEvents;

/// Events of a page.
const ROWS_MAX: usize = 50;

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Wish {
    /// How many events are on the pages before
    #[serde(default)]
    after: usize,
}

#[derive(Template)]
#[template(path = "events.html", blocks = ["live"])]
struct Events<'a> {
    frame: &'a Frame,
    id: JobId,
    job_href: String,
    queue: String,
    queue_href: String,
    /// Whether it is from the journal.
    journal: bool,
    rows: Vec<EventRow>,
    export: String,
    next: Option<String>,
    /// What happened to its key, if the events name one.
    of_key: Option<String>,
}

page!(Events);

struct EventRow {
    at: Option<Moment>,
    event: String,
    attempt: String,
    node: String,
    error: String,
}

impl EventRow {
    fn new(visit: &Visit, event: &Value) -> Self {
        let text = |name: &str| event[name].as_str().unwrap_or_default().to_owned();
        let attempt = event["attempt"].as_u64();
        Self {
            at: time::read(&text("at")).ok().map(|at| visit.clock.of(at)),
            event: text("event"),
            attempt: attempt.map(|attempt| attempt.to_string()).unwrap_or_default(),
            node: told(&text("node")),
            error: told(&text("error")),
        }
    }
}

/// What happened to a job of a queue that the visitor may see.
pub(super) async fn seen(
    app: &App,
    visit: &Visit,
    party: &Party,
    id: JobId,
) -> Result<(String, JobEvents)> {
    let (queue, story) = story(app, party, id).await?;
    match visit.scope.has_queue(&queue) {
        true => Ok((queue, story)),
        false => Err(visit.scope.no_job(id)),
    }
}

pub(super) async fn show(
    app: Shared,
    visit: Visit,
    caller: Caller,
    Part(id): Part<JobId>,
    Query(Wish { after }): Query<Wish>,
) -> Result<Response> {
    let (queue, story) = seen(&app, &visit, &caller.party, id).await?;
    let base = &visit.frame.base;
    let path = format!("{}/events", link::job(base, id));
    let end = after.saturating_add(ROWS_MAX);
    let next =
        (story.events.len() > end).then(|| link::with(&path, &[("after", &end.to_string())]));
    let rows = story.events.iter().skip(after).take(ROWS_MAX);
    let key = story.events.iter().find_map(|event| event["key"].as_str());
    visit.show(&Events {
        frame: &visit.frame,
        id,
        job_href: link::job(base, id),
        export: format!("{base}/export/jobs/{id}/events"),
        queue_href: link::queue(base, &queue),
        of_key: key.map(|key| link::with(&format!("{base}/key/events"), &[("k", key)])),
        queue,
        journal: story.journal,
        rows: rows.map(|event| EventRow::new(&visit, event)).collect(),
        next,
    })
}
