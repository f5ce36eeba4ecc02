//! Stores that version 0.1 wrote, in `tests/store-0.1`: every later build opens them, knows what is in them, and goes on
//! with it.
//!
//! `SERIATIM_WRITE_STORE=1` writes them anew with this build. Do that only before the first release of a version whose
//! stores are to be kept beside these.

use std::collections::BTreeMap;
use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use serde_json::{Value, json};
use seriatim::store::JobView;
use seriatim::{
    Batch, Client, Context, Engine, Failure, Job, Mode, Outcome, Queue, SharedStore, Timestamp,
};
use seriatim_testkit::{Redis, find_program};

use crate::faults::Server;
use crate::hand::Hand;
use crate::site::eventually;

const LONG: Duration = Duration::from_secs(9 * 365 * 86_400);
const KEYS: [&str; 5] = ["done", "dead", "failed", "held by a node", "waits"];
/// 2100.
const LATER: i64 = 4_102_444_800_000_000;

fn folder() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/store-0.1")
}

fn queues() -> Vec<Queue> {
    let queue = |mode: Mode| {
        let mut queue = Queue::new(mode.to_string(), mode).max_retries(1);
        (queue.retain_dead, queue.retain_completed) = (LONG, Some(LONG));
        queue.idempotency_ttl = LONG;
        queue
    };
    Mode::ALL.into_iter().map(queue).collect()
}

fn job(mode: Mode, key: &str, n: u32) -> Job {
    let job = Job::new(mode.to_string(), &json!({ "key": key, "n": n })).unwrap();
    let job = job.score(f64::from(n)).task("work");
    if mode.is_keyed() { job.key(key) } else { job }
}

/// It was pushed before, and is known.
fn repeated(mode: Mode) -> Job {
    job(mode, "later", 7).run_at(Timestamp::from_micros(LATER)).idempotency_key("once")
}

/// Jobs in every state. Returns what each is then.
async fn fill(store: SharedStore) -> Value {
    let mut hand = Hand::new(store, queues()).await;
    hand.node.id = "old".into();
    // Every wait and every lease is over when the store is opened.
    hand.now = hand.now - Duration::from_secs(86_400);
    hand.beat().await;
    let mut ids = Vec::new();
    for mode in Mode::ALL {
        for key in &KEYS[..4] {
            for n in 1..=3 {
                ids.push(hand.push(job(mode, key, n)).await);
            }
        }
        for turn in hand.claim(&mode.to_string()).await {
            let payload: Value = serde_json::from_slice(turn.jobs[0].payload.as_bytes()).unwrap();
            let error = || "no paper".into();
            match payload["key"].as_str().unwrap() {
                "done" => hand.end(&turn, Outcome::Done).await,
                "dead" => hand.end(&turn, Outcome::Bury { error: error() }).await,
                "failed" => {
                    hand.end(&turn, Outcome::Retry { error: error(), retry_in: None }).await;
                }
                _ => {}
            }
        }
        ids.push(hand.push(job(mode, KEYS[4], 1)).await);
        ids.push(hand.push(repeated(mode)).await);
    }
    let mut known = serde_json::Map::new();
    for id in ids {
        let view = hand.store.job(id).await.unwrap().unwrap();
        known.insert(id.to_string(), told(&view));
    }
    Value::Object(known)
}

fn told(view: &JobView) -> Value {
    let payload: Value = serde_json::from_slice(view.payload.as_bytes()).unwrap();
    json!({
        "queue": view.queue, "key": view.key, "payload": payload, "state": view.state,
        "error": view.error,
    })
}

/// Runs what there is, except for what is scheduled, and returns what was run of each key, in order.
async fn run_all(store: SharedStore) -> BTreeMap<String, Vec<u64>> {
    let ran: Arc<Mutex<BTreeMap<String, Vec<u64>>>> = Arc::default();
    let engine = queues().into_iter().fold(Engine::builder(store.clone()), |engine, queue| {
        let (ran, name) = (ran.clone(), queue.name.clone());
        engine.queue(queue).worker(name.clone(), move |batch: Batch<Value>, _: Context| {
            let mut ran = ran.lock().unwrap();
            for lane in batch.lanes() {
                for payload in lane.payloads() {
                    let of = format!("{name} {}", payload["key"].as_str().unwrap());
                    ran.entry(of).or_default().push(payload["n"].as_u64().unwrap());
                }
            }
            async { Ok::<_, Failure>(()) }
        })
    });
    let engine = engine.build().unwrap();
    let handle = engine.handle();
    let done = async {
        eventually("all that is due has run", async || {
            store.stats(None).await.unwrap().iter().all(|queue| queue.jobs == 1)
        })
        .await;
        handle.stop();
    };
    let (summary, ()) = tokio::join!(engine.run_until(std::future::pending::<()>()), done);
    summary.unwrap();
    let ran = ran.lock().unwrap();
    ran.clone()
}

async fn goes_on(name: &str, store: SharedStore) {
    let known = fs::read(folder().join(format!("{name}.json"))).unwrap();
    let known: serde_json::Map<String, Value> = serde_json::from_slice(&known).unwrap();
    store.migrate().await.unwrap();
    for (id, expected) in &known {
        let view = store.job(id.parse().unwrap()).await.unwrap();
        let view = view.unwrap_or_else(|| panic!("{id} is unknown: {expected}"));
        assert_eq!(&told(&view), expected, "{id}");
    }
    for mode in Mode::ALL {
        let again = Client::new(store.clone()).push(repeated(mode)).await.unwrap();
        assert!(known.contains_key(&again.job_id.to_string()), "{mode}: {again:?}");
    }
    let ran = run_all(store.clone()).await;
    for mode in [Mode::Fifo, Mode::Accumulate] {
        for key in ["failed", "held by a node"] {
            assert_eq!(ran[&format!("{mode} {key}")], [1, 2, 3], "{mode} {key}");
        }
    }
    for mode in Mode::ALL {
        assert_eq!(ran[&format!("{mode} waits")], [1], "{mode}");
    }
    store.close().await.unwrap();
}

