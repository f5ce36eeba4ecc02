//! Deleting a queue while other processes use it.

use super::super::reply::single;
use super::*;
use crate::SharedStore;
use crate::contract::definition::tests::{
    a_running_engine_declares_its_queues_again, no_queue_is_taken_for_another,
};
use crate::contract::deletion::tests::{delete_all, no_push_is_lost_behind_a_deletion};

async fn shared(prefix: &str) -> SharedStore {
    open(prefix).await
}

/// A store that has given out nearly all new numbers: those of deleted queues are next.
async fn used_up() -> String {
    let prefix = new_prefix();
    let store = open(&prefix).await;
    declare(&store, Queue::parallel("before")).await;
    delete_queue(&*store, "before", false).await.unwrap();
    send(&url(), &["HSET", &format!("{prefix}:{{g}}:meta"), "queues", "9999"]).await;
    store.close().await.unwrap();
    prefix
}

#[tokio::test]
async fn after_a_deletion_no_queue_is_taken_for_another() {
    // Which of two free numbers is chosen is random.
    for _ in 0..6 {
        let prefix = used_up().await;
        let delete = async || delete_all(shared(&prefix).await).await;
        no_queue_is_taken_for_another(async || shared(&prefix).await, delete).await;
    }
}

#[tokio::test]
async fn a_running_engine_declares_its_queues_again_after_a_deletion() {
    let prefix = used_up().await;
    let delete = async || delete_all(shared(&prefix).await).await;
    a_running_engine_declares_its_queues_again(async || shared(&prefix).await, delete).await;
}

#[tokio::test]
async fn a_push_is_never_lost_behind_a_deletion() {
    let prefix = used_up().await;
    no_push_is_lost_behind_a_deletion(async || shared(&prefix).await).await;
}

#[tokio::test]
async fn the_shards_of_a_deleted_queue_keep_nothing_but_their_last_numbers() {
    let prefix = new_prefix();
    let store = open(&prefix).await;
    declare(&store, Queue { shards: 4, ..Queue::accumulate("orders") }).await;
    let jobs = (0..200).map(|i| Job::new("orders", &i).unwrap().key(format!("k{}", i % 50)));
    push(&store, jobs.collect()).await;
    let deleted = delete_queue(&*store, "orders", false).await.unwrap();
    assert_eq!(deleted.jobs, 200);
    for shard in 0..4 {
        for name in ["lanes", "jobs", "keys", "ready", "wake", "open", "prios", "equal"] {
            let key = format!("{prefix}:{{q1:{shard}}}:{name}");
            let exists = ::redis::cmd("EXISTS").arg(key).to_owned();
            let exists = single(store.link.query(&exists).await.unwrap()).unwrap().int().unwrap();
            assert_eq!(exists, 0, "{name} of shard {shard}");
        }
    }
    assert_eq!(store.queues().await.unwrap().len(), 0);
}

/// As on the stores that delete a queue in several steps.
#[tokio::test]
async fn a_declared_queue_that_is_being_deleted_is_none_of_the_new_ones() {
    let store = open(&new_prefix()).await;
    declare(&store, Queue::parallel("q")).await;
    store.close_queue("q").await.unwrap();
    let request = || Declare { now: None, queues: vec![Queue::parallel("q")] };
    assert_eq!(store.declare(request()).await.unwrap_err().kind(), ErrorKind::Conflict);
    store.declare_new(request()).await.unwrap();
}
