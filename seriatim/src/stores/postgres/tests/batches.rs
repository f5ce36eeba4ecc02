//! Batches that a user's open transaction keeps locked, and the wake-ups of their callbacks.

use tokio::time::timeout;

use super::*;
use crate::Client;
use crate::contract::{Batches, OpenBatch, SealBatch, Sweep};

/// A store with two sealed batches, and a running job of each, behind one of none.
async fn with_batches(schema: &str) -> (Arc<Postgres>, Vec<Turn>) {
    let store = open(schema).await;
    declare(&store, Queue::fifo("q")).await;
    for id in ["x", "y"] {
        let callback = Job::new("calls", id).unwrap().key(id);
        store.open_batch(OpenBatch { now: None, id: id.into(), callback }).await.unwrap();
    }
    let jobs = vec![job("a", 1), job("b", 2).batch("x"), job("c", 3).batch("y")];
    push(&store, jobs).await;
    for id in ["x", "y"] {
        store.seal_batch(SealBatch { now: None, id: id.into() }).await.unwrap();
    }
    let turns = claim(&store, "q", 3).await.turns;
    assert_eq!(turns.len(), 3);
    (store, turns)
}

async fn has_ended(store: &Postgres, id: &str) -> bool {
    store.batch(id.into()).await.unwrap().unwrap().ended_at.is_some()
}

/// A settle of all turns, while another transaction has locked what batch `x` needs.
async fn all_but_x_are_settled(store: &Postgres, turns: &[Turn], outcome: &Outcome) {
    let queue = Queue::fifo("q");
    let plan = |turn| crate::store::plan(turn, &queue, &outcome.clone().into(), &|_| LEASE);
    let ends = turns.iter().map(plan).collect();
    let request = Settle { skip_locked: true, ..Settle::now(ends) };
    let settled = timeout(SOON, store.settle(request)).await.expect("it waits for nobody");
    let is_of_x = |turn: &Turn| turn.key.as_deref() == Some("b");
    for (turn, settled) in turns.iter().zip(settled.unwrap()) {
        let expected = if is_of_x(turn) { Settled::Busy } else { Settled::ok(Vec::new()) };
        assert_eq!(settled, expected, "{:?} {outcome:?}", turn.key);
    }
    assert!(has_ended(store, "y").await && !has_ended(store, "x").await);
}

/// Afterwards it is settled like any other.
async fn x_ends(store: &Postgres, turns: &[Turn]) {
    let settled = done(store, turns).await;
    assert_eq!(settled.iter().filter(|settled| settled.is_ok()).count(), 1);
    assert!(has_ended(store, "x").await);
    assert_eq!(claim(store, "calls", 9).await.turns.len(), 2, "both callbacks were pushed");
}

#[tokio::test]
async fn an_open_transaction_on_a_batch_holds_up_the_settle_of_no_other_job() {
    for outcome in [Outcome::Done, Outcome::Bury { error: "e".into() }] {
        let schema = new_schema();
        let (store, turns) = with_batches(&schema).await;
        let holder = session().await;
        let lock = "BEGIN; SELECT FROM seriatim.job_batch WHERE id = 'x' FOR UPDATE";
        holder.batch_execute(&in_schema(lock, &schema)).await.unwrap();
        all_but_x_are_settled(&store, &turns, &outcome).await;
        holder.batch_execute("ROLLBACK").await.unwrap();
        x_ends(&store, &turns).await;
    }
}

#[tokio::test]
async fn an_open_transaction_on_the_batch_of_jobs_that_merge_holds_up_the_settle_of_no_other() {
    let schema = new_schema();
    let store = open(&schema).await;
    let queue = Queue::accumulate("q");
    declare(&store, queue.clone()).await;
    let callback = Job::new("calls", "x").unwrap().key("x");
    store.open_batch(OpenBatch { now: None, id: "x".into(), callback }).await.unwrap();
    push(&store, vec![job("a", 1), job("b", 2).batch("x")]).await;
    let turns = claim(&store, "q", 2).await.turns;
    push(&store, vec![job("b", 2).batch("x")]).await;
    let holder = session().await;
    let lock = "BEGIN; SELECT FROM seriatim.job_batch WHERE id = 'x' FOR UPDATE";
    holder.batch_execute(&in_schema(lock, &schema)).await.unwrap();
    let failed = Outcome::Retry { error: "boom".into(), retry_in: Some(LEASE) };
    let plan = |turn| crate::store::plan(turn, &queue, &failed.clone().into(), &|_| LEASE);
    let (of_x, others): (Vec<_>, Vec<_>) =
        turns.iter().partition(|turn| turn.key.as_deref() == Some("b"));
    let all = others.iter().chain(&of_x).map(|turn| plan(turn)).collect();
    let request = Settle { skip_locked: true, ..Settle::now(all) };
    let settled = timeout(SOON, store.settle(request)).await.expect("it waits for nobody");
    assert_eq!(settled.unwrap(), [Settled::ok(Vec::new()), Settled::Busy]);
    holder.batch_execute("ROLLBACK").await.unwrap();
    let settled = store.settle(Settle::now(of_x.into_iter().map(plan).collect())).await.unwrap();
    assert!(settled[0].is_ok());
    assert_eq!(store.batch("x".into()).await.unwrap().unwrap().pending, 1, "they have merged");
}

