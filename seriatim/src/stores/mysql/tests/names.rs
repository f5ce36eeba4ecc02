//! Idempotency keys: new ones that several push at once, and expired ones.

use mysql_async::{IsolationLevel, TxOpts};
use tokio::time::timeout;

use super::*;
use crate::contract::{PushStatus, Sweep, Transaction};
use crate::store::Fleet;

#[tokio::test]
async fn names_of_waiting_jobs_are_not_in_the_way_of_others() {
    let database = new_database().await;
    let store = open(&database).await;
    declare(&store, Queue::fifo("q").idempotency_ttl(Duration::from_secs(1))).await;
    let start = Timestamp::of_this_machine();
    let named = |i: u32| job("k", i).idempotency_key(format!("n{i}"));
    // Those of waiting jobs expired first, and are more than a sweep looks at.
    let request = |at, jobs| Push { now: Some(at), jobs };
    let waiting = (0..15).map(|i| named(i).run_in(Duration::from_secs(86_400)));
    store.push(request(start, waiting.collect())).await.unwrap();
    let later = start + Duration::from_secs(1);
    let ended = job("l", 99).idempotency_key("ended");
    store.push(request(later, vec![ended])).await.unwrap();
    let turns = claim(&store, "q", 1).await.turns;
    assert!(done(&store, &turns).await[0].is_ok());
    let sweep = Sweep { now: Some(later + Duration::from_secs(60)), rows_max: 9 };
    for _ in 0..3 {
        store.sweep(sweep).await.unwrap();
    }
    let mut conn = session(&database).await;
    let names = "SELECT COUNT(*), SUM(name = 'ended') FROM seriatim_idempotency";
    let (all, of_ended): (u64, u64) = conn.query_first(names).await.unwrap().unwrap();
    assert_eq!((all, of_ended), (15, 0));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_expired_name_that_an_open_transaction_pushes_again_holds_up_no_sweep() {
    let database = new_database().await;
    let store = open(&database).await;
    declare(&store, Queue::fifo("q").idempotency_ttl(LEASE)).await;
    let named = |name: &str| job(name, 1).idempotency_key(name);
    let start = store.now().await.unwrap();
    let jobs = ["again", "old", "older"].map(named).to_vec();
    store.push(Push { now: Some(start), jobs }).await.unwrap();
    let turns = claim(&store, "q", 3).await.turns;
    assert!(done(&store, &turns).await.iter().all(Settled::is_ok));
    let later = Some(start + LEASE * 2);
    let mut user = session(&database).await;
    let mut options = TxOpts::new();
    options.with_isolation_level(IsolationLevel::ReadCommitted);
    let mut transaction = user.start_transaction(options).await.unwrap();
    let again = || Push { now: later, jobs: vec![named("again")] };
    let first = transaction.push(&*store, again()).await.unwrap();
    assert_eq!(first[0].status, PushStatus::Queued);
    let sweep = store.sweep(Sweep { now: later, rows_max: 9 });
    timeout(SOON, sweep).await.expect("it waits for nobody").unwrap();
    let names = "SELECT name FROM seriatim_idempotency";
    let left: Vec<String> = session(&database).await.query(names).await.unwrap();
    assert_eq!(left, ["again"]);
    Transaction::commit(transaction, &*store).await.unwrap();
    let second = store.push(again()).await.unwrap();
    assert_eq!((second[0].status, second[0].job_id), (PushStatus::Duplicate, first[0].job_id));
}

#[tokio::test]
async fn a_repeat_whose_key_is_not_throttled_any_more_leaves_no_name() {
    let database = new_database().await;
    let store = open(&database).await;
    declare(&store, Queue::fifo("q").throttle(Duration::from_secs(1))).await;
    let start = store.now().await.unwrap();
    let once = |at| Push { now: Some(at), jobs: vec![job("k", 1).idempotency_key("once")] };
    store.push(once(start)).await.unwrap();
    let turns = claim(&store, "q", 1).await.turns;
    assert!(done(&store, &turns).await[0].is_ok());
    // The job and what throttled its key are gone.
    let later = start + LEASE;
    store.sweep(Sweep { now: Some(later), rows_max: 9 }).await.unwrap();
    let again = store.push(once(later)).await.unwrap();
    assert_eq!(again[0].status, PushStatus::Duplicate);
    let names = "SELECT name FROM seriatim_idempotency";
    let left: Vec<String> = session(&database).await.query(names).await.unwrap();
    assert_eq!(left, ["once"]);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn new_idempotency_keys_that_several_push_at_once_store_one_job_each() {
    let database = new_database().await;
    let mut stores: Vec<SharedStore> = Vec::new();
    for _ in 0..3 {
        stores.push(open(&database).await);
    }
    race::new_names_race(stores).await;
}
