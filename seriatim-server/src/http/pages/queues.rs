//! All queues.

use std::cmp::Reverse;

use askama::Template;
use axum::response::Response;
use futures_util::TryFutureExt;
use serde::Deserialize;

use super::super::{Query, Result, Shared};
use super::row::QueueRow;
use super::{Frame, ROWS_SHOWN, Visit, link, page};
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
    /// Queues on the pages before
    #[serde(default)]
    skip: usize,
}

#[derive(Template)]
#[template(path = "queues.html", blocks = ["live"])]
struct Queues<'a> {
    frame: &'a Frame,
    rows: Vec<QueueRow>,
    /// Queues on the pages behind.
    left_out: usize,
    next: Option<String>,
    name: String,
    by: &'static str,
    orders: Vec<(&'static str, &'static str, bool)>,
}

page!(Queues);

pub(super) async fn show(
    app: Shared,
    visit: Visit,
    Query(Wish { by, name, skip }): Query<Wish>,
) -> Result<Response> {
    let store = &*app.store;
    let asked = tokio::try_join!(queues::with_figures(store), store.now().err_into());
    let ((mut views, nodes), now) = asked?;
    views.retain(|(view, _)| {
        visit.scope.has_queue(&view.queue.name) && view.queue.name.contains(&name)
    });
    match by {
        By::Name => {}
        By::Lag => views.sort_by_key(|(_, figures)| Reverse(figures.stats.lag)),
        By::Jobs => views.sort_by_key(|(_, figures)| Reverse(figures.stats.jobs)),
        By::Running => views.sort_by_key(|(_, figures)| Reverse(figures.running())),
        By::Retrying => views.sort_by_key(|(_, figures)| Reverse(figures.stats.retrying)),
        By::Dead => views.sort_by_key(|(_, figures)| Reverse(figures.stats.dead)),
    }
    let end = skip.saturating_add(ROWS_SHOWN);
    let left_out = views.len().saturating_sub(end);
    let base = &visit.frame.base;
    let rows = views.iter().skip(skip).take(ROWS_SHOWN);
    let rows = rows.map(|(view, figures)| QueueRow::new(base, view, figures, (&nodes, now)));
    let mut rows: Vec<QueueRow> = rows.collect();
    QueueRow::add_recent(store, &mut rows, now).await?;
    let orders = [
        ("name", "name", By::Name),
        ("lag", "lag", By::Lag),
        ("jobs", "jobs", By::Jobs),
        ("running", "running", By::Running),
        ("retrying", "retrying", By::Retrying),
        ("dead", "dead", By::Dead),
    ];
    let orders = orders.map(|(value, says, of)| (value, says, of == by)).to_vec();
    let by = orders.iter().find(|(.., is)| *is).map_or("", |(value, ..)| *value);
    let next = (left_out > 0).then(|| {
        let query = [("by", by), ("name", &name), ("skip", &end.to_string())];
        link::with(&format!("{base}/queues"), &query)
    });
    visit.show(&Queues { frame: &visit.frame, rows, left_out, next, name, by, orders })
}
