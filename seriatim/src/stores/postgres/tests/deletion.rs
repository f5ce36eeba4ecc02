//! Deleting a queue while other processes use it.

use super::*;
use crate::SharedStore;
use crate::contract::definition::tests::{
    a_running_engine_declares_its_queues_again, no_queue_is_taken_for_another,
};
use crate::contract::deletion::tests::{delete_all, no_push_is_lost_behind_a_deletion};

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
