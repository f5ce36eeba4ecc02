//! Tests beyond the conformance suite: several concurrent sessions.

mod busy;
mod connecting;
mod definitions;
mod deletion;
mod emptied;
mod failover;
mod fast_path;
mod figures;
mod hanging;
mod inbox;
mod merging;
mod names;
mod order;
mod partly;
mod pausing;
mod plans;
mod reading;
mod rescue;
mod steps;
mod taken;
mod transactions;
mod upgrade;
mod waking;

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use mysql_async::Conn;
use mysql_async::prelude::Queryable;

use super::Mysql;
use crate::contract::{
    Claim, Claimed, Consumer, Declare, Fleet, Heartbeat, Lease, NodeInfo, Producer, Push, Queues,
    Settle, Settled, SharedStore, Store, Views,
};
use crate::stores::race;
use crate::{
    ErrorKind, Job, Merge, Queue, Timestamp,
    store::{Settlement, Token, Turn},
};

const LEASE: Duration = Duration::from_secs(60);
/// Less than the wait of any operation that does not skip locked lanes.
const SOON: Duration = Duration::from_secs(8);

fn url() -> String {
    std::env::var("SERIATIM_TEST_MYSQL").expect(
        "SERIATIM_TEST_MYSQL names no server: run cargo xtask test, which starts the servers",
    )
}

/// The address of another database on the test server.
fn address(database: &str) -> String {
    let url = url();
    let (server, _) = url.rsplit_once('/').expect("the address ends with a database");
    format!("{server}/{database}")
}

async fn new_database() -> String {
    static NEXT: AtomicU32 = AtomicU32::new(0);
    let micros = Timestamp::of_this_machine().as_micros();
    let number = NEXT.fetch_add(1, Ordering::Relaxed);
    let name = format!("unit_{micros}_{}_{number}", std::process::id());
    let mut session = Mysql::connect(&url()).await.unwrap().session().await.unwrap();
    let create = format!("CREATE DATABASE {name} CHARACTER SET utf8mb4 COLLATE utf8mb4_bin");
    session.query_drop(create).await.expect("a database");
    name
}

/// Opens the store as another process would.
async fn open(database: &str) -> Arc<Mysql> {
    let store = Mysql::connect(&address(database)).await.expect("the server can be reached");
    store.migrate().await.expect("the store is set up");
    let node = NodeInfo::new("n".into(), LEASE);
    store.heartbeat(Heartbeat { now: None, node, beats: Vec::new() }).await.expect("it registers");
    Arc::new(store)
}

async fn declare(store: &Mysql, queue: Queue) {
    store.declare(Declare { now: None, queues: vec![queue] }).await.unwrap();
}

async fn push(store: &Mysql, jobs: Vec<Job>) {
    store.push(Push { now: None, jobs }).await.unwrap();
}

fn claim_request(queue: &str, lanes_max: usize) -> Claim {
    Claim::new(queue, "n", lanes_max, Lease::Node { ttl: LEASE })
}

async fn claim(store: &Mysql, queue: &str, lanes_max: usize) -> Claimed {
    store.claim(claim_request(queue, lanes_max)).await.unwrap()
}

async fn done(store: &Mysql, turns: &[Turn]) -> Vec<Settled> {
    let turns = turns.iter().map(|turn| Settlement::done(turn.lane, turn.token)).collect();
    store.settle(Settle::now(turns)).await.unwrap()
}

fn job(key: &str, tag: u32) -> Job {
    Job::new("q", &tag).unwrap().key(key)
}

/// A direct session.
async fn session(database: &str) -> Conn {
    Conn::from_url(address(database)).await.unwrap()
}

/// Returns when this number of sessions of the database wait for a lock.
async fn until_waiting(conn: &mut Conn, database: &str, sessions: usize) {
    let waiting = format!(
        "SELECT COUNT(*) FROM information_schema.innodb_trx t \
         JOIN information_schema.processlist p ON p.id = t.trx_mysql_thread_id \
         WHERE t.trx_state = 'LOCK WAIT' AND p.db = '{database}'"
    );
    // The server answers from a copy, which it renews only if nobody queried it for 0.1 s. Other tests do, too: pauses of
    // one length could miss each gap between theirs.
    let pause = "DO SLEEP(0.12 + 0.5 * RAND())";
    while conn.query_first::<usize, _>(&waiting).await.unwrap().unwrap_or(0) < sessions {
        conn.query_drop(pause).await.unwrap();
    }
}

