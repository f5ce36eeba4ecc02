//! Whom a push wakes of the processes that wait: tests of stores that name them.
#![allow(clippy::unwrap_used, clippy::expect_used)]

use std::sync::Arc;
use std::time::Duration;

use futures_util::future::join_all;
use tokio::time::timeout;

use crate::contract::{
    Cancel, Cancelled, Claim, Declare, Heartbeat, Lease, NodeInfo, Push, Settle, SharedStore,
    Wakeups,
};
use crate::model::{Job, Queue, Settlement, Turn};

const PROCESSES: usize = 10;
const LEASE: Duration = Duration::from_secs(60);
/// More than a wake-up takes.
const SOON: Duration = Duration::from_secs(20);
/// Who is not woken within this time, is not.
const HEARD_WITHIN: Duration = Duration::from_secs(1);

/// A database with a store.
pub(super) trait Place {
    /// Opens the store as another process would.
    async fn open(&self) -> SharedStore;

    /// How many processes are known to wait, in all queues.
    async fn sleepers(&self) -> usize;

    /// Forgets all of them but one.
    async fn forget_all_but_one(&self);
}

/// Processes of which each waits for work of the queue `q`.
pub(super) struct Waiting<'p, P> {
    place: &'p P,
    pusher: SharedStore,
    processes: Vec<(SharedStore, Wakeups)>,
}

async fn claim(store: &SharedStore, lanes_max: usize) -> Vec<Turn> {
    let claim = Claim::new("q", "n", lanes_max, Lease::Node { ttl: LEASE });
    store.claim(claim).await.unwrap().turns
}

fn job(key: &str) -> Job {
    Job::new("q", &1).unwrap().key(key)
}

/// Listens to `q` from now on.
async fn listen(store: &SharedStore) -> Wakeups {
    let mut wakeups = store.wakeups().only(["q".into()]);
    wakeups.wait(SOON).await.expect("a first wake-up");
    wakeups
}

impl<'p, P: Place> Waiting<'p, P> {
    pub(super) async fn new(place: &'p P) -> Self {
        let pusher = place.open().await;
        pusher.declare(Declare { now: None, queues: vec![Queue::fifo("q")] }).await.unwrap();
        let node = NodeInfo::new("n".into(), LEASE);
        pusher.heartbeat(Heartbeat { now: None, node, beats: Vec::new() }).await.unwrap();
        let mut processes = Vec::new();
        for _ in 0..PROCESSES {
            let store = place.open().await;
            let wakeups = listen(&store).await;
            processes.push((store, wakeups));
        }
        let mut waiting = Self { place, pusher, processes };
        waiting.all_sleep().await;
        waiting
    }

    /// Each finds nothing, and the others know that it waits.
    async fn all_sleep(&mut self) {
        for (store, wakeups) in &mut self.processes {
            wakeups.forget();
            assert!(claim(store, 1).await.is_empty());
        }
        known(self.place, PROCESSES).await;
    }

    pub(super) async fn push(&self, jobs: Vec<Job>) {
        self.pusher.push(Push { now: None, jobs }).await.unwrap();
    }

    /// Those that a wake-up reaches.
    async fn woken(&mut self) -> Vec<SharedStore> {
        let ears = self
            .processes
            .iter_mut()
            .map(async |(store, wakeups)| wakeups.wait(HEARD_WITHIN).await.map(|_| store.clone()));
        join_all(ears).await.into_iter().flatten().collect()
    }

    pub(super) async fn all_are_woken(&mut self) {
        assert_eq!(self.woken().await.len(), PROCESSES);
    }
}

/// Returns when so many are known to wait.
async fn known(place: &impl Place, processes: usize) {
    let known = async {
        while place.sleepers().await != processes {
            tokio::task::yield_now().await;
        }
    };
    timeout(SOON, known).await.expect("they are known");
}

fn is_among(one: &SharedStore, others: &[SharedStore]) -> bool {
    others.iter().any(|other| Arc::ptr_eq(one, other))
}

pub(super) async fn a_push_wakes_two_and_what_they_leave_the_next_two(place: &impl Place) {
    let mut waiting = Waiting::new(place).await;
    waiting.push(["a", "b", "c"].map(job).into()).await;
    let two = waiting.woken().await;
    assert_eq!(two.len(), 2);
    assert_eq!(claim(&two[0], 1).await.len(), 1);
    let next = waiting.woken().await;
    assert_eq!(next.len(), 2);
    assert!(!is_among(&two[0], &next), "it has enough");
    assert_eq!(claim(&next[0], 9).await.len(), 2);
    assert_eq!(waiting.woken().await.len(), 0, "nothing is left");
}

pub(super) async fn who_cancels_a_job_is_woken_for_the_next_one_of_its_key(place: &impl Place) {
    let store = place.open().await;
    store.declare(Declare { now: None, queues: vec![Queue::fifo("q")] }).await.unwrap();
    let mut wakeups = listen(&store).await;
    let jobs = vec![job("k").run_in(LEASE), job("k")];
    let pushed = store.push(Push { now: None, jobs }).await.unwrap();
    assert!(claim(&store, 1).await.is_empty());
    wakeups.forget();
    let cancelled = store.cancel(Cancel { now: None, jobs: vec![pushed[0].job_id] }).await;
    assert_eq!(cancelled.unwrap(), [Cancelled::Now]);
    wakeups.wait(HEARD_WITHIN).await.expect("a wake-up");
    assert_eq!(claim(&store, 1).await.len(), 1);
}

