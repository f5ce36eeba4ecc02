//! Which shards of a queue a node prefers: a hint that keeps the jobs of a shard on one node.

use std::sync::{PoisonError, RwLock};

use super::reply::Shard;
use crate::model::NodeId;

/// The living nodes, as of this process's last heartbeat.
#[derive(Default)]
pub(super) struct Living(RwLock<Vec<NodeId>>);

impl Living {
    pub(super) fn set(&self, nodes: Vec<NodeId>) {
        *self.0.write().unwrap_or_else(PoisonError::into_inner) = nodes;
    }

    /// Splits shards into those that the node prefers and the others (rendezvous hashing: when a node joins or leaves,
    /// only its shards move). While the node is unknown, it prefers all.
    pub(super) fn split(&self, node: &NodeId, shards: Vec<Shard>) -> (Vec<Shard>, Vec<Shard>) {
        let nodes = self.0.read().unwrap_or_else(PoisonError::into_inner);
        if !nodes.contains(node) {
            return (shards, Vec::new());
        }
        let prefers =
            |shard: &Shard| nodes.iter().max_by_key(|other| rank(other, *shard)) == Some(node);
        shards.into_iter().partition(prefers)
    }
}

fn rank(node: &NodeId, shard: Shard) -> [u8; 32] {
    let mut hasher = blake3::Hasher::new();
    hasher.update(node.0.as_bytes()).update(&shard.queue.to_be_bytes());
    *hasher.update(&shard.shard.to_be_bytes()).finalize().as_bytes()
}

#[cfg(test)]
mod tests {
    use super::{Living, Shard};

    #[test]
    fn l9_each_shard_is_preferred_by_one_node_and_stays_when_another_leaves() {
        let shards: Vec<Shard> = (0..64).map(|shard| Shard { queue: 1, shard }).collect();
        let owner = |living: &Living, shard: Shard| {
            let prefers = |node: &&str| !living.split(&(*node).into(), vec![shard]).0.is_empty();
            let owners: Vec<&str> = ["a", "b", "c"].into_iter().filter(prefers).collect();
            assert_eq!(owners.len(), 1, "{shard:?} is preferred by {owners:?}");
            owners[0].to_owned()
        };
        let three = Living::default();
        three.set(vec!["a".into(), "b".into(), "c".into()]);
        let before: Vec<String> = shards.iter().map(|shard| owner(&three, *shard)).collect();
        assert!(["a", "b", "c"].iter().all(|node| before.iter().any(|owner| owner == node)));
        let two = Living::default();
        two.set(vec!["a".into(), "b".into()]);
        for (shard, was) in shards.iter().zip(before).filter(|(_, was)| was != "c") {
            assert!(!two.split(&was.as_str().into(), vec![*shard]).0.is_empty());
        }
    }
}
