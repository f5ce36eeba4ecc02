//! A file of an earlier build.

use super::*;
use crate::contract::{
    Claim, Consumer, Declare, Fleet, Heartbeat, Lease, NodeInfo, Queues, Settle,
};
use crate::model::queue::Queue;
use crate::model::settle::Settlement;

const LEASE: Duration = Duration::from_secs(60);

#[tokio::test(flavor = "multi_thread", worker_threads = 1)]
async fn a_claim_that_an_earlier_build_made_is_settled_with_all_its_jobs() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("jobs.db");
    let store = Sqlite::open(&path).unwrap();
    store.migrate().await.unwrap();
    let queues = vec![Queue::accumulate("orders")];
    store.declare(Declare { now: None, queues }).await.unwrap();
    let job = |number: u32| Job::new("orders", &number).unwrap().key("k");
    let jobs = (0..3).map(job).collect();
    store.push(Push { now: None, jobs }).await.unwrap();
    let node = NodeInfo::new("n".into(), LEASE);
    store.heartbeat(Heartbeat { now: None, node, beats: Vec::new() }).await.unwrap();
    let claim = Claim {
        now: None,
        queue: "orders".into(),
        node: "n".into(),
        node_name: None,
        groups: Vec::new(),
        lanes_max: 1,
        crashed_max: 1,
        bytes_max: None,
        lease: Lease::Node { ttl: LEASE },
        declared: false,
        ticket: 0,
    };
    let turn = store.claim(claim).await.unwrap().turns.remove(0);
    assert_eq!(turn.jobs.len(), 3);
    // Arrives during the turn, so that the lane is not deleted as a whole.
    store.push(Push { now: None, jobs: vec![job(7)] }).await.unwrap();
    store.close().await.unwrap();

    let file = rusqlite::Connection::open(&path).unwrap();
    file.execute_batch("UPDATE lane SET flags = flags & ~64; PRAGMA user_version = 3").unwrap();
    drop(file);
    let store = Sqlite::open(&path).unwrap();
    store.migrate().await.unwrap();
    let turns = vec![Settlement::done(turn.lane, turn.token)];
    assert!(store.settle(Settle::now(turns)).await.unwrap()[0].is_ok());
    let stats = store.stats(None).await.unwrap().remove(0);
    assert_eq!((stats.jobs, stats.processed), (1, 3));
    store.close().await.unwrap();
}
