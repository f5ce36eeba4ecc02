//! Cases for a store that is emptied while nodes run; the tests of each store supply the way to empty it.
#![allow(clippy::unwrap_used)]

use std::time::Duration;

use tokio::sync::{mpsc, oneshot};

use crate::contract::*;
use crate::{Batch, Client, Context, Engine, ErrorKind, Job, Mode, Queue, SharedStore};

const LEASE: Duration = Duration::from_secs(60);
/// How long a test waits for the engine: less than until a lease ends.
const PATIENCE: Duration = Duration::from_secs(40);

fn job(queue: &str, number: u32) -> Job {
    Job::new(queue, &number).unwrap()
}

async fn claim(store: &SharedStore, queue: &str, declared: bool) -> crate::Result<Vec<u32>> {
    let node = NodeInfo::new("n".into(), LEASE);
    store.heartbeat(Heartbeat { now: None, node, beats: Vec::new() }).await?;
    let claim = Claim { declared, ..Claim::new(queue, "n", 10, Lease::Node { ttl: LEASE }) };
    let turns = store.claim(claim).await?.turns;
    let jobs = turns.iter().flat_map(|turn| &turn.jobs);
    Ok(jobs.map(|job| job.payload.decode().unwrap()).collect())
}

async fn view(store: &SharedStore, queue: &str) -> QueueView {
    let views = store.queues().await.unwrap();
    views.into_iter().find(|view| view.queue.name == queue).unwrap()
}

/// A process that remembers a queue of the emptied store never confuses it with another queue that now has its
/// number.
pub(crate) async fn no_queue_is_taken_for_another(
    open: impl AsyncFn() -> SharedStore,
    empty: impl AsyncFn(),
) {
    let (ours, others) = (open().await, open().await);
    Client::new(ours.clone()).declare([Queue::parallel("orders")]).await.unwrap();
    Client::new(ours.clone()).push(job("orders", 1)).await.unwrap();
    assert_eq!(claim(&ours, "orders", true).await.unwrap(), [1]);
    empty().await;
    others.migrate().await.unwrap();
    Client::new(others.clone()).declare([Queue::parallel("mails")]).await.unwrap();
    Client::new(others.clone()).push(job("mails", 2)).await.unwrap();
    for declared in [true, false] {
        let claimed = claim(&ours, "orders", declared).await;
        assert_eq!(claimed.unwrap_err().kind(), ErrorKind::NotFound, "declared: {declared}");
    }
    let pushed = Client::new(ours.clone()).push(job("orders", 3)).await.unwrap();
    assert_ne!(pushed.job_id.queue(), view(&others, "mails").await.number);
    let claimed = claim(&ours, "orders", true).await;
    assert_eq!(claimed.unwrap_err().kind(), ErrorKind::NotFound, "a push made it");
    assert_eq!(claim(&ours, "orders", false).await.unwrap(), [3]);
    assert_eq!(claim(&ours, "mails", true).await.unwrap(), [2]);
    ours.close().await.unwrap();
    others.close().await.unwrap();
}

/// The payload of a job whose handler waits until it must end, and what it then tells.
const WAITS: u32 = 100;
const ENDS: u32 = 101;

/// An engine declares its queues again before it takes anything from them, and ends the handlers whose claims are gone.
pub(crate) async fn a_running_engine_declares_its_queues_again(
    open: impl AsyncFn() -> SharedStore,
    empty: impl AsyncFn(),
) {
    let (ours, others) = (open().await, open().await);
    let (done, mut handled) = mpsc::unbounded_channel();
    let (stop, stopped) = oneshot::channel::<()>();
    let engine = Engine::builder(ours)
        .heartbeat(Duration::from_millis(500))
        .queue(Queue::accumulate("orders").max_retries(3))
        .worker("orders", move |batch: Batch<u32>, context: Context| {
            let numbers: Vec<u32> =
                batch.lanes().iter().flat_map(|lane| lane.payloads().to_vec()).collect();
            let done = done.clone();
            async move {
                let waits = numbers == [WAITS];
                done.send(numbers).unwrap();
                if waits {
                    context.must_end().await;
                    done.send(vec![ENDS]).unwrap();
                }
            }
        })
        .run_until(stopped);
    let engine = tokio::spawn(engine);
    let client = Client::new(others.clone());
    let mut next = async || tokio::time::timeout(PATIENCE, handled.recv()).await.unwrap().unwrap();
    client.declare([Queue::accumulate("orders").max_retries(3)]).await.unwrap();
    client.push(job("orders", 1).key("k")).await.unwrap();
    assert_eq!(next().await, [1]);
    client.push(job("orders", WAITS).key("waits")).await.unwrap();
    assert_eq!(next().await, [WAITS]);
    empty().await;
    others.migrate().await.unwrap();
    // These arrive before the engine may have noticed.
    client.push(job("mails", 9)).await.unwrap();
    client.push(job("orders", 2).key("k")).await.unwrap();
    // Long before its lease ends.
    let mut told = [next().await, next().await].concat();
    told.sort_unstable();
    assert_eq!(told, [2, ENDS]);
    let orders = view(&others, "orders").await;
    let settings = (orders.declared, orders.queue.mode, orders.queue.max_retries);
    assert_eq!(settings, (true, Mode::Accumulate, 3));
    let stats = others.stats(None).await.unwrap();
    let mails = stats.iter().find(|stats| &*stats.queue == "mails").unwrap();
    assert_eq!((mails.jobs, mails.claimed), (1, 0), "the engine took only its own jobs");
    stop.send(()).unwrap();
    engine.await.unwrap().unwrap();
    others.close().await.unwrap();
}
