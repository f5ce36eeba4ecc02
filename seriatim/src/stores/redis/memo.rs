//! This process's cache of the queues and their definitions.

use std::collections::HashMap;
use std::sync::{Arc, PoisonError, RwLock};
use std::time::Duration;

use tokio::time::Instant;

use super::layout::Layout;
use super::reply::Shard;
use crate::model::Queue;

/// A queue as defined in the store.
#[derive(Clone, Debug)]
pub(super) struct Known {
    pub number: u32,
    pub name: Arc<str>,
    pub version: i64,
    pub queue: Queue,
    pub declared: bool,
    pub paused: bool,
    /// Whether it is being deleted.
    pub closing: bool,
    pub layout: Layout,
}

impl Known {
    /// All shards that contain or contained entries of it.
    pub(super) fn shards(&self) -> impl Iterator<Item = Shard> + use<> {
        let queue = self.number;
        (0..self.layout.span).map(move |shard| Shard { queue, shard })
    }

    /// The shards that may have claimable lanes.
    pub(super) fn open_shards(&self) -> impl Iterator<Item = Shard> + use<> {
        self.shards().take(self.layout.open().into())
    }

    pub(super) fn home(number: u32) -> Shard {
        Shard { queue: number, shard: 0 }
    }
}

/// The longest time for which the list of all queues is used: a process that changes a queue may die before it reports
/// this.
const ALL_FOR: Duration = Duration::from_secs(15);

/// The cached queues. An entry may be outdated, but is never another queue's.
#[derive(Default)]
pub(super) struct Memo {
    by_name: RwLock<HashMap<Arc<str>, Arc<Known>>>,
    all: RwLock<Option<All>>,
}

/// All queues as of a stamp, as far as they could be read.
#[derive(Clone)]
pub(super) struct All {
    pub stamp: i64,
    pub read_at: Instant,
    /// By name. Those that are away are as this process read them last, if it ever did.
    pub queues: Arc<[Arc<Known>]>,
    /// The names and numbers of those whose first shard was away, or has no definition of theirs. They are read again with each
    /// call.
    pub away: Vec<(Arc<str>, u32)>,
}

impl All {
    /// The names of those that this process never read.
    pub(super) fn unread(&self) -> impl Iterator<Item = Arc<str>> {
        let is_read = |name: &Arc<str>| self.queues.iter().any(|known| known.name == *name);
        self.away.iter().map(|(name, _)| name.clone()).filter(move |name| !is_read(name))
    }
}

impl Memo {
    pub(super) fn get(&self, name: &str) -> Option<Arc<Known>> {
        self.by_name.read().unwrap_or_else(PoisonError::into_inner).get(name).cloned()
    }

    pub(super) fn by_number(&self, number: u32) -> Option<Arc<Known>> {
        let memo = self.by_name.read().unwrap_or_else(PoisonError::into_inner);
        memo.values().find(|known| known.number == number).cloned()
    }

    pub(super) fn put(&self, known: Known) -> Arc<Known> {
        let known = Arc::new(known);
        let mut memo = self.by_name.write().unwrap_or_else(PoisonError::into_inner);
        // After a wipe of the store, numbers are reused.
        memo.retain(|name, other| other.number != known.number || *name == known.name);
        memo.insert(known.name.clone(), known.clone());
        known
    }

    /// All queues, if they were read at this stamp, and lately.
    pub(super) fn all(&self, stamp: i64) -> Option<All> {
        self.last().filter(|all| all.stamp == stamp && all.read_at.elapsed() < ALL_FOR)
    }

    /// All queues as they were read last.
    pub(super) fn last(&self) -> Option<All> {
        self.all.read().unwrap_or_else(PoisonError::into_inner).clone()
    }

    pub(super) fn put_all(&self, all: All) {
        *self.all.write().unwrap_or_else(PoisonError::into_inner) = Some(all);
    }

    pub(super) fn forget(&self, name: &str) {
        self.by_name.write().unwrap_or_else(PoisonError::into_inner).remove(name);
    }
}
