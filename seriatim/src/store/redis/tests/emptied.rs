//! A store that somebody empties while nodes run.

use seriatim_testkit::Redis as Server;

use super::*;
use crate::SharedStore;
use crate::store::definition::tests::{
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
