//! The servers that each node of this process saw last. A replica that took over may lack the last claims and settles: then
//! the node works on lanes that the store has not claimed for it, and the store counts lanes as the node's that it has
//! settled, which each heartbeat would extend.

use std::collections::{BTreeMap, HashMap};
use std::sync::{Arc, Mutex};

use crate::lock::lock;
use crate::model::NodeId;

/// Most nodes that are remembered; a process has one for each engine, and another one whenever it is declared dead.
const NODES_MAX: usize = 1_000;

/// For each server, by its address, the id of its replication: another one after a restart or promotion.
pub(super) type Servers = BTreeMap<Arc<str>, String>;

#[derive(Default)]
pub(super) struct Marks(Mutex<HashMap<NodeId, Servers>>);

impl Marks {
    /// Remembers the servers that answer now. Whether one of them is new to the node.
    pub(super) fn changed(&self, node: &NodeId, now: Servers) -> bool {
        let mut marks = lock(&self.0);
        if marks.len() >= NODES_MAX && !marks.contains_key(node) {
            marks.clear();
        }
        let Some(known) = marks.get_mut(node) else {
            marks.insert(node.clone(), now);
            return false;
        };
        let changed = now.iter().any(|(server, id)| known.get(server) != Some(id));
        // A server that does not answer now may come back as it was.
        known.extend(now);
        changed
    }
}

#[cfg(test)]
mod tests {
    use super::{Marks, Servers};

    fn servers(list: &[(&str, &str)]) -> Servers {
        list.iter().map(|(server, id)| ((*server).into(), (*id).to_owned())).collect()
    }

    #[test]
    fn a_server_that_was_restarted_or_took_over_is_noticed_once_by_each_node() {
        let marks = Marks::default();
        for node in ["n".into(), "m".into()] {
            assert!(!marks.changed(&node, servers(&[("a", "1"), ("b", "2")])), "the first look");
            assert!(!marks.changed(&node, servers(&[("b", "2")])), "one does not answer");
            assert!(!marks.changed(&node, servers(&[("a", "1"), ("b", "2")])), "it is back");
            assert!(marks.changed(&node, servers(&[("a", "3"), ("b", "2")])), "it was restarted");
            assert!(!marks.changed(&node, servers(&[("a", "3")])));
            assert!(marks.changed(&node, servers(&[("a", "3"), ("c", "4")])), "another took over");
        }
    }
}
