//! Opening, losing and naming connections.

use std::sync::Mutex;
use std::time::Duration;

use seriatim_testkit::{Authority, PostgresOptions};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio_postgres::NoTls;

use super::*;
use crate::contract::{Producer, Views};

#[tokio::test]
async fn a_server_must_prove_its_name_where_the_url_asks_for_it() {
    let (ours, strange) = (Authority::new().unwrap(), Authority::new().unwrap());
    let certificate = Some(ours.server().unwrap());
    let options = PostgresOptions { durable: false, certificate, ..PostgresOptions::default() };
    let server = seriatim_testkit::Postgres::start_with(options).unwrap();
    let url = |parameters: &str| format!("{}?{parameters}", server.url());
    let verified = format!("sslmode=verify-full&sslrootcert={}", ours.roots());
    for parameters in ["sslmode=require", "sslmode=prefer", verified.as_str(), ""] {
        let store = Postgres::connect(&url(parameters)).await.unwrap();
        let rows = store.pool.query(ENCRYPTED, &[]).await.unwrap();
        assert!(rows[0].get::<_, bool>(0), "{parameters}");
    }
    let plain = Postgres::connect(&url("sslmode=disable")).await.unwrap();
    assert!(!plain.pool.query(ENCRYPTED, &[]).await.unwrap()[0].get::<_, bool>(0));
    let refused = [
        format!("sslmode=verify-full&sslrootcert={}", strange.roots()),
        // The machine's own authorities have not signed it.
        "sslmode=verify-full".to_owned(),
    ];
    for parameters in refused {
        let error = Postgres::connect(&url(&parameters)).await.map(drop).unwrap_err();
        assert!(error.to_string().contains("certificate"), "{error}");
    }
    let other_name = url(&verified).replace("127.0.0.1", "localhost");
    let error = Postgres::connect(&other_name).await.map(drop).unwrap_err();
    assert!(error.to_string().contains("certificate"), "{error}");
}

const ENCRYPTED: &str = "SELECT ssl FROM pg_stat_ssl WHERE pid = pg_backend_pid()";

#[tokio::test]
async fn a_server_without_encryption_is_refused_where_the_url_asks_for_it() {
    let mark = if url().contains('?') { '&' } else { '?' };
    let error = Postgres::connect(&format!("{}{mark}sslmode=require", url())).await.map(drop);
    assert_eq!(error.unwrap_err().kind(), ErrorKind::Unavailable);
}

#[tokio::test]
async fn wrong_parameters_are_named() {
    let wrong = [
        ("schema=A", "schema"),
        ("connections=0", "connections"),
        ("call_timeout=soon", "call_timeout"),
        ("sslmode=verify-ca", "sslmode"),
        ("sslmode=require&sslrootcert=ca.pem", "sslrootcert"),
        ("sslmode=verify-full&sslrootcert=/nowhere", "sslrootcert"),
        ("listen=somewhere", "listen"),
        ("schema=%zz", "schema"),
        ("hunter2=1", "store"),
    ];
    for (parameters, field) in wrong {
        let url = format!("postgres://me:secret@127.0.0.1:1/db?{parameters}");
        let error = Postgres::connect(&url).await.map(drop).unwrap_err();
        assert_eq!((error.kind(), error.field()), (ErrorKind::Invalid, Some(field)), "{error}");
        assert!(!format!("{error} {error:?}").contains("secret"), "{error:?}");
    }
    // Retrying does not help with such a URL.
    let error = Postgres::connect("postgres:///jobs").await.map(drop).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Invalid, "{error}");
}

#[tokio::test]
async fn a_refusal_is_told_in_the_words_of_the_server() {
    let url = url();
    let (server, _) = url.rsplit_once('/').unwrap();
    let error = Postgres::connect(&format!("{server}/nowhere")).await.map(drop).unwrap_err();
    assert!(error.to_string().contains("database \"nowhere\" does not exist"), "{error}");
}

#[tokio::test]
async fn a_server_that_accepts_connections_and_never_answers_is_given_up() {
    let port = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let url = format!("postgres://me@{}/jobs?connect_timeout=1", port.local_addr().unwrap());
    let opened = tokio::time::timeout(SOON, Postgres::connect(&url)).await;
    let error = opened.expect("it does not wait for ever").map(drop).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Unavailable, "{error}");
    assert!(error.to_string().contains("connect_timeout"), "{error}");
}

