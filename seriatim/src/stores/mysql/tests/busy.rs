//! Lanes that a user's open transaction keeps locked.

use mysql_async::{IsolationLevel, TxOpts};
use tokio::time::timeout;

use super::order::Named;
use super::*;
use crate::contract::{Beat, LaneQuery, Rescue, SharedStore, Sweep};
use crate::store::Fate;
use crate::stores::contended;
use crate::{Client, Mode};

/// A session with a lock on this lane.
async fn lock(database: &str, lane: u64) -> Conn {
    let mut holder = session(database).await;
    let lock = format!(
        "SET SESSION TRANSACTION ISOLATION LEVEL READ COMMITTED; START TRANSACTION; \
         SELECT * FROM seriatim_lane WHERE id = {lane} FOR UPDATE"
    );
    holder.query_drop(lock).await.unwrap();
    holder
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_open_transaction_on_a_running_lane_holds_up_the_settle_of_no_other() {
    contended::a_locked_lane_holds_up_the_settle_of_no_other(&Named::new().await).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_open_transaction_on_a_key_holds_up_the_expiry_of_no_other() {
    contended::a_locked_lane_holds_up_the_expiry_of_no_other_job(&Named::new().await).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_sweep_deletes_no_younger_dead_jobs_for_older_ones_that_another_session_has_locked() {
    let database = new_database().await;
    let store = open(&database).await;
    declare(&store, Queue::fifo("q").retain_dead_max(2)).await;
    push(&store, ["a", "b", "c", "d"].map(|key| job(key, 1)).to_vec()).await;
    let turns = claim(&store, "q", 4).await.turns;
    let bury =
        |turn: &Turn| Settlement { rest: Fate::Bury, ..Settlement::done(turn.lane, turn.token) };
    let buried = store.settle(Settle::now(turns.iter().map(bury).collect())).await.unwrap();
    assert!(buried.len() == 4 && buried.iter().all(Settled::is_ok));
    let mut holder = session(&database).await;
    let oldest = "SELECT seq FROM seriatim_ended ORDER BY at, seq LIMIT 2";
    let oldest: Vec<u64> = holder.query(oldest).await.unwrap();
    let lock = format!(
        "SET SESSION TRANSACTION ISOLATION LEVEL READ COMMITTED; START TRANSACTION; \
         SELECT * FROM seriatim_ended FORCE INDEX (PRIMARY) WHERE seq IN ({}, {}) FOR UPDATE",
        oldest[0], oldest[1]
    );
    holder.query_drop(lock).await.unwrap();
    let sweep = Sweep { now: None, rows_max: 100 };
    let swept = store.sweep(sweep).await.unwrap().dead;
    assert!(swept.is_empty(), "the two others are within the limit: {swept:?}");
    holder.query_drop("ROLLBACK").await.unwrap();
    let swept = store.sweep(sweep).await.unwrap().dead;
    assert_eq!(swept.iter().map(|id| id.seq()).collect::<Vec<_>>(), oldest);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_open_transaction_on_a_waiting_lane_holds_up_no_settle_where_little_waits() {
    let database = new_database().await;
    let store = open(&database).await;
    for mode in [Mode::Fifo, Mode::Parallel] {
        let queue = Queue::new(mode.to_string(), mode);
        declare(&store, queue.clone()).await;
        let job = |key: u32| {
            let job = Job::new(&*queue.name, &key).unwrap();
            if mode.is_keyed() { job.key(format!("k{key}")) } else { job }
        };
        push(&store, (0..13).map(job).collect()).await;
        let ours = claim(&store, &queue.name, 6).await.turns;
        let others = claim(&store, &queue.name, 6).await.turns;
        let waiting = store.lanes(LaneQuery::new(&*queue.name)).await.unwrap().rows;
        let waiting = waiting.iter().find(|row| row.token.is_none()).unwrap();
        let _holder = lock(&database, waiting.lane.number).await;
        for (settles, turns) in [(&store, ours), (&open(&database).await, others)] {
            let settled = timeout(SOON, done(settles, &turns)).await.expect("it waits for nobody");
            assert!(settled.iter().all(Settled::is_ok), "{mode}");
        }
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn n3_an_open_transaction_with_many_new_jobs_holds_up_no_other_push() {
    let database = new_database().await;
    let store = open(&database).await;
    declare(&store, Queue::parallel("q")).await;
    let jobs = || (0..40).map(|tag| Job::new("q", &tag).unwrap()).collect::<Vec<_>>();
    let client = Client::new(store.clone() as SharedStore);
    let mut holder = session(&database).await;
    let mut transaction = holder.start_transaction(TxOpts::default()).await.unwrap();
    client.push_in(&mut transaction, jobs()).await.unwrap();
    timeout(SOON, push(&store, jobs())).await.expect("it waits for nobody");
    transaction.commit().await.unwrap();
    assert_eq!(claim(&store, "q", 100).await.turns.len(), 80);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn pushes_that_wait_for_a_lane_leave_connections_to_other_calls() {
    let database = new_database().await;
    open(&database).await;
    let store = Mysql::connect(&format!("{}?connections=4", address(&database))).await.unwrap();
    let store = Arc::new(store);
    declare(&store, Queue::fifo("q")).await;
    push(&store, vec![job("a", 1)]).await;
    let turn = claim(&store, "q", 1).await.turns.remove(0);
    let mut holder = lock(&database, turn.lane.number).await;
    let pushing = (2..10).map(|tag| {
        let store = store.clone();
        tokio::spawn(async move { push(&store, vec![job("a", tag)]).await })
    });
    let pushing: Vec<_> = pushing.collect();
    until_waiting(&mut session(&database).await, &database, 3).await;
    timeout(SOON, claim(&store, "q", 1)).await.expect("it waits for nobody");
    holder.query_drop("ROLLBACK").await.unwrap();
    for push in pushing {
        push.await.unwrap();
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_settle_waits_for_a_short_lock_in_line_and_its_connection_waits_as_before() {
    let database = new_database().await;
    let store = Mysql::connect(&format!("{}?connections=1", address(&database))).await.unwrap();
    let store = Arc::new(store);
    open(&database).await;
    declare(&store, Queue::fifo("q")).await;
    push(&store, vec![job("a", 1)]).await;
    let turn = claim(&store, "q", 1).await.turns.remove(0);
    let end = Settlement::done(turn.lane, turn.token);
    let mut watcher = session(&database).await;
    loop {
        let mut holder = lock(&database, turn.lane.number).await;
        let request = Settle { skip_locked: true, ..Settle::now(vec![end.clone()]) };
        let one = store.clone();
        let settle = tokio::spawn(async move { one.settle(request).await.unwrap() });
        until_waiting(&mut watcher, &database, 1).await;
        holder.query_drop("ROLLBACK").await.unwrap();
        let settled = settle.await.unwrap();
        let mut loan = store.inner.pool.lend().await.ok().unwrap();
        let rows = loan.rows("SELECT @@innodb_lock_wait_timeout").await.ok().unwrap();
        let wait: Vec<String> = rows.into_iter().map(mysql_async::from_row).collect();
        assert_eq!(wait, ["10"]);
        loan.give_back();
        // A slow machine may let the wait end first.
        if settled[0].is_ok() {
            break;
        }
    }
}

/// Else the server may see only after the next attempt that the connection is gone, and the lanes that the first one has
/// locked are left out.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_settle_that_waits_in_vain_keeps_its_connection() {
    let database = new_database().await;
    let store = open(&database).await;
    for mode in [Mode::Parallel, Mode::Fifo] {
        let queue = Queue::new(mode.to_string(), mode);
        declare(&store, queue.clone()).await;
        let job = |key: &str| {
            let job = Job::new(&*queue.name, &1).unwrap();
            if mode.is_keyed() { job.key(key) } else { job }
        };
        push(&store, ["a", "b"].map(job).into()).await;
        let turns = claim(&store, &queue.name, 2).await.turns;
        let ends = turns.iter().map(|turn| Settlement::done(turn.lane, turn.token)).collect();
        let mut holder = lock(&database, turns[1].lane.number).await;
        let connection = async || {
            let answers = store.inner.pool.ask("SELECT CONNECTION_ID()").await.unwrap();
            let row = answers.into_iter().next().and_then(|answer| answer.rows.into_iter().next());
            mysql_async::from_row::<u64>(row.unwrap())
        };
        let before = connection().await;
        let settle = Settle { skip_locked: true, ..Settle::now(ends) };
        let settled = store.settle(settle).await.unwrap();
        assert_eq!(settled, [Settled::ok(Vec::new()), Settled::Busy], "{mode}");
        assert_eq!(connection().await, before, "{mode}");
        holder.query_drop("ROLLBACK").await.unwrap();
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_lease_of_a_claims_own_is_extended_though_a_transaction_has_the_lane_locked() {
    let database = new_database().await;
    let store = open(&database).await;
    declare(&store, Queue::fifo("q")).await;
    push(&store, vec![job("a", 1)]).await;
    let start = store.now().await.unwrap();
    let at = |tenths: u32| Some(start + LEASE / 10 * tenths);
    let own = Claim { now: at(0), lease: Lease::Own { ttl: LEASE }, ..claim_request("q", 1) };
    let turn = store.claim(own).await.unwrap().turns.remove(0);
    let mut holder = lock(&database, turn.lane.number).await;
    let node = |name: &str| NodeInfo::new(name.into(), LEASE * 9);
    for tenths in [5, 4] {
        let (lane, token) = (turn.lane, turn.token);
        let beats = vec![Beat { lane, token, progress: None, extend: Some(LEASE) }];
        let beat = store.heartbeat(Heartbeat { now: at(tenths), node: node("n"), beats });
        assert!(timeout(SOON, beat).await.expect("it does not wait").unwrap().lost.is_empty());
    }
    holder.query_drop("ROLLBACK").await.unwrap();
    let beats = Vec::new();
    store.heartbeat(Heartbeat { now: at(0), node: node("rescuer"), beats }).await.unwrap();
    for (tenths, rescued) in [(14, 0), (16, 1)] {
        let (now, node) = (at(tenths), node("rescuer").id);
        let rescue = Rescue { now, node, lease: LEASE, lanes_max: 9, ticket: 0 };
        let turns = store.rescue(rescue).await.unwrap();
        assert_eq!(turns.len(), rescued, "after {tenths} tenths of the lease");
    }
    store.sweep(Sweep { now: at(20), rows_max: 100 }).await.unwrap();
    let left: Option<u32> =
        holder.query_first("SELECT COUNT(*) FROM seriatim_extension").await.unwrap();
    assert_eq!(left, Some(0));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_push_in_an_open_transaction_holds_up_no_new_key_beside_its_own() {
    let database = new_database().await;
    let store = open(&database).await;
    declare(&store, Queue::fifo("q")).await;
    push(&store, vec![job("m", 1)]).await;
    let mut user = session(&database).await;
    let mut options = TxOpts::new();
    options.with_isolation_level(IsolationLevel::ReadCommitted);
    let mut transaction = user.start_transaction(options).await.unwrap();
    let jobs = vec![job("m", 2), job("t", 3)];
    Client::new(store.clone()).push_in(&mut transaction, jobs).await.unwrap();
    let others = ["a", "l", "n", "s", "u", "z"].map(|key| job(key, 4)).to_vec();
    timeout(SOON, push(&store, others)).await.expect("it waits for nobody");
    transaction.commit().await.unwrap();
    assert_eq!(store.stats(None).await.unwrap()[0].jobs, 9);
}
