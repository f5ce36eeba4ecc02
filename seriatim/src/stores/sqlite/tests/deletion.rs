//! Deleting a queue while other processes use it.

use super::*;
use crate::SharedStore;
use crate::contract::definition::tests::{
    a_running_engine_declares_its_queues_again, no_queue_is_taken_for_another,
};
use crate::contract::deletion::tests::{delete_all, no_push_is_lost_behind_a_deletion};

async fn shared(folder: &tempfile::TempDir) -> SharedStore {
    let store = Sqlite::open(folder.path().join("jobs.db")).unwrap();
    store.migrate().await.unwrap();
    std::sync::Arc::new(store)
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn after_a_deletion_no_queue_is_taken_for_another() {
    let folder = tempfile::tempdir().unwrap();
    let delete = async || delete_all(shared(&folder).await).await;
    no_queue_is_taken_for_another(async || shared(&folder).await, delete).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_running_engine_declares_its_queues_again_after_a_deletion() {
    let folder = tempfile::tempdir().unwrap();
    let delete = async || delete_all(shared(&folder).await).await;
    a_running_engine_declares_its_queues_again(async || shared(&folder).await, delete).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_push_is_never_lost_behind_a_deletion() {
    let folder = tempfile::tempdir().unwrap();
    no_push_is_lost_behind_a_deletion(async || shared(&folder).await).await;
}
