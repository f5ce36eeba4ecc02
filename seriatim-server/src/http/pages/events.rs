//! What happened to a job.

use askama::Template;
use axum::response::Response;
use serde_json::Value;
use seriatim::JobId;

use super::super::events::story;
use super::super::{Part, Result, Shared};
use super::{Frame, Moment, Visit, link, page};
use crate::base::text::one_line;
use crate::base::time;

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
            node: text("node"),
            error: one_line(&text("error")),
        }
    }
}

pub(super) async fn show(app: Shared, visit: Visit, Part(id): Part<JobId>) -> Result<Response> {
    let (queue, told) = story(&app, id).await?;
    if !visit.scope.has_queue(&queue) {
        return Err(visit.scope.no_job(id));
    }
    let base = &visit.frame.base;
    let key = told.events.iter().find_map(|event| event["key"].as_str());
    visit.show(&Events {
        frame: &visit.frame,
        id,
        job_href: link::job(base, id),
        queue_href: link::queue(base, &queue),
        of_key: key.map(|key| link::with(&format!("{base}/key/events"), &[("k", key)])),
        queue,
        journal: told.journal,
        rows: told.events.iter().map(|event| EventRow::new(&visit, event)).collect(),
    })
}