/// Writes are sent together, and the counters of a call are written last.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_settle_of_which_the_last_statement_fails_is_an_error_and_undone() {
    let database = new_database().await;
    let store = open(&database).await;
    declare(&store, Queue::fifo("q")).await;
    push(&store, vec![job("k", 1)]).await;
    let turn = claim(&store, "q", 1).await.turns.remove(0);
    let mut other = session(&database).await;
    let fails = "CREATE TRIGGER fails BEFORE INSERT ON seriatim_delta FOR EACH ROW \
                 SIGNAL SQLSTATE '45000' SET MESSAGE_TEXT = 'not today'";
    other.query_drop(fails).await.unwrap();
    let turns = vec![Settlement::done(turn.lane, turn.token)];
    store.settle(Settle::now(turns)).await.unwrap_err();
    other.query_drop("DROP TRIGGER fails").await.unwrap();
    assert!(done(&store, &[turn]).await[0].is_ok(), "the turn goes on under its token");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn several_nodes_may_migrate_at_once() {
    for _ in 0..5 {
        let database = new_database().await;
        let one = |database: String| tokio::spawn(async move { open(&database).await });
        let nodes: Vec<_> = (0..4).map(|_| one(database.clone())).collect();
        for node in nodes {
            assert!(node.await.unwrap().queues().await.unwrap().is_empty());
        }
    }
}

#[tokio::test]
async fn a_statement_that_fails_behind_others_is_told() {
    let store = open(&new_database().await).await;
    let mut loan = store.inner.pool.lend().await.unwrap_or_else(|_| panic!("a connection"));
    let sql = "START TRANSACTION; INSERT INTO seriatim_token VALUES (1); INSERT INTO seriatim_token VALUES (1); COMMIT";
    assert!(loan.run(sql).await.is_err_and(|fail| fail.is_taken()));
}

#[tokio::test]
async fn a_store_of_another_version_is_refused() {
    let database = new_database().await;
    let store = open(&database).await;
    for (version, remedy) in [(99, "a newer one"), (3, "empty it")] {
        let other = format!("UPDATE seriatim_meta SET version = {version}");
        session(&database).await.query_drop(other).await.unwrap();
        let error = store.migrate().await.unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Conflict);
        let (found, ours) = (format!("has version {version}"), "knows version 13");
        let message = error.to_string();
        assert!([&*found, ours, remedy].iter().all(|part| message.contains(part)), "{message}");
    }
}

#[tokio::test]
async fn a_step_of_a_migration_that_was_cut_off_is_repeated() {
    let database = new_database().await;
    let store = open(&database).await;
    let before = "UPDATE seriatim_meta SET version = 7";
    session(&database).await.query_drop(before).await.unwrap();
    store.migrate().await.unwrap();
    let version = "SELECT version FROM seriatim_meta";
    let version: Option<i64> = session(&database).await.query_first(version).await.unwrap();
    assert_eq!(version, Some(13));
}

