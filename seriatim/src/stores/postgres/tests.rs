//! Tests beyond the conformance suite: several concurrent sessions.

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use tokio::sync::mpsc::UnboundedReceiver;

use super::Postgres;
use super::pool::in_schema;
use crate::contract::{
    Claim, Claimed, Consumer, Declare, Fleet, Heartbeat, Lease, NodeInfo, Producer, Push, Queues,
    Settle, Settled, SharedStore, Store, Views, Wake,
};
use crate::stores::race;
use crate::{
    ErrorKind, Job, Merge, Outcome, Queue, Timestamp,
    store::{Settlement, Token, Turn},
};

mod batches;
mod connecting;
mod deep;
mod deletion;
mod emptied;
mod failover;
mod giving_up;
mod inbox;
mod joining;
mod light;
mod listing;
mod locks;
mod pausing;
mod reading;
mod sharing;
mod tally;
mod transactions;
mod upgrade;
mod waking;

const LEASE: Duration = Duration::from_secs(60);
/// More than a call takes that waits for nobody.
const SOON: Duration = Duration::from_secs(20);

fn url() -> String {
    std::env::var("SERIATIM_TEST_POSTGRES").expect(
        "SERIATIM_TEST_POSTGRES names no server: run cargo xtask test, which starts the servers",
    )
}

pub(super) fn new_schema() -> String {
    static NEXT: AtomicU32 = AtomicU32::new(0);
    // Each test may run in its own process.
    let (process, test) = (std::process::id(), NEXT.fetch_add(1, Ordering::Relaxed));
    format!("unit_{}_{process}_{test}", Timestamp::of_this_machine().as_micros())
}

/// Opens the store as another process would.
pub(super) async fn open(schema: &str) -> Arc<Postgres> {
    let store = Postgres::connect_in(&url(), schema).await.expect("the server can be reached");
    store.migrate().await.expect("the store is set up");
    let node = NodeInfo::new("n".into(), LEASE);
    store.heartbeat(Heartbeat { now: None, node, beats: Vec::new() }).await.expect("it registers");
    Arc::new(store)
}

async fn declare(store: &Postgres, queue: Queue) {
    store.declare(Declare { now: None, queues: vec![queue] }).await.unwrap();
}

async fn push(store: &Postgres, jobs: Vec<Job>) {
    store.push(Push { now: None, jobs }).await.unwrap();
}

fn claiming(queue: &str, lanes_max: usize) -> Claim {
    Claim::new(queue, "n", lanes_max, Lease::Node { ttl: LEASE })
}

async fn claim(store: &Postgres, queue: &str, lanes_max: usize) -> Claimed {
    store.claim(claiming(queue, lanes_max)).await.unwrap()
}

async fn done(store: &Postgres, turns: &[Turn]) -> Vec<Settled> {
    let turns = turns.iter().map(|turn| Settlement::done(turn.lane, turn.token)).collect();
    store.settle(Settle::now(turns)).await.unwrap()
}

async fn fail(store: &Postgres, queue: &Queue, turns: &[Turn]) {
    let retry = Outcome::Retry { error: "e".into(), retry_in: Some(LEASE) }.into();
    let plan = |turn| crate::store::plan(turn, queue, &retry, &|_| LEASE);
    store.settle(Settle::now(turns.iter().map(plan).collect())).await.unwrap();
}

fn job(key: &str, tag: u32) -> Job {
    Job::new("q", &tag).unwrap().key(key)
}

/// A direct session.
pub(super) async fn session() -> tokio_postgres::Client {
    let (client, driver) = tokio_postgres::connect(&url(), tokio_postgres::NoTls).await.unwrap();
    tokio::spawn(driver);
    client
}

