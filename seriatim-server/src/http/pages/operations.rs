//! Actions on many jobs or lanes: how far they are, and what became of them.

use askama::Template;
use axum::extract::State;
use axum::response::Response;
use seriatim::Timestamp;

use super::super::input::Part;
use super::super::problem::Problem;
use super::super::state::Shared;
use super::button::{self, Button};
use super::deed::On;
use super::frame::Frame;
use super::link;
use super::moment::Moment;
use super::visit::{Visit, page};
use crate::app::error::Error;
use crate::app::operations::{self, Operation};
use crate::base::time;

/// An operation for a template.
struct OperationRow {
    id: String,
    href: String,
    what: String,
    queue: (String, String),
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
        let starts = time::read(&operation.starts_at).ok().filter(|at| *at > visit.clock.now);
        Self {
            href: link::operation(base, &operation.id),
            what: format!("{} {}", operation.what.action.button(), operation.what.in_words()),
            queue: (operation.what.queue.clone(), link::queue(base, &operation.what.queue)),
            state: operation.state.name(),
            progress: operation.progress(),
            count: operation.count,
            expected: operation.expected.max(operation.count).max(1),
            looked_at: operation.looked_at,
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

#[derive(Template)]
#[template(path = "operations.html", blocks = ["live"])]
struct Operations<'a> {
    frame: &'a Frame,
    rows: Vec<OperationRow>,
}

page!(Operations);

pub(super) async fn show_all(State(app): State<Shared>, visit: Visit) -> Result<Response, Problem> {
    let all = operations::list(&*app.store).await?.into_iter();
    let own = all.filter(|operation| visit.scope.has_queue(&operation.what.queue));
    let rows = own.map(|operation| OperationRow::new(&visit, operation)).collect();
    visit.show(&Operations { frame: &visit.frame, rows })
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
    State(app): State<Shared>,
    visit: Visit,
    Part(id): Part<String>,
) -> Result<Response, Problem> {
    let operation = operations::show(&*app.store, &id).await?;
    if !visit.scope.has_queue(&operation.what.queue) {
        return Err(Error::NoOperation(id).into());
    }
    let deeds: &[&str] = if operation.state.is_open() { &["operation.stop"] } else { &[] };
    let buttons = button::all(&visit, deeds, &On::Operation(operation.id.clone()));
    let row = OperationRow::new(&visit, operation);
    visit.show(&One { frame: &visit.frame, row, buttons })
}
