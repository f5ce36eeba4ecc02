//! Cases for the user's own transactions, for every store that supports them.
#![allow(clippy::unwrap_used)]

use std::sync::{Arc, Mutex};
use std::time::Duration;

use async_trait::async_trait;
use futures_util::future::BoxFuture;
use tokio::sync::{mpsc, oneshot, watch};
use tokio::time::timeout;

use crate::contract::{Declare, Push, Pushed, Settle, Settled, SharedStore};
use crate::model::{ErrorKind, Result};
use crate::{
    Batch, Client, Context, Engine, Failure, Job, Queue,
    engine::{Exhausted, Summary},
    store::Settlement,
};

/// A database for one test, with a store in it and a table of whole numbers.
#[async_trait]
pub(crate) trait Database: Clone + Send + Sync + 'static {
    /// Opens the store as another process would.
    async fn open(&self) -> SharedStore;

    /// Pushes in a transaction, and commits it or rolls it back after `meanwhile`.
    async fn push_in(
        &self,
        client: &Client,
        jobs: Vec<Job>,
        meanwhile: BoxFuture<'_, ()>,
        commits: bool,
    ) -> Vec<Pushed>;

    /// Writes numbers in a transaction, and ends the call with it after `meanwhile`.
    async fn commit_with(
        &self,
        context: &Context,
        numbers: &[i32],
        meanwhile: BoxFuture<'_, ()>,
    ) -> Result<()>;

    /// How many numbers the table has.
    async fn written(&self) -> i64;
}

fn job(key: &str, number: i32) -> Job {
    Job::new("q", &number).unwrap().key(key)
}

async fn open(database: &impl Database) -> SharedStore {
    let store = database.open().await;
    store.declare(Declare { now: None, queues: vec![Queue::fifo("q")] }).await.unwrap();
    store
}

pub(crate) async fn a_push_holds_or_vanishes(database: impl Database) {
    let store = open(&database).await;
    let client = Client::new(store.clone());
    let mut wakeups = store.wakeups();
    for commits in [false, true] {
        // The first wake-ups may come from the declaration.
        while wakeups.wait(Duration::from_millis(300)).await.is_some() {
            wakeups.forget();
        }
        let unseen = async {
            assert_eq!(store.stats(None).await.unwrap()[0].jobs, 0, "invisible before the commit");
        };
        let jobs = vec![job("k", 1), job("l", 2)];
        let pushed = database.push_in(&client, jobs, Box::pin(unseen), commits).await;
        if commits {
            assert!(wakeups.wait(Duration::from_secs(20)).await.is_some(), "the commit wakes");
            assert!(store.job(pushed[0].job_id).await.unwrap().is_some());
        }
        assert_eq!(store.stats(None).await.unwrap()[0].jobs, if commits { 2 } else { 0 });
    }
}

/// Runs an engine with a job whose handler writes and settles in one transaction. With `rival`, the turn has been
/// settled elsewhere before.
async fn handled(database: &impl Database, rival: bool) -> (Summary, Option<ErrorKind>) {
    let store = open(database).await;
    store.push(Push { now: None, jobs: vec![job("k", 7)] }).await.unwrap();
    let answer: Arc<Mutex<Option<ErrorKind>>> = Arc::default();
    let ended = Arc::new(tokio::sync::Notify::new());
    let (ending, kind, database) = (ended.clone(), answer.clone(), database.clone());
    let node = database.open().await;
    let handler = move |batch: Batch<i32>, ctx: Context| {
        let (ending, kind) = (ending.clone(), kind.clone());
        let (store, database) = (store.clone(), database.clone());
        async move {
            let meanwhile = async {
                let done = |turn: &crate::store::Turn| Settlement::done(turn.lane, turn.token);
                let turns = ctx.turns().iter().map(done).collect();
                if rival {
                    let settled = store.settle(Settle::now(turns)).await.unwrap();
                    assert!(settled.iter().all(Settled::is_ok));
                }
            };
            let numbers: Vec<i32> = batch.payloads().copied().collect();
            let result = database.commit_with(&ctx, &numbers, Box::pin(meanwhile)).await;
            *kind.lock().unwrap() = result.as_ref().err().map(|error| error.kind());
            ending.notify_one();
            result.map_err(Failure::from)
        }
    };
    let summary = Engine::builder(node)
        .queue(Queue::fifo("q"))
        .worker("q", handler)
        .run_until(async move { ended.notified().await })
        .await
        .unwrap();
    let kind = *answer.lock().unwrap();
    (summary, kind)
}

pub(crate) async fn writes_and_the_end_of_a_job_hold_together(database: impl Database) {
    let (summary, error) = handled(&database, false).await;
    assert_eq!(error, None);
    assert_eq!((summary.done, summary.stale), (1, 0));
    assert_eq!(database.written().await, 1);
    let stats = &database.open().await.stats(None).await.unwrap()[0];
    assert_eq!((stats.jobs, stats.processed), (0, 1));
}

