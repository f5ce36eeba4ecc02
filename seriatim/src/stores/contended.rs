//! Calls that meet the locks of other sessions, for the tests of the stores that take locks.
#![allow(clippy::unwrap_used)]

use std::time::Duration;

use futures_util::future::BoxFuture;
use tokio::time::timeout;

use crate::contract::{
    Cancel, Cancelled, Claim, Declare, GiveUp, Heartbeat, LaneQuery, LaneStage, Lease, NodeInfo,
    Push, Settle, Settled, SharedStore, Store, Sweep,
};
use crate::model::{Job, JobId, LaneId, Mode, Outcome, Queue, Settlement, Turn, plan};

const LEASE: Duration = Duration::from_secs(60);
/// Less than the wait of any operation that does not skip locked lanes.
const SOON: Duration = Duration::from_secs(8);

/// A database, and other sessions of it. In the store, node "n" is registered.
pub(super) trait Contended {
    /// A session in a transaction.
    type Session;

    /// The modes whose settles leave out the lanes that are locked.
    const MODES: &[Mode];

    fn store(&self) -> SharedStore;

    /// A session that has locked the row of a lane.
    async fn lock(&self, lane: LaneId) -> Self::Session;

    /// A session for which claims wait before they take anything, but after they have noted their ticket.
    async fn hold_claims(&self) -> Self::Session;

    /// Whether no other session has locked the row of the lane.
    async fn is_free(&self, session: &mut Self::Session, lane: LaneId) -> bool;

    async fn roll_back(&self, session: Self::Session);

    /// Returns when this number of sessions wait for a lock.
    async fn until_waiting(&self, sessions: usize);
}

fn claiming(queue: &str) -> Claim {
    Claim::new(queue, "n", 1, Lease::Node { ttl: LEASE })
}

/// A running job in each of two queues. The lane of the second queue is the older one.
async fn two_turns(store: &SharedStore) -> Vec<Turn> {
    let mut turns = Vec::new();
    for queue in ["second", "first"] {
        let jobs = vec![Job::new(queue, &0).unwrap()];
        store.push(Push { now: None, jobs }).await.unwrap();
        turns.extend(store.claim(claiming(queue)).await.unwrap().turns);
    }
    turns
}

/// A cancel and a settle of both.
fn calls(store: SharedStore, turns: &[Turn]) -> [(&'static str, BoxFuture<'static, ()>); 2] {
    let jobs = turns.iter().map(|turn| turn.jobs[0].id).rev().collect();
    let ends = turns.iter().rev().map(|turn| Settlement::done(turn.lane, turn.token)).collect();
    let (cancel, one) = (Cancel { now: None, jobs }, store.clone());
    let cancels = async move {
        assert_eq!(one.cancel(cancel).await.unwrap(), [Cancelled::Flagged; 2]);
    };
    let settles = async move {
        assert!(store.settle(Settle::now(ends)).await.unwrap().iter().all(Settled::is_ok));
    };
    [("cancel", Box::pin(cancels)), ("settle", Box::pin(settles))]
}

pub(super) async fn lanes_without_a_key_are_locked_in_one_order(database: &impl Contended) {
    let store = database.store();
    let queues = ["first", "second"].map(Queue::parallel).to_vec();
    store.declare(Declare { now: None, queues }).await.unwrap();
    for place in 0..2 {
        let turns = two_turns(&store).await;
        let (older, younger) = (turns[0].lane, turns[1].lane);
        let (name, call) = calls(store.clone(), &turns).into_iter().nth(place).unwrap();
        let mut holder = database.lock(older).await;
        let call = tokio::spawn(call);
        database.until_waiting(1).await;
        assert!(database.is_free(&mut holder, younger).await, "{name}");
        database.roll_back(holder).await;
        call.await.unwrap();
    }
}

pub(super) async fn what_a_claim_under_way_takes_is_seen_when_it_was_given_up(
    database: &impl Contended,
) {
    let store = database.store();
    store.declare(Declare { now: None, queues: vec![Queue::fifo("q")] }).await.unwrap();
    let jobs = vec![Job::new("q", &1).unwrap().key("a")];
    store.push(Push { now: None, jobs }).await.unwrap();
    let holder = database.hold_claims().await;
    let one = store.clone();
    let request = Claim { ticket: 1, ..claiming("q") };
    let claim = tokio::spawn(async move { one.claim(request).await });
    database.until_waiting(1).await;
    let one = store.clone();
    let given_up = tokio::spawn(async move {
        one.give_up(GiveUp { node: "n".into(), ticket: 1, queue: None }).await.unwrap();
        let query = LaneQuery { stages: vec![LaneStage::Running], ..LaneQuery::new("q") };
        one.lanes(query).await.unwrap().rows
    });
    // It waits for the claim, which waits for the lock. A heartbeat does not.
    database.until_waiting(2).await;
    let node = NodeInfo::new("n".into(), LEASE);
    store.heartbeat(Heartbeat { now: None, node, beats: Vec::new() }).await.unwrap();
    database.roll_back(holder).await;
    let turns = claim.await.unwrap().unwrap().turns;
    assert_eq!(turns.len(), 1);
    let held: Vec<_> = given_up.await.unwrap().iter().map(|lane| lane.token).collect();
    assert_eq!(held, [Some(turns[0].token)]);
}

