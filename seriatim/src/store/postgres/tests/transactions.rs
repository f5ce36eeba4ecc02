//! Pushes and settles in transactions of the user's own.

use std::sync::Mutex;

use super::*;
use crate::{Batch, Client, Context, Engine, Failure};

async fn count(client: &tokio_postgres::Client, table: &str) -> i64 {
    client.query_one(&format!("SELECT count(*) FROM {table}"), &[]).await.unwrap().get(0)
}

async fn table(client: &tokio_postgres::Client, schema: &str) -> String {
    let table = format!("{schema}.written");
    client.batch_execute(&format!("CREATE TABLE {table} (tag int)")).await.unwrap();
    table
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_push_in_the_users_transaction_holds_or_vanishes_with_it() {
    let schema = new_schema();
    let store = open(&schema).await;
    declare(&store, Queue::fifo("q")).await;
    let client = Client::new(store.clone());
    let mut session = session().await;
    let mut wakeups = store.wakeups();
    for keep in [false, true] {
        // The first wake-ups may be those of its own declaration.
        while wakeups.wait(Duration::from_millis(300)).await {
            wakeups.forget();
        }
        let mut transaction = session.transaction().await.unwrap();
        let pushed =
            client.push_in(&mut transaction, vec![job("k", 1), job("l", 2)]).await.unwrap();
        assert_eq!(store.stats(None).await.unwrap()[0].jobs, 0, "nobody sees it yet");
        if keep {
            transaction.commit().await.unwrap();
            assert!(wakeups.wait(Duration::from_secs(20)).await, "the commit wakes");
            assert!(store.job(pushed[0].job_id).await.unwrap().is_some());
        } else {
            transaction.rollback().await.unwrap();
        }
        assert_eq!(store.stats(None).await.unwrap()[0].jobs, if keep { 2 } else { 0 });
    }
}

#[tokio::test]
async fn a_transaction_at_another_isolation_level_is_refused() {
    let schema = new_schema();
    let store = open(&schema).await;
    let client = Client::new(store.clone());
    let mut session = session().await;
    let level = tokio_postgres::IsolationLevel::RepeatableRead;
    let mut transaction = session.build_transaction().isolation_level(level).start().await.unwrap();
    let error = client.push_in(&mut transaction, vec![job("k", 1)]).await.unwrap_err();
    assert!(error.to_string().contains("READ COMMITTED"), "{error}");
}

#[tokio::test]
async fn a_transaction_of_another_database_is_refused() {
    let client = Client::new(Arc::new(crate::Memory::new()));
    let mut session = session().await;
    let mut transaction = session.transaction().await.unwrap();
    let error = client.push_in(&mut transaction, vec![job("k", 1)]).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Unsupported, "{error}");
}

/// Runs an engine whose handler writes and settles in one transaction. With `rival`, somebody else
/// has settled its turns in between.
async fn handled(schema: &str, rival: bool) -> (crate::Summary, Option<ErrorKind>) {
    let store = open(schema).await;
    let answer: Arc<Mutex<Option<ErrorKind>>> = Arc::default();
    let ended = Arc::new(tokio::sync::Notify::new());
    let (tell, kind, written) = (ended.clone(), answer.clone(), format!("{schema}.written"));
    let handler = move |batch: Batch<i32>, ctx: Context| {
        let (tell, kind, written, store) =
            (tell.clone(), kind.clone(), written.clone(), store.clone());
        async move {
            let mut session = session().await;
            let transaction = session.transaction().await?;
            let insert = format!("INSERT INTO {written} VALUES ($1)");
            for tag in batch.payloads() {
                transaction.execute(&insert, &[tag]).await?;
            }
            if rival {
                let settled = done(&store, ctx.turns()).await;
                assert!(settled.iter().all(Settled::is_ok));
            }
            let result = ctx.commit_with(transaction).await;
            *kind.lock().unwrap() = result.as_ref().err().map(|error| error.kind());
            tell.notify_one();
            result.map_err(Failure::from)
        }
    };
    let summary = Engine::builder(open(schema).await)
        .queue(Queue::fifo("q"))
        .worker("q", handler)
        .run_until(async move { ended.notified().await })
        .await
        .unwrap();
    let kind = *answer.lock().unwrap();
    (summary, kind)
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_handlers_writes_and_the_end_of_its_job_hold_together() {
    let schema = new_schema();
    let store = open(&schema).await;
    declare(&store, Queue::fifo("q")).await;
    push(&store, vec![job("k", 7)]).await;
    let client = session().await;
    let table = table(&client, &schema).await;
    let (summary, error) = handled(&schema, false).await;
    assert_eq!(error, None);
    assert_eq!((summary.done, summary.stale), (1, 0));
    assert_eq!(count(&client, &table).await, 1);
    let stats = &store.stats(None).await.unwrap()[0];
    assert_eq!((stats.jobs, stats.processed), (0, 1));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_handler_whose_claim_was_taken_over_writes_nothing() {
    let schema = new_schema();
    let store = open(&schema).await;
    declare(&store, Queue::fifo("q")).await;
    push(&store, vec![job("k", 7)]).await;
    let client = session().await;
    let table = table(&client, &schema).await;
    let (summary, error) = handled(&schema, true).await;
    assert_eq!(error, Some(ErrorKind::Conflict));
    assert_eq!((summary.done, summary.stale), (0, 1));
    assert_eq!(count(&client, &table).await, 0, "its writes vanished");
}
