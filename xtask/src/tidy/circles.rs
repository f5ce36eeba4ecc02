//! Circles in a graph: sets of nodes that can all reach each other.

use std::collections::{BTreeMap, BTreeSet};

/// The targets of each node's arrows.
pub(super) type Graph<'a> = BTreeMap<&'a str, BTreeSet<&'a str>>;

/// All circles of at least two nodes.
pub(super) fn of<'a>(graph: &Graph<'a>) -> Vec<BTreeSet<&'a str>> {
    let ahead: BTreeMap<&str, BTreeSet<&str>> =
        graph.keys().map(|node| (*node, reached(graph, node))).collect();
    let returns =
        |from: &str, node: &str| ahead.get(from).is_some_and(|ahead| ahead.contains(node));
    let circles: BTreeSet<BTreeSet<&str>> = ahead
        .iter()
        .map(|(node, ahead)| ahead.iter().copied().filter(|from| returns(from, node)).collect())
        .filter(|circle: &BTreeSet<&str>| circle.len() > 1)
        .collect();
    circles.into_iter().collect()
}

/// The nodes that can be reached from `node` in one or more steps.
fn reached<'a>(graph: &Graph<'a>, node: &str) -> BTreeSet<&'a str> {
    let mut seen = BTreeSet::new();
    let mut open: Vec<&str> = graph.get(node).into_iter().flatten().copied().collect();
    while let Some(next) = open.pop() {
        if seen.insert(next) {
            open.extend(graph.get(next).into_iter().flatten());
        }
    }
    seen
}
