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

/// All queues as of a stamp.
struct All {
    stamp: i64,
    read_at: Instant,
    queues: Arc<[Arc<Known>]>,
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
    pub(super) fn all(&self, stamp: i64) -> Option<Arc<[Arc<Known>]>> {
        let all = self.all.read().unwrap_or_else(PoisonError::into_inner);
        let all = all.as_ref().filter(|all| all.stamp == stamp);
        Some(all.filter(|all| all.read_at.elapsed() < ALL_FOR)?.queues.clone())
    }

    pub(super) fn put_all(&self, stamp: i64, queues: Arc<[Arc<Known>]>) {
        let all = All { stamp, read_at: Instant::now(), queues };
        *self.all.write().unwrap_or_else(PoisonError::into_inner) = Some(all);
    }

    pub(super) fn forget(&self, name: &str) {
        self.by_name.write().unwrap_or_else(PoisonError::into_inner).remove(name);
    }
}
