//! A store that is emptied while nodes run.

use seriatim_testkit::Redis as Server;

use super::upkeep::rescue;
use super::*;
use crate::SharedStore;
use crate::contract::definition::tests::{
    a_running_engine_declares_its_queues_again, no_queue_is_taken_for_another,
};

async fn shared(server: &Server) -> SharedStore {
    let store = Redis::connect(&server.url()).await.unwrap();
    store.migrate().await.unwrap();
    std::sync::Arc::new(store)
}

fn flush(server: &Server) {
    server.send(&["FLUSHALL"]).unwrap();
}

#[tokio::test]
async fn after_flushall_no_queue_is_taken_for_another() {
    let server = Server::start().unwrap();
    no_queue_is_taken_for_another(async || shared(&server).await, async || flush(&server)).await;
}

#[tokio::test]
async fn a_running_engine_declares_its_queues_again_after_flushall() {
    let server = Server::start().unwrap();
    let empty = async || flush(&server);
    a_running_engine_declares_its_queues_again(async || shared(&server).await, empty).await;
}

/// As after a definition written while the store was being wiped.
#[tokio::test]
async fn a_definition_never_reaches_a_queue_of_another_name() {
    let prefix = new_prefix();
    let store = open(&prefix).await;
    push(&store, vec![job("k", 7)]).await;
    let register = format!("{prefix}:{{g}}:queues");
    send(&url(), &["HSET", &register, "mails", "1"]).await;
    let request = Declare { now: None, queues: vec![Queue::fifo("mails")] };
    let refused = store.declare(request).await.unwrap_err();
    assert_eq!(refused.kind(), ErrorKind::Corrupt);
    assert!(refused.to_string().contains("gives \"mails\" the number of \"q\""), "{refused}");
    let known = store.queues().await.unwrap_err();
    assert_eq!(known.kind(), ErrorKind::Corrupt);
    send(&url(), &["HDEL", &register, "mails"]).await;
    declare(&store, Queue::fifo("mails")).await;
    let modes: Vec<_> =
        store.queues().await.unwrap().into_iter().map(|view| view.queue.mode).collect();
    assert_eq!(modes, [Mode::Fifo, Mode::Exclusive]);
    assert_eq!(tag(&claim(&store, 1).await[0]), 7);
}

/// As after a failover that lost the last entry of the register: two queues have one number.
#[tokio::test]
async fn a_queue_whose_definition_is_another_one_s_stops_no_other() {
    let prefix = new_prefix();
    let store = open(&prefix).await;
    let pushed = push(&store, vec![job("a", 1), job("b", 2)]).await;
    assert_eq!(claim(&store, 1).await.len(), 1);
    send(&url(), &["HSET", &format!("{prefix}:{{g}}:queues"), "mails", "1"]).await;
    let other = open(&prefix).await;
    assert!(other.job(pushed[0].job_id).await.unwrap().is_some());
    let due = other.due(vec!["q".into(), "mails".into()]).await.unwrap();
    let of = |name: &str| due.iter().find(|due| &*due.queue == name).unwrap();
    assert!(of("q").due.is_some() && of("mails").unanswered, "{due:?}");
    let late = other.now().await.unwrap() + 3 * LEASE;
    assert_eq!(rescue(&other, late).await.len(), 1);
}

#[tokio::test]
async fn claims_of_a_node_are_released_though_another_queue_cannot_be_read() {
    let prefix = new_prefix();
    let store = open(&prefix).await;
    push(&store, vec![job("a", 1)]).await;
    assert_eq!(claim(&store, 1).await.len(), 1);
    send(&url(), &["HSET", &format!("{prefix}:{{g}}:queues"), "mails", "1"]).await;
    let other = open(&prefix).await;
    let release = || {
        let claims = ClaimSelection::Node("n".into());
        other.release(Release { now: None, claims, made_by: None, lanes_max: 10 })
    };
    assert_eq!(release().await.unwrap().len(), 1);
    assert_eq!(release().await.unwrap_err().kind(), ErrorKind::Corrupt, "it was not all");
}

/// Else a node that lives would be declared dead.
#[tokio::test]
async fn a_heartbeat_counts_though_the_queue_of_a_claim_that_it_extends_cannot_be_read() {
    let prefix = new_prefix();
    let store = open(&prefix).await;
    push(&store, vec![job("a", 1)]).await;
    send(&url(), &["HSET", &format!("{prefix}:{{g}}:queues"), "mails", "1"]).await;
    let other = open(&prefix).await;
    let lane = crate::model::LaneId { queue: 9, shard: 0, number: 1 };
    let beats = vec![Beat { lane, token: Token(1), progress: None, extend: Some(LEASE) }];
    let node = NodeInfo::new("late".into(), LEASE);
    assert!(other.heartbeat(Heartbeat { now: None, node, beats }).await.is_err());
    let nodes = other.nodes().await.unwrap();
    assert!(nodes.iter().any(|node| &*node.info.id.0 == "late"));
}
