//! A store that is emptied while nodes run.

use super::*;
use crate::SharedStore;
use crate::contract::definition::tests::{
    a_running_engine_declares_its_queues_again, no_queue_is_taken_for_another,
};

async fn shared(database: &str) -> SharedStore {
    open(database).await
}

/// Runs this statement on every table.
async fn each_table(database: &str, statement: &str) {
    let mut person = Conn::from_url(address(database)).await.unwrap();
    let tables = "SELECT table_name FROM information_schema.tables \
                  WHERE table_schema = DATABASE() AND table_type = 'BASE TABLE'";
    let tables: Vec<String> = person.query(tables).await.unwrap();
    assert!(!tables.is_empty());
    for table in tables {
        person.query_drop(format!("{statement} {table}")).await.unwrap();
    }
    person.disconnect().await.unwrap();
}

#[tokio::test]
async fn after_dropped_tables_no_queue_is_taken_for_another() {
    let database = new_database().await;
    let empty = async || each_table(&database, "DROP TABLE").await;
    no_queue_is_taken_for_another(async || shared(&database).await, empty).await;
}

#[tokio::test]
async fn after_truncated_tables_no_queue_is_taken_for_another() {
    let database = new_database().await;
    let empty = async || each_table(&database, "TRUNCATE TABLE").await;
    no_queue_is_taken_for_another(async || shared(&database).await, empty).await;
}

#[tokio::test]
async fn a_running_engine_declares_its_queues_again_after_dropped_tables() {
    let database = new_database().await;
    let empty = async || each_table(&database, "DROP TABLE").await;
    a_running_engine_declares_its_queues_again(async || shared(&database).await, empty).await;
}

#[tokio::test]
async fn a_running_engine_declares_its_queues_again_in_truncated_tables() {
    let database = new_database().await;
    let empty = async || each_table(&database, "TRUNCATE TABLE").await;
    a_running_engine_declares_its_queues_again(async || shared(&database).await, empty).await;
}

#[tokio::test]
async fn opening_a_store_that_must_be_there_makes_none() {
    let database = new_database().await;
    let opened = crate::connect_existing(&address(&database)).await;
    assert_eq!(opened.err().unwrap().kind(), ErrorKind::NotFound);
    let mut person = Conn::from_url(address(&database)).await.unwrap();
    let tables: Vec<String> = person.query("SHOW TABLES").await.unwrap();
    assert!(tables.is_empty(), "{tables:?}");
    person.disconnect().await.unwrap();
}
