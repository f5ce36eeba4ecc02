//! Stores that earlier builds wrote, in `tests/store-*`: every later build opens them, knows what is in them, and goes on
//! with it.
//!
//! `SERIATIM_WRITE_STORE=1` writes the latest of them again with this build. Do that only before the first release
//! whose stores are to be kept; later, name another folder in a fixture of its own.

mod more;

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

use crate::faults::{Server, mysql_words};
use crate::hand::Hand;
use crate::site::eventually;

const LONG: Duration = Duration::from_secs(9 * 365 * 86_400);
const KEYS: [&str; 5] = ["done", "dead", "failed", "held by a node", "waits"];
/// 2100.
const LATER: i64 = 4_102_444_800_000_000;

/// The stores of one time, each a file, with what the jobs in it must be in another one.
struct Fixture {
    folder: &'static str,
    /// Whether it has what [`more`] has.
    has_more: bool,
}

/// The first layouts.
const FIRST: Fixture = Fixture { folder: "store-0.1", has_more: false };
/// SQLite 14, PostgreSQL 26, MySQL 9, Redis 4.
const FULL: Fixture = Fixture { folder: "store-2026-11", has_more: true };
/// SQLite 17, PostgreSQL 39, MySQL 11, Redis 7.
const LATEST: Fixture = Fixture { folder: "store-2026-11-30", has_more: true };

impl Fixture {
    fn path(&self, name: &str) -> PathBuf {
        Path::new(env!("CARGO_MANIFEST_DIR")).join("tests").join(self.folder).join(name)
    }

    /// What each job was, by id.
    fn known(&self, name: &str) -> serde_json::Map<String, Value> {
        let packed = self.path(&format!("{name}.json.gz"));
        let known = Command::new("gzip").arg("-dc").arg(packed).output().unwrap();
        serde_json::from_slice(&known.stdout).unwrap()
    }

    fn queues(&self, store: &SharedStore) -> Vec<Queue> {
        let mut queues = queues();
        if self.has_more {
            queues.extend(more::queues(store));
        }
        queues
    }
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

/// Jobs in every state, and what else a store may have. Returns what each job is then.
async fn fill(server: &Server, store: SharedStore) -> Value {
    more::fill_by_program(server, &store).await;
    let queues = LATEST.queues(&store);
    let mut hand = Hand::new(store, queues).await;
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
    ids.extend(more::fill_by_hand(server, &hand).await);
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
        "error": view.error, "score": view.score, "attempt": view.attempt, "retry_count": view.retry_count,
        "options": view.options,
    })
}

/// The first fixture says less of a job.
fn is_as_told(view: &JobView, expected: &Value) -> bool {
    let (told, expected) = (told(view), expected.as_object().unwrap());
    expected.iter().all(|(field, value)| told[field] == *value)
}

/// Runs what there is, except for what is scheduled, and returns what was run of each key, in order.
async fn run_all(store: SharedStore, queues: Vec<Queue>) -> BTreeMap<String, Vec<u64>> {
    let ran: Arc<Mutex<BTreeMap<String, Vec<u64>>>> = Arc::default();
    // So that the lanes of a node that is long dead are soon taken over.
    let engine = Engine::builder(store.clone()).rescue_interval(Duration::from_millis(300));
    let engine = queues.into_iter().fold(engine, |engine, queue| {
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
            let waits = match store.capabilities().inbox {
                true => store.inbox().await.unwrap().waits_since,
                false => None,
            };
            let stats = store.stats(None).await.unwrap();
            waits.is_none() && stats.iter().all(|queue| queue.jobs == jobs_left(&queue.queue))
        })
        .await;
        handle.stop();
    };
    let (summary, ()) = tokio::join!(engine.run_until(std::future::pending::<()>()), done);
    summary.unwrap();
    let ran = ran.lock().unwrap();
    ran.clone()
}

fn jobs_left(queue: &str) -> u64 {
    match Mode::from_name(queue) {
        Some(_) => 1,
        None => more::jobs_left(queue),
    }
}

async fn goes_on(fixture: Fixture, name: &str) {
    let (server, _place) = with_data(&fixture, name);
    let store = seriatim::connect(&server.url()).await.unwrap();
    let known = fixture.known(name);
    store.migrate().await.unwrap();
    for (id, expected) in &known {
        let view = store.job(id.parse().unwrap()).await.unwrap();
        let view = view.unwrap_or_else(|| panic!("{id} is unknown: {expected}"));
        assert!(is_as_told(&view, expected), "{id}: {} is not {expected}", told(&view));
    }
    if fixture.has_more {
        more::is_known(&server.url(), &store, &known).await;
    }
    for mode in Mode::ALL {
        let again = Client::new(store.clone()).push(repeated(mode)).await.unwrap();
        assert!(known.contains_key(&again.job_id.to_string()), "{mode}: {again:?}");
    }
    let ran = run_all(store.clone(), fixture.queues(&store)).await;
    for mode in [Mode::Fifo, Mode::Accumulate] {
        for key in ["failed", "held by a node"] {
            assert_eq!(ran[&format!("{mode} {key}")], [1, 2, 3], "{mode} {key}");
        }
    }
    for mode in Mode::ALL {
        assert_eq!(ran[&format!("{mode} waits")], [1], "{mode}");
    }
    if fixture.has_more {
        more::has_gone_on(&store, &ran).await;
    }
    store.close().await.unwrap();
}

