//! The server that each node of this process saw last. A standby that took over may lack the last settles: then it counts
//! lanes as the node's that the node has settled, and each heartbeat would extend them.

use std::collections::HashMap;
use std::sync::{Arc, Mutex};

use crate::lock::lock;
use crate::model::id::NodeId;

/// Most nodes that are remembered; a process has one for each engine, and another one whenever it is declared dead.
const NODES_MAX: usize = 1_000;

/// By node, what `server_mark()` said.
#[derive(Clone, Default)]
pub(super) struct Marks(Arc<Mutex<HashMap<NodeId, String>>>);

impl Marks {
    pub(super) fn knows(&self, node: &NodeId) -> bool {
        lock(&self.0).contains_key(node)
    }

    /// Remembers the server. Whether the node saw another one before.
    pub(super) fn changed(&self, node: &NodeId, mark: String) -> bool {
        let mut marks = lock(&self.0);
        if marks.len() >= NODES_MAX && !marks.contains_key(node) {
            marks.clear();
        }
        let before = marks.insert(node.clone(), mark);
        before.is_some_and(|before| marks.get(node) != Some(&before))
    }
}
