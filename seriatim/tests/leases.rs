//! A handler that keeps its runtime's threads to itself keeps its lane all the same.
#![allow(clippy::unwrap_used)]

use std::thread;
use std::time::Duration;

use seriatim::engine::Summary;
use seriatim::store::{Declare, Heartbeat, NodeInfo, Push, Rescue};
use seriatim::{Batch, Engine, Failure, Job, Queue, SharedStore, Worker};
use tokio::runtime::{Builder, Runtime};

const LEASE: Duration = Duration::from_secs(2);
/// How long each handler keeps its thread: well beyond a lease.
const BUSY: Duration = Duration::from_secs(4);

fn one_thread() -> Runtime {
    Builder::new_current_thread().enable_all().build().unwrap()
}

fn two_threads() -> Runtime {
    Builder::new_multi_thread().worker_threads(2).enable_all().build().unwrap()
}

/// An engine whose handlers occupy all threads of its runtime.
async fn work(url: String, handlers: usize) -> Summary {
    let store = seriatim::connect(&url).await.unwrap();
    let (done, mut all_done) = tokio::sync::mpsc::unbounded_channel();
    let engine = Engine::builder(store.clone())
        .concurrency(handlers)
        .lease(LEASE)
        .heartbeat(LEASE / 4)
        .worker("q", move |_: Batch<usize>| {
            let done = done.clone();
            async move {
                // As if it computed, without keeping the machine from other tests.
                let (_never, ends) = std::sync::mpsc::channel::<()>();
                assert!(ends.recv_timeout(BUSY).is_err());
                done.send(()).unwrap();
            }
        });
    let stop = async {
        for _ in 0..handlers {
            all_done.recv().await;
        }
    };
    let summary = engine.run_until(stop).await.unwrap();
    store.close().await.unwrap();
    summary
}

/// Another node, which takes over whatever it can until the engine has ended.
async fn prey(store: &SharedStore, engine: &thread::JoinHandle<Summary>) -> usize {
    let node = NodeInfo::new("watcher".into(), Duration::from_secs(3_600));
    let (id, mut taken) = (node.id.clone(), 0);
    store.heartbeat(Heartbeat { now: None, node, beats: Vec::new() }).await.unwrap();
    let mut pace = tokio::time::interval(Duration::from_millis(50));
    while !engine.is_finished() {
        pace.tick().await;
        let rescue = Rescue { now: None, node: id.clone(), lease: LEASE, lanes_max: 10, ticket: 0 };
        taken += store.rescue(rescue).await.unwrap().len();
    }
    taken
}

fn a_busy_handler_keeps_its_lane(url: String, runtime: fn() -> Runtime, handlers: usize) {
    one_thread().block_on(async {
        let store = seriatim::connect(&url).await.unwrap();
        store.migrate().await.unwrap();
        let queues = vec![Queue::parallel("q")];
        store.declare(Declare { now: None, queues }).await.unwrap();
        let jobs = (0..handlers).map(|i| Job::new("q", &i).unwrap()).collect();
        store.push(Push { now: None, jobs }).await.unwrap();
        let engine = thread::spawn(move || runtime().block_on(work(url, handlers)));
        assert_eq!(prey(&store, &engine).await, 0, "nothing is taken over");
        let summary = engine.join().unwrap();
        assert_eq!((summary.done, summary.stale), (handlers as u64, 0), "{summary:?}");
        store.close().await.unwrap();
    });
}

fn sqlite() -> (tempfile::TempDir, String) {
    let folder = tempfile::tempdir().unwrap();
    let url = format!("sqlite://{}", folder.path().join("jobs.db").display());
    (folder, url)
}

fn postgres(name: &str) -> String {
    let url = std::env::var("SERIATIM_TEST_POSTGRES")
        .expect("SERIATIM_TEST_POSTGRES names no server: run cargo xtask test");
    let mark = if url.contains('?') { '&' } else { '?' };
    format!("{url}{mark}schema=busy_{name}_{}", std::process::id())
}

