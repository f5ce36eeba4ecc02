//! Actions on many jobs or lanes: how far they are, and what became of them.

use askama::Template;
use axum::response::Response;
use serde::Deserialize;
use seriatim::Timestamp;

use super::super::{Part, Query, Result, Shared};
use super::{Button, Frame, Moment, On, ROWS_SHOWN, Visit, button, link, page};
use crate::app::error::Error;
use crate::app::operations::{self, Operation};
use crate::base::text::cut;
use crate::base::time;

/// Columns that the list shows of what an operation is about: filters may be long.
const WHAT_COLUMNS: usize = 160;

/// An operation for a template.
struct OperationRow {
    id: String,
    href: String,
    what: String,
    /// Whether that names a cause, whose marks are explained.
    has_cause: bool,
    queues: Vec<(String, String)>,
    state: &'static str,
    progress: String,
    /// Done and expected, for the bar.
    count: u64,
    expected: u64,
    looked_at: u64,
    who: String,
    began: Option<Moment>,
    starts: Option<Moment>,
    ended: Option<Moment>,
    stopped_by: String,
    error: String,
    is_open: bool,
}

impl OperationRow {
    fn new(visit: &Visit, operation: Operation) -> Self {
        let base = &visit.frame.base;
        let at = |text: &str| time::read(text).ok().map(|at: Timestamp| visit.clock.of(at));
        let waits = operation.state.is_open() && operation.stopped_by.is_none();
        let starts = time::read(&operation.starts_at).ok();
        let starts = starts.filter(|at| waits && *at > visit.clock.now);
        Self {
            href: link::operation(base, &operation.id),
            what: format!("{} {}", operation.what.action.button(), operation.what.in_words()),
            has_cause: operation.what.cause.is_some(),
            queues: (operation.what.names().iter())
                .map(|name| (name.clone(), link::queue(base, name)))
                .collect(),
            state: match operation.state.is_open() && operation.stopped_by.is_some() {
                true => "stopping",
                false => operation.state.name(),
            },
            progress: operation.progress(),
            count: operation.count,
            expected: operation.expected.max(operation.count).max(1),
            looked_at: operation.looked_at.max(operation.count),
            began: at(&operation.created_at),
            starts: starts.map(|at| visit.clock.of(at)),
            ended: operation.ended_at.as_deref().and_then(at),
            stopped_by: operation.stopped_by.clone().unwrap_or_default(),
            error: operation.error.clone().unwrap_or_default(),
            is_open: operation.state.is_open(),
            who: operation.who,
            id: operation.id,
        }
    }
}

#[derive(Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub(super) struct Wish {
    /// The last operation of the page before
    after: String,
}

#[derive(Template)]
#[template(path = "operations.html", blocks = ["live"])]
struct Operations<'a> {
    frame: &'a Frame,
    rows: Vec<OperationRow>,
    /// Whether one of them names a cause.
    has_causes: bool,
    is_first: bool,
    export: String,
    next: Option<String>,
}

page!(Operations);

pub(super) async fn show_all(
    app: Shared,
    visit: Visit,
    Query(Wish { after }): Query<Wish>,
) -> Result<Response> {
    let may_use = |queue: &str| visit.scope.has_queue(queue);
    let own = operations::list_within(&*app.store, may_use).await?.into_iter();
    // Their ids are times, the latest first.
    let mut shown: Vec<Operation> =
        own.filter(|operation| after.is_empty() || operation.id < after).collect();
    let has_more = shown.len() > ROWS_SHOWN;
    shown.truncate(ROWS_SHOWN);
    let base = &visit.frame.base;
    let last = shown.last().filter(|_| has_more);
    let next = last.map(|last| link::with(&format!("{base}/operations"), &[("after", &last.id)]));
    let export = format!("{base}/export/operations");
    let row = |operation| {
        let row = OperationRow::new(&visit, operation);
        OperationRow { what: cut(&row.what, WHAT_COLUMNS), ..row }
    };
    let rows: Vec<OperationRow> = shown.into_iter().map(row).collect();
    visit.show(&Operations {
        frame: &visit.frame,
        has_causes: rows.iter().any(|row| row.has_cause),
        rows,
        is_first: after.is_empty(),
        export,
        next,
    })
}

#[derive(Template)]
#[template(path = "operation.html", blocks = ["live"])]
struct One<'a> {
    frame: &'a Frame,
    row: OperationRow,
    buttons: Vec<Button>,
}

page!(One);

pub(super) async fn show_one(
    app: Shared,
    visit: Visit,
    Part(id): Part<String>,
) -> Result<Response> {
    let operation = operations::show(&*app.store, &id).await?;
    if !operation.is_within(|queue| visit.scope.has_queue(queue)) {
        return Err(Error::NoOperation(id).into());
    }
    let may_stop = operation.state.is_open() && operation.stopped_by.is_none();
    let deeds: &[&str] = if may_stop { &["operation.stop"] } else { &[] };
    let buttons = button::all(&visit, deeds, &On::Operation(operation.id.clone()));
    let row = OperationRow::new(&visit, operation);
    visit.show(&One { frame: &visit.frame, row, buttons })
}
