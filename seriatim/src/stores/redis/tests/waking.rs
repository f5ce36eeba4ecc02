//! Which processes a push wakes; `outages.rs` tests large fleets.

use tokio::sync::Notify;

use super::depth::calls;
use super::servers::until;
use super::*;
use crate::{Batch, Engine, SharedStore};

/// Nothing in these tests is found by a poll.
const NEVER: Duration = Duration::from_secs(600);

/// The processes that a push may wake.
struct Sleepers<'a>(&'a str, ::redis::aio::MultiplexedConnection);

impl<'a> Sleepers<'a> {
    async fn of(prefix: &'a str) -> Self {
        Self(prefix, linked(&url()).await)
    }

    async fn in_queue(&mut self, number: u32) -> usize {
        let key = format!("{}:{{q{number}:0}}:sleepers", self.0);
        ::redis::cmd("ZCARD").arg(key).query_async(&mut self.1).await.unwrap()
    }
}

/// An engine with one slot for these queues; its handler waits for `release`, and tells its queue first.
async fn engine(
    prefix: &str,
    queues: &[&'static str],
    tell: &tokio::sync::mpsc::UnboundedSender<&'static str>,
    release: &Arc<Notify>,
) -> tokio::task::JoinHandle<()> {
    let store: SharedStore = Arc::new(Redis::connect_in(&url(), prefix).await.unwrap());
    let mut builder = Engine::builder(store).concurrency(1).poll_interval(NEVER);
    for &queue in queues {
        let (tell, release) = (tell.clone(), release.clone());
        builder = builder.worker(queue, move |_: Batch<u32>| {
            let release = release.clone();
            tell.send(queue).unwrap();
            async move { release.notified().await }
        });
    }
    tokio::spawn(async move {
        builder.run_until(std::future::pending::<()>()).await.unwrap();
    })
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_job_whose_wake_ups_reach_busy_processes_starts_in_an_idle_one() {
    let prefix = new_prefix();
    let store = open(&prefix).await;
    declare(&store, Queue::fifo("both")).await;
    declare(&store, Queue::fifo("other")).await;
    let mut sleepers = Sleepers::of(&prefix).await;
    let (tell, mut told) = tokio::sync::mpsc::unbounded_channel();
    let release = Arc::new(Notify::new());
    // The idle one sleeps longest, so it would be woken last.
    let mut engines = vec![engine(&prefix, &["both"], &tell, &release).await];
    until("the idle one sleeps", async || sleepers.in_queue(1).await == 1).await;
    for _ in 0..2 {
        engines.push(engine(&prefix, &["both", "other"], &tell, &release).await);
    }
    until("all sleep", async || (sleepers.in_queue(1).await, sleepers.in_queue(2).await) == (3, 2))
        .await;
    for busy in ["a", "b"] {
        push(&store, vec![Job::new("other", &1).unwrap().key(busy)]).await;
        assert_eq!(told.recv().await, Some("other"));
    }
    push(&store, vec![Job::new("both", &1).unwrap().key("c")]).await;
    let started = tokio::time::timeout(Duration::from_secs(10), told.recv()).await;
    assert_eq!(started.expect("nobody hears of it"), Some("both"));
    engines.iter().for_each(tokio::task::JoinHandle::abort);
}

/// It asks when its queues are due, and claims from none of them.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_idle_engine_of_several_queues_hears_of_the_first_push_to_each() {
    let prefix = new_prefix();
    let store = open(&prefix).await;
    for queue in ["first", "second"] {
        declare(&store, Queue::fifo(queue)).await;
    }
    let mut sleepers = Sleepers::of(&prefix).await;
    let (tell, mut told) = tokio::sync::mpsc::unbounded_channel();
    let release = Arc::new(Notify::new());
    let engine = engine(&prefix, &["first", "second"], &tell, &release).await;
    for (number, queue) in [(1, "first"), (2, "second")] {
        until("the engine sleeps", async || sleepers.in_queue(number).await == 1).await;
        push(&store, vec![Job::new(queue, &1).unwrap().key("k")]).await;
        let started = tokio::time::timeout(Duration::from_secs(10), told.recv()).await;
        assert_eq!(started.expect("it does not hear of it"), Some(queue));
        release.notify_one();
    }
    engine.abort();
}

/// The commands that a push, its claim and its settle take, in a process that works on all queues.
async fn commands_of_a_job(queues: usize) -> u64 {
    let server = seriatim_testkit::Redis::start().unwrap();
    let prefix = new_prefix();
    let (pusher, store) =
        (open_at(&server.url(), &prefix).await, open_at(&server.url(), &prefix).await);
    let names: Vec<Arc<str>> = (0..queues).map(|i| format!("q{i}").into()).collect();
    let all = names.iter().map(|name| Queue::parallel(&**name)).collect();
    pusher.declare(Declare { now: None, queues: all }).await.unwrap();
    let work = async || {
        push(&pusher, vec![Job::new("q0", &1).unwrap()]).await;
        let turns = store.claim(claim_request("q0", 1)).await.unwrap().turns;
        assert!(done(&store, &turns).await[0].is_ok());
    };
    assert_eq!(store.due(names).await.unwrap().len(), queues);
    // From now on the server has the scripts, and both know the queue.
    work().await;
    let before = calls(&server.url()).await;
    work().await;
    calls(&server.url()).await - before
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_job_takes_as_many_commands_whatever_the_number_of_queues() {
    let (few, many) = (commands_of_a_job(1).await, commands_of_a_job(1_000).await);
    assert!(many <= few + 2, "{few} commands with one queue, {many} with 1,000");
}

/// A page looks when queues are due, but claims nothing.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn only_who_claims_is_taken_for_one_that_waits() {
    let prefix = new_prefix();
    let store = open(&prefix).await;
    declare(&store, Queue::fifo("q")).await;
    let mut sleepers = Sleepers::of(&prefix).await;
    let _watches = store.wakeups();
    store.due(vec!["q".into()]).await.unwrap();
    assert_eq!(sleepers.in_queue(1).await, 0);
    let _waits = store.wakeups().only(["q".into()]);
    store.due(vec!["q".into()]).await.unwrap();
    assert_eq!(sleepers.in_queue(1).await, 1);
}
