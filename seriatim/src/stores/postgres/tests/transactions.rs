//! Pushes and settles in the user's transaction.

use async_trait::async_trait;
use futures_util::future::BoxFuture;

use super::*;
use crate::contract::transaction::tests::{self as both, Database};
use crate::contract::{Pushed, SharedStore};
use crate::{Client, Context, Result};

/// A separate schema.
#[derive(Clone)]
struct Schema(String);

impl Schema {
    async fn new() -> Self {
        let schema = Self(new_schema());
        schema.open().await;
        let written = format!("CREATE TABLE {}.written (number int)", schema.0);
        session().await.batch_execute(&written).await.unwrap();
        schema
    }
}

#[async_trait]
impl Database for Schema {
    async fn open(&self) -> SharedStore {
        open(&self.0).await
    }

    async fn push_in(
        &self,
        client: &Client,
        jobs: Vec<Job>,
        meanwhile: BoxFuture<'_, ()>,
        commits: bool,
    ) -> Vec<Pushed> {
        let mut session = session().await;
        let mut transaction = session.transaction().await.unwrap();
        let pushed = client.push_in(&mut transaction, jobs).await.unwrap();
        meanwhile.await;
        match commits {
            true => transaction.commit().await.unwrap(),
            false => transaction.rollback().await.unwrap(),
        }
        pushed
    }

    async fn commit_with(
        &self,
        context: &Context,
        numbers: &[i32],
        meanwhile: BoxFuture<'_, ()>,
    ) -> Result<()> {
        let mut session = session().await;
        let transaction = session.transaction().await.unwrap();
        let insert = format!("INSERT INTO {}.written VALUES ($1)", self.0);
        for number in numbers {
            transaction.execute(&insert, &[number]).await.unwrap();
        }
        meanwhile.await;
        context.commit_with(transaction).await
    }

    async fn written(&self) -> i64 {
        let count = format!("SELECT count(*) FROM {}.written", self.0);
        session().await.query_one(&count, &[]).await.unwrap().get(0)
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_push_in_the_users_transaction_holds_or_vanishes_with_it() {
    both::a_push_holds_or_vanishes(Schema::new().await).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_transaction_open_on_running_keys_for_two_leases_holds_up_those_keys_alone() {
    let database = Schema::new().await;
    both::a_transaction_open_on_running_keys_for_two_leases_holds_up_those_keys_alone(database)
        .await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_handlers_writes_and_the_end_of_its_job_hold_together() {
    both::writes_and_the_end_of_a_job_hold_together(Schema::new().await).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_handlers_transaction_calls_the_hook_for_a_job_that_could_not_be_decoded() {
    both::the_hook_hears_of_a_job_that_could_not_be_decoded(Schema::new().await).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_handler_whose_claim_was_taken_over_writes_nothing() {
    both::whose_claim_was_taken_over_writes_nothing(Schema::new().await).await;
}

#[tokio::test]
async fn a_transaction_at_another_isolation_level_is_refused() {
    let schema = new_schema();
    let store = open(&schema).await;
    let client = Client::new(store.clone());
    let mut session = session().await;
    let level = tokio_postgres::IsolationLevel::RepeatableRead;
    for (queue, has_begun) in [("one", false), ("two", true)] {
        let begun = session.build_transaction().isolation_level(level).start().await;
        let mut transaction = begun.unwrap();
        if has_begun {
            // From here on it sees no queue that others make.
            transaction.batch_execute("SELECT 1").await.unwrap();
        }
        let jobs = vec![Job::new(queue, &1).unwrap()];
        let error = client.push_in(&mut transaction, jobs).await.unwrap_err();
        assert!(error.to_string().contains("READ COMMITTED"), "{error}");
    }
}

#[tokio::test]
async fn a_transaction_of_another_database_is_refused() {
    let client = Client::new(Arc::new(crate::store::Memory::new()));
    let mut session = session().await;
    let mut transaction = session.transaction().await.unwrap();
    let error = client.push_in(&mut transaction, vec![job("k", 1)]).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Unsupported, "{error}");
}

#[tokio::test]
async fn an_open_transaction_keeps_nobody_from_new_queues() {
    let schema = new_schema();
    let store = open(&schema).await;
    let client = Client::new(store.clone() as SharedStore);
    let mut session = session().await;
    let mut transaction = session.transaction().await.unwrap();
    client.push_in(&mut transaction, vec![Job::new("mine", &1).unwrap()]).await.unwrap();
    let others = async {
        declare(&store, Queue::parallel("another")).await;
        push(&store, vec![Job::new("third", &1).unwrap()]).await;
        store.pause_queue("another".into(), true).await.unwrap();
    };
    tokio::time::timeout(SOON, others).await.expect("they wait for nobody");
    transaction.commit().await.unwrap();
    assert_eq!(claim(&store, "mine", 1).await.turns.len(), 1);
}

#[tokio::test]
async fn an_open_transaction_keeps_nobody_from_pushing_to_a_node_or_group_that_is_new_with_it() {
    let schema = new_schema();
    let store = open(&schema).await;
    let client = Client::new(store.clone() as SharedStore);
    let bound = |queue: &str| {
        let job = || Job::new(queue, &1).unwrap();
        let both = job().node("new").consumer_group("new");
        vec![job().node("new"), job().consumer_group("new"), both]
    };
    let mut session = session().await;
    let mut transaction = session.transaction().await.unwrap();
    client.push_in(&mut transaction, bound("mine")).await.unwrap();
    let others = push(&store, bound("theirs"));
    tokio::time::timeout(SOON, others).await.expect("they wait for nobody");
    transaction.commit().await.unwrap();
    assert_eq!(store.stats(None).await.unwrap().iter().map(|one| one.jobs).sum::<u64>(), 6);
}

/// NOTIFY in a transaction makes all such commits of the server wait for each other.
#[tokio::test]
async fn the_wake_up_for_a_users_transaction_is_sent_by_another_session() {
    let schema = new_schema();
    let store = open(&schema).await;
    let client = Client::new(store.clone() as SharedStore);
    let (_listener, mut heard) = listener(&schema).await;
    let mut session = session().await;
    let pid: i32 = session.query_one("SELECT pg_backend_pid()", &[]).await.unwrap().get(0);
    let mut transaction = session.transaction().await.unwrap();
    client.push_in(&mut transaction, vec![Job::new("q", &1).unwrap()]).await.unwrap();
    transaction.commit().await.unwrap();
    let notice = tokio::time::timeout(SOON, heard.recv()).await.expect("a wake-up comes");
    assert_ne!(notice.unwrap().process_id(), pid);
}
