//! Tallies: the figures of queues, kept without a lock that calls would wait for.

use tokio::time::timeout;

use super::*;
use crate::contract::{QueueStats, Sweep, Transaction};

async fn stats(store: &Postgres) -> QueueStats {
    store.stats(None).await.unwrap().remove(0)
}

/// Jobs, lanes, claimed lanes, and jobs done.
async fn held(store: &Postgres) -> [u64; 4] {
    let stats = stats(store).await;
    [stats.jobs, stats.lanes, stats.claimed, stats.processed]
}

async fn rows(schema: &str) -> i64 {
    let sql = in_schema("SELECT count(*) FROM seriatim.tally", schema);
    session().await.query_one(&sql, &[]).await.unwrap().get(0)
}

#[tokio::test]
async fn an_open_transaction_that_pushed_and_settled_holds_up_no_other_call_on_its_queue() {
    let schema = new_schema();
    let store = open(&schema).await;
    declare(&store, Queue::fifo("q")).await;
    push(&store, vec![job("theirs", 1), job("a", 1)]).await;
    let turns = claim(&store, "q", 2).await.turns;
    let (theirs, ours): (Vec<_>, Vec<_>) =
        turns.into_iter().partition(|turn| turn.key.as_deref() == Some("theirs"));
    let mut user = session().await;
    let mut open = user.transaction().await.unwrap();
    let more = Push { now: None, jobs: vec![job("new", 1)] };
    open.push(&*store, more).await.unwrap();
    let end = Settlement::done(theirs[0].lane, theirs[0].token);
    assert!(open.settle(&*store, Settle::now(vec![end])).await.unwrap()[0].is_ok());
    let others = async {
        // More calls than there could be rows for them: none waits for the user's.
        for i in 0..40 {
            push(&store, vec![job("b", i)]).await;
        }
        assert!(done(&store, &ours).await[0].is_ok());
        assert_eq!(claim(&store, "q", 9).await.turns.len(), 1);
        store.sweep(Sweep { now: None, rows_max: 100 }).await.unwrap();
    };
    timeout(SOON, others).await.expect("nobody waits for the open transaction");
    assert_eq!(held(&store).await, [41, 2, 2, 1], "the open transaction has not happened yet");
    Transaction::commit(open, &*store).await.unwrap();
    assert_eq!(held(&store).await, [41, 2, 1, 2]);
}

#[tokio::test]
async fn a_push_that_is_rolled_back_is_not_counted() {
    let schema = new_schema();
    let store = open(&schema).await;
    declare(&store, Queue::parallel("q")).await;
    let mut user = session().await;
    let mut open = user.transaction().await.unwrap();
    let jobs = vec![Job::new("q", &1).unwrap()];
    open.push(&*store, Push { now: None, jobs }).await.unwrap();
    Transaction::rollback(open).await.unwrap();
    assert_eq!(held(&store).await, [0; 4]);
}

/// Each call adds a row. A process folds them after many calls of its own, which a short one never makes.
#[tokio::test]
async fn sweeps_go_on_until_the_rows_of_many_processes_are_folded() {
    let schema = new_schema();
    let store = open(&schema).await;
    declare(&store, Queue::fifo("q")).await;
    let calls = "INSERT INTO seriatim.tally (queue, processed)
        SELECT number, 1 FROM seriatim.queue, generate_series(1, 25000)";
    session().await.execute(&in_schema(calls, &schema), &[]).await.unwrap();
    while store.sweep(Sweep { now: None, rows_max: 100 }).await.unwrap().more {}
    assert_eq!(rows(&schema).await, 1);
    assert_eq!(held(&store).await, [0, 0, 0, 25_000]);
}

#[tokio::test]
async fn a_sweep_folds_the_rows_and_changes_no_number() {
    let schema = new_schema();
    let store = open(&schema).await;
    declare(&store, Queue::fifo("q")).await;
    for i in 0..30 {
        push(&store, vec![job("k", i)]).await;
    }
    let turns = claim(&store, "q", 1).await.turns;
    done(&store, &turns).await;
    let before = (held(&store).await, stats(&store).await.retrying);
    assert!(rows(&schema).await > 30);
    store.sweep(Sweep { now: None, rows_max: 100 }).await.unwrap();
    assert_eq!(rows(&schema).await, 1);
    assert_eq!((held(&store).await, stats(&store).await.retrying), before);
    assert_eq!(before.0, [29, 1, 0, 1]);
}
