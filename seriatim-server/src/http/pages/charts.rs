//! The charts of a queue, or of all and of the store's server.

use std::time::Duration;

use serde::Deserialize;
use seriatim::Timestamp;
use seriatim::store::Store;

use super::Chart;
use super::chart::{bars, begins, unit};
use super::{Visit, link};
use crate::app::history::{self, ALL, Point, SERVER, Span, StorePoint, TaskFigures, read};
use crate::base::text::{grouped, size};
use crate::base::time::{length, run_time};
use crate::protocol::document::Times;

/// The spans that a visitor can choose.
const SPANS: [(&str, Span); 3] = [("1h", Span::Hour), ("24h", Span::Day), ("30d", Span::Month)];

/// Tasks shown of a queue.
const TASKS_SHOWN: usize = 20;

/// The query of a page with charts.
#[derive(Default, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Wish {
    #[serde(default)]
    pub(super) span: String,
}

/// Charts for a template.
pub(super) struct Charts {
    pub(super) all: Vec<Chart>,
    /// Name, address, and whether it is shown.
    pub(super) spans: Vec<(&'static str, String, bool)>,
    pub(super) is_empty: bool,
    /// When an interval of them began, and its values.
    pub(super) rows: Vec<(String, Vec<String>)>,
    /// Of all turns of a queue, then of its tasks, those that took most time.
    pub(super) tasks: Vec<TaskRow>,
}

/// How long the turns of a queue or task took in the span.
pub(super) struct TaskRow {
    pub(super) task: String,
    pub(super) turns: u64,
    pub(super) failed: u64,
    pub(super) mean: String,
    /// Empty if earlier builds timed them.
    pub(super) p50: String,
    pub(super) p95: String,
    pub(super) longest: String,
}

impl Charts {
    /// `path` is the page with the charts, `wanted` the span's name.
    pub(super) async fn read(
        store: &dyn Store,
        visit: &Visit,
        queue: &str,
        path: &str,
        wanted: &str,
    ) -> seriatim::Result<Self> {
        let chosen = SPANS.iter().find(|(name, _)| *name == wanted).unwrap_or(&SPANS[0]);
        let (span, now) = (chosen.1, visit.clock.now);
        let points = read::<Point>(store, queue, span, now).await?;
        let bars = bars(&points, span, now.as_micros() / 1_000_000);
        let per = |what| format!("{what} per {}", unit(span));
        let lag = |value: u64| length(Duration::from_secs(value));
        let mut all = vec![
            Chart::new(per("jobs done"), "done", &bars, |point| point.done, grouped),
            Chart::new(per("turns failed"), "failed", &bars, |point| point.failed, grouped),
            Chart::new("worst lag", "lag", &bars, |point| point.lag, lag),
            Chart::new("jobs", "jobs", &bars, |point| point.jobs, grouped),
        ];
        let mut tasks = Vec::new();
        if queue == ALL {
            all.extend(of_server(store, span, now).await?);
        } else {
            let found = history::tasks(store, queue, span, now).await?;
            tasks.extend(found.all.map(|all| TaskRow::new("all turns".to_owned(), all)));
            let of_task = |of: TaskFigures| TaskRow::new(of.task, of.all);
            tasks.extend(found.tasks.into_iter().take(TASKS_SHOWN).map(of_task));
        }
        Ok(Self {
            rows: rows(visit, &all, begins(span, now.as_micros() / 1_000_000)),
            all,
            spans: SPANS
                .map(|(name, of)| (name, link::with(path, &[("span", name)]), of == span))
                .to_vec(),
            is_empty: points.is_empty(),
            tasks,
        })
    }
}

/// The charts as a table, without intervals of which nothing is known.
fn rows(
    visit: &Visit,
    charts: &[Chart],
    begins: impl Iterator<Item = i64>,
) -> Vec<(String, Vec<String>)> {
    let of_bar = |(bar, at): (usize, i64)| {
        let values: Vec<String> = charts.iter().map(|chart| chart.values[bar].clone()).collect();
        let at = visit.clock.minute(Timestamp::from_micros(at * 1_000_000));
        values.iter().any(|value| !value.is_empty()).then_some((at, values))
    };
    begins.enumerate().filter_map(of_bar).collect()
}

impl TaskRow {
    fn new(task: String, Times { turns, failed, mean, p50, p95, longest }: Times) -> Self {
        let part = |part: Option<f64>| part.map(run_time).unwrap_or_default();
        let (mean, longest) = (run_time(mean), run_time(longest));
        Self { task, turns, failed, mean, p50: part(p50), p95: part(p95), longest }
    }
}

/// The charts of the store's server, of figures that it has.
async fn of_server(
    store: &dyn Store,
    span: Span,
    now: Timestamp,
) -> seriatim::Result<impl Iterator<Item = Chart>> {
    let points = read::<StorePoint>(store, SERVER, span, now).await?;
    let bars = bars(&points, span, now.as_micros() / 1_000_000);
    let operations = format!("store: operations per {}", unit(span));
    let charts = [
        Chart::new("store: bytes", "jobs", &bars, |point| point.bytes, size),
        Chart::new("store: connections", "jobs", &bars, |point| point.connections, grouped),
        Chart::new(operations, "done", &bars, |point| point.operations, grouped),
    ];
    Ok(charts.into_iter().filter(|chart| !chart.is_flat))
}