/// A server with the stored data, and where its file is.
fn with_data(name: &str) -> (Server, tempfile::TempDir) {
    let place = tempfile::tempdir().unwrap();
    let stored = folder().join(name);
    let server = match name {
        "sqlite.store" => {
            let server = Server::sqlite();
            fs::copy(&stored, server.url().trim_start_matches("sqlite:")).unwrap();
            server
        }
        "postgres.sql.gz" => {
            let server = Server::postgres();
            let mut psql = Command::new(find_program("psql", "postgresql-client").unwrap());
            psql.args(["--quiet", "--set", "ON_ERROR_STOP=1", &server.url()]);
            fed(psql.stdout(Stdio::null()), &stored);
            server
        }
        "mysql.sql.gz" => {
            let server = Server::mysql();
            let mut client = Command::new(find_program("mariadb", "mariadb-client").unwrap());
            fed(client.args(mysql_words(&server)), &stored);
            server
        }
        _ => {
            fs::copy(&stored, place.path().join("dump.rdb")).unwrap();
            redis_in(place.path())
        }
    };
    (server, place)
}

fn redis_in(folder: &Path) -> Server {
    let folder = folder.display().to_string();
    Server::Redis(Redis::start_with(&["--appendonly", "no", "--dir", &folder]).unwrap())
}

/// Host, port, user and database, as the client's programs want them.
fn mysql_words(server: &Server) -> Vec<String> {
    let url = server.url();
    let (_, rest) = url.split_once("://").unwrap();
    let (user, rest) = rest.split_once('@').unwrap();
    let (host, database) = rest.split_once('/').unwrap();
    let (host, port) = host.split_once(':').unwrap();
    let words = ["--no-defaults", "--host", host, "--port", port, "--user", user, database];
    words.map(str::to_owned).into()
}

/// Runs a program with the unpacked file as its input.
fn fed(command: &mut Command, packed: &Path) {
    let mut unpack = Command::new("gzip");
    let unpack = unpack.arg("-dc").arg(packed).stdout(Stdio::piped()).spawn();
    let mut unpack = unpack.expect("gzip is installed");
    succeeds(command.stdin(unpack.stdout.take().unwrap()));
    assert!(unpack.wait().unwrap().success());
}

fn succeeds(command: &mut Command) {
    let status = command.status().unwrap();
    assert!(status.success(), "{command:?}: {status}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_sqlite_file_of_version_0_1_goes_on() {
    let (server, _place) = with_data("sqlite.store");
    goes_on("sqlite", seriatim::connect(&server.url()).await.unwrap()).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_postgresql_database_of_version_0_1_goes_on() {
    let (server, _place) = with_data("postgres.sql.gz");
    goes_on("postgres", seriatim::connect(&server.url()).await.unwrap()).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_mysql_database_of_version_0_1_goes_on() {
    let (server, _place) = with_data("mysql.sql.gz");
    goes_on("mysql", seriatim::connect(&server.url()).await.unwrap()).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_redis_of_version_0_1_goes_on() {
    let (server, _place) = with_data("redis.rdb");
    goes_on("redis", seriatim::connect(&server.url()).await.unwrap()).await;
}

/// Does nothing unless it is asked to write.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_stores_are_written_when_asked() {
    if std::env::var_os("SERIATIM_WRITE_STORE").is_none() {
        return;
    }
    fs::create_dir_all(folder()).unwrap();
    let place = tempfile::tempdir().unwrap();
    let servers = [
        ("sqlite", Server::sqlite()),
        ("postgres", Server::postgres()),
        ("mysql", Server::mysql()),
        ("redis", redis_in(place.path())),
    ];
    for (name, server) in servers {
        let store = seriatim::connect(&server.url()).await.unwrap();
        store.migrate().await.unwrap();
        let known = fill(store.clone()).await;
        store.close().await.unwrap();
        let text = serde_json::to_string_pretty(&known).unwrap() + "\n";
        fs::write(folder().join(format!("{name}.json")), text).unwrap();
        write(&server, place.path());
    }
}

fn write(server: &Server, place: &Path) {
    let dump = |program: &'static str, words: &[String], to: &str| {
        let to = folder().join(to);
        let mut command = Command::new(find_program(program, "the client of the server").unwrap());
        succeeds(command.args(words).stdout(File::create(&to).unwrap()));
        // The text is a copy of the schema, which nobody should find there.
        succeeds(Command::new("gzip").args(["-9", "-n", "-f"]).arg(&to));
    };
    match server {
        Server::Sqlite(_) => {
            let from = server.url();
            fs::copy(from.trim_start_matches("sqlite:"), folder().join("sqlite.store")).unwrap();
        }
        Server::Postgres(_) => {
            let words = ["--inserts", "--no-owner", "--no-privileges", "--schema=seriatim"];
            let words: Vec<String> =
                words.map(str::to_owned).into_iter().chain([server.url()]).collect();
            dump("pg_dump", &words, "postgres.sql");
        }
        Server::Mysql(_) => {
            let mut words = mysql_words(server);
            words.insert(1, "--skip-comments".to_owned());
            dump("mariadb-dump", &words, "mysql.sql");
        }
        Server::Redis(_) => {
            server.asked(&["SAVE"]);
            fs::copy(place.join("dump.rdb"), folder().join("redis.rdb")).unwrap();
        }
    }
}