/// A session that hears the wake-ups of a schema.
async fn listener(
    schema: &str,
) -> (tokio_postgres::Client, UnboundedReceiver<tokio_postgres::Notification>) {
    let (client, mut driver) =
        tokio_postgres::connect(&url(), tokio_postgres::NoTls).await.unwrap();
    let (tell, heard) = tokio::sync::mpsc::unbounded_channel();
    tokio::spawn(async move {
        let mut messages =
            futures_util::stream::poll_fn(move |context| driver.poll_message(context));
        while let Some(Ok(message)) = futures_util::StreamExt::next(&mut messages).await {
            if let tokio_postgres::AsyncMessage::Notification(notice) = message {
                let _ = tell.send(notice);
            }
        }
    });
    client.batch_execute(&format!("LISTEN {schema}_due")).await.unwrap();
    (client, heard)
}

/// Returns when this number of sessions of the schema wait for a lock.
async fn until_waiting(client: &tokio_postgres::Client, schema: &str, sessions: i64) {
    let waiting = "SELECT count(*) FROM pg_stat_activity \
        WHERE application_name = $1 AND wait_event_type = 'Lock'";
    let name = format!("seriatim {schema}");
    while client.query_one(waiting, &[&name]).await.unwrap().get::<_, i64>(0) < sessions {
        tokio::task::yield_now().await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn several_nodes_may_migrate_at_once() {
    for _ in 0..5 {
        let schema = new_schema();
        let one = |schema: String| tokio::spawn(async move { open(&schema).await });
        let nodes: Vec<_> = (0..4).map(|_| one(schema.clone())).collect();
        for node in nodes {
            assert!(node.await.unwrap().queues().await.unwrap().is_empty());
        }
    }
}

#[tokio::test]
async fn a_store_of_a_newer_version_is_refused() {
    let schema = new_schema();
    let store = open(&schema).await;
    let newer = in_schema("UPDATE seriatim.meta SET version = 99", &schema);
    session().await.batch_execute(&newer).await.unwrap();
    let error = store.migrate().await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Conflict);
    let own = format!("version {}", super::migrate::VERSION);
    assert!(
        error.to_string().contains("version 99") && error.to_string().contains(&own),
        "{error}"
    );
}

async fn pushes_and_claims_race(
    open: impl AsyncFn() -> Arc<Postgres>,
    queue: Queue,
    jobs_each: u32,
) {
    let mut stores = Vec::new();
    for _ in 0..race::STORES {
        stores.push(open().await);
    }
    let shared = stores.iter().map(|store| store.clone() as SharedStore).collect();
    race::pushes_and_claims_race(shared, queue, jobs_each, async |_| {}).await;
    let repeated = |store: &Arc<Postgres>| store.pool.repeated.load(Ordering::Relaxed);
    assert!(stores.iter().all(|store| repeated(store) == 0), "no deadlock");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn nothing_is_lost_between_pushes_and_claims_in_accumulate() {
    let (schema, queue) = (new_schema(), Queue::accumulate("q").merge(Merge::None));
    pushes_and_claims_race(async || open(&schema).await, queue, 100).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn nothing_is_lost_between_pushes_and_claims_in_fifo() {
    let schema = new_schema();
    pushes_and_claims_race(async || open(&schema).await, Queue::fifo("q").take(3), 60).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn nothing_is_lost_between_pushes_and_claims_behind_a_pooler() {
    let bouncer = seriatim_testkit::pgbouncer_port().unwrap();
    let (schema, behind) = (new_schema(), seriatim_testkit::postgres_port().unwrap());
    let url = format!(
        "postgres://postgres@127.0.0.1:{bouncer}/postgres?schema={schema}&listen=127.0.0.1:{behind}"
    );
    let open = async || reading::open_at(&url).await;
    pushes_and_claims_race(open, Queue::exclusive("q"), 20).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_push_and_the_settle_of_its_lane_do_not_strand_the_job() {
    for push_first in [true, false] {
        let schema = new_schema();
        let store = open(&schema).await;
        declare(&store, Queue::fifo("q")).await;
        push(&store, vec![job("k", 1)]).await;
        let turn = claim(&store, "q", 1).await.turns.remove(0);
        let mut client = session().await;
        let watcher = session().await;
        let holder = client.transaction().await.unwrap();
        let lock = in_schema("SELECT FROM seriatim.lane FOR UPDATE", &schema);
        holder.execute(&lock, &[]).await.unwrap();
        let pusher = |store: Arc<Postgres>| {
            tokio::spawn(async move { push(&store, vec![job("k", 2)]).await })
        };
        let settler = |store: Arc<Postgres>, turn: Turn| {
            tokio::spawn(async move { assert!(done(&store, &[turn]).await[0].is_ok()) })
        };
        let (first, second);
        if push_first {
            first = pusher(store.clone());
            until_waiting(&watcher, &schema, 1).await;
            second = settler(store.clone(), turn);
        } else {
            first = settler(store.clone(), turn);
            until_waiting(&watcher, &schema, 1).await;
            second = pusher(store.clone());
        }
        until_waiting(&watcher, &schema, 2).await;
        holder.commit().await.unwrap();
        first.await.unwrap();
        second.await.unwrap();
        let turns = claim(&store, "q", 1).await.turns;
        assert_eq!(turns.len(), 1, "push first: {push_first}");
        assert_eq!(turns[0].jobs[0].payload.decode::<u32>().unwrap(), 2);
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_settle_that_is_sent_twice_at_once_is_carried_out_once() {
    let schema = new_schema();
    let store = open(&schema).await;
    declare(&store, Queue::fifo("q")).await;
    push(&store, vec![job("k", 1), job("k", 2)]).await;
    let turn = claim(&store, "q", 1).await.turns.remove(0);
    let mut client = session().await;
    let holder = client.transaction().await.unwrap();
    let lock = in_schema("SELECT FROM seriatim.lane FOR UPDATE", &schema);
    holder.execute(&lock, &[]).await.unwrap();
    let settler = |store: Arc<Postgres>, turn: Turn| {
        tokio::spawn(async move { u32::from(done(&store, &[turn]).await[0].is_ok()) })
    };
    let settlers = [settler(store.clone(), turn.clone()), settler(store.clone(), turn)];
    until_waiting(&session().await, &schema, 2).await;
    holder.commit().await.unwrap();
    let mut carried_out = 0;
    for settler in settlers {
        carried_out += settler.await.unwrap();
    }
    assert_eq!(carried_out, 1);
    assert_eq!(store.stats(None).await.unwrap()[0].processed, 1);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_busy_pusher_does_not_hold_up_a_claim() {
    let schema = new_schema();
    let store = open(&schema).await;
    declare(&store, Queue::fifo("q")).await;
    push(&store, vec![job("a", 1), job("b", 2), job("a", 3)]).await;
    let mut client = session().await;
    let holder = client.transaction().await.unwrap();
    let lock = in_schema("SELECT FROM seriatim.lane WHERE key = 'a' FOR UPDATE", &schema);
    holder.execute(&lock, &[]).await.unwrap();
    let claimed = claim(&store, "q", 10).await;
    assert_eq!(claimed.turns.iter().map(|t| t.key.as_deref()).collect::<Vec<_>>(), [Some("b")]);
    assert!(claimed.next_due.is_some(), "it must look again");
    holder.rollback().await.unwrap();
    assert_eq!(claim(&store, "q", 10).await.turns.len(), 1);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_idempotency_key_counts_among_concurrent_pushes_too() {
    let schema = new_schema();
    let store = open(&schema).await;
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
    assert_eq!(store.pool.repeated.load(Ordering::Relaxed), 0, "no deadlock");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn new_idempotency_keys_that_several_push_at_once_store_one_job_each() {
    let (schema, mut stores) = (new_schema(), Vec::new());
    for _ in 0..3 {
        stores.push(open(&schema).await);
    }
    race::new_names_race(stores.iter().map(|store| store.clone() as SharedStore).collect()).await;
    let repeated = |store: &Arc<Postgres>| store.pool.repeated.load(Ordering::Relaxed);
    assert!(stores.iter().all(|store| repeated(store) == 0), "no deadlock");
}

#[tokio::test]
async fn tokens_are_raised_on_another_server_though_the_session_goes_on() {
    let schema = new_schema();
    let store = open(&schema).await;
    push(&store, (0..3).map(|i| Job::new("loose", &i).unwrap()).collect()).await;
    let first = claim(&store, "loose", 1).await.turns.remove(0);
    // As after the failover to an asynchronous standby, behind a pooler.
    let failover = in_schema(
        "UPDATE seriatim.seeded SET mark = 'another server'; SELECT setval('seriatim.token', 1)",
        &schema,
    );
    session().await.batch_execute(&failover).await.unwrap();
    let second = claim(&store, "loose", 1).await.turns.remove(0);
    assert!(second.token > first.token);
    session().await.batch_execute(&failover).await.unwrap();
    let claims = crate::contract::ClaimSelection::Lane(first.lane);
    let release = crate::contract::Release { now: None, claims, made_by: None, lanes_max: 1 };
    let third = store.release(release).await.unwrap().remove(0);
    assert!(third.token > second.token);
}

#[tokio::test]
async fn tokens_are_raised_after_a_process_of_the_server_crashed() {
    let server = seriatim_testkit::Postgres::start().unwrap();
    let store = Postgres::connect_in(&server.url(), "seriatim").await.unwrap();
    store.migrate().await.unwrap();
    let (client, connection) =
        tokio_postgres::connect(&server.url(), tokio_postgres::NoTls).await.unwrap();
    let ended = tokio::spawn(connection);
    let mark = "SELECT seriatim.server_mark(), pg_backend_pid()";
    let row = client.query_one(mark, &[]).await.unwrap();
    let (before, pid): (String, i32) = (row.get(0), row.get(1));
    let kill = std::process::Command::new("kill").args(["-9", &pid.to_string()]).status();
    assert!(kill.unwrap().success());
    let _ = ended.await;
    // The server ends all its processes, recovers, and serves again without a new start.
    let changed = async {
        loop {
            let Ok(session) = store.session().await else { continue };
            let Ok(row) = session.query_one(mark, &[]).await else { continue };
            if row.get::<_, String>(0) != before {
                return;
            }
        }
    };
    tokio::time::timeout(Duration::from_secs(20), changed).await.expect("the mark changes");
}

#[tokio::test]
async fn a_new_connection_does_not_wait_for_those_who_draw_tokens() {
    let schema = new_schema();
    open(&schema).await;
    let drawing = session().await;
    let draw = in_schema("BEGIN; SELECT seriatim.draw_tokens()", &schema);
    drawing.batch_execute(&draw).await.unwrap();
    let url = url();
    let connect = Postgres::connect_in(&url, &schema);
    tokio::time::timeout(Duration::from_secs(20), connect)
        .await
        .expect("it waits for nobody")
        .unwrap();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn tokens_do_not_repeat_while_they_are_reseeded() {
    let schema = new_schema();
    let store = open(&schema).await;
    let jobs = (0..500).map(|i| Job::new("loose", &i).unwrap()).collect();
    push(&store, jobs).await;
    let behind = in_schema("SELECT setval('seriatim.token', 1)", &schema);
    session().await.execute(&behind, &[]).await.unwrap();
    let reseeder = |schema: String| {
        tokio::spawn(async move {
            let client = session().await;
            let reseed = in_schema("SELECT seriatim.reseed()", &schema);
            for _ in 0..50 {
                client.execute(&reseed, &[]).await.unwrap();
            }
        })
    };
    let reseeders = [reseeder(schema.clone()), reseeder(schema.clone())];
    let claimer = |store: Arc<Postgres>| {
        tokio::spawn(async move {
            let mut tokens = Vec::new();
            loop {
                let turns = claim(&store, "loose", 3).await.turns;
                if turns.is_empty() {
                    return tokens;
                }
                tokens.push(turns[0].token);
            }
        })
    };
    let claimers = [claimer(store.clone()), claimer(store.clone())];
    let (mut all, mut claims) = (std::collections::HashSet::new(), 0);
    for claimer in claimers {
        let tokens = claimer.await.unwrap();
        claims += tokens.len();
        all.extend(tokens);
    }
    assert_eq!(all.len(), claims, "each claim has its own token");
    for reseeder in reseeders {
        reseeder.await.unwrap();
    }
    let after: i64 = session()
        .await
        .query_one(&in_schema("SELECT last_value FROM seriatim.token", &schema), &[])
        .await
        .unwrap()
        .get(0);
    assert!(after > 1_700_000_000_000_000, "the tokens are at the clock: {after}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_declaration_waits_for_pushes_and_converts_what_they_pushed() {
    for round in 0..10 {
        let schema = new_schema();
        let store = open(&schema).await;
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
    let schema = new_schema();
    let (one, other) = (open(&schema).await, open(&schema).await);
    let mut wakeups = other.wakeups();
    // There is no signal that the other process is listening yet.
    for i in 0..100 {
        wakeups.forget();
        push(&one, vec![job("k", i)]).await;
        match wakeups.wait(Duration::from_millis(200)).await {
            Some(Wake::Queues(queues)) => return assert_eq!(queues, ["q".into()].into()),
            // It has just begun to listen.
            Some(Wake::All) | None => {}
        }
    }
    panic!("the other process heard nothing");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_broken_connection_is_replaced() {
    let schema = new_schema();
    let store = open(&schema).await;
    let kill = "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE application_name = $1";
    session().await.execute(kill, &[&format!("seriatim {schema}")]).await.unwrap();
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
    let schema = new_schema();
    open(&schema).await;
    let mark = if url().contains('?') { '&' } else { '?' };
    let read_only = format!("{}{mark}options=-c%20default_transaction_read_only=on", url());
    let store = Postgres::connect_in(&read_only, &schema).await.unwrap();
    assert!(store.queues().await.unwrap().is_empty());
    let refused = store.push(Push { now: None, jobs: vec![job("k", 1)] }).await.unwrap_err();
    assert_eq!(refused.kind(), ErrorKind::ReadOnly, "{refused}");
}

#[tokio::test]
async fn errors_say_what_to_do_and_hold_no_password() {
    let kind = |result: crate::Result<Postgres>| {
        let error = result.map(drop).unwrap_err();
        assert!(!format!("{error} {error:?}").contains("hunter2"), "{error:?}");
        error.kind()
    };
    let unreachable = Postgres::connect("postgres://me:hunter2@127.0.0.1:1/db").await;
    assert_eq!(kind(unreachable), ErrorKind::Unavailable);
    let unreadable = Postgres::connect("postgres://me:hunter2@host:hunter2/db").await;
    assert_eq!(kind(unreadable), ErrorKind::Invalid);
    let injected = Postgres::connect_in(&url(), "a; drop").await;
    assert_eq!(kind(injected), ErrorKind::Invalid);
    let empty = Postgres::connect_in(&url(), &new_schema()).await.unwrap();
    let error = empty.queues().await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::NotFound);
    assert!(error.to_string().contains("migrate"), "{error}");
}

#[tokio::test]
async fn texts_that_postgresql_cannot_hold_are_kept_as_well_as_can_be() {
    let schema = new_schema();
    let store = open(&schema).await;
    push(&store, vec![job("k", 1)]).await;
    let turn = claim(&store, "q", 1).await.turns.remove(0);
    let outcome = crate::Outcome::Retry { error: "a\0b".into(), retry_in: Some(Duration::ZERO) };
    let settlement = crate::store::plan(&turn, &Queue::exclusive("q"), &outcome.into(), &|_| LEASE);
    let settled = store.settle(Settle::now(vec![settlement])).await.unwrap();
    assert!(settled[0].is_ok());
    let job = store.job(turn.jobs[0].id).await.unwrap().unwrap();
    assert_eq!(job.error.as_deref(), Some("a\u{FFFD}b"));
}