/// A database of its own on the test server.
#[cfg(feature = "mysql")]
fn mysql(name: &str) -> String {
    use mysql_async::prelude::Queryable;
    let url = std::env::var("SERIATIM_TEST_MYSQL")
        .expect("SERIATIM_TEST_MYSQL names no server: run cargo xtask test");
    let micros = seriatim::Timestamp::of_this_machine().as_micros();
    let database = format!("busy_{name}_{micros}_{}", std::process::id());
    one_thread().block_on(async {
        let server = seriatim::store::Mysql::connect(&url).await.unwrap();
        let create =
            format!("CREATE DATABASE {database} CHARACTER SET utf8mb4 COLLATE utf8mb4_bin");
        server.session().await.unwrap().query_drop(create).await.unwrap();
    });
    let (server, _) = url.rsplit_once('/').unwrap();
    format!("{server}/{database}")
}

#[test]
fn on_sqlite_and_one_thread_a_busy_handler_keeps_its_lane() {
    let (_folder, url) = sqlite();
    a_busy_handler_keeps_its_lane(url, one_thread, 1);
}

#[test]
fn on_sqlite_and_two_threads_busy_handlers_keep_their_lanes() {
    let (_folder, url) = sqlite();
    a_busy_handler_keeps_its_lane(url, two_threads, 2);
}

#[test]
fn on_postgresql_and_one_thread_a_busy_handler_keeps_its_lane() {
    a_busy_handler_keeps_its_lane(postgres("one"), one_thread, 1);
}

#[test]
fn on_postgresql_and_two_threads_busy_handlers_keep_their_lanes() {
    a_busy_handler_keeps_its_lane(postgres("two"), two_threads, 2);
}

#[cfg(feature = "mysql")]
#[test]
fn on_mysql_and_one_thread_a_busy_handler_keeps_its_lane() {
    a_busy_handler_keeps_its_lane(mysql("one"), one_thread, 1);
}

#[cfg(feature = "mysql")]
#[test]
fn on_mysql_and_two_threads_busy_handlers_keep_their_lanes() {
    a_busy_handler_keeps_its_lane(mysql("two"), two_threads, 2);
}

#[cfg(feature = "redis")]
#[test]
fn on_redis_and_one_thread_a_busy_handler_keeps_its_lane() {
    let server = seriatim_testkit::Redis::start().unwrap();
    a_busy_handler_keeps_its_lane(server.url(), one_thread, 1);
}

#[cfg(feature = "redis")]
#[test]
fn on_redis_and_two_threads_busy_handlers_keep_their_lanes() {
    let server = seriatim_testkit::Redis::start().unwrap();
    a_busy_handler_keeps_its_lane(server.url(), two_threads, 2);
}

#[test]
fn a_blocking_worker_keeps_nothing_else_of_its_runtime_waiting() {
    let (_folder, url) = sqlite();
    one_thread().block_on(async {
        let store = seriatim::connect(&url).await.unwrap();
        store.migrate().await.unwrap();
        let jobs = ["blocks", "frees"].map(|queue| Job::new(queue, &1).unwrap()).to_vec();
        store.push(Push { now: None, jobs }).await.unwrap();
        let (free, freed) = std::sync::mpsc::channel();
        let freed = std::sync::Mutex::new(freed);
        let (done, all_done) = tokio::sync::oneshot::channel();
        let done = std::sync::Mutex::new(Some(done));
        let blocking = Worker::blocking("blocks", move |_: Batch<u32>| {
            // The other handler, on the runtime's one thread, lets it go on.
            freed.lock().unwrap().recv()?;
            done.lock()
                .unwrap()
                .take()
                .ok_or("it ran twice")?
                .send(())
                .map_err(|()| "nobody waits")?;
            Ok::<_, Failure>(())
        });
        let builder = Engine::builder(store.clone()).with(blocking);
        let builder = builder.worker("frees", move |_: Batch<u32>| {
            free.send(()).unwrap();
            async {}
        });
        let summary = builder.run_until(all_done).await.unwrap();
        assert_eq!(summary.done, 2, "{summary:?}");
    });
}
