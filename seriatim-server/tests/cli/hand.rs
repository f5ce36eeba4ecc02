//! Brings a store into a state by hand, at any time: what a node would do.

use std::time::Duration;

use seriatim::store::{Claim, Declare, Heartbeat, Lease, NodeInfo, Note, Settle};
use seriatim::{
    Job, JobId, Outcome, Queue, SharedStore, Timestamp,
    store::{NodeId, Turn, plan},
};

const LEASE: Duration = Duration::from_secs(60);
/// What a failure waits.
const WAIT: Duration = Duration::from_secs(600);

/// A node that does what the test says.
pub(crate) struct Hand {
    pub(crate) store: SharedStore,
    pub(crate) node: NodeInfo,
    pub(crate) now: Timestamp,
    queues: Vec<Queue>,
}

impl Hand {
    /// A node that works on these queues.
    pub(crate) async fn new(store: SharedStore, queues: Vec<Queue>) -> Self {
        let now = Timestamp::of_this_machine();
        let mut node = NodeInfo::new(NodeId::from("hand-1"), LEASE);
        node.queues = queues.iter().map(|queue| queue.name.clone()).collect();
        node.started_at = now;
        store.declare(Declare { now: None, queues: queues.clone() }).await.unwrap();
        let hand = Self { store, node, now, queues };
        hand.beat().await;
        hand
    }

    pub(crate) async fn beat(&self) {
        let request = Heartbeat { now: Some(self.now), node: self.node.clone(), beats: Vec::new() };
        assert!(self.store.heartbeat(request).await.unwrap().alive);
    }

    pub(crate) async fn push(&self, job: Job) -> JobId {
        let push = seriatim::store::Push { now: Some(self.now), jobs: vec![job] };
        self.store.push(push).await.unwrap()[0].job_id
    }

    pub(crate) async fn claim(&self, queue: &str) -> Vec<Turn> {
        let request = Claim {
            now: Some(self.now),
            ..Claim::new(queue, self.node.id.clone(), 100, Lease::Node { ttl: LEASE })
        };
        self.store.claim(request).await.unwrap().turns
    }

    pub(crate) async fn end(&self, turn: &Turn, outcome: Outcome) {
        let queue = self.queues.iter().find(|queue| *queue.name == *turn.queue).unwrap();
        let turns = vec![plan(turn, queue, &outcome.into(), &|_| WAIT)];
        let settled = self
            .store
            .settle(Settle { now: Some(self.now), turns, ..Settle::default() })
            .await
            .unwrap();
        assert!(settled[0].is_ok());
    }

    /// Claims all that is due and fails it.
    pub(crate) async fn fail_all(&self, queue: &str, error: &str) {
        for turn in self.claim(queue).await {
            self.end(&turn, Outcome::Retry { error: error.into(), retry_in: None }).await;
        }
    }

    /// The last hour of a queue as the server would have written it, `*` for all together: of each minute seven numbers,
    /// 7 bits in a byte.
    pub(crate) async fn history(&self, queue: &str, of: impl Fn(i64) -> [u64; 7]) {
        let now = self.now.as_micros() / 60_000_000;
        let mut rows = std::collections::BTreeMap::<i64, Vec<u8>>::new();
        for minute in now - 59..now {
            let row = rows.entry(minute.div_euclid(60)).or_default();
            row.push(minute.rem_euclid(60) as u8);
            for mut number in of(minute) {
                while number > 0x7f {
                    row.push(number as u8 | 0x80);
                    number >>= 7;
                }
                row.push(number as u8);
            }
        }
        let note =
            |(hour, row): (i64, Vec<u8>)| Note::new(format!("history/m/{queue}/{hour:08}"), row);
        self.store.write_notes(rows.into_iter().map(note).collect()).await.unwrap();
    }
}
