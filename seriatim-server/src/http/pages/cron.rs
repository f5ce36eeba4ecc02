//! Cron entries.

use askama::Template;
use axum::response::Response;
use serde::Deserialize;

use super::super::{Query, Result, Shared};
use super::{Button, Frame, Moment, On, Visit, button, link, page};
use crate::app::cron;
use crate::base::time;
use crate::protocol::document::{CronDefinition, CronEntry, CronLast, CronPause};

/// Entries of one page: the last job of each takes a call of the store.
const ROWS_MAX: usize = 15;

#[derive(Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub(super) struct Wish {
    /// The last entry of the page before
    after: String,
}

/// An entry for a template.
struct Row {
    /// Of its row in the page.
    id: String,
    name: String,
    state: &'static str,
    /// Who paused it, since when, and why.
    paused: Option<(String, Moment, String)>,
    definitions: Vec<Definition>,
    last: Option<Last>,
    next: Vec<Moment>,
    buttons: Vec<Button>,
}

struct Definition {
    words: String,
    schedule: String,
    zone: String,
    queue: String,
    href: String,
    nodes: Vec<String>,
}

struct Last {
    at: Moment,
    by: String,
    outcome: String,
    href: Option<String>,
    error: String,
}

#[derive(Template)]
#[template(path = "cron.html", blocks = ["live"])]
struct Cron<'a> {
    frame: &'a Frame,
    rows: Vec<Row>,
    is_first: bool,
    export: String,
    next: Option<String>,
}

page!(Cron);

/// Cron entries concern all queues.
pub(super) fn whole(visit: &Visit) -> Result<()> {
    visit.scope.check_all("may not see cron entries, which concern all queues")
}

pub(super) async fn show(
    app: Shared,
    visit: Visit,
    Query(Wish { after }): Query<Wish>,
) -> Result<Response> {
    whole(&visit)?;
    let (entries, has_more) = cron::page(&*app.store, &after, ROWS_MAX).await?;
    let last = entries.last().filter(|_| has_more);
    let base = &visit.frame.base;
    let next = last.map(|entry| link::with(&format!("{base}/cron"), &[("after", &entry.name)]));
    let export = format!("{base}/export/cron");
    let rows = entries.into_iter().map(|entry| Row::new(&visit, entry)).collect();
    visit.show(&Cron { frame: &visit.frame, rows, is_first: after.is_empty(), export, next })
}

impl Row {
    fn new(visit: &Visit, entry: CronEntry) -> Self {
        let moment = |text: &String| time::read(text).ok().map(|at| visit.clock.of(at));
        let paused = |CronPause { since, by, reason }: CronPause| {
            (by, visit.clock.of(since.0), reason.unwrap_or_default())
        };
        let deeds: &[&str] = match (&entry.paused, entry.definitions.is_empty()) {
            (Some(_), true) => &["cron.resume"],
            (Some(_), false) => &["cron.run", "cron.resume"],
            (None, _) => &["cron.run", "cron.pause"],
        };
        let on = On::Cron(entry.name.clone());
        Self {
            state: state(&entry),
            paused: entry.paused.map(paused),
            last: entry.last.map(|last| Last::new(visit, last)),
            next: entry.next.iter().filter_map(moment).collect(),
            definitions: (entry.definitions.into_iter())
                .map(|one| Definition::new(&visit.frame.base, one))
                .collect(),
            buttons: button::all(visit, deeds, &on),
            id: format!("cron-{}", link::encoded(&entry.name)),
            name: entry.name,
        }
    }
}

fn state(entry: &CronEntry) -> &'static str {
    let no_node = entry.definitions.iter().all(|one| one.nodes.is_empty());
    match () {
        () if entry.paused.is_some() => "paused",
        () if no_node => "lost",
        () if entry.definitions.len() > 1 => "differs",
        () => "active",
    }
}

impl Definition {
    fn new(base: &str, one: CronDefinition) -> Self {
        Self {
            words: one.words,
            schedule: one.schedule,
            zone: one.time_zone,
            href: link::queue(base, &one.queue),
            queue: one.queue,
            nodes: one.nodes,
        }
    }
}

impl Last {
    fn new(visit: &Visit, last: CronLast) -> Self {
        Self {
            at: visit.clock.of(last.at.0),
            by: last.by.unwrap_or_default(),
            // A job that is not kept has no page.
            href: (last.job_id.filter(|_| last.outcome.as_deref() != Some(cron::ENDED)))
                .map(|id| link::job(&visit.frame.base, id)),
            outcome: match last.outcome.unwrap_or_default() {
                ended if ended == cron::ENDED => "ended; its result is not kept".to_owned(),
                outcome => outcome,
            },
            error: last.error.unwrap_or_default(),
        }
    }
}
