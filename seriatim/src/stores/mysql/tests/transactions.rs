//! Pushes and settles in the user's transaction.

use async_trait::async_trait;
use futures_util::future::BoxFuture;
use mysql_async::{IsolationLevel, TxOpts};

use super::*;
use crate::contract::transaction::tests::{self as both, Database};
use crate::contract::{PushStatus, Pushed, Queues, SharedStore, Transaction, Views};
use crate::{Client, Context, Result};

/// A separate database.
#[derive(Clone)]
struct Named(String);

impl Named {
    async fn new() -> Self {
        let named = Self(new_database().await);
        named.open().await;
        session(&named.0).await.query_drop("CREATE TABLE written (number int)").await.unwrap();
        named
    }
}

#[async_trait]
impl Database for Named {
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
        let mut session = session(&self.0).await;
        // As docs/mysql.md advises: otherwise it also blocks neighbouring new keys.
        let mut options = TxOpts::new();
        options.with_isolation_level(IsolationLevel::ReadCommitted);
        let mut transaction = session.start_transaction(options).await.unwrap();
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
        let mut session = session(&self.0).await;
        let mut transaction = session.start_transaction(TxOpts::default()).await.unwrap();
        for number in numbers {
            let insert = format!("INSERT INTO written VALUES ({number})");
            transaction.query_drop(insert).await.unwrap();
        }
        meanwhile.await;
        context.commit_with(transaction).await
    }

    async fn written(&self) -> i64 {
        let count = "SELECT COUNT(*) FROM written";
        session(&self.0).await.query_first(count).await.unwrap().unwrap()
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_push_in_the_users_transaction_holds_or_vanishes_with_it() {
    both::a_push_holds_or_vanishes(Named::new().await).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_transaction_open_on_running_keys_for_two_leases_holds_up_those_keys_alone() {
    let database = Named::new().await;
    both::a_transaction_open_on_running_keys_for_two_leases_holds_up_those_keys_alone(database)
        .await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_handlers_writes_and_the_end_of_its_job_hold_together() {
    both::writes_and_the_end_of_a_job_hold_together(Named::new().await).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_handlers_transaction_calls_the_hook_for_a_job_that_could_not_be_decoded() {
    both::the_hook_hears_of_a_job_that_could_not_be_decoded(Named::new().await).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_handler_whose_claim_was_taken_over_writes_nothing() {
    both::whose_claim_was_taken_over_writes_nothing(Named::new().await).await;
}

/// A queue that merges equal payloads, and a client for it.
async fn accumulating(database: &str) -> (Arc<Mysql>, Client) {
    let store = open(database).await;
    declare(&store, Queue::accumulate("q")).await;
    (store.clone(), Client::new(store))
}

#[tokio::test]
async fn a_transaction_that_sees_the_past_pushes_to_what_is_there_now() {
    let database = new_database().await;
    let (store, client) = accumulating(&database).await;
    push(&store, vec![job("k", 0)]).await;
    let mut user = session(&database).await;
    let mut options = TxOpts::new();
    options.with_isolation_level(IsolationLevel::RepeatableRead).with_consistent_snapshot(true);
    let mut transaction = user.start_transaction(options).await.unwrap();
    push(&store, vec![job("k", 1), job("k", 2), job("l", 3)]).await;
    let jobs = vec![job("k", 1), job("k", 2), job("l", 3), job("m", 4)];
    let pushed = client.push_in(&mut transaction, jobs).await.unwrap();
    transaction.commit().await.unwrap();
    let status: Vec<PushStatus> = pushed.iter().map(|pushed| pushed.status).collect();
    let merged = PushStatus::Merged;
    assert_eq!(status, [merged, merged, merged, PushStatus::Queued]);
    let mut taken: Vec<usize> =
        claim(&store, "q", 9).await.turns.iter().map(|turn| turn.jobs.len()).collect();
    taken.sort_unstable();
    assert_eq!(taken, [1, 1, 3]);
}

#[tokio::test]
async fn a_transaction_that_sees_the_past_settles_what_was_claimed_since() {
    let database = new_database().await;
    let (store, _) = accumulating(&database).await;
    let mut user = session(&database).await;
    let mut options = TxOpts::new();
    options.with_isolation_level(IsolationLevel::RepeatableRead).with_consistent_snapshot(true);
    let mut transaction = user.start_transaction(options).await.unwrap();
    push(&store, vec![job("k", 1), job("k", 2)]).await;
    let turn = claim(&store, "q", 1).await.turns.remove(0);
    push(&store, vec![job("k", 3)]).await;
    let turns = vec![Settlement::done(turn.lane, turn.token)];
    let settled = transaction.settle(&*store, Settle::now(turns)).await.unwrap();
    assert!(settled.iter().all(Settled::is_ok));
    Transaction::commit(transaction, &*store).await.unwrap();
    let next = claim(&store, "q", 1).await.turns.remove(0);
    assert_eq!(next.jobs.len(), 1, "what was pushed meanwhile");
}

#[tokio::test]
async fn a_transaction_that_sees_the_past_knows_which_jobs_of_expired_names_are_stored_now() {
    let database = new_database().await;
    let store = open(&database).await;
    declare(&store, Queue::parallel("q").idempotency_ttl(LEASE)).await;
    let start = store.now().await.unwrap();
    let at = |leases, names: &[&str]| {
        let named = |name: &&str| Job::new("q", &1).unwrap().idempotency_key(*name);
        let jobs = names.iter().map(named).collect();
        Push { now: Some(start + LEASE * leases), jobs }
    };
    let statuses = |pushed: Vec<Pushed>| pushed.iter().map(|one| one.status).collect::<Vec<_>>();
    store.push(at(0, &["ended"])).await.unwrap();
    let mut user = session(&database).await;
    let mut options = TxOpts::new();
    options.with_isolation_level(IsolationLevel::RepeatableRead).with_consistent_snapshot(true);
    let mut transaction = user.start_transaction(options).await.unwrap();
    let turns = claim(&store, "q", 1).await.turns;
    assert!(done(&store, &turns).await[0].is_ok());
    store.push(at(0, &["waits"])).await.unwrap();
    let pushed = transaction.push(&*store, at(2, &["waits", "ended", "own"])).await.unwrap();
    let (queued, repeat) = (PushStatus::Queued, PushStatus::Duplicate);
    assert_eq!(statuses(pushed), [repeat, queued, queued]);
    let pushed = transaction.push(&*store, at(4, &["waits", "ended", "own"])).await.unwrap();
    assert_eq!(statuses(pushed), [repeat, repeat, repeat]);
    Transaction::commit(transaction, &*store).await.unwrap();
    assert_eq!(store.stats(None).await.unwrap()[0].jobs, 3);
}

#[tokio::test]
async fn a_push_that_is_refused_leaves_the_users_transaction_as_it_was() {
    let database = new_database().await;
    let store = open(&database).await;
    declare(&store, Queue::fifo("q")).await;
    push(&store, vec![job("k", 0)]).await;
    let client = Client::new(store.clone());
    let mut user = session(&database).await;
    let mut transaction = user.start_transaction(TxOpts::default()).await.unwrap();
    client.push_in(&mut transaction, vec![job("a", 1)]).await.unwrap();
    let elsewhere = vec![job("b", 2), job("k", 3).node("other")];
    let error = client.push_in(&mut transaction, elsewhere).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Conflict, "{error}");
    transaction.commit().await.unwrap();
    let keys: Vec<String> = user.query("SELECT k FROM seriatim_lane ORDER BY k").await.unwrap();
    assert_eq!(keys, ["a", "k"]);
}

#[tokio::test]
async fn an_open_transaction_keeps_nobody_from_new_queues_and_other_keys() {
    let database = new_database().await;
    let store = open(&database).await;
    let client = Client::new(store.clone());
    let mut user = session(&database).await;
    let mut transaction = user.start_transaction(TxOpts::default()).await.unwrap();
    // The push also creates the queue.
    client.push_in(&mut transaction, vec![job("k", 1)]).await.unwrap();
    declare(&store, Queue::parallel("new")).await;
    store.pause_queue("q".into(), true).await.unwrap();
    store.pause_queue("q".into(), false).await.unwrap();
    push(&store, vec![job("l", 2)]).await;
    assert_eq!(claim(&store, "q", 9).await.turns.len(), 1);
    transaction.commit().await.unwrap();
    assert_eq!(claim(&store, "q", 9).await.turns.len(), 1);
}

#[tokio::test]
async fn a_transaction_that_the_server_has_ended_is_refused() {
    let database = new_database().await;
    let store = open(&database).await;
    declare(&store, Queue::fifo("q")).await;
    let client = Client::new(store.clone());
    let mut user = session(&database).await;
    let mut transaction = user.start_transaction(TxOpts::default()).await.unwrap();
    // As after a deadlock.
    transaction.query_drop("ROLLBACK").await.unwrap();
    let error = client.push_in(&mut transaction, vec![job("k", 1)]).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Unavailable, "{error}");
    assert_eq!(store.stats(None).await.unwrap()[0].jobs, 0);
}

#[tokio::test]
async fn a_transaction_of_another_database_is_refused() {
    let (ours, other) = (new_database().await, new_database().await);
    let store = open(&ours).await;
    open(&other).await;
    let mut user = session(&other).await;
    for store in [store as SharedStore, Arc::new(crate::store::Memory::new())] {
        let client = Client::new(store);
        let mut transaction = user.start_transaction(TxOpts::default()).await.unwrap();
        let error = client.push_in(&mut transaction, vec![job("k", 1)]).await.unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Unsupported, "{error}");
        transaction.rollback().await.unwrap();
    }
}

#[tokio::test]
async fn a_turn_named_twice_is_refused_in_the_users_transaction_too() {
    let database = new_database().await;
    let store = open(&database).await;
    push(&store, vec![job("k", 1)]).await;
    let turn = claim(&store, "q", 1).await.turns.remove(0);
    let mut session = session(&database).await;
    let mut transaction = session.start_transaction(TxOpts::default()).await.unwrap();
    let end = || Settlement::done(turn.lane, turn.token);
    let settle = Settle::now(vec![end(), end()]);
    let refused = transaction.settle(&*store, settle).await.unwrap_err();
    assert_eq!(refused.kind(), ErrorKind::Invalid);
    transaction.rollback().await.unwrap();
    assert!(done(&store, &[turn]).await[0].is_ok());
}