pub(crate) async fn the_hook_hears_of_a_job_that_could_not_be_decoded(database: impl Database) {
    let store = database.open().await;
    let queue = Queue::fifo("q").take(2);
    store.declare(Declare { now: None, queues: vec![queue.clone()] }).await.unwrap();
    let undecodable = Job::new("q", "not a number").unwrap().key("k");
    let jobs = vec![job("k", 7), undecodable];
    let pushed = store.push(Push { now: None, jobs }).await.unwrap();
    let (heard, mut hears) = tokio::sync::mpsc::unbounded_channel();
    let (node, writer) = (database.open().await, database.clone());
    let engine = Engine::builder(node)
        .queue(queue)
        .worker("q", move |batch: Batch<i32>, ctx: Context| {
            let database = writer.clone();
            async move {
                let numbers: Vec<i32> = batch.payloads().copied().collect();
                let ended = database.commit_with(&ctx, &numbers, Box::pin(async {})).await;
                ended.map_err(Failure::from)
            }
        })
        .on_retries_exhausted(move |exhausted: Exhausted| {
            heard.send(exhausted.job_id).unwrap();
            async { Ok(()) }
        });
    let hears = async move {
        let hears = tokio::time::timeout(Duration::from_secs(20), hears.recv());
        assert_eq!(hears.await.unwrap(), Some(pushed[1].job_id));
    };
    engine.run_until(hears).await.unwrap();
    assert_eq!(database.written().await, 1);
}

pub(crate) async fn whose_claim_was_taken_over_writes_nothing(database: impl Database) {
    let (summary, error) = handled(&database, true).await;
    assert_eq!(error, Some(ErrorKind::Conflict));
    assert_eq!((summary.done, summary.stale), (0, 1));
    assert_eq!(database.written().await, 0, "its writes vanished");
}

/// The lease of the node in the next case: the transaction is open for two of them.
const SHORT_LEASE: Duration = Duration::from_secs(2);
/// More than anything takes that waits for nobody.
const SOON: Duration = Duration::from_secs(20);

/// Reports progress, for ever. The reports cannot be written while the key is locked; heartbeats name its lane all the
/// same.
async fn reports(ctx: &Context, lane: &crate::Lane<i32>) {
    let mut ticks = tokio::time::interval(SHORT_LEASE / 20);
    for report in 0.. {
        ctx.progress(lane, &report).unwrap();
        ticks.tick().await;
    }
}

/// A user pushes behind running jobs, and does not commit: those keys wait, and nothing else.
pub(crate) async fn a_transaction_open_on_running_keys_for_two_leases_holds_up_those_keys_alone(
    database: impl Database,
) {
    let store = open(&database).await;
    let client = Client::new(store.clone());
    let push = async |job: Job| client.push(job).await.unwrap();
    let (started, mut starts) = mpsc::unbounded_channel();
    // Handlers of held keys end when this exceeds their number.
    let (ending, ends) = watch::channel(0);
    let worker = move |batch: Batch<i32>, ctx: Context| {
        let (started, mut ends) = (started.clone(), ends.clone());
        async move {
            let lane = &batch.lanes()[0];
            for number in lane.payloads().iter().copied() {
                started.send(number).unwrap();
                tokio::select! {
                    ends = ends.wait_for(|ends| *ends >= number) => drop(ends.unwrap()),
                    () = reports(&ctx, lane) => {}
                }
            }
        }
    };
    let (mut stops, mut engines) = (Vec::new(), Vec::new());
    for _ in 0..2 {
        let engine = Engine::builder(database.open().await)
            .queue(Queue::fifo("q"))
            .lease(SHORT_LEASE)
            .heartbeat(SHORT_LEASE / 5)
            .worker("q", worker.clone());
        let (stop, stopped) = oneshot::channel::<()>();
        engines.push(tokio::spawn(engine.run_until(stopped)));
        stops.push(stop);
    }
    let held = [("one", 1), ("two", 2), ("three", 3)];
    for (key, number) in held {
        push(job(key, number)).await;
        timeout(SOON, starts.recv()).await.expect("it starts").unwrap();
    }
    let (mut pushed, mut waiting) = (0, Vec::new());
    let meanwhile = async {
        // Pushes to a held key wait, and others beside them do not.
        for _ in 0..10 {
            let client = client.clone();
            waiting.push(tokio::spawn(async move { client.push(job("one", 0)).await }));
        }
        let until = store.now().await.unwrap() + SHORT_LEASE * 2;
        let mut ended = 0;
        while store.now().await.unwrap() < until || ended < held.len() as i32 {
            // One more of them ends, and its settle waits.
            ended = (ended + 1).min(held.len() as i32);
            ending.send(ended).unwrap();
            for _ in 0..5 {
                // Each of these starts after its predecessor was settled.
                push(job("z", 0)).await;
                timeout(SOON, starts.recv()).await.expect("the key is not held up").unwrap();
                pushed += 1;
            }
        }
        let nodes = store.nodes().await.unwrap();
        assert!(nodes.iter().all(|node| !node.dead), "{nodes:?}");
    };
    let later = held.map(|(key, _)| job(key, 0)).to_vec();
    database.push_in(&client, later, Box::pin(meanwhile), true).await;
    let behind = held.len() + waiting.len();
    for _ in 0..behind {
        timeout(SOON, starts.recv()).await.expect("they go on").unwrap();
    }
    for push in waiting {
        push.await.unwrap().unwrap();
    }
    let mut stale = 0;
    for (stop, engine) in stops.into_iter().zip(engines) {
        stop.send(()).unwrap();
        stale += engine.await.unwrap().unwrap().stale;
    }
    let (ended, stats) = (pushed + (held.len() + behind) as u64, store.stats(None).await.unwrap());
    assert_eq!((stats[0].processed, stats[0].jobs, stale), (ended, 0, 0));
}