async fn declare(store: &dyn Store, queue: &Queue) {
    store.declare(Declare { now: None, queues: vec![queue.clone()] }).await.unwrap();
}

pub(super) async fn a_locked_lane_holds_up_the_settle_of_no_other<C: Contended>(database: &C) {
    let store = database.store();
    for mode in C::MODES.iter().copied() {
        let queue = Queue::new(mode.to_string(), mode);
        declare(&*store, &queue).await;
        let push = async |number: u32| {
            let job = |key: &str| {
                let job = Job::new(&*queue.name, &number).unwrap();
                if mode.is_keyed() { job.key(key) } else { job }
            };
            let jobs = ["a", "b", "c"].map(job).into();
            store.push(Push { now: None, jobs }).await.unwrap();
        };
        push(0).await;
        for (round, outcome) in (1..).zip([Outcome::Done, Outcome::Bury { error: "e".into() }]) {
            push(round).await;
            let claim = Claim::new(&*queue.name, "n", 3, Lease::Node { ttl: LEASE });
            let turns = store.claim(claim).await.unwrap().turns;
            assert_eq!(turns.len(), 3, "{mode}");
            let locked = turns[1].lane;
            let plan = |turn: &Turn| {
                // One of the others is done in any case.
                let outcome = if turn.lane == turns[2].lane { &Outcome::Done } else { &outcome };
                plan(turn, &queue, &outcome.clone().into(), &|_| LEASE)
            };
            let ends: Vec<Settlement> = turns.iter().map(plan).collect();
            let settle = || store.settle(Settle { skip_locked: true, ..Settle::now(ends.clone()) });
            let holder = database.lock(locked).await;
            let settled = timeout(SOON, settle()).await;
            database.roll_back(holder).await;
            for (turn, settled) in turns.iter().zip(settled.expect("it waits for nobody").unwrap())
            {
                let is_locked = turn.lane == locked;
                let expected = if is_locked { Settled::Busy } else { Settled::ok(Vec::new()) };
                assert_eq!(settled, expected, "{mode} {:?} {outcome:?}", turn.key);
            }
            for (turn, settled) in turns.iter().zip(settle().await.unwrap()) {
                let is_locked = turn.lane == locked;
                let expected = if is_locked { Settled::ok(Vec::new()) } else { Settled::Stale };
                assert_eq!(settled, expected, "{mode}: the repeat");
            }
        }
    }
}

pub(super) async fn a_locked_lane_holds_up_the_expiry_of_no_other_job(database: &impl Contended) {
    let store = database.store();
    declare(&*store, &Queue::fifo("q")).await;
    let start = store.now().await.unwrap();
    let job = |key: &str, tag: u32| Job::new("q", &tag).unwrap().key(key).expires_at(start + LEASE);
    let jobs = vec![job("locked", 1), job("locked", 2), job("free", 3)];
    let pushed = store.push(Push { now: Some(start), jobs }).await.unwrap();
    let ids: Vec<JobId> = pushed.iter().map(|pushed| pushed.job_id).collect();
    let lanes = store.lanes(LaneQuery::new("q")).await.unwrap().rows;
    let locked = lanes.iter().find(|row| row.key.as_deref() == Some("locked")).unwrap().lane;
    let sweep = async |rows_max| {
        let sweep = store.sweep(Sweep { now: Some(start + LEASE * 2), rows_max });
        let swept = timeout(SOON, sweep).await.expect("it waits for nobody").unwrap();
        (swept.expired, swept.more)
    };
    let holder = database.lock(locked).await;
    // The jobs of the locked lane are the first, and more than a sweep takes at once.
    assert_eq!(sweep(1).await, (vec![ids[2]], false));
    assert_eq!(sweep(1).await, (Vec::new(), false), "it does not sweep again and again");
    database.roll_back(holder).await;
    assert_eq!(sweep(9).await, (ids[..2].to_vec(), false));
}
