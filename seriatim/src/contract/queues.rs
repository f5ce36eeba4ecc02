//! Queues: declaring, pausing, deleting and resharding them.

use std::sync::Arc;

use serde::Serialize;

use crate::model::clock::Timestamp;
use crate::model::queue::Queue;

/// See [`crate::Store::declare`].
#[derive(Clone, Debug, Default)]
pub struct Declare {
    /// The time; the store's when none.
    pub now: Option<Timestamp>,
    /// The definitions.
    pub queues: Vec<Queue>,
}

/// See [`crate::Store::reshard`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub struct Resharded {
    /// Into how many shards the queue is split now.
    pub shards: u16,
    /// How many earlier numbers of shards are still looked at by pushes: each costs one a round trip.
    pub older: u16,
    /// Keys of which something waits or runs in a shard of an older number.
    pub lanes_left: u64,
    /// Idempotency keys that an older number's shards still remember.
    pub idempotency_keys_left: u64,
}

/// See [`crate::Store::delete_queue`].
#[derive(Clone, Debug)]
pub struct DeleteQueue {
    /// The queue.
    pub queue: Arc<str>,
    /// Most rows of each kind to remove in one call.
    pub rows_max: usize,
}
