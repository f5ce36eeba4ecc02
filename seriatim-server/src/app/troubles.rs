//! Troubles that nodes report.

use seriatim::Timestamp;
use seriatim::store::{NodeView, Trouble, TroubleKind};

use super::nodes::is_late;
use crate::base::time::length;
use crate::protocol::document;

/// The troubles of the nodes that live, with their node. Those of a node that has ended are over.
pub(crate) fn of(
    nodes: &[NodeView],
    now: Timestamp,
) -> impl Iterator<Item = (&NodeView, &Trouble)> {
    let living = nodes.iter().filter(move |node| !node.dead && !is_late(node, now));
    living.flat_map(|node| node.info.troubles.iter().map(move |trouble| (node, trouble)))
}

/// A trouble in one line.
pub(crate) fn line(trouble: &Trouble, now: Timestamp) -> String {
    let what = match trouble.kind {
        TroubleKind::WorkerCannotStart => " cannot start",
        TroubleKind::WorkerSilent => " does not answer",
        TroubleKind::QueueNotApplied => " has another definition",
        TroubleKind::SettlesPutAside => ": outcomes are postponed",
        TroubleKind::ClaimsPutAside => ": claims are postponed",
        _ => "",
    };
    let often = match trouble.times {
        1 => String::new(),
        times => format!(", {times} times"),
    };
    let age = length(now.since(trouble.since));
    format!("{}{what}: {} (for {age}{often})", trouble.about, trouble.text)
}

/// The troubles of a queue, as JSON documents.
pub(crate) fn of_queue(nodes: &[NodeView], now: Timestamp, queue: &str) -> Vec<document::Trouble> {
    let concerns = |trouble: &Trouble| trouble.queue.as_deref() == Some(queue);
    of(nodes, now)
        .filter(|(_, trouble)| concerns(trouble))
        .map(|(node, trouble)| document::Trouble::of_node(trouble, &node.info.id))
        .collect()
}
