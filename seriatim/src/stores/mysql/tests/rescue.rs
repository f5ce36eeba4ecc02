//! Rescues read the claims that may have ended, and keep nobody waiting.

use tokio::time::timeout;

use super::reading::{counted, open_one};
use super::*;
use crate::contract::{Beat, Rescue};
use crate::model::NodeId;
use crate::stores::mysql::error::Fail;
use crate::stores::mysql::rescue;
use crate::stores::mysql::walk::Walk;
use crate::stores::mysql::work::{Lock, Work};
use crate::{Groups, Share};

/// Rows and index entries that a rescue may read more beside more claims.
const SLACK: i64 = 40;

fn rescue_at(now: Option<Timestamp>) -> Rescue {
    Rescue { now, node: "n".into(), lease: LEASE, lanes_max: 100, ticket: 0 }
}

async fn beat(store: &Mysql, node: &str, now: Timestamp) {
    let node = NodeInfo::new(node.into(), LEASE);
    store.heartbeat(Heartbeat { now: Some(now), node, beats: Vec::new() }).await.unwrap();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_heartbeat_does_not_wait_for_a_rescue() {
    let store = open(&new_database().await).await;
    beat(&store, "gone", Timestamp::of_this_machine() - LEASE * 2).await;
    let inner = &store.inner;
    let mut work =
        Work::begin(&inner.pool, &inner.definitions, Lock::FREE, None, "").await.ok().unwrap();
    let begun = rescue::rescue(&mut work, &rescue_at(None), Walk::default()).await;
    assert!(begun.is_ok_and(|answer| answer.is_ok()));
    let beat = beat(&store, "n", Timestamp::of_this_machine());
    timeout(SOON, beat).await.expect("it does not wait");
    // The server ends transactions that stand still.
    assert!(work.rows("SELECT 1").await.is_ok(), "the rescue is still under way");
    work.session.undo_after(Fail::Partial, "ROLLBACK").await;
}

/// What a rescue reads beside this many claims of a living node, after a node has died: until claims under way at its
/// death have ended, and later.
async fn entries_read(claims: u32) -> [i64; 2] {
    let store = open_one(&new_database().await).await;
    declare(&store, Queue::fifo("q")).await;
    push(&store, (0..claims).map(|i| job(&i.to_string(), i)).collect()).await;
    let mut left = claims as usize;
    while left > 0 {
        let turns = claim(&store, "q", left).await.turns;
        assert!(!turns.is_empty());
        left -= turns.len();
    }
    let now = Timestamp::of_this_machine();
    beat(&store, "gone", now - LEASE * 2).await;
    assert!(store.rescue(rescue_at(Some(now))).await.unwrap().is_empty());
    let mut read = Vec::new();
    for minutes in [2, 3] {
        let now = now + LEASE * minutes;
        beat(&store, "n", now).await;
        let (turns, entries) = counted(&store, store.rescue(rescue_at(Some(now)))).await;
        assert!(turns.is_empty());
        read.push(entries);
    }
    [read[0], read[1]]
}

#[tokio::test]
async fn a_rescue_does_not_read_the_claims_of_living_nodes() {
    let [_, few] = entries_read(10).await;
    let [walk, many] = entries_read(5_000).await;
    println!("{few}, then {many} entries; after a death {walk}");
    assert!(many <= few + SLACK, "{few}, then {many} entries; after a death {walk}");
}

#[test]
fn after_a_death_all_claims_are_read_until_those_under_way_are_written() {
    let minutes = |minutes: u32| Timestamp::from_micros(0) + LEASE * minutes;
    let walk = Walk { at: minutes(10), next: minutes(30) };
    let is_due = |now, died: Option<u32>| walk.is_due(minutes(now), died.map(minutes));
    assert!(!is_due(12, None) && !is_due(12, Some(9)));
    assert!(is_due(12, Some(10)), "a claim may have been under way when it died");
    assert!(is_due(12, Some(11)), "it has died since");
    assert!(is_due(30, None), "a claim of a dead node ends now");
    assert!(is_due(9, None), "the clock was set back");
}

#[tokio::test]
async fn claims_that_may_end_though_their_node_lives_are_rescued_without_a_look_at_all() {
    let shares = Groups::each(Share::default().running(10));
    for queue in [Queue::parallel("q"), Queue::parallel("q").groups(shares)] {
        ended_claims_are_rescued(queue).await;
    }
}

async fn ended_claims_are_rescued(queue: Queue) {
    let store = open(&new_database().await).await;
    declare(&store, queue).await;
    push(&store, (0..3).map(|i| Job::new("q", &i).unwrap()).collect()).await;
    let now = Timestamp::of_this_machine();
    store.rescue(rescue_at(Some(now))).await.unwrap();
    let mut held = Vec::new();
    for lease in
        [Lease::Own { ttl: LEASE * 2 }, Lease::Node { ttl: LEASE / 2 }, Lease::Node { ttl: LEASE }]
    {
        let request = Claim { now: Some(now), ..Claim::new("q", "n", 1, lease) };
        held.extend(store.claim(request).await.unwrap().turns);
    }
    let lanes = |turns: &[Turn]| turns.iter().map(|turn| turn.lane).collect::<Vec<_>>();
    let taken = store.rescue(rescue_at(Some(now + LEASE * 3 / 4))).await.unwrap();
    assert_eq!(lanes(&taken), lanes(&held[1..2]), "the lease was shorter than the node's");
    beat(&store, "n", now + LEASE * 2).await;
    let beats = vec![Beat { extend: Some(LEASE), ..Beat::of(&held[0]) }];
    let node = NodeInfo::new("n".into(), LEASE);
    let extends = Heartbeat { now: Some(now + LEASE * 2), node, beats };
    store.heartbeat(extends).await.unwrap();
    assert!(store.rescue(rescue_at(Some(now + LEASE * 5 / 2))).await.unwrap().is_empty());
    beat(&store, "n", now + LEASE * 7 / 2).await;
    let taken = store.rescue(rescue_at(Some(now + LEASE * 7 / 2))).await.unwrap();
    assert_eq!(lanes(&taken), lanes(&held[..1]), "the lease of its own has ended");
}

#[tokio::test]
async fn the_claim_of_a_dead_node_under_a_longer_lease_is_rescued_when_that_ends() {
    let store = open(&new_database().await).await;
    declare(&store, Queue::parallel("q")).await;
    push(&store, vec![Job::new("q", &1).unwrap()]).await;
    let now = Timestamp::of_this_machine();
    beat(&store, "gone", now).await;
    let gone: NodeId = "gone".into();
    let claim = Claim::new("q", gone, 1, Lease::Node { ttl: LEASE * 10 });
    assert_eq!(store.claim(Claim { now: Some(now), ..claim }).await.unwrap().turns.len(), 1);
    for (minutes, taken) in [(2, 0), (5, 0), (9, 0), (11, 1)] {
        let now = now + LEASE * minutes;
        beat(&store, "n", now).await;
        let turns = store.rescue(rescue_at(Some(now))).await.unwrap();
        assert_eq!(turns.len(), taken, "after {minutes} minutes");
    }
}
