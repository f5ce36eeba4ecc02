//! The server that each node of this process saw last. A standby that took over may lack the last settles: then it counts
//! lanes as the node's that the node has settled, and each heartbeat would extend them.

use std::collections::HashMap;
use std::sync::{Arc, Mutex};

use crate::lock::lock;
use crate::model::NodeId;

/// Most nodes that are remembered; a process has one for each engine, and another one whenever it is declared dead.
const NODES_MAX: usize = 1_000;

/// What a server says of itself.
pub(in crate::stores) trait Mark: Clone {
    /// Whether it is the same server, which has not been restarted.
    fn is(&self, other: &Self) -> bool;
}

#[cfg(feature = "postgres")]
impl Mark for String {
    fn is(&self, other: &Self) -> bool {
        self == other
    }
}

/// The marks of servers, by node.
#[derive(Clone)]
pub(in crate::stores) struct Marks<M>(Arc<Mutex<HashMap<NodeId, M>>>);

impl<M> Default for Marks<M> {
    fn default() -> Self {
        Self(Arc::default())
    }
}

impl<M: Mark> Marks<M> {
    pub(in crate::stores) fn knows(&self, node: &NodeId) -> bool {
        lock(&self.0).contains_key(node)
    }

    /// Remembers the server. Whether the node saw another one before.
    pub(in crate::stores) fn changed(&self, node: &NodeId, mark: M) -> bool {
        let mut marks = lock(&self.0);
        if marks.len() >= NODES_MAX && !marks.contains_key(node) {
            marks.clear();
        }
        match marks.get(node) {
            Some(before) if before.is(&mark) => false,
            before => {
                let is_known = before.is_some();
                marks.insert(node.clone(), mark);
                is_known
            }
        }
    }
}
