//! Chooses which queues a node prefers. It is only a preference: the node also takes lanes of other queues.

use std::fmt;
use std::sync::Arc;

use crate::contract::NodeInfo;
use crate::model::NodeId;

/// Spreads the queues over the nodes. It keeps each queue's work on few machines (warm caches, fewer claims that find
/// nothing). Safety never depends on it: a node whose own queues are empty works on the others.
#[derive(Clone, Default)]
#[non_exhaustive]
pub enum Splitter {
    /// Every node works on every queue alike.
    #[default]
    All,
    /// Each queue is preferred by one living node. When a node joins or leaves, only its queues move.
    ByNode,
    /// A function decides which queues this node prefers.
    Custom(Arc<Prefer>),
}

/// Returns whether this node prefers the queue.
pub type Prefer = dyn Fn(&FleetView<'_>, &str) -> bool + Send + Sync;

/// The living nodes.
#[derive(Debug)]
#[non_exhaustive]
pub struct FleetView<'a> {
    /// This node.
    pub node: &'a NodeId,
    /// All living nodes including this one, in the order of their ids.
    pub nodes: &'a [NodeId],
    /// The last reports of the living nodes, such as their names and hosts.
    pub infos: &'a [NodeInfo],
}

impl<'a> FleetView<'a> {
    pub(in crate::engine) fn of(
        node: &'a NodeId,
        nodes: &'a [NodeId],
        infos: &'a [NodeInfo],
    ) -> Self {
        Self { node, nodes, infos }
    }
}

impl Splitter {
    /// Whether the node prefers `queue`.
    pub(in crate::engine) fn prefers(&self, fleet: &FleetView<'_>, queue: &str) -> bool {
        match self {
            Self::All => true,
            Self::ByNode => {
                fleet.nodes.iter().max_by_key(|node| rank(node, queue)) == Some(fleet.node)
            }
            Self::Custom(prefer) => prefer(fleet, queue),
        }
    }
}

/// The node with the highest rank gets the queue (rendezvous hashing).
fn rank(node: &NodeId, queue: &str) -> [u8; 8] {
    let mut hasher = blake3::Hasher::new();
    hasher.update(node.0.as_bytes()).update(&[0]).update(queue.as_bytes());
    let mut rank = [0; 8];
    rank.copy_from_slice(&hasher.finalize().as_bytes()[..8]);
    rank
}

impl fmt::Debug for Splitter {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::All => "All",
            Self::ByNode => "ByNode",
            Self::Custom(_) => "Custom",
        })
    }
}