#[tokio::test]
async fn wake_ups_leave_no_setting_in_sessions_that_pushes_share() {
    let (schema, behind) = (new_schema(), url());
    let (_, port) = behind.rsplit_once(':').unwrap();
    let port = port.split('/').next().unwrap().parse().unwrap();
    let pooler = seriatim_testkit::PgBouncer::start(port).unwrap();
    let listener = open(&schema).await;
    declare(&listener, Queue::parallel("mail")).await;
    // Without `listen`, wake-ups go through the pooler too.
    let pooled =
        format!("postgres://postgres@127.0.0.1:{}/postgres?schema={schema}", pooler.port());
    let pooled = Postgres::connect(&pooled).await.unwrap();
    let mut wakeups = listener.wakeups();
    while wakeups.wait(Duration::from_millis(200)).await.is_some() {}
    let jobs = vec![Job::new("mail", &1).unwrap()];
    pooled.push(Push { now: None, jobs }).await.unwrap();
    assert!(
        wakeups.wait(Duration::from_secs(10)).await.is_some(),
        "the pooled store sent no wake-up"
    );
    let source = "SELECT source FROM pg_settings WHERE name = 'synchronous_commit'";
    let mut looked_at = Vec::new();
    for _ in 0..8 {
        let mut session = pooled.pool.lend().await.unwrap();
        let client = session.client().unwrap();
        // The transaction keeps it: the next query uses another session.
        client.batch_execute("BEGIN").await.unwrap();
        let rows = client.query_typed(source, &[]).await.unwrap();
        assert_ne!(rows[0].get::<_, String>(0), "session", "commits need no disk now");
        looked_at.push(session);
    }
}

#[tokio::test]
async fn the_url_names_the_schema() {
    let schema = new_schema();
    let store = open(&schema).await;
    declare(&store, Queue::fifo("here")).await;
    let mark = if url().contains('?') { '&' } else { '?' };
    let same = Postgres::connect(&format!("{}{mark}schema={schema}", url())).await.unwrap();
    assert_eq!(same.queues().await.unwrap().len(), 1);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn l15_a_call_that_takes_too_long_is_given_up() {
    let schema = new_schema();
    let store = open(&schema).await;
    declare(&store, Queue::fifo("q")).await;
    push(&store, vec![job("k", 1)]).await;
    let mut client = session().await;
    let holder = client.transaction().await.unwrap();
    let lock = in_schema("SELECT FROM seriatim.lane FOR UPDATE", &schema);
    holder.execute(&lock, &[]).await.unwrap();
    let mark = if url().contains('?') { '&' } else { '?' };
    let hasty = format!("{}{mark}schema={schema}&call_timeout=2s&connections=1", url());
    let hasty = Postgres::connect(&hasty).await.unwrap();
    let error = hasty.push(Push { now: None, jobs: vec![job("k", 2)] }).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Unavailable, "{error}");
    assert!(error.to_string().contains("call_timeout"), "{error}");
    // The pool does not reuse the connection that is still busy.
    hasty.queues().await.unwrap();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn wake_ups_come_back_after_their_connection_broke() {
    let schema = new_schema();
    let (one, other) = (open(&schema).await, open(&schema).await);
    let mut wakeups = other.wakeups();
    for round in 0..2 {
        let mut heard = false;
        for i in 0..100 {
            wakeups.forget();
            push(&one, vec![job("k", i)]).await;
            heard = wakeups.wait(Duration::from_millis(200)).await.is_some();
            if heard {
                break;
            }
        }
        assert!(heard, "round {round}");
        wakeups.forget();
        // The listening sessions have no other statements.
        let kill = "SELECT pg_terminate_backend(pid) FROM pg_stat_activity \
            WHERE application_name = $1 AND (query LIKE 'LISTEN%' OR query LIKE 'NOTIFY%')";
        let killed = session().await.query(kill, &[&format!("seriatim {schema}")]).await.unwrap();
        assert!(!killed.is_empty(), "there is a listener");
        // After reconnecting it rings, because wake-ups may have been missed.
        assert!(wakeups.wait(Duration::from_secs(20)).await.is_some());
    }
}

/// The NOTIFYs of what `calls` does in a process that then ends.
async fn rings(schema: &str, calls: impl AsyncFn(&Postgres)) -> usize {
    let (client, mut heard) = listener(schema).await;
    let store = open(schema).await;
    calls(&store).await;
    // It sends what is not sent yet.
    store.close().await.unwrap();
    client.batch_execute(&format!("NOTIFY {schema}_due, 'all were heard'")).await.unwrap();
    let mut rings = 0;
    while heard.recv().await.unwrap().payload() != "all were heard" {
        rings += 1;
    }
    rings
}

/// Each NOTIFY takes a lock of the whole server when it commits.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn many_pushes_ring_together_and_a_settle_only_if_something_waits() {
    const PUSHES: u32 = 60;
    let schema = new_schema();
    let store = open(&schema).await;
    declare(&store, Queue::fifo("q")).await;
    let began = std::time::Instant::now();
    let pushes = rings(&schema, async |store| {
        for i in 0..PUSHES {
            push(store, vec![job(&format!("k{i}"), i)]).await;
        }
    });
    let pushes = pushes.await;
    // One that is being sent as the process ends is sent again.
    let most = began.elapsed().as_millis() / crate::stores::postgres::wake::PAUSE.as_millis() + 3;
    assert!(pushes > 0 && pushes as u128 <= most, "{pushes} rings, of {most} at most");

    let alone = claim(&store, "q", PUSHES as usize).await.turns;
    assert_eq!(alone.len(), PUSHES as usize);
    let settles = async |store: &Postgres| assert!(done(store, &alone).await[0].is_ok());
    assert_eq!(rings(&schema, settles).await, 0, "nothing waits");
    push(&store, vec![job("k", 1), job("k", 2)]).await;
    let first = claim(&store, "q", 1).await.turns;
    assert!(rings(&schema, async |_| {}).await <= 1, "of the push");
    let settles = async |store: &Postgres| assert!(done(store, &first).await[0].is_ok());
    assert_eq!(rings(&schema, settles).await, 1, "the next job of the key waits");
}

