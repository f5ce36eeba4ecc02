//! Several servers in one URL: which one is used, and that an old primary is not.

use seriatim_testkit::PostgresOptions;
use tokio::sync::{Semaphore, mpsc};

use super::*;
use crate::stores::postgres::summons::Summons;
use crate::{Batch, Engine};

type Server = seriatim_testkit::Postgres;

fn primary() -> Server {
    let options = PostgresOptions { durable: false, ..PostgresOptions::default() };
    Server::start_with(options).unwrap()
}

fn url_of(servers: &[&Server]) -> String {
    let hosts: Vec<_> = servers.iter().map(|one| format!("127.0.0.1:{}", one.port())).collect();
    format!("postgres://postgres@{}/postgres", hosts.join(","))
}

/// The port of the server that a call reaches.
async fn port(store: &Postgres) -> u16 {
    let row = store.pool.query_one("SELECT inet_server_port()", &[]).await.unwrap();
    u16::try_from(row.get::<_, i32>(0)).unwrap()
}

async fn refusal(store: &Postgres) -> String {
    loop {
        let error = store.queues().await.unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Unavailable, "{error}");
        // A session that was open breaks first.
        if error.to_string().contains("timeline") {
            return error.to_string();
        }
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_server_that_takes_writes_is_used_wherever_the_url_names_it() {
    let mut first = primary();
    let second = first.start_standby(first.port()).unwrap();
    let store = Postgres::connect(&url_of(&[&second, &first])).await.unwrap();
    store.migrate().await.unwrap();
    assert_eq!(port(&store).await, first.port());
    first.stop().unwrap();
    let error = Postgres::connect(&url_of(&[&first, &second])).await.map(drop).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Unavailable);
    let text = error.to_string();
    assert!(text.contains("no server of the URL takes writes"), "{text}");
    assert!(text.contains(&format!("{}: can only be read", second.port())), "{text}");
    second.promote().unwrap();
    while store.queues().await.is_err() {}
    assert_eq!(port(&store).await, second.port());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_old_primary_that_takes_writes_again_is_not_used() {
    let old = primary();
    let mut new = old.start_standby(old.port()).unwrap();
    let url = url_of(&[&old, &new]);
    let before = Postgres::connect(&url).await.unwrap();
    before.migrate().await.unwrap();
    assert_eq!(port(&before).await, old.port());
    // Both take writes now.
    new.promote().unwrap();
    let after = Postgres::connect(&url).await.unwrap();
    assert_eq!(port(&after).await, new.port());
    // It may have been promoted before it got the schema.
    after.migrate().await.unwrap();
    // A new session finds the new primary, and those on the old one are given up.
    let (one, two) = (before.pool.lend().await.unwrap(), before.pool.lend().await.unwrap());
    drop((two, one));
    assert_eq!(port(&before).await, new.port());
    new.stop().unwrap();
    for store in [&before, &after] {
        let told = refusal(store).await;
        assert!(told.contains(&format!(":{} is on timeline 00000001", old.port())), "{told}");
    }
    new.restart().unwrap();
    after.queues().await.unwrap();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn two_primaries_of_which_neither_is_newer_are_refused() {
    let mut old = primary();
    let (one, two) =
        (old.start_standby(old.port()).unwrap(), old.start_standby(old.port()).unwrap());
    old.stop().unwrap();
    one.promote().unwrap();
    two.promote().unwrap();
    let error = Postgres::connect(&url_of(&[&old, &one, &two])).await.map(drop).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Unavailable);
    assert!(error.to_string().contains("neither is newer: stop one of them"), "{error}");
    // Two names of one server are no two servers.
    Postgres::connect(&url_of(&[&one, &one])).await.unwrap();
}

const TABLES: [&str; 3] = ["lane", "item", "batch"];

/// A standby that took over without the last settle, while the node's connections went on.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_lane_whose_settle_a_failover_lost_is_not_held_for_ever() {
    let schema = new_schema();
    let store = open(&schema).await;
    declare(&store, Queue::fifo("q")).await;
    push(&store, vec![job("k", 1), job("k", 2)]).await;
    let (started, mut starts) = mpsc::unbounded_channel();
    let go_on = Arc::new(Semaphore::new(0));
    let may_end = go_on.clone();
    let engine = Engine::builder(store.clone())
        .heartbeat(Duration::from_millis(100))
        .lease(Duration::from_secs(60))
        .worker("q", move |batch: Batch<u32>| {
            let (started, may_end) = (started.clone(), may_end.clone());
            async move {
                started.send(*batch.payloads().next().unwrap()).unwrap();
                may_end.acquire().await.unwrap().forget();
            }
        });
    let client = session().await;
    let run = async |sql: String| client.batch_execute(&in_schema(&sql, &schema)).await.unwrap();
    let copy =
        |table: &str| format!("CREATE TABLE seriatim.old_{table} AS TABLE seriatim.{table};");
    let restore = |table: &str| {
        format!(
            "DELETE FROM seriatim.{table}; INSERT INTO seriatim.{table} SELECT * FROM seriatim.old_{table};"
        )
    };
    let other_server = "CREATE OR REPLACE FUNCTION seriatim.server_mark() RETURNS text LANGUAGE sql STABLE \
        AS $$ SELECT 'another server'::text $$;";
    let failover = async {
        assert_eq!(starts.recv().await, Some(1));
        run(TABLES.map(copy).concat()).await;
        go_on.add_permits(1);
        // The lane has gone on, so the first turn is settled.
        assert_eq!(starts.recv().await, Some(2));
        go_on.add_permits(1);
        while store.stats(None).await.unwrap()[0].jobs > 0 {}
        run(format!("BEGIN; {} {other_server} COMMIT", TABLES.map(restore).concat())).await;
        for number in [1, 2] {
            assert_eq!(starts.recv().await, Some(number));
            go_on.add_permits(1);
        }
    };
    let engine = engine.run_until(failover);
    tokio::time::timeout(Duration::from_secs(60), engine).await.expect("it runs again").unwrap();
}

/// An asynchronous standby may take over before it knows of a user's transaction that was open.
#[tokio::test]
async fn a_transaction_of_a_lost_server_keeps_no_wake_up_back() {
    let schema = new_schema();
    let store = open(&schema).await;
    let (_listener, mut heard) = listener(&schema).await;
    store.wake.follow(i64::MAX, &Summons::all(&Wake::of(["q"])));
    let notice = tokio::time::timeout(SOON, heard.recv()).await.expect("a wake-up comes");
    assert_eq!(notice.unwrap().payload(), "q");
}
