//! A queue in full, as text: for `seriatim queues show` and the details of `seriatim top`.

use seriatim::store::{NodeView, QueueView, Store};

use super::tones::node_state;
use super::troubles;
use crate::app::find;
use crate::app::history::{self, Span};
use crate::app::queues::workers;
use crate::app::settings;
use crate::base::text::count;
use crate::base::time::{length, run_time};
use crate::cli::output::{Fields, Result};
use crate::protocol::document::Times;

/// Its figures, nodes and settings, and the problems that nodes have with it.
pub(super) async fn in_full(store: &dyn Store, name: &str) -> Result<String> {
    let (view, figures) = find::queue_with_figures(store, name).await?;
    let stats = &figures.stats;
    let nodes = workers(store, name).await?;
    let mut fields = Fields::default();
    fields
        .add("queue", name)
        .add("state", state(&view))
        .add("jobs", format!("{} in {}", stats.jobs, count(stats.lanes, "lane")))
        .add("waiting", count(stats.waiting(), "lane"))
        .add("running", count(figures.running(), "turn"))
        .add("prefetched", count(figures.prefetched, "turn"))
        .add("retrying", count(stats.retrying, "lane"))
        .add("dead", count(stats.dead, "job"))
        .add("processed", count(stats.processed, "job"))
        .add("failed", count(stats.failed, "turn"))
        .add("lag", length(stats.lag));
    let now = store.now().await?;
    let turns = history::turns(store, name, Span::Hour, now).await?;
    fields.add(
        "run times",
        turns.as_ref().map_or_else(|| "none in the last hour".to_owned(), run_times),
    );
    let name = |node: &NodeView| format!("{} ({})", node.info.id, node_state(node, now).text);
    let names: Vec<String> = nodes.iter().map(name).collect();
    fields.add("nodes", if names.is_empty() { "none".to_owned() } else { names.join(", ") });
    fields.add("settings", settings::lines(&view.queue));
    let troubles = troubles::lines(&nodes, now, Some(&view.queue.name));
    Ok([fields.render()].into_iter().chain(troubles).collect::<Vec<_>>().join("\n"))
}

fn run_times(turns: &Times) -> String {
    let part = |name, part: Option<f64>| part.map(|part| format!("{name} {}", run_time(part)));
    let longest = Some(format!("longest {}", run_time(turns.longest)));
    let all = [part("p50", turns.p50), part("p95", turns.p95), longest];
    let all: Vec<String> = all.into_iter().flatten().collect();
    format!("{}, of {} in the last hour", all.join(", "), count(turns.turns, "turn"))
}

pub(super) fn state(view: &QueueView) -> &'static str {
    match (view.paused, view.declared) {
        (true, _) => "paused",
        (false, true) => "open",
        (false, false) => "open, undeclared",
    }
}
