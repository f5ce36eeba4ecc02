//! All queues.

use std::cmp::Reverse;

use askama::Template;
use axum::response::Response;
use futures_util::TryFutureExt;
use serde::Deserialize;
use seriatim::Timestamp;
use seriatim::store::{NodeView, QueueView, Store};

use super::super::{Query, Result, Shared};
use super::row::QueueRow;
use super::{Frame, ROWS_SHOWN, Visit, link, page};
use crate::app::figures::Figures;
use crate::app::queues;

/// The order of the rows.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "snake_case")]
enum By {
    #[default]
    Name,
    Lag,
    Jobs,
    Running,
    Retrying,
    Dead,
}

#[derive(Default, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Wish {
    #[serde(default)]
    by: By,
    /// Part of the name
    #[serde(default)]
    name: String,
    /// By name: the last queue of the page before
    #[serde(default)]
    after: String,
    /// By figures: queues on the pages before
    #[serde(default)]
    skip: usize,
}

#[derive(Template)]
#[template(path = "queues.html", blocks = ["live"])]
struct Queues<'a> {
    frame: &'a Frame,
    rows: Vec<QueueRow>,
    is_first: bool,
    /// Queues on the pages behind.
    left_out: usize,
    export: String,
    /// The field that says where a page begins.
    place: &'static str,
    next: Option<String>,
    name: &'a str,
    by: &'static str,
    orders: Vec<(&'static str, bool)>,
}

page!(Queues);

pub(super) async fn show(app: Shared, visit: Visit, Query(wish): Query<Wish>) -> Result<Response> {
    let store = &*app.store;
    let (views, nodes, now) = sorted(&wish, store, &visit).await?;
    let begin = wish.begin(&views);
    let end = begin.saturating_add(ROWS_SHOWN);
    let left_out = views.len().saturating_sub(end);
    let base = &visit.frame.base;
    let shown = &views[begin.min(views.len())..end.min(views.len())];
    let row =
        |(view, figures): &(QueueView, Figures)| QueueRow::new(base, view, figures, (&nodes, now));
    let mut rows: Vec<QueueRow> = shown.iter().map(row).collect();
    QueueRow::add_recent(store, &mut rows, now).await?;
    let with = |path: &str, place: (&str, &str)| {
        let query = [("by", wish.order_name()), ("name", &wish.name), place];
        link::with(&format!("{base}{path}"), &query)
    };
    let next = shown.last().filter(|_| left_out > 0).map(|(last, _)| match wish.by {
        By::Name => with("/queues", ("after", &last.queue.name)),
        _ => with("/queues", ("skip", &end.to_string())),
    });
    visit.show(&Queues {
        frame: &visit.frame,
        rows,
        is_first: begin == 0,
        left_out,
        export: with("/export/queues", ("", "")),
        place: if wish.by == By::Name { "after" } else { "skip" },
        next,
        by: wish.order_name(),
        orders: ORDERS.map(|(value, of)| (value, of == wish.by)).to_vec(),
        name: &wish.name,
    })
}

const ORDERS: [(&str, By); 6] = [
    ("name", By::Name),
    ("lag", By::Lag),
    ("jobs", By::Jobs),
    ("running", By::Running),
    ("retrying", By::Retrying),
    ("dead", By::Dead),
];

impl Wish {
    fn order_name(&self) -> &'static str {
        ORDERS.iter().find(|(_, by)| *by == self.by).map_or("", |(name, _)| name)
    }

    /// The first of them on this page. Figures move between two pages, and a place among them moves with them: so a page by
    /// figures begins at a number. Names do not move.
    fn begin(&self, views: &[(QueueView, Figures)]) -> usize {
        match self.by {
            By::Name => views.partition_point(|(view, _)| view.queue.name <= self.after),
            _ => self.skip,
        }
    }
}

/// The queues that are wanted in their order, and the nodes.
pub(super) async fn sorted(
    wish: &Wish,
    store: &dyn Store,
    visit: &Visit,
) -> Result<(Vec<(QueueView, Figures)>, Vec<NodeView>, Timestamp)> {
    let asked = tokio::try_join!(queues::with_figures(store), store.now().err_into());
    let ((mut views, nodes), now) = asked?;
    views.retain(|(view, _)| {
        visit.scope.has_queue(&view.queue.name) && view.queue.name.contains(&wish.name)
    });
    // Equal ones stay in the order of their names.
    match wish.by {
        By::Name => {}
        By::Lag => views.sort_by_key(|(_, figures)| Reverse(figures.stats.lag)),
        By::Jobs => views.sort_by_key(|(_, figures)| Reverse(figures.stats.jobs)),
        By::Running => views.sort_by_key(|(_, figures)| Reverse(figures.running())),
        By::Retrying => views.sort_by_key(|(_, figures)| Reverse(figures.stats.retrying)),
        By::Dead => views.sort_by_key(|(_, figures)| Reverse(figures.stats.dead)),
    }
    Ok((views, nodes, now))
}