/// The server's URL by way of a port that keeps what is sent to it.
async fn overheard() -> (String, Arc<Mutex<Vec<u8>>>) {
    let sent = Arc::new(Mutex::new(Vec::new()));
    let config: tokio_postgres::Config = url().parse().unwrap();
    let address = format!("127.0.0.1:{}", config.get_ports()[0]);
    let port = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let by_way = url().replace(&address, &port.local_addr().unwrap().to_string());
    assert_ne!(by_way, url());
    let keeps = sent.clone();
    tokio::spawn(async move {
        while let Ok((client, _)) = port.accept().await {
            let (mut client, mut answers) = client.into_split();
            let server = TcpStream::connect(&address).await.unwrap();
            let (mut answer, mut server) = server.into_split();
            tokio::spawn(async move { tokio::io::copy(&mut answer, &mut answers).await });
            let keeps = keeps.clone();
            tokio::spawn(async move {
                let mut part = [0; 4096];
                while let Ok(read @ 1..) = client.read(&mut part).await {
                    keeps.lock().unwrap().extend_from_slice(&part[..read]);
                    server.write_all(&part[..read]).await.unwrap();
                }
            });
        }
    });
    (by_way, sent)
}

/// The server sends each NOTIFY to every session that listens.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_process_that_only_pushes_listens_to_no_wake_ups() {
    let (schema, (url, sent)) = (new_schema(), overheard().await);
    open(&schema).await;
    let (_client, mut heard) = listener(&schema).await;
    let store = Postgres::connect_in(&url, &schema).await.unwrap();
    let said = |what: &str| String::from_utf8_lossy(&sent.lock().unwrap()).contains(what);
    push(&store, vec![job("k", 1)]).await;
    assert!(heard.recv().await.is_some());
    assert!(said(".wake(") && !said("LISTEN "));
    let mut wakeups = store.wakeups();
    // It rings as it begins to listen: wake-ups before that were missed.
    assert!(wakeups.wait(SOON).await.is_some());
    assert!(said("LISTEN "));
}

#[tokio::test]
async fn what_the_schema_holds_is_written_down() {
    let schema = new_schema();
    open(&schema).await;
    let (client, driver) = tokio_postgres::connect(&url(), NoTls).await.unwrap();
    tokio::spawn(driver);
    let columns = "SELECT c.relname || '.' || a.attname || ' ' || format_type(a.atttypid, a.atttypmod) \
        || CASE WHEN a.attnotnull THEN ' not null' ELSE '' END \
        FROM pg_class c JOIN pg_attribute a ON a.attrelid = c.oid AND a.attnum > 0 AND NOT a.attisdropped \
        WHERE c.relnamespace = $1::text::regnamespace AND c.relkind = 'r' \
        ORDER BY c.relname COLLATE \"C\", a.attnum";
    let indexes = "SELECT pg_get_indexdef(i.indexrelid) FROM pg_index i \
        JOIN pg_class c ON c.oid = i.indexrelid WHERE c.relnamespace = $1::text::regnamespace \
        AND c.relkind = 'i' ORDER BY c.relname COLLATE \"C\"";
    // Those that nodes call have settings: see sql/entry.sql.
    let functions = "SELECT p.proname || '(' || (SELECT coalesce(string_agg(format_type(t, NULL), ', ' ORDER BY place), '') \
        FROM unnest(p.proargtypes) WITH ORDINALITY a (t, place)) || ')' FROM pg_proc p \
        WHERE p.pronamespace = $1::text::regnamespace AND p.proconfig IS NOT NULL ORDER BY p.proname COLLATE \"C\", p.oid";
    let mut found = String::new();
    for query in [columns, indexes, functions] {
        for row in client.query(query, &[&schema]).await.unwrap() {
            let line = row.get::<_, String>(0).replace(&format!("{schema}."), "");
            found.push_str(&line);
            found.push('\n');
        }
    }
    let written = include_str!("schema.txt");
    assert!(
        found == written,
        "the schema has changed: released steps never do, so add a step to migrate.rs; nodes of the last released \
         version call the functions while they are replaced, so keep those until the next one; and write this to \
         tests/schema.txt:\n{found}"
    );
}
