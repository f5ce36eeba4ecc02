//! A queue in full, as text: for `seriatim queues show` and the details of `seriatim top`.

use serde_json::Value;
use seriatim::Mode;
use seriatim::store::{NodeView, QueueView, Store};

use super::tones::node_state;
use super::troubles;
use crate::app::find;
use crate::app::queues::workers;
use crate::base::text::count;
use crate::base::time::length;
use crate::cli::output::Failure;
use crate::cli::output::fields::Fields;

/// Its figures, nodes and settings, and the problems that nodes have with it.
pub(super) async fn in_full(store: &dyn Store, name: &str) -> Result<String, Failure> {
    let (view, figures) = find::queue_with_figures(store, name).await?;
    let stats = &figures.stats;
    let nodes = workers(store, name).await?;
    let settings = serde_json::to_value(&view.queue).unwrap_or_default();
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
    let name = |node: &NodeView| format!("{} ({})", node.info.id, node_state(node, now).0);
    let names: Vec<String> = nodes.iter().map(name).collect();
    fields.add("nodes", if names.is_empty() { "none".to_owned() } else { names.join(", ") });
    fields.add("settings", lines_of(&settings, view.queue.mode));
    let troubles = troubles::lines(&nodes, now, Some(&view.queue.name));
    Ok([fields.render()].into_iter().chain(troubles).collect::<Vec<_>>().join("\n"))
}

pub(super) fn state(view: &QueueView) -> &'static str {
    match (view.paused, view.declared) {
        (true, _) => "paused",
        (false, true) => "open",
        (false, false) => "open, undeclared",
    }
}

/// The settings that are set and apply to this mode, one per line, as in a configuration.
fn lines_of(settings: &Value, mode: Mode) -> String {
    let fields = settings.as_object().into_iter().flatten();
    let says_something = |name: &str| match name {
        "name" => false,
        "merge" | "due" => mode == Mode::Accumulate,
        "take" => mode == Mode::Fifo,
        _ => true,
    };
    let set = fields.filter(|(name, value)| says_something(name) && !value.is_null());
    set.map(|(name, value)| format!("{name} = {}", as_toml(value))).collect::<Vec<_>>().join("\n")
}

/// The value on one line: texts and numbers look the same in both, tables do not.
fn as_toml(value: &Value) -> String {
    let Some(fields) = value.as_object() else { return value.to_string() };
    let field = |(name, value): (&String, &Value)| format!("{name} = {}", as_toml(value));
    format!("{{ {} }}", fields.iter().map(field).collect::<Vec<_>>().join(", "))
}
