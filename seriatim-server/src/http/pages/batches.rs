//! Batches of jobs.

use askama::Template;
use axum::response::Response;
use serde::Deserialize;

use super::super::{Query, Result, Shared};
use super::{Button, Frame, Moment, On, ROWS_SHOWN, Visit, button, link, page};
use crate::app::batches;
use crate::base::text::{cut, one_line};
use crate::protocol::document::Batch;

/// Columns shown of an id.
const ID_COLUMNS: usize = 60;

#[derive(Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub(super) struct Wish {
    /// Only those that have not ended.
    pub(super) live: bool,
    pub(super) after: String,
}

/// A batch for a template.
struct Row {
    /// Of its row in the page.
    id: String,
    name: String,
    /// The whole id, if `name` is cut.
    title: Option<String>,
    state: &'static str,
    pending: u64,
    done: u64,
    dead: u64,
    cancelled: u64,
    opened: Moment,
    ended: Option<Moment>,
    /// The callback's job, and its page.
    callback: Option<(String, String)>,
    refused: String,
    buttons: Vec<Button>,
}

impl Row {
    fn new(visit: &Visit, batch: &Batch) -> Self {
        let base = &visit.frame.base;
        let deeds: &[&str] = if batch.state() == "open" { &["batch.seal"] } else { &[] };
        let whole = one_line(&batch.batch);
        let name = cut(&whole, ID_COLUMNS);
        Self {
            id: format!("batch-{}", link::encoded(&batch.batch)),
            title: (name != whole).then_some(whole),
            name,
            state: batch.state(),
            pending: batch.pending,
            done: batch.done,
            dead: batch.dead,
            cancelled: batch.cancelled,
            opened: visit.clock.of(batch.opened_at.0),
            ended: batch.ended_at.as_ref().map(|at| visit.clock.of(at.0)),
            callback: batch.callback.map(|id| (id.to_string(), link::job(base, id))),
            refused: batch.refused.clone().unwrap_or_default(),
            buttons: button::all(visit, deeds, &On::Batch(batch.batch.to_string())),
        }
    }
}

#[derive(Template)]
#[template(path = "batches.html", blocks = ["live"])]
struct Batches<'a> {
    frame: &'a Frame,
    /// Whether the store has any.
    is_able: bool,
    is_live: bool,
    is_first: bool,
    rows: Vec<Row>,
    /// The page with all of them, or with those that have not ended only.
    others: String,
    export: String,
    next: Option<String>,
}

page!(Batches);

/// Batches are over all queues.
pub(super) fn whole(visit: &Visit) -> Result<()> {
    visit.scope.check_all("may not see batches, which concern all queues")
}

pub(super) async fn show(
    app: Shared,
    visit: Visit,
    Query(Wish { live, after }): Query<Wish>,
) -> Result<Response> {
    whole(&visit)?;
    let is_able = app.store.capabilities().batches;
    let after = Some(after).filter(|after| !after.is_empty());
    let is_first = after.is_none();
    let (rows, next) = match is_able {
        true => {
            let page = batches::page(&*app.store, live, after, ROWS_SHOWN).await?;
            (page.batches.iter().map(|batch| Row::new(&visit, batch)).collect(), page.next)
        }
        false => (Vec::new(), None),
    };
    let base = &visit.frame.base;
    let path = format!("{base}/batches");
    let only = |live: bool| if live { "true" } else { "" };
    visit.show(&Batches {
        frame: &visit.frame,
        is_able,
        is_live: live,
        is_first,
        rows,
        export: link::with(&format!("{base}/export/batches"), &[("live", only(live))]),
        others: link::with(&path, &[("live", only(!live))]),
        next: next.map(|next| link::with(&path, &[("live", only(live)), ("after", &next)])),
    })
}
