//! Queues: declaring, pausing, deleting and resharding them.

use std::sync::Arc;

use async_trait::async_trait;
use serde::Serialize;

use super::actions::Acted;
use crate::model::{Error, ErrorKind, Queue, Result, Timestamp};

/// Defines, pauses, deletes and reshards queues.
#[async_trait]
pub trait Queues: Send + Sync {
    /// Declares queues, so that all nodes and producers use the same definition. All or none are declared.
    ///
    /// - A new queue is created. An existing one with the same mode and merge gets the new settings.
    /// - Another mode or merge is accepted only if the queue has no lanes; or if the queue was created by an
    ///   undeclared push and none of its lanes is claimed. In the latter case its jobs are pushed again under the
    ///   new mode, in order of arrival, those without a score of their own with that of the new mode; paused keys stay
    ///   paused (impossible from or to `parallel` if it has jobs). Otherwise it is `Conflict`, naming both definitions:
    ///   see [`Declaration`](crate::store::Declaration).
    /// - An invalid definition is `Invalid`, with the field `queues[3].max_retries`.
    /// - A change that transactions of users forbid while they are open may be refused as `Unavailable`.
    async fn declare(&self, request: Declare) -> Result<()>;

    /// Declares those of the queues that are not declared; the others keep their definitions, whatever the mode. So what
    /// [`declare`](Self::declare) defines stands, whichever of the two calls comes first.
    async fn declare_new(&self, request: Declare) -> Result<()>;

    /// Pauses or resumes a queue: when this has returned, no lane of a paused queue is claimed. Running turns continue.
    ///
    /// - A queue that is being deleted is `Conflict`.
    async fn pause_queue(&self, queue: Arc<str>, paused: bool) -> Result<()>;

    /// Deletes a queue: its waiting, dead and finished jobs, its idempotency keys, its metrics, and last its
    /// definition. One call removes about `rows_max` rows of each kind; `more` means: call again. The answer counts
    /// jobs. [`delete_queue`](crate::store::delete_queue) repeats the call until the queue is gone.
    ///
    /// - While a lane is claimed it is `Conflict`.
    /// - The first call closes the queue. Until the last call, pushes to it, declarations of it and resuming it are
    ///   `Conflict` (but [`declare_new`](Self::declare_new) leaves it as it is if it is declared), and its lanes are
    ///   not claimed. So an acknowledged job is deleted if it was pushed before, and kept otherwise.
    /// - An interrupted deletion leaves the queue closed; the next call continues it.
    /// - Afterwards the name is free. Ids, lanes and tokens of the old queue are not valid for a new queue with the
    ///   same name or number.
    async fn delete_queue(&self, request: DeleteQueue) -> Result<Acted>;

    /// Changes a queue's number of shards while producers and nodes keep working.
    ///
    /// - Exclusion and order of a key hold throughout.
    /// - Waiting jobs are not moved. A key uses its new shard once older shards have nothing of it. The answer says
    ///   how many keys older shards still have, so call again with the same number until there is none.
    /// - An interrupted call leaves a working queue, and can be repeated.
    /// - Every job is found by the id that its push returned, also after it was requeued.
    /// - A store whose queues have one shard refuses it as `Unsupported`.
    async fn reshard(&self, queue: Arc<str>, shards: u16) -> Result<Resharded> {
        let _ = (queue, shards);
        let message = "a queue of this store has one shard, and needs no more";
        Err(Error::new(ErrorKind::Unsupported, message).in_field("shards"))
    }
}

/// See [`Queues::declare`].
#[derive(Clone, Debug, Default)]
pub struct Declare {
    /// The time; the store's clock if unset.
    pub now: Option<Timestamp>,
    /// The definitions.
    pub queues: Vec<Queue>,
}

/// See [`Queues::reshard`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub struct Resharded {
    /// The queue's current number of shards.
    pub shards: u16,
    /// How many earlier shard numbers a push still has to check; each costs it a round trip.
    pub older: u16,
    /// Keys with a waiting or running job in a shard of an earlier number.
    pub lanes_left: u64,
    /// Idempotency keys still in shards of an earlier number.
    pub idempotency_keys_left: u64,
}

/// See [`Queues::delete_queue`].
#[derive(Clone, Debug)]
pub struct DeleteQueue {
    /// The queue.
    pub queue: Arc<str>,
    /// Most rows of each kind to remove in one call.
    pub rows_max: usize,
}