/// A server with the stored data, and where its file is.
fn with_data(fixture: &Fixture, name: &str) -> (Server, tempfile::TempDir) {
    let place = tempfile::tempdir().unwrap();
    let stored = fixture.path(file_of(name));
    let server = match name {
        "sqlite" => {
            let server = Server::sqlite();
            let file = File::create(server.url().trim_start_matches("sqlite:")).unwrap();
            fed(Command::new("cat").stdout(file), &stored);
            server
        }
        "postgres" => {
            let server = Server::postgres();
            fed(server.client().stdout(Stdio::null()), &stored);
            server
        }
        "mysql" => {
            let server = Server::mysql();
            fed(&mut server.client(), &stored);
            server
        }
        _ => {
            fs::copy(&stored, place.path().join("dump.rdb")).unwrap();
            redis_in(place.path())
        }
    };
    (server, place)
}

fn file_of(name: &str) -> &'static str {
    match name {
        "sqlite" => "sqlite.store.gz",
        "postgres" => "postgres.sql.gz",
        "mysql" => "mysql.sql.gz",
        _ => "redis.rdb",
    }
}

fn redis_in(folder: &Path) -> Server {
    let folder = folder.display().to_string();
    Server::Redis(Redis::start_with(&["--appendonly", "no", "--dir", &folder]).unwrap())
}

/// Runs a program with the unpacked file as its input.
fn fed(command: &mut Command, packed: &Path) {
    let mut unpack = Command::new("gzip");
    let unpack = unpack.arg("-dc").arg(packed).stdout(Stdio::piped()).spawn();
    let mut unpack = unpack.expect("gzip is installed");
    succeeds(command.stdin(unpack.stdout.take().unwrap()));
    assert!(unpack.wait().unwrap().success());
}

/// Texts are copies of the schema, which nobody should find there.
fn pack(file: &Path) {
    succeeds(Command::new("gzip").args(["-9", "-n", "-f"]).arg(file));
}

fn succeeds(command: &mut Command) {
    let status = command.status().unwrap();
    assert!(status.success(), "{command:?}: {status}");
}

macro_rules! each_goes_on {
    ($($name:ident: $fixture:ident, $store:literal;)*) => {$(
        #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
        async fn $name() {
            goes_on($fixture, $store).await;
        }
    )*};
}

each_goes_on! {
    a_sqlite_file_of_version_0_1_goes_on: FIRST, "sqlite";
    a_postgresql_database_of_version_0_1_goes_on: FIRST, "postgres";
    a_mysql_database_of_version_0_1_goes_on: FIRST, "mysql";
    a_redis_of_version_0_1_goes_on: FIRST, "redis";
    a_sqlite_file_with_all_that_a_store_may_have_goes_on: FULL, "sqlite";
    a_postgresql_database_with_all_that_a_store_may_have_goes_on: FULL, "postgres";
    a_mysql_database_with_all_that_a_store_may_have_goes_on: FULL, "mysql";
    a_redis_with_all_that_a_store_may_have_goes_on: FULL, "redis";
    a_sqlite_file_of_layout_17_goes_on: LATEST, "sqlite";
    a_postgresql_database_of_layout_39_goes_on: LATEST, "postgres";
    a_mysql_database_of_layout_11_goes_on: LATEST, "mysql";
    a_redis_of_layout_7_goes_on: LATEST, "redis";
}

/// Does nothing unless it is asked to write.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_stores_are_written_when_asked() {
    if std::env::var_os("SERIATIM_WRITE_STORE").is_none() {
        return;
    }
    fs::create_dir_all(LATEST.path("")).unwrap();
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
        let known = fill(&server, store.clone()).await;
        store.close().await.unwrap();
        let known_file = LATEST.path(&format!("{name}.json"));
        fs::write(&known_file, serde_json::to_string(&known).unwrap() + "\n").unwrap();
        pack(&known_file);
        write(&server, place.path());
    }
}

fn write(server: &Server, place: &Path) {
    let packed = |command: &mut Command, to: &str| {
        let to = LATEST.path(to);
        succeeds(command.stdout(File::create(&to).unwrap()));
        pack(&to);
    };
    let dump = |program: &'static str, words: &[String], to: &str| {
        let program = find_program(program, "the client of the server").unwrap();
        packed(Command::new(program).args(words), to);
    };
    match server {
        Server::Sqlite(_) => {
            let url = server.url();
            packed(Command::new("cat").arg(url.trim_start_matches("sqlite:")), "sqlite.store");
        }
        Server::Postgres(_) => {
            let words = ["--inserts", "--no-owner", "--no-privileges", "--schema=seriatim"];
            let words: Vec<String> =
                words.map(str::to_owned).into_iter().chain([server.url()]).collect();
            dump("pg_dump", &words, "postgres.sql");
        }
        Server::Mysql(_) => {
            let mut words = mysql_words(&server.url());
            words.insert(1, "--skip-comments".to_owned());
            dump("mariadb-dump", &words, "mysql.sql");
        }
        Server::Redis(_) => {
            server.asked(&["SAVE"]);
            fs::copy(place.join("dump.rdb"), LATEST.path("redis.rdb")).unwrap();
        }
    }
}
