//! The queues, by number and by name.

use std::collections::{BTreeMap, HashMap};
use std::ops::Index;
use std::sync::Arc;

use crate::model::Queue;

/// A queue of the model.
#[derive(Clone, Debug)]
pub(in crate::stores) struct QueueRow {
    pub number: u32,
    pub name: Arc<str>,
    pub queue: Queue,
    pub declared: bool,
    pub paused: bool,
    /// Whether it is being deleted.
    pub closing: bool,
}

/// Shared until they change: an operation of a store that caches definitions begins with all of them.
#[derive(Clone, Debug, Default)]
pub(in crate::stores) struct Queues {
    rows: Arc<BTreeMap<u32, Arc<QueueRow>>>,
    numbers: Arc<HashMap<Arc<str>, u32>>,
}

// The signatures of the map that it stands for.
#[allow(clippy::trivially_copy_pass_by_ref)]
impl Queues {
    /// The number of the queue with this name.
    pub(in crate::stores) fn number(&self, name: &str) -> Option<u32> {
        self.numbers.get(name).copied()
    }

    pub(in crate::stores) fn named(&self, name: &str) -> Option<&QueueRow> {
        self.get(&self.number(name)?)
    }

    pub(in crate::stores) fn get(&self, number: &u32) -> Option<&QueueRow> {
        self.rows.get(number).map(|row| &**row)
    }

    /// A queue beside which the state can change.
    pub(in crate::stores) fn shared(&self, number: &u32) -> Option<Arc<QueueRow>> {
        self.rows.get(number).cloned()
    }

    pub(in crate::stores) fn contains_key(&self, number: &u32) -> bool {
        self.rows.contains_key(number)
    }

    pub(in crate::stores) fn len(&self) -> usize {
        self.rows.len()
    }

    /// The lowest number that no queue has, from 1.
    pub(in crate::stores) fn free(&self) -> u32 {
        let count = self.len() as u32;
        match self.rows.last_key_value() {
            Some((last, _)) if *last == count => count + 1,
            _ => (1..=count).find(|number| !self.contains_key(number)).unwrap_or(count + 1),
        }
    }

    pub(in crate::stores) fn iter(&self) -> impl Iterator<Item = (&u32, &QueueRow)> {
        count_walk();
        self.rows.iter().map(|(number, row)| (number, &**row))
    }

    #[cfg(feature = "mysql")]
    pub(in crate::stores) fn keys(&self) -> impl Iterator<Item = &u32> {
        self.iter().map(|(number, _)| number)
    }

    pub(in crate::stores) fn values(&self) -> impl Iterator<Item = &QueueRow> {
        self.iter().map(|(_, row)| row)
    }

    /// Its name stays.
    pub(in crate::stores) fn get_mut(&mut self, number: &u32) -> Option<&mut QueueRow> {
        count_walk();
        Arc::make_mut(&mut self.rows).get_mut(number).map(Arc::make_mut)
    }

    pub(in crate::stores) fn insert(&mut self, row: QueueRow) {
        count_walk();
        Arc::make_mut(&mut self.numbers).insert(row.name.clone(), row.number);
        Arc::make_mut(&mut self.rows).insert(row.number, Arc::new(row));
    }

    pub(in crate::stores) fn remove(&mut self, number: &u32) {
        count_walk();
        if let Some(row) = Arc::make_mut(&mut self.rows).remove(number) {
            Arc::make_mut(&mut self.numbers).remove(&row.name);
        }
    }
}

impl Index<&u32> for Queues {
    type Output = QueueRow;

    fn index(&self, number: &u32) -> &QueueRow {
        &self.rows[number]
    }
}

impl FromIterator<QueueRow> for Queues {
    fn from_iter<I: IntoIterator<Item = QueueRow>>(rows: I) -> Self {
        let mut queues = Self::default();
        rows.into_iter().for_each(|row| queues.insert(row));
        queues
    }
}

/// Counts what may take as long as there are queues.
fn count_walk() {
    #[cfg(test)]
    tests::count_walk();
}

#[cfg(test)]
pub(in crate::stores) mod tests {
    use std::cell::Cell;
    use std::time::Duration;

    use crate::contract::{
        Cancel, Claim, Declare, Heartbeat, Lease, NodeInfo, Push, Settle, Store,
    };
    use crate::model::{Job, Queue, Settlement};

    const LEASE: Duration = Duration::from_secs(60);

    thread_local! {
        /// How often this thread has called what may take as long as there are queues.
        static WALKS: Cell<u32> = const { Cell::new(0) };
    }

    pub(super) fn count_walk() {
        WALKS.set(WALKS.get() + 1);
    }

    /// The calls of ordinary work. With several queues, each would count.
    pub(in crate::stores) async fn work_takes_as_long_however_many_queues_there_are(
        store: &dyn Store,
    ) {
        let queues = ["a", "b"].map(Queue::fifo).to_vec();
        store.declare(Declare { now: None, queues }).await.unwrap();
        let beat = || {
            let node = NodeInfo::new("n".into(), LEASE);
            store.heartbeat(Heartbeat { now: None, node, beats: Vec::new() })
        };
        beat().await.unwrap();
        let push = || {
            let jobs = ["a", "b", "a"].map(|queue| Job::new(queue, &1).unwrap().key("k")).to_vec();
            store.push(Push { now: None, jobs })
        };
        // A store may have to read the definitions first.
        push().await.unwrap();
        WALKS.set(0);
        let pushed = push().await.unwrap();
        let claim = Claim::new("a", "n", 9, Lease::Node { ttl: LEASE });
        let turns = store.claim(claim).await.unwrap().turns;
        assert_eq!(turns.len(), 1);
        beat().await.unwrap();
        let done = |turn: &crate::model::Turn| Settlement::done(turn.lane, turn.token);
        let turns = turns.iter().map(done).collect();
        assert!(store.settle(Settle::now(turns)).await.unwrap()[0].is_ok());
        let jobs = vec![pushed[1].job_id];
        store.cancel(Cancel { now: None, jobs }).await.unwrap();
        assert_eq!(WALKS.get(), 0, "calls that go through all queues, or copy them");
    }

    #[tokio::test]
    async fn work_takes_as_long_however_many_queues_the_model_has() {
        let store = crate::stores::memory::Memory::new();
        work_takes_as_long_however_many_queues_there_are(&store).await;
    }
}
