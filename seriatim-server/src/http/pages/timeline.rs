//! What happened to a key, in all queues: turns and jobs, and what people did.

use askama::Template;
use axum::response::Response;
use serde::Deserialize;
use serde_json::Value;
use seriatim::Timestamp;
use seriatim::text::one_line;

use super::super::events::{self, Known};
use super::super::{Query, Result, Shared};
use super::{Frame, Moment, Visit, link, page};
use crate::app::deeds::{self, Deed, Wanted};
use crate::base::time::{self, absolute};
use crate::protocol::value::Time;

/// Rows shown, and read of each queue and of the audit log.
const ROWS_MAX: usize = 50;

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Wish {
    k: String,
    /// Only what happened until then
    until: Option<Time>,
}

#[derive(Template)]
#[template(path = "timeline.html", blocks = ["live"])]
struct Timeline<'a> {
    frame: &'a Frame,
    /// The key on one line.
    name: String,
    key_href: String,
    rows: Vec<Row>,
    /// Whether these are the latest.
    is_first: bool,
    /// What happened before.
    next: Option<String>,
    jobs: String,
    audit: Option<String>,
    search: String,
    /// Queues without a journal, known only from the store.
    without_journal: Vec<String>,
}

page!(Timeline);

struct Row {
    at: Moment,
    queue: String,
    what: String,
    /// The job, and its page.
    job: Option<(String, String)>,
    attempt: String,
    /// The node, or the person.
    who: String,
    /// An error, or how a deed ended.
    text: String,
    /// It is an error, or the deed was refused.
    is_bad: bool,
}

pub(super) async fn show(
    app: Shared,
    visit: Visit,
    Query(Wish { k, until }): Query<Wish>,
) -> Result<Response> {
    let (name, has_audit) = (one_line(&k), !visit.scope.is_limited());
    let until = until.map(|Time(until)| until);
    let may_see = |queue: &str| visit.scope.has_queue(queue);
    let known = events::of_key(&app, &k, until, ROWS_MAX, may_see).await?;
    let deeds = match has_audit {
        true => {
            let wanted = Wanted { of: Some(&name), until, ..Wanted::default() };
            deeds::latest(&*app.store, wanted, ROWS_MAX).await?.entries
        }
        false => Vec::new(),
    };
    let Known { events, more, without_journal } = known;
    let mut rows: Vec<(Timestamp, Row)> =
        events.iter().filter_map(|(queue, event)| row_of_event(&visit, queue, event)).collect();
    // A queue or a node may have the same name.
    let of_key = deeds.into_iter().filter(|deed| deed.on.get("key") == Some(&name));
    rows.extend(of_key.filter_map(|deed| row_of_deed(&visit, deed)));
    rows.retain(|(at, _)| until.is_none_or(|until| *at <= until));
    rows.sort_by_key(|(at, _)| std::cmp::Reverse(*at));
    let more = more || rows.len() > ROWS_MAX;
    rows.truncate(ROWS_MAX);
    let base = &visit.frame.base;
    let last = rows.last().filter(|_| more).map(|(at, _)| absolute(*at));
    let next =
        last.map(|last| link::with(&format!("{base}/key/events"), &[("k", &k), ("until", &last)]));
    visit.show(&Timeline {
        frame: &visit.frame,
        key_href: link::key(base, &k),
        jobs: link::with(&format!("{base}/jobs"), &[("key", &k)]),
        audit: visit.audit(&name),
        search: link::search_all(base, &k),
        is_first: until.is_none(),
        next,
        name,
        rows: rows.into_iter().map(|(_, row)| row).collect(),
        without_journal,
    })
}

fn row_of_event(visit: &Visit, queue: &str, event: &Value) -> Option<(Timestamp, Row)> {
    let text = |name: &str| event[name].as_str().unwrap_or_default().to_owned();
    let at = time::read(&text("at")).ok()?;
    let id = text("job_id");
    let job = id.parse().ok().map(|job| (id, link::job(&visit.frame.base, job)));
    let attempt = event["attempt"].as_u64().map(|attempt| attempt.to_string());
    let row = Row {
        at: visit.clock.of(at),
        queue: queue.to_owned(),
        what: text("event"),
        job,
        attempt: attempt.unwrap_or_default(),
        who: text("node"),
        text: text("error"),
        is_bad: true,
    };
    Some((at, row))
}

fn row_of_deed(visit: &Visit, mut deed: Deed) -> Option<(Timestamp, Row)> {
    let at = time::read(&deed.at).ok()?;
    let reason = deed.on.remove("reason").filter(|reason| !reason.is_empty());
    let (result, is_bad) = (deed.result(), deed.is_refused());
    let row = Row {
        at: visit.clock.of(at),
        queue: deed.on.remove("queue").unwrap_or_default(),
        what: deed.action,
        job: None,
        attempt: String::new(),
        is_bad,
        who: deed.who,
        text: reason.map_or(result.clone(), |reason| format!("{result}: {reason}")),
    };
    Some((at, row))
}
