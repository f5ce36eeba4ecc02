//! Deleting a queue while other processes use it.

use super::*;
use crate::SharedStore;
use crate::contract::definition::tests::{
    a_running_engine_declares_its_queues_again, no_queue_is_taken_for_another,
};
use crate::contract::delete_queue;
use crate::contract::deletion::tests::{delete_all, no_push_is_lost_behind_a_deletion};
use crate::contract::{Producer, Views};

async fn shared(schema: &str) -> SharedStore {
    open(schema).await
}

#[tokio::test]
async fn after_a_deletion_no_queue_is_taken_for_another() {
    let schema = new_schema();
    let delete = async || delete_all(shared(&schema).await).await;
    no_queue_is_taken_for_another(async || shared(&schema).await, delete).await;
}

#[tokio::test]
async fn a_running_engine_declares_its_queues_again_after_a_deletion() {
    let schema = new_schema();
    let delete = async || delete_all(shared(&schema).await).await;
    a_running_engine_declares_its_queues_again(async || shared(&schema).await, delete).await;
}

#[tokio::test]
async fn a_push_is_never_lost_behind_a_deletion() {
    let schema = new_schema();
    no_push_is_lost_behind_a_deletion(async || shared(&schema).await).await;
}

/// As version 5 left it, with a waiting queue: its functions are replaced, not kept beside the new ones.
#[tokio::test]
async fn a_store_of_the_version_before_deletions_is_brought_up() {
    let schema = new_schema();
    let store = open(&schema).await;
    store.push(Push { now: None, jobs: vec![Job::new("orders", &1).unwrap()] }).await.unwrap();
    let before = "ALTER TABLE seriatim.queue DROP COLUMN lease_max, DROP COLUMN closing; \
        UPDATE seriatim.queue SET definition = (definition::jsonb - 'lease_max')::text; \
        DROP FUNCTION seriatim.delete_queue, seriatim.shared_queue; UPDATE seriatim.meta SET version = 5";
    let mut loan = store.pool.lend().await.unwrap();
    loan.client().unwrap().batch_execute(&in_schema(before, &schema)).await.unwrap();
    drop(loan);
    assert_eq!(store.check().await.unwrap_err().kind(), ErrorKind::Conflict);
    store.migrate().await.unwrap();
    let view = store.queues().await.unwrap().remove(0);
    assert_eq!(view.queue.lease_max, crate::model::limits::LEASE_MAX);
    store.push(Push { now: None, jobs: vec![Job::new("orders", &2).unwrap()] }).await.unwrap();
    assert_eq!(delete_queue(&*store, "orders", false).await.unwrap().jobs, 2);
    store.close().await.unwrap();
}
