//! One job.

use askama::Template;
use axum::http::{StatusCode, header};
use axum::response::{IntoResponse, Response};
use seriatim::store::{JobState, JobView, retries_max};
use seriatim::{JobId, Payload, Queue, Timestamp};

use super::super::{Part, Problem, Result, Shared};
use super::again::again;
use super::payload::Shown;
use super::row::told;
use super::visit::guarded;
use super::ways::Ways;
use super::{Button, Deed, Frame, JobRow, Moment, On, Visit, button, link, page};
use crate::app::failures;
use crate::app::find;
use crate::app::jobs::due_of;
use crate::app::lanes::OneLane;
use crate::app::nodes::name_of;
use crate::app::reported::Reported;
use crate::base::text::lines;
use crate::base::time::absolute;
use crate::protocol::document::JobFailure;
use crate::protocol::value::Time;

#[derive(Template)]
#[template(path = "job.html", blocks = ["live"])]
struct Job<'a> {
    frame: &'a Frame,
    row: JobRow,
    /// When it is due, if it waits for that.
    due: Option<Moment>,
    payload: Shown,
    /// All of the payload as a file, for those who see any of it.
    payload_href: Option<String>,
    again: Option<Ways>,
    /// What the page shows as names and values.
    facts: Vec<(&'static str, String)>,
    times: Vec<(&'static str, Moment)>,
    lane: Option<(String, String)>,
    holder: Option<Holder>,
    error: Option<String>,
    result: Option<Shown>,
    failures: Vec<FailureRow>,
    reported: Reported,
    cancels: bool,
    /// The payload of a dead job as it may be edited here, and the fields of the form.
    edit: Option<(String, Vec<(&'static str, String)>)>,
    buttons: Vec<Button>,
    events_href: String,
    audit: Option<String>,
    /// The id of its trace, and where it is seen.
    trace: Option<(String, Option<String>)>,
    /// Whether the journal has its queue.
    has_journal: bool,
    /// Of a job that waits: when it is due, if that is known, and the node that it is bound to.
    moves: Option<(String, String)>,
}

page!(Job);

/// Who runs it.
struct Holder {
    node: String,
    href: String,
    token: String,
}

struct FailureRow {
    at: Moment,
    attempt: u32,
    node: String,
    error: String,
}

pub(super) async fn show(app: Shared, visit: Visit, Part(id): Part<JobId>) -> Result<Response> {
    let job = visit.job(&app, id).await?;
    let noted = failures::of(&*app.store, job.id).await?;
    let queue = find::known(&*app.store, &job.queue).await?.map(|view| view.queue);
    let due = match &queue {
        Some(queue) => due_of(&*app.store, &job, queue.mode).await?,
        None => Some(job.run_at),
    };
    let clock = |at: Option<_>| at.map(|at| visit.clock.of(at));
    let times = [
        ("pushed", clock(Some(job.created_at))),
        ("due", clock(due.filter(|_| job.finished_at.is_none()))),
        ("first started", clock(job.started_at)),
        ("ended", clock(job.finished_at)),
        ("last heartbeat", clock(job.heartbeat_at)),
        ("first failed", clock(noted.first.map(|Time(at)| at))),
        ("last failed", clock(noted.retried().map(|Time(at)| at))),
    ];
    let base = &visit.frame.base;
    let holder = match &job.node {
        Some(id) => {
            let nodes = app.store.nodes().await?;
            Some(Holder {
                node: name_of(&nodes, id).to_owned(),
                href: link::node(base, &id.0),
                token: job.token.map(|token| token.to_string()).unwrap_or_default(),
            })
        }
        None => None,
    };
    let lane = job.lane.map(|lane| lane.to_string());
    let failure = |failure: JobFailure| FailureRow {
        at: visit.clock.of(failure.at.0),
        attempt: failure.attempt,
        node: failure.node.unwrap_or_default(),
        error: told(&failure.error),
    };
    let retries = retries(queue.as_ref(), &job);
    visit.show(&Job {
        frame: &visit.frame,
        lane: lane.map(|lane| (link::lanes(base, &job.queue, &[("lane", &lane)]), lane)),
        holder,
        failures: noted.latest.into_iter().map(failure).collect(),
        row: JobRow::new(&visit, &job),
        due: clock(due.filter(|at| job.state == JobState::Queued && *at > visit.clock.now)),
        payload: Shown::of(&job.payload, &visit.discreet),
        payload_href: (visit.discreet.seen(job.payload.as_bytes()).is_ok())
            .then(|| format!("{}/payload", link::job(base, id))),
        again: again(&job, &visit.discreet),
        facts: facts(&job, retries.as_deref()),
        times: times.into_iter().filter_map(|(name, at)| Some((name, at?))).collect(),
        error: job.error.as_deref().map(lines),
        result: result_of(&visit, &job),
        reported: Reported::of(job.progress.as_deref()).short(),
        cancels: job.cancel_requested,
        edit: editable(&visit, &job),
        buttons: buttons(&visit, &job),
        moves: movable(&visit, &job, due),
        trace: trace_of(&job).map(|id| (id.to_owned(), app.dashboard.trace(id))),
        has_journal: app.journal.keeps(&job.queue),
        events_href: format!("{}/events", link::job(base, id)),
        audit: visit.audit(&id.to_string()),
    })
}

fn buttons(visit: &Visit, job: &JobView) -> Vec<Button> {
    let queue = || job.queue.to_string();
    let on = On::Job(job.id);
    match job.state {
        JobState::Queued => button::all(visit, &["job.retry", "job.cancel", "job.delete"], &on),
        JobState::Running => {
            let mut all = button::all(visit, &["job.cancel"], &on);
            // A lane without a key has no other page.
            if let Some(lane) = job.lane {
                let on = On::Lane { queue: queue(), lane: OneLane::Lane(lane) };
                all.extend(button::all(visit, &["lane.release"], &on));
            }
            all
        }
        JobState::Dead => {
            let on = On::Dead { queue: queue(), job: job.id, payload: None };
            button::all(visit, &["dead.requeue", "dead.delete"], &on)
        }
        JobState::Succeeded | JobState::Canceled => Vec::new(),
    }
}

/// The payload as a file: byte by byte, but for what is redacted.
pub(super) async fn payload(app: Shared, visit: Visit, Part(id): Part<JobId>) -> Result<Response> {
    let job = visit.job(&app, id).await?;
    let seen = visit.discreet.seen(job.payload.as_bytes());
    let bytes = seen.map_err(|why| Problem::new(StatusCode::FORBIDDEN, why))?.into_owned();
    let disposition = format!("attachment; filename=\"{id}.json\"");
    let head = [
        (header::CONTENT_TYPE, "application/octet-stream".to_owned()),
        (header::CONTENT_DISPOSITION, disposition),
    ];
    Ok(guarded((head, bytes).into_response()))
}

fn trace_of(job: &JobView) -> Option<&str> {
    crate::trace::id(job.options.as_ref()?.traceparent.as_deref()?)
}

/// `6 of 25`: the retry that it waits for, that runs, or that failed last, as the page of its key counts them.
fn retries(queue: Option<&Queue>, job: &JobView) -> Option<String> {
    let most = i64::from(retries_max(job.options.as_deref(), queue?));
    let retry = (i64::from(job.retry_count) + 1).clamp(0, most);
    Some(format!("{retry} of {most}"))
}

fn facts(job: &JobView, retries: Option<&str>) -> Vec<(&'static str, String)> {
    let mut facts = vec![
        ("attempts", job.attempt.to_string()),
        ("retry", retries.unwrap_or("unknown: its queue is gone").to_owned()),
        ("crashes", job.crashes.to_string()),
        ("priority", job.priority.to_string()),
        ("score", job.score.to_string()),
    ];
    if let Some(options) = &job.options {
        facts.push(("options", serde_json::to_string(options).unwrap_or_default()));
    }
    facts
}

/// What the forms of a job that waits begin with.
fn movable(visit: &Visit, job: &JobView, due: Option<Timestamp>) -> Option<(String, String)> {
    let node = job.options.as_ref().and_then(|options| options.node.clone());
    let may = job.state == JobState::Queued && visit.frame.may_operate;
    may.then(|| (due.map(absolute).unwrap_or_default(), node.unwrap_or_default()))
}

/// The result, as far as the visitor sees payloads.
fn result_of(visit: &Visit, job: &JobView) -> Option<Shown> {
    let result = Payload::from_bytes(job.result.as_deref()?.as_bytes().to_vec());
    Some(Shown::of(&result, &visit.discreet))
}

/// The form that pushes a dead job again with another payload: for those who may, and who see all of the payload.
fn editable(visit: &Visit, job: &JobView) -> Option<(String, Vec<(&'static str, String)>)> {
    let on = On::Dead { queue: job.queue.to_string(), job: job.id, payload: None };
    let deed = Deed::new("dead.edit", on)?;
    let may = job.state == JobState::Dead && visit.may(deed.kind.access);
    let payload = visit.discreet.whole(&job.payload).filter(|_| may)?;
    let morgue = format!("{}/morgue", visit.frame.base);
    let back = link::with(&morgue, &[("queue", &job.queue)]);
    Some((payload, [deed.fields(), vec![("back", back)]].concat()))
}
