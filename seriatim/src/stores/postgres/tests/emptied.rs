//! A store that is emptied while nodes run.

use tokio_postgres::error::SqlState;

use super::*;
use crate::SharedStore;
use crate::contract::definition::tests::{
    a_running_engine_declares_its_queues_again, no_queue_is_taken_for_another,
};

/// Each costs the server's `deadlock_timeout`, 1 s.
const DEADLOCKS_MAX: u32 = 20;

/// A new schema, and a session beside the stores in it.
async fn fresh() -> (String, Arc<Postgres>) {
    let schema = new_schema();
    let person = open(&schema).await;
    (schema, person)
}

async fn shared(schema: &str) -> SharedStore {
    open(schema).await
}

/// Repeats the statement if the server aborts it because of a deadlock with a node, as an administrator would.
async fn run(person: &Postgres, sql: &str) {
    let mut loan = person.pool.lend().await.unwrap();
    for _ in 0..DEADLOCKS_MAX {
        match loan.client().unwrap().batch_execute(sql).await {
            Err(error) if error.code() == Some(&SqlState::T_R_DEADLOCK_DETECTED) => {}
            answer => return answer.unwrap(),
        }
    }
    panic!("{DEADLOCKS_MAX} deadlocks in a row: {sql}");
}

async fn drop_schema(person: &Postgres, schema: &str) {
    run(person, &format!("SET client_min_messages = error; DROP SCHEMA {schema} CASCADE")).await;
}

async fn truncate(person: &Postgres, schema: &str) {
    let all = format!(
        "DO $$ BEGIN EXECUTE (SELECT 'TRUNCATE ' || string_agg(format('%I.%I', schemaname, tablename), ', ') \
         FROM pg_tables WHERE schemaname = '{schema}'); END $$"
    );
    run(person, &all).await;
}

#[tokio::test]
async fn after_a_dropped_schema_no_queue_is_taken_for_another() {
    let (schema, person) = fresh().await;
    let empty = async || drop_schema(&person, &schema).await;
    no_queue_is_taken_for_another(async || shared(&schema).await, empty).await;
}

#[tokio::test]
async fn after_truncated_tables_no_queue_is_taken_for_another() {
    let (schema, person) = fresh().await;
    let empty = async || truncate(&person, &schema).await;
    no_queue_is_taken_for_another(async || shared(&schema).await, empty).await;
}

#[tokio::test]
async fn a_running_engine_declares_its_queues_again_in_a_dropped_schema() {
    let (schema, person) = fresh().await;
    let empty = async || drop_schema(&person, &schema).await;
    a_running_engine_declares_its_queues_again(async || shared(&schema).await, empty).await;
}

#[tokio::test]
async fn a_running_engine_declares_its_queues_again_in_truncated_tables() {
    let (schema, person) = fresh().await;
    let empty = async || truncate(&person, &schema).await;
    a_running_engine_declares_its_queues_again(async || shared(&schema).await, empty).await;
}

#[tokio::test]
async fn opening_a_store_that_must_be_there_makes_none() {
    let (schema, person) = fresh().await;
    drop_schema(&person, &schema).await;
    let mark = if url().contains('?') { '&' } else { '?' };
    let opened = crate::connect_existing(&format!("{}{mark}schema={schema}", url())).await;
    assert_eq!(opened.err().unwrap().kind(), ErrorKind::NotFound);
    let mut loan = person.pool.lend().await.unwrap();
    let sql = format!("SELECT to_regnamespace('{schema}') IS NULL");
    let rows = loan.client().unwrap().query(&sql, &[]).await.unwrap();
    assert!(rows[0].get::<_, bool>(0), "no schema was made");
}
