//! Troubles that nodes report.

use std::collections::HashMap;

use seriatim::Timestamp;
use seriatim::store::{NodeView, Trouble, TroubleKind};

use super::nodes::is_late;
use crate::base::text::one_line;
use crate::base::time::length;
use crate::protocol::document;

/// The troubles of the nodes that live, with their node. Those of a node that has ended are over.
pub(crate) fn of(
    nodes: &[NodeView],
    now: Timestamp,
) -> impl Iterator<Item = (&NodeView, &Trouble)> {
    let reporting = nodes.iter().filter(|node| !node.dead && !node.info.troubles.is_empty());
    let living = reporting.filter(move |node| !is_late(node, now));
    living.flat_map(|node| node.info.troubles.iter().map(move |trouble| (node, trouble)))
}

/// Why this node takes no jobs of a queue, if it says so.
pub(crate) fn keeping(node: &NodeView, queue: &str, now: Timestamp) -> Option<String> {
    let keeps = |trouble: &&Trouble| {
        let stops =
            matches!(trouble.kind, TroubleKind::WorkerCannotStart | TroubleKind::ClaimsPutAside);
        stops && trouble.queue.as_deref() == Some(queue)
    };
    node.info.troubles.iter().find(keeps).map(|trouble| line(trouble, now))
}

/// A trouble in one line.
pub(crate) fn line(trouble: &Trouble, now: Timestamp) -> String {
    let what = match trouble.kind {
        TroubleKind::WorkerCannotStart => " cannot start",
        TroubleKind::WorkerSilent => " does not answer",
        TroubleKind::QueueNotApplied => " has another definition",
        TroubleKind::SettlesPutAside => ": outcomes are postponed",
        TroubleKind::SettlesLocked => ": outcomes wait",
        TroubleKind::ClaimsPutAside => ": claims are postponed",
        TroubleKind::WritesLost => " lost writes",
        TroubleKind::InboxNotDrained => " is stuck",
        _ => "",
    };
    let often = match trouble.times {
        1 => String::new(),
        times => format!(", {times} times"),
    };
    let age = length(now.since(trouble.since));
    let (about, text) = (one_line(&trouble.about), one_line(&trouble.text));
    format!("{about}{what}: {text} (for {age}{often})")
}

/// The troubles by queue, as JSON documents.
pub(crate) fn by_queue(
    nodes: &[NodeView],
    now: Timestamp,
) -> HashMap<&str, Vec<document::Trouble>> {
    let mut queues: HashMap<_, Vec<_>> = HashMap::new();
    for (node, trouble) in of(nodes, now) {
        if let Some(queue) = trouble.queue.as_deref() {
            let document = document::Trouble::of_node(trouble, &node.info.id);
            queues.entry(queue).or_default().push(document);
        }
    }
    queues
}
