//! What nodes tell of what is wrong with them, for all that show nodes and queues.

use serde_json::Value;
use seriatim::Timestamp;
use seriatim::store::{NodeView, Trouble, TroubleKind};

use super::nodes::is_late;
use crate::base::text::one_line;
use crate::base::time::length;
use crate::cli::output::say;
use crate::protocol::document;

/// The troubles of the nodes that live, with their node. Those of a node that has ended are over.
pub(crate) fn of(
    nodes: &[NodeView],
    now: Timestamp,
) -> impl Iterator<Item = (&NodeView, &Trouble)> {
    let living = nodes.iter().filter(move |node| !node.dead && !is_late(node, now));
    living.flat_map(|node| node.info.troubles.iter().map(move |trouble| (node, trouble)))
}

/// What is wrong, in one line.
pub(crate) fn line(trouble: &Trouble, now: Timestamp) -> String {
    let what = match trouble.kind {
        TroubleKind::WorkerCannotStart => " cannot start",
        TroubleKind::WorkerSilent => " does not answer",
        TroubleKind::QueueNotApplied => " is not defined as here",
        TroubleKind::SettlesPutAside => ": outcomes are put aside",
        TroubleKind::ClaimsPutAside => ": claims are put aside",
        _ => "",
    };
    let often = match trouble.times {
        1 => String::new(),
        times => format!(", {times} times"),
    };
    let age = length(now.since(trouble.since));
    format!("{}{what}: {} (for {age}{often})", trouble.about, trouble.text)
}

/// The troubles that concern a queue, as programs read them.
pub(crate) fn of_queue(nodes: &[NodeView], now: Timestamp, queue: &str) -> Value {
    let concerns = |trouble: &Trouble| trouble.queue.as_deref() == Some(queue);
    of(nodes, now)
        .filter(|(_, trouble)| concerns(trouble))
        .map(|(node, trouble)| {
            let mut shown = document::trouble(trouble);
            shown["node"] = (&*node.info.id.0).into();
            shown
        })
        .collect()
}

/// Says what is wrong below a table, one line for each; of one queue, or all.
pub(crate) fn say_all(nodes: &[NodeView], now: Timestamp, queue: Option<&str>) {
    let wanted = |trouble: &Trouble| queue.is_none() || trouble.queue.as_deref() == queue;
    for (node, trouble) in of(nodes, now).filter(|(_, trouble)| wanted(trouble)) {
        say(format!("{}: {}", one_line(&node.info.id.0), one_line(&line(trouble, now))));
    }
}
