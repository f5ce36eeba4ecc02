//! One queue.

use askama::Template;
use axum::response::Response;
use futures_util::TryFutureExt;
use seriatim::store::{LaneQuery, LaneStage, Store};

use super::super::{Part, Query, Result, Shared};
use super::charts::{Charts, Wish};
use super::limits::{self, LimitRow};
use super::row::{NodeRow, QueueRow};
use super::{Button, Frame, On, ROWS_SHOWN, Visit, button, grouped, link, page};
use crate::app::limits::Usage;
use crate::app::operations::{self, Action};
use crate::app::{find, pauses, queues, settings};

/// Held lanes that are counted, at most.
const HELD_COUNTED_MAX: usize = 1_000;

#[derive(Template)]
#[template(path = "queue.html", blocks = ["live"])]
struct Queue<'a> {
    frame: &'a Frame,
    row: QueueRow,
    /// Who paused it.
    pause: Option<String>,
    lanes: String,
    jobs: String,
    scheduled: String,
    failed: String,
    running: String,
    held: String,
    held_count: String,
    morgue: String,
    audit: Option<String>,
    buttons: Vec<Button>,
    settings: String,
    /// The limit of the queue itself, as a form has it.
    at_once: String,
    rate: String,
    limits: Vec<LimitRow>,
    /// Groups with settings of their own that are not shown.
    groups_left_out: usize,
    nodes: Vec<NodeRow>,
    nodes_left_out: usize,
    declared: bool,
    charts: Charts,
}

page!(Queue);

pub(super) async fn show(
    app: Shared,
    visit: Visit,
    Part(name): Part<String>,
    Query(Wish { span }): Query<Wish>,
) -> Result<Response> {
    visit.scope.check_queue(&name)?;
    let store = &*app.store;
    let (view, figures) = find::queue_with_figures(store, &name).await?;
    let base = &visit.frame.base;
    let path = link::queue(base, &name);
    let (nodes, now, usage, held_count, charts) = tokio::try_join!(
        queues::workers(store, &name),
        store.now().err_into(),
        Usage::read(store, &view.queue).err_into(),
        held(store, &name).err_into(),
        Charts::read(store, &visit, &name, &path, &span).err_into(),
    )?;
    let pause = if view.paused { "queue.resume" } else { "queue.pause" };
    let on = On::Queue(name.clone());
    let mut buttons = button::all(&visit, &[pause], &on);
    let all = |action| operations::Wish::new(action, name.as_str());
    let many = [Action::Retry, Action::Bury, Action::DeleteFailed, Action::DeleteWaiting];
    // What nothing failed for is not offered.
    let has_failed = figures.stats.retrying > 0;
    let many = many.into_iter().filter(|action| has_failed || !action.is_for_failed());
    buttons.extend(button::operations(&visit, many.map(all)));
    let pause = match view.paused {
        true => pauses::of_queue(store, &name, now).await?,
        false => None,
    };
    let (limits, groups_left_out) = limits::rows(&view.queue, &usage);
    let lanes = |query: &[(&str, &str)]| link::lanes(base, &name, query);
    let page = Queue {
        frame: &visit.frame,
        pause: pause.map(|pause| pause.to_string()),
        lanes: lanes(&[]),
        jobs: link::with(&format!("{base}/jobs"), &[("queue", &name)]),
        scheduled: link::with(&format!("{base}/scheduled"), &[("queue", &name)]),
        failed: lanes(&[("by", "retry_count")]),
        running: lanes(&[("state", "running")]),
        held: lanes(&[("state", "held")]),
        held_count,
        morgue: link::with(&format!("{base}/morgue"), &[("queue", &name)]),
        audit: visit.audit(&name),
        buttons,
        at_once: view.queue.limit.running.map(|most| most.to_string()).unwrap_or_default(),
        rate: view.queue.limit.rate.map(|rate| rate.to_string()).unwrap_or_default(),
        settings: settings::lines(&view.queue),
        limits,
        groups_left_out,
        nodes: (nodes.iter().take(ROWS_SHOWN))
            .map(|node| NodeRow::new(&visit, node, now))
            .collect(),
        nodes_left_out: nodes.len().saturating_sub(ROWS_SHOWN),
        declared: view.declared,
        charts,
        row: QueueRow::new(base, &view, &figures, (&nodes, now)),
    };
    visit.show(&page)
}

/// How many lanes are held, up to a limit: stores do not tally them.
async fn held(store: &dyn Store, queue: &str) -> seriatim::Result<String> {
    let (stages, rows_max) = (vec![LaneStage::Held], HELD_COUNTED_MAX);
    let page = store.lanes(LaneQuery { stages, rows_max, ..LaneQuery::new(queue) }).await?;
    let more = if page.next.is_some() { "+" } else { "" };
    Ok(format!("{}{more}", grouped(page.rows.len())))
}
