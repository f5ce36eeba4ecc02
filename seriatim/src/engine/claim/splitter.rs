//! Chooses which queues a node prefers. It is only a preference: the node also takes lanes of other queues.

use std::collections::{HashMap, HashSet};
use std::fmt;
use std::sync::Arc;

use crate::contract::{NodeInfo, Trouble, TroubleKind};
use crate::model::NodeId;

/// Spreads the queues over the nodes. It keeps each queue's work on few machines (warm caches, fewer claims that find
/// nothing). Neither safety nor progress depends on it: a node whose own queues are empty works on the others, and a busy
/// one on those that have had jobs to run for ten seconds.
#[derive(Clone, Default)]
#[non_exhaustive]
pub enum Splitter {
    /// Every node works on every queue alike.
    #[default]
    All,
    /// Each queue is preferred by one of the live nodes that work on it: not by one that an operator has asked to take
    /// no more work, or whose worker cannot start. When a node joins or leaves, only its queues move.
    ByNode,
    /// A function decides which queues this node prefers.
    Custom(Arc<Prefer>),
}

/// Returns whether this node prefers the queue.
pub type Prefer = dyn Fn(&FleetView<'_>, &str) -> bool + Send + Sync;

/// The live nodes, without those that an operator has asked to take no more work.
#[derive(Debug)]
#[non_exhaustive]
pub struct FleetView<'a> {
    /// This node.
    pub node: &'a NodeId,
    /// All these nodes including this one, in the order of their ids.
    pub nodes: &'a [NodeId],
    /// Their last reports, such as their names and hosts.
    pub infos: &'a [NodeInfo],
    /// The nodes that work on each queue. Remote workers prefer none.
    workers: HashMap<&'a str, Vec<&'a NodeId>>,
    /// Nodes without a report.
    unknown: Vec<&'a NodeId>,
}

impl<'a> FleetView<'a> {
    pub(in crate::engine) fn of(
        node: &'a NodeId,
        nodes: &'a [NodeId],
        infos: &'a [NodeInfo],
    ) -> Self {
        let mut workers: HashMap<&str, Vec<&NodeId>> = HashMap::new();
        for info in infos.iter().filter(|info| info.concurrency > 0) {
            let cannot_start = |queue: &String| {
                let kind = TroubleKind::WorkerCannotStart;
                let is_it = |one: &Trouble| one.kind == kind && one.queue.as_ref() == Some(queue);
                info.troubles.iter().any(is_it)
            };
            for queue in info.queues.iter().filter(|queue| !cannot_start(queue)) {
                workers.entry(queue).or_default().push(&info.id);
            }
        }
        let known: HashSet<&NodeId> = infos.iter().map(|info| &info.id).collect();
        let unknown = nodes.iter().filter(|node| !known.contains(node)).collect();
        Self { node, nodes, infos, workers, unknown }
    }

    /// The nodes that work on a queue, as this one does.
    fn workers_on(&self, queue: &str) -> impl Iterator<Item = &'a NodeId> {
        let known = self.workers.get(queue).into_iter().flatten();
        known.chain(&self.unknown).copied().chain([self.node])
    }
}

impl Splitter {
    /// Whether the node prefers `queue`.
    pub(in crate::engine) fn prefers(&self, fleet: &FleetView<'_>, queue: &str) -> bool {
        match self {
            Self::All => true,
            // A node that does not work on the queue would leave it to those that have enough to do.
            Self::ByNode => {
                fleet.workers_on(queue).max_by_key(|node| rank(node, queue)) == Some(fleet.node)
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