#[tokio::test]
async fn an_open_transaction_on_the_key_of_a_callback_holds_up_the_settle_of_no_other_job() {
    let schema = new_schema();
    let (store, turns) = with_batches(&schema).await;
    let client = Client::new(store.clone() as SharedStore);
    let mut session = session().await;
    let mut transaction = session.transaction().await.unwrap();
    let theirs = vec![Job::new("calls", "theirs").unwrap().key("x")];
    client.push_in(&mut transaction, theirs).await.unwrap();
    all_but_x_are_settled(&store, &turns, &Outcome::Done).await;
    transaction.rollback().await.unwrap();
    x_ends(&store, &turns).await;
}

#[tokio::test]
async fn an_open_transaction_on_a_batch_holds_up_the_expiry_of_no_other_job() {
    let schema = new_schema();
    let store = open(&schema).await;
    declare(&store, Queue::fifo("q")).await;
    let callback = Job::new("calls", "x").unwrap().key("x");
    store.open_batch(OpenBatch { now: None, id: "x".into(), callback }).await.unwrap();
    let start = store.now().await.unwrap();
    let expiring = |key: &str, tag| job(key, tag).expires_at(start + LEASE);
    let jobs = vec![expiring("a", 1).batch("x"), expiring("b", 2)];
    let pushed = store.push(Push { now: Some(start), jobs }).await.unwrap();
    let holder = session().await;
    let lock = "BEGIN; SELECT FROM seriatim.job_batch WHERE id = 'x' FOR UPDATE";
    holder.batch_execute(&in_schema(lock, &schema)).await.unwrap();
    let sweep = async |rows_max| {
        let sweep = store.sweep(Sweep { now: Some(start + LEASE * 2), rows_max });
        timeout(SOON, sweep).await.expect("it waits for nobody").unwrap().expired
    };
    assert_eq!(sweep(1).await, [pushed[1].job_id]);
    assert!(sweep(1).await.is_empty());
    holder.batch_execute("ROLLBACK").await.unwrap();
    assert_eq!(sweep(9).await, [pushed[0].job_id]);
}

#[tokio::test]
async fn the_wake_up_for_a_callback_is_sent_by_another_session_than_its_settle() {
    let schema = new_schema();
    let (store, turns) = with_batches(&schema).await;
    let (_listener, mut heard) = listener(&schema).await;
    let mut client = session().await;
    let pid: i32 = client.query_one("SELECT pg_backend_pid()", &[]).await.unwrap().get(0);
    let mut transaction = client.transaction().await.unwrap();
    let of = |key: &str| {
        let turn = turns.iter().find(|turn| turn.key.as_deref() == Some(key)).unwrap();
        Settle::now(vec![Settlement::done(turn.lane, turn.token)])
    };
    let settled = crate::contract::Transaction::settle(&mut transaction, &*store, of("b")).await;
    assert!(settled.unwrap()[0].is_ok());
    transaction.commit().await.unwrap();
    let marker = format!("NOTIFY {schema}_due, 'marker'");
    session().await.batch_execute(&marker).await.unwrap();
    loop {
        let notice = timeout(SOON, heard.recv()).await.expect("the marker comes").unwrap();
        if notice.payload() == "marker" {
            break;
        }
        assert_ne!(notice.process_id(), pid);
    }
    assert!(store.settle(of("c")).await.unwrap()[0].is_ok());
    loop {
        let notice = timeout(SOON, heard.recv()).await.expect("the callback wakes").unwrap();
        if notice.payload().contains("calls") {
            break;
        }
    }
}