/// With several slots and several jobs: who was called has called others, and calls again for what is new.
pub(super) async fn what_is_left_of_each_push_is_called_for(place: &impl Place) {
    let mut waiting = Waiting::new(place).await;
    for round in ["a", "b"] {
        waiting.push([1, 2, 3].map(|n| job(&format!("{round}{n}"))).into()).await;
        let two = waiting.woken().await;
        assert_eq!(two.len(), 2, "{round}");
        assert_eq!(claim(&two[0], 1).await.len(), 1);
        let next = waiting.woken().await;
        assert_eq!(next.len(), 2, "{round}");
        assert_eq!(claim(&next[0], 9).await.len(), 2);
        waiting.all_sleep().await;
    }
}

pub(super) async fn who_cannot_claim_passes_a_wake_up_on_to_the_next_two(place: &impl Place) {
    let mut waiting = Waiting::new(place).await;
    waiting.push(vec![job("a")]).await;
    let two = waiting.woken().await;
    // It was named once.
    two[0].pass_on("q");
    two[0].pass_on("q");
    let next = waiting.woken().await;
    assert_eq!(next.len(), 2);
    assert!(!is_among(&two[0], &next));
}

pub(super) async fn what_not_every_process_may_take_wakes_all(place: &impl Place) {
    let mut waiting = Waiting::new(place).await;
    waiting.push(vec![job("a").node("one")]).await;
    waiting.all_are_woken().await;
    waiting.all_sleep().await;
    waiting.pusher.pause_queue("q".into(), true).await.unwrap();
    waiting.all_are_woken().await;
}

/// The process that settles may be full then.
pub(super) async fn a_settle_after_which_a_bound_job_is_ready_wakes_all(place: &impl Place) {
    let mut waiting = Waiting::new(place).await;
    waiting.push(vec![job("a").node("one"), job("a").node("one")]).await;
    waiting.all_are_woken().await;
    let one = waiting.processes[0].0.clone();
    let claim = Claim::new("q", "n", 1, Lease::Node { ttl: LEASE });
    let claim = Claim { node_name: Some("one".into()), ..claim };
    let turn = one.claim(claim).await.unwrap().turns.remove(0);
    let end = Settlement::done(turn.lane, turn.token);
    assert!(one.settle(Settle::now(vec![end])).await.unwrap()[0].is_ok());
    waiting.all_are_woken().await;
}

/// As a server does whose clients ask once, and an engine that stops.
pub(super) async fn who_waits_no_more_passes_a_wake_up_on(place: &impl Place) {
    let mut waiting = Waiting::new(place).await;
    let rest = waiting.processes.split_off(2);
    let _deaf: Vec<SharedStore> = rest.into_iter().map(|(store, _)| store).collect();
    waiting.push(vec![job("a")]).await;
    assert!(!waiting.woken().await.is_empty());
}

/// So that no wake-up is lost.
pub(super) async fn all_are_woken_if_fewer_than_two_wait(place: &impl Place) {
    let mut waiting = Waiting::new(place).await;
    place.forget_all_but_one().await;
    waiting.push(vec![job("b")]).await;
    waiting.all_are_woken().await;
}

/// A page that counts wake-ups listens too, and looks when a queue is due, but claims nothing.
pub(super) async fn only_who_claims_is_taken_for_one_that_waits(place: &impl Place) {
    let (watches, waits) = (place.open().await, place.open().await);
    waits.declare(Declare { now: None, queues: vec![Queue::fifo("q")] }).await.unwrap();
    // What is due later does not keep it awake.
    let later = vec![job("a").run_in(LEASE)];
    waits.push(Push { now: None, jobs: later }).await.unwrap();
    let mut all = watches.wakeups();
    all.wait(SOON).await.expect("a first wake-up");
    let _own = listen(&waits).await;
    watches.due(vec!["q".into()]).await.unwrap();
    waits.due(vec!["q".into()]).await.unwrap();
    known(place, 1).await;
}

/// A test of each of these cases, at a place of its own.
macro_rules! cases {
    ($place:expr; $($name:ident)*) => {$(
        #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
        async fn $name() {
            $crate::stores::waiting::$name(&$place.await).await;
        }
    )*};
    ($place:expr) => {
        $crate::stores::waiting::cases! { $place;
            a_push_wakes_two_and_what_they_leave_the_next_two
            what_is_left_of_each_push_is_called_for
            who_cannot_claim_passes_a_wake_up_on_to_the_next_two
            what_not_every_process_may_take_wakes_all
            a_settle_after_which_a_bound_job_is_ready_wakes_all
            who_waits_no_more_passes_a_wake_up_on
            all_are_woken_if_fewer_than_two_wait
            only_who_claims_is_taken_for_one_that_waits
            who_cancels_a_job_is_woken_for_the_next_one_of_its_key
        }
    };
}
pub(super) use cases;
