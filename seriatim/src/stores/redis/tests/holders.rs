//! What a node holds.

use super::depth::calls;
use super::*;

const CLAIMS_OF_OTHERS: u32 = 300;
/// Heartbeats and the like, which are not of the question.
const MORE_CALLS: u64 = 10;

/// Each node asks after a claim whose answer was lost. If that cost what all nodes hold, a fleet would stop at the first
/// outage.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_node_that_asks_what_it_holds_reads_nothing_that_others_hold() {
    let server = seriatim_testkit::Redis::start().unwrap();
    let store = open_at(&server.url(), &new_prefix()).await;
    declare(&store, Queue::parallel("q")).await;
    push(&store, (0..=CLAIMS_OF_OTHERS).map(|i| Job::new("q", &i).unwrap()).collect()).await;
    let own = claim(&store, 1).await[0].lane;
    let held = async || {
        let query = LaneQuery { node: Some("n".into()), ..LaneQuery::new("q") };
        let before = calls(&server.url()).await;
        let lanes = store.lanes(query).await.unwrap().rows;
        let lanes: Vec<_> = lanes.iter().map(|lane| lane.lane).collect();
        assert_eq!(lanes, [own]);
        calls(&server.url()).await - before
    };
    held().await; // The connection may be new.
    let alone = held().await;
    // One before it and one after it in the order of their names.
    for (i, name) in (0..CLAIMS_OF_OTHERS).zip(["m", "o"].iter().cycle()) {
        if i < 2 {
            let node = NodeInfo::new((*name).into(), LEASE);
            store.heartbeat(Heartbeat { now: None, node, beats: Vec::new() }).await.unwrap();
        }
        let claim = Claim::new("q", *name, 1, Lease::Node { ttl: LEASE });
        assert_eq!(store.claim(claim).await.unwrap().turns.len(), 1);
    }
    let among_others = held().await;
    assert!(
        among_others <= alone + MORE_CALLS,
        "{alone} commands alone, {among_others} among others"
    );
}