async fn pushes_and_claims_race(queue: Queue, jobs_each: u32) {
    let (database, mut stores) = (new_database().await, Vec::new());
    for _ in 0..race::STORES {
        stores.push(open(&database).await);
    }
    let shared = stores.iter().map(|store| store.clone() as SharedStore).collect();
    race::pushes_and_claims_race(shared, queue, jobs_each, async |_| {}).await;
    assert!(stores.iter().all(|store| store.repeated() == 0), "no deadlock");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn nothing_is_lost_between_pushes_and_claims_in_accumulate() {
    pushes_and_claims_race(Queue::accumulate("q").merge(Merge::None), 100).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn nothing_is_lost_between_pushes_and_claims_in_fifo() {
    pushes_and_claims_race(Queue::fifo("q").take(3), 60).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_push_and_the_settle_of_its_lane_do_not_strand_the_job() {
    for push_first in [true, false] {
        let database = new_database().await;
        let store = open(&database).await;
        declare(&store, Queue::fifo("q")).await;
        push(&store, vec![job("k", 1)]).await;
        let turn = claim(&store, "q", 1).await.turns.remove(0);
        let mut holder = session(&database).await;
        let mut watcher = session(&database).await;
        let lock = "START TRANSACTION; SELECT * FROM seriatim_lane FOR UPDATE";
        holder.query_drop(lock).await.unwrap();
        let pusher =
            |store: Arc<Mysql>| tokio::spawn(async move { push(&store, vec![job("k", 2)]).await });
        let settler = |store: Arc<Mysql>, turn: Turn| {
            tokio::spawn(async move { assert!(done(&store, &[turn]).await[0].is_ok()) })
        };
        let (first, second);
        if push_first {
            first = pusher(store.clone());
            until_waiting(&mut watcher, &database, 1).await;
            second = settler(store.clone(), turn);
        } else {
            first = settler(store.clone(), turn);
            until_waiting(&mut watcher, &database, 1).await;
            second = pusher(store.clone());
        }
        until_waiting(&mut watcher, &database, 2).await;
        holder.query_drop("COMMIT").await.unwrap();
        first.await.unwrap();
        second.await.unwrap();
        let turns = claim(&store, "q", 1).await.turns;
        assert_eq!(turns.len(), 1, "push first: {push_first}");
        assert_eq!(turns[0].jobs[0].payload.decode::<u32>().unwrap(), 2);
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_settle_that_is_sent_twice_at_once_is_carried_out_once() {
    let database = new_database().await;
    let store = open(&database).await;
    declare(&store, Queue::fifo("q")).await;
    push(&store, vec![job("k", 1), job("k", 2)]).await;
    let turn = claim(&store, "q", 1).await.turns.remove(0);
    let mut holder = session(&database).await;
    let lock = "START TRANSACTION; SELECT * FROM seriatim_lane FOR UPDATE";
    holder.query_drop(lock).await.unwrap();
    let settler = |store: Arc<Mysql>, turn: Turn| {
        tokio::spawn(async move { u32::from(done(&store, &[turn]).await[0].is_ok()) })
    };
    let settlers = [settler(store.clone(), turn.clone()), settler(store.clone(), turn)];
    until_waiting(&mut session(&database).await, &database, 2).await;
    holder.query_drop("COMMIT").await.unwrap();
    let mut carried_out = 0;
    for settler in settlers {
        carried_out += settler.await.unwrap();
    }
    assert_eq!(carried_out, 1);
    assert_eq!(store.stats(None).await.unwrap()[0].processed, 1);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_busy_pusher_does_not_hold_up_a_claim() {
    let database = new_database().await;
    let store = open(&database).await;
    declare(&store, Queue::fifo("q")).await;
    push(&store, vec![job("a", 1), job("b", 2)]).await;
    let mut holder = session(&database).await;
    let lock = "SET SESSION TRANSACTION ISOLATION LEVEL READ COMMITTED; START TRANSACTION; \
                SELECT * FROM seriatim_lane WHERE q = 1 AND k = 'a' FOR UPDATE";
    holder.query_drop(lock).await.unwrap();
    let claimed = claim(&store, "q", 10).await;
    assert_eq!(claimed.turns.iter().map(|t| t.key.as_deref()).collect::<Vec<_>>(), [Some("b")]);
    assert!(claimed.next_due.is_some(), "it must look again");
    holder.query_drop("ROLLBACK").await.unwrap();
    assert_eq!(claim(&store, "q", 10).await.turns.len(), 1);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_idempotency_key_counts_among_concurrent_pushes_too() {
    let database = new_database().await;
    let store = open(&database).await;
    for round in 0..20 {
        let names: Vec<String> = (0..10).map(|i| format!("{round}-{i}")).collect();
        let pusher = |reverse: bool| {
            let (store, mut names) = (store.clone(), names.clone());
            if reverse {
                names.reverse();
            }
            let jobs = names.iter().map(|n| Job::new("loose", &1).unwrap().idempotency_key(n));
            let jobs = jobs.collect();
            tokio::spawn(async move { store.push(Push { now: None, jobs }).await.unwrap() })
        };
        let pushers = [pusher(false), pusher(true), pusher(false)];
        let mut ids = std::collections::HashSet::new();
        for pusher in pushers {
            ids.extend(pusher.await.unwrap().iter().map(|pushed| pushed.job_id));
        }
        assert_eq!(ids.len(), names.len());
    }
    assert_eq!(store.repeated(), 0, "no deadlock");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn tokens_grow_though_the_counter_was_lost() {
    let database = new_database().await;
    let store = open(&database).await;
    push(&store, vec![job("a", 1), job("b", 1), job("c", 1)]).await;
    let first = claim(&store, "q", 1).await.turns.remove(0).token;
    assert!(first.0 > 1_700_000_000_000_000, "the tokens are at the clock: {first:?}");
    // As after a failover to a server without the last ones.
    let lose = "DROP TABLE seriatim_token; \
                CREATE TABLE seriatim_token (tok BIGINT NOT NULL AUTO_INCREMENT PRIMARY KEY)";
    session(&database).await.query_drop(lose).await.unwrap();
    let claimers = [store.clone(), open(&database).await];
    let claimers = claimers.map(|store| {
        tokio::spawn(async move { claim(&store, "q", 1).await.turns.remove(0).token })
    });
    for claimer in claimers {
        assert!(claimer.await.unwrap() > first);
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_declaration_waits_for_pushes_and_converts_what_they_pushed() {
    for round in 0..10 {
        let database = new_database().await;
        let store = open(&database).await;
        push(&store, vec![job("k", 0)]).await;
        let pusher = {
            let store = store.clone();
            tokio::spawn(async move {
                for _ in 0..20 {
                    push(&store, vec![job("k", round), job("z", round)]).await;
                }
            })
        };
        declare(&store, Queue::accumulate("q")).await;
        pusher.await.unwrap();
        let turns = claim(&store, "q", 10).await.turns;
        let counts: Vec<usize> = turns.iter().map(|turn| turn.jobs.len()).collect();
        let (k, z) = (if round == 0 { 1 } else { 2 }, 1);
        assert_eq!(counts, [k, z], "equal payloads are one, whenever they were pushed");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn pushes_in_another_process_are_heard() {
    let database = new_database().await;
    let (one, other) = (open(&database).await, open(&database).await);
    let mut wakeups = other.wakeups();
    // There is no signal that the other process is listening yet.
    for i in 0..100 {
        wakeups.forget();
        push(&one, vec![job("k", i)]).await;
        if wakeups.wait(Duration::from_millis(200)).await.is_some() {
            return;
        }
    }
    panic!("the other process heard nothing");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_broken_connection_is_replaced() {
    let database = new_database().await;
    let store = open(&database).await;
    let mut own = session("information_schema").await;
    let sessions = format!("SELECT id FROM processlist WHERE db = '{database}'");
    for id in own.query::<u64, _>(sessions).await.unwrap() {
        own.query_drop(format!("KILL {id}")).await.unwrap();
    }
    let mut errors = Vec::new();
    while let Err(error) = store.now().await {
        assert_eq!(error.kind(), ErrorKind::Unavailable, "{error}");
        errors.push(error);
        assert!(errors.len() < 20, "{errors:?}");
    }
    push(&store, vec![job("k", 1)]).await;
    store.close().await.unwrap();
    assert_eq!(store.now().await.unwrap_err().kind(), ErrorKind::Unavailable);
}

#[tokio::test]
async fn a_server_that_can_only_be_read_is_read() {
    use seriatim_testkit::{Mysql as Server, MysqlOptions};
    let options = MysqlOptions { durable: false, ..MysqlOptions::default() };
    let server = Server::start_with(options).unwrap();
    let store = Mysql::connect(&server.url()).await.unwrap();
    store.migrate().await.unwrap();
    let user = "CREATE USER reader IDENTIFIED BY 'hunter2'; \
                GRANT SELECT, INSERT, UPDATE, DELETE ON seriatim.* TO reader; SET GLOBAL read_only = 1";
    Conn::from_url(server.url()).await.unwrap().query_drop(user).await.unwrap();
    let url = server.url().replace("seriatim@", "reader:hunter2@");
    let store = Mysql::connect(&url).await.unwrap();
    assert!(store.queues().await.unwrap().is_empty());
    let refused = store.push(Push { now: None, jobs: vec![job("k", 1)] }).await.unwrap_err();
    assert_eq!(refused.kind(), ErrorKind::ReadOnly, "{refused}");
}

#[tokio::test]
async fn what_was_acknowledged_is_there_after_a_crash_of_the_server() {
    use seriatim_testkit::{Mysql as Server, MysqlOptions};
    let options = MysqlOptions { durable: false, ..MysqlOptions::default() };
    let mut server = Server::start_with(options).unwrap();
    let store = Mysql::connect(&server.url()).await.unwrap();
    store.migrate().await.unwrap();
    push(&store, vec![job("k", 1)]).await;
    server.kill().unwrap();
    let error = store.now().await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Unavailable, "{error}");
    server.restart().unwrap();
    push(&store, vec![job("k", 2)]).await;
    assert_eq!(store.stats(None).await.unwrap()[0].jobs, 2);
}

#[tokio::test]
async fn errors_say_what_to_do_and_hold_no_password() {
    let kind = |result: crate::Result<Mysql>| {
        let error = result.map(drop).unwrap_err();
        assert!(!format!("{error} {error:?}").contains("hunter2"), "{error:?}");
        error.kind()
    };
    let unreachable = Mysql::connect("mysql://me:hunter2@127.0.0.1:1/db").await;
    assert_eq!(kind(unreachable), ErrorKind::Unavailable);
    let unreadable = Mysql::connect("mysql://me:hunter2@host:hunter2/db").await;
    assert_eq!(kind(unreadable), ErrorKind::Invalid);
    let nowhere = Mysql::connect("mariadb://me:hunter2@127.0.0.1").await;
    assert_eq!(kind(nowhere), ErrorKind::Invalid);
    assert_eq!(kind(Mysql::connect(&address("missing")).await), ErrorKind::Invalid);
    let empty = Mysql::connect(&address(&new_database().await)).await.unwrap();
    let error = empty.queues().await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::NotFound);
    assert!(error.to_string().contains("migrate"), "{error}");
}

#[tokio::test]
async fn a_lane_of_many_jobs_is_read_in_part() {
    let database = new_database().await;
    let store = open(&database).await;
    declare(&store, Queue::accumulate("q")).await;
    push(&store, (0..500).map(|i| job("k", i).score(f64::from(500 - i))).collect()).await;
    let merged = store.push(Push { now: None, jobs: vec![job("k", 7)] }).await.unwrap();
    assert_eq!(merged[0].status, crate::contract::PushStatus::Merged);
    let turn = claim(&store, "q", 1).await.turns.remove(0);
    let tags: Vec<u32> = turn.jobs.iter().map(|job| job.payload.decode().unwrap()).collect();
    assert_eq!(tags, (0..500).rev().collect::<Vec<_>>());
    push(&store, (400..600).map(|i| job("k", i)).collect()).await;
    let outcome = crate::Outcome::Retry { error: "no".into(), retry_in: Some(Duration::ZERO) };
    let settlement =
        crate::store::plan(&turn, &Queue::accumulate("q"), &outcome.into(), &|_| LEASE);
    assert!(store.settle(Settle::now(vec![settlement])).await.unwrap()[0].is_ok());
    assert_eq!(claim(&store, "q", 1).await.turns[0].jobs.len(), 600, "equal ones are one");
}

#[tokio::test]
async fn a_push_beyond_the_last_job_number_is_refused() {
    let database = new_database().await;
    let store = open(&database).await;
    declare(&store, Queue::fifo("q")).await;
    let last = format!("ALTER TABLE seriatim_number AUTO_INCREMENT = {}", (1_u64 << 43) - 1);
    session(&database).await.query_drop(last).await.unwrap();
    push(&store, (0..16).map(|i| job("k", i)).collect()).await;
    let beyond = store.push(Push { now: None, jobs: vec![job("k", 16)] }).await.unwrap_err();
    assert_eq!(beyond.kind(), ErrorKind::Full, "{beyond}");
    assert_eq!(store.stats(None).await.unwrap()[0].jobs, 16);
}
