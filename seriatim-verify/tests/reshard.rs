//! Another number of shards while everybody works on: what was recorded of it is clean.
#![allow(clippy::unwrap_used)]

use std::io::Write;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use seriatim::store::{Declare, Push, Store};
use seriatim::{Backoff, Batch, Engine, Failure, Job, Queue, SharedStore, Timestamp, store::Redis};
use seriatim_testkit::{redis_cluster_url, redis_url};
use seriatim_verify::checker::{History, Recorder, check};
use tokio::sync::Notify;

fn new_prefix() -> String {
    static NEXT: AtomicU32 = AtomicU32::new(0);
    let (process, test) = (std::process::id(), NEXT.fetch_add(1, Ordering::Relaxed));
    format!("reshard-{}-{process}-{test}", Timestamp::of_this_machine().as_micros())
}

async fn open_at(url: &str, prefix: &str) -> SharedStore {
    let store = Redis::connect_in(url, prefix).await.expect("the server can be reached");
    store.migrate().await.expect("the store is set up");
    Arc::new(store)
}

#[derive(Clone, Default)]
struct Buffer(Arc<Mutex<Vec<u8>>>);

impl Write for Buffer {
    fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
        self.0.lock().unwrap().write(bytes)
    }
    fn flush(&mut self) -> std::io::Result<()> {
        Ok(())
    }
}

const KEYS: u64 = 40;
/// How many jobs are pushed and how many done before the next number of shards.
const BETWEEN: u64 = 200;

#[derive(Default)]
struct Load {
    pushed: AtomicU64,
    handled: AtomicU64,
    enough: AtomicBool,
    /// Whether the producers have ended, so that `pushed` is final.
    all_pushed: AtomicBool,
    /// One of these has changed.
    changed: Notify,
}

impl Load {
    fn adds(&self, to: &AtomicU64, jobs: u64) {
        to.fetch_add(jobs, Ordering::SeqCst);
        self.changed.notify_waiters();
    }

    fn tells(&self, what: &AtomicBool) {
        what.store(true, Ordering::SeqCst);
        self.changed.notify_waiters();
    }

    /// Waits for real work, at most a minute.
    async fn until(&self, holds: impl Fn() -> bool) {
        let waiting = async {
            loop {
                let changed = self.changed.notified();
                if holds() {
                    return;
                }
                changed.await;
            }
        };
        tokio::time::timeout(Duration::from_secs(60), waiting).await.expect("it stands still");
    }
}

fn queue() -> Queue {
    let base = Duration::from_millis(3);
    Queue::fifo("q").shards(4).backoff(Backoff::Constant { base })
}

async fn push_until_enough(
    store: SharedStore,
    load: Arc<Load>,
    recorder: Recorder<Buffer>,
    me: u64,
) {
    let mut i = 0;
    while !load.enough.load(Ordering::SeqCst) {
        let jobs: Vec<Job> = (0..5)
            .map(|n| {
                i += 1;
                let key = format!("k{}", (i * 7 + n) % KEYS);
                Job::new("q", &(me * 1_000_000 + i)).unwrap().key(key)
            })
            .collect();
        let sent_at = Timestamp::of_this_machine();
        let answers = store.push(Push { now: None, jobs: jobs.clone() }).await.unwrap();
        for (job, answer) in jobs.iter().zip(answers) {
            recorder.pushed(sent_at, job, Some(&Ok(answer)));
        }
        load.adds(&load.pushed, 5);
        // So that what is pushed is about what can be done.
        load.until(|| {
            load.pushed.load(Ordering::SeqCst) <= load.handled.load(Ordering::SeqCst) + 300
        })
        .await;
    }
}

async fn work(store: SharedStore, load: Arc<Load>, recorder: Recorder<Buffer>) {
    let done = load.clone();
    let handler = move |batch: Batch<u64>| {
        let load = load.clone();
        async move {
            tokio::task::yield_now().await;
            for lane in batch.lanes() {
                // Failures keep a lane where it is for longer.
                if lane.retry_count() < 0 && lane.payloads().iter().any(|payload| payload % 16 == 0)
                {
                    return Err("once more".into());
                }
                load.adds(&load.handled, 1);
            }
            Ok::<(), Failure>(())
        }
    };
    let stop = async move {
        let is_done = || {
            let pushed = done.pushed.load(Ordering::SeqCst);
            done.all_pushed.load(Ordering::SeqCst) && done.handled.load(Ordering::SeqCst) >= pushed
        };
        done.until(is_done).await;
    };
    Engine::builder(store)
        .queue(queue())
        .concurrency(6)
        .poll_interval(Duration::from_millis(50))
        .worker("q", handler)
        .observer(Arc::new(recorder))
        .run_until(stop)
        .await
        .unwrap();
}

async fn numbers_of_shards_change_under_load(url: &str) {
    let prefix = new_prefix();
    let admin = open_at(url, &prefix).await;
    admin.declare(Declare { now: None, queues: vec![queue()] }).await.unwrap();
    let (load, buffer) = (Arc::new(Load::default()), Buffer::default());
    let recorder = Recorder::new("admin", buffer.clone());
    recorder.queue(&queue());
    let (mut producers, mut engines) = (Vec::new(), Vec::new());
    for me in 0..2 {
        let (store, pusher) = (open_at(url, &prefix).await, recorder.for_actor(format!("p{me}")));
        producers.push(tokio::spawn(push_until_enough(store, load.clone(), pusher, me)));
        let store = open_at(url, &prefix).await;
        let recorder = recorder.for_actor(format!("e{me}"));
        engines.push(tokio::spawn(work(store, load.clone(), recorder)));
    }
    for shards in [16, 3] {
        let (pushed, handled) =
            (load.pushed.load(Ordering::SeqCst), load.handled.load(Ordering::SeqCst));
        let both_went_on = || {
            load.pushed.load(Ordering::SeqCst) >= pushed + BETWEEN
                && load.handled.load(Ordering::SeqCst) >= handled + BETWEEN
        };
        load.until(both_went_on).await;
        assert_eq!(admin.reshard("q".into(), shards).await.unwrap().shards, shards);
    }
    let handled = load.handled.load(Ordering::SeqCst);
    load.until(|| load.handled.load(Ordering::SeqCst) >= handled + BETWEEN).await;
    load.tells(&load.enough);
    for producer in producers {
        producer.await.unwrap();
    }
    load.tells(&load.all_pushed);
    for engine in engines {
        engine.await.unwrap();
    }
    assert_eq!(admin.stats(None).await.unwrap()[0].jobs, 0);
    let drained = admin.reshard("q".into(), 3).await.unwrap();
    assert_eq!((drained.older, drained.lanes_left, drained.shards), (0, 0, 3));
    recorder.finish(&*admin).await.unwrap();
    let written = buffer.0.lock().unwrap().clone();
    let mut history = History::new();
    history.read(&written[..], "history").unwrap();
    let report = check(&history);
    assert!(report.is_clean(), "{:#?}", report.verdicts);
    assert!(report.pushes >= 3 * BETWEEN);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn l20_shards_go_from_4_to_16_to_3_under_load_without_overlap_loss_or_disorder() {
    numbers_of_shards_change_under_load(&redis_url().unwrap()).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn l20_shards_go_from_4_to_16_to_3_under_load_in_a_cluster() {
    numbers_of_shards_change_under_load(&redis_cluster_url().unwrap()).await;
}
