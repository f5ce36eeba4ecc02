//! Flow control as users have it: an engine at work, and the commands.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Instant;

use seriatim::store::{Declare, QueueStats};
use seriatim::{Batch, Client, Engine, Failure, Groups, Job, Queue, Share, SharedStore};
use tokio::sync::{Semaphore, oneshot};

use crate::faults::{Server, on_each_server};
use crate::site::{QUEUE, Site, eventually, jobs_or, text};

const JOBS: u64 = 600;
const KEYS_MAX: usize = 1_000;
const JOBS_PER_KEY: usize = 20;
const CONCURRENCY: usize = 4;
const PUSH_JOBS: usize = 1_000;
/// Jobs a second of a replay.
const RATE: f64 = 500.0;

fn jobs() -> usize {
    jobs_or(JOBS) as usize
}

async fn declared(server: &Server, queue: Queue) -> SharedStore {
    let store = server.store().await;
    store.declare(Declare { now: None, queues: vec![queue] }).await.unwrap();
    store
}

async fn push_all(client: &Client, jobs: usize, job: impl Fn(usize) -> Job) {
    let numbers: Vec<usize> = (0..jobs).collect();
    for numbers in numbers.chunks(PUSH_JOBS) {
        client.push_all(numbers.iter().map(|number| job(*number)).collect()).await.unwrap();
    }
}

async fn stats(store: &SharedStore) -> QueueStats {
    store.stats(None).await.unwrap().into_iter().find(|stats| &*stats.queue == QUEUE).unwrap()
}

/// A tenant has many keys that wait, and an engine works on them, when one job of another comes.
async fn one_job_waits_for_few_turns_of_another_tenant(server: Server) {
    let queue = Queue::fifo(QUEUE).groups(Groups::each(Share::default()));
    let store = declared(&server, queue).await;
    let client = Client::new(store.clone());
    let job = |tenant: &str, number: usize| {
        let job = Job::new(QUEUE, &(tenant, number)).unwrap();
        job.key(format!("{tenant}-{number}")).group(tenant)
    };
    push_all(&client, jobs(), |number| job("large", number)).await;
    let (large, small) = (Arc::new(AtomicUsize::new(0)), oneshot::channel());
    let (may_run, told) = (Arc::new(Semaphore::new(0)), Arc::new(Mutex::new(Some(small.0))));
    let (counted, gate) = (large.clone(), may_run.clone());
    let engine = Engine::builder(store.clone()).concurrency(CONCURRENCY).worker(
        QUEUE,
        move |batch: Batch<(String, usize)>| {
            let (counted, gate, told) = (counted.clone(), gate.clone(), told.clone());
            async move {
                match batch.payloads().all(|(tenant, _)| tenant == "large") {
                    true => counted.fetch_add(1, Ordering::SeqCst),
                    false => {
                        let before = counted.load(Ordering::SeqCst);
                        told.lock().unwrap().take().unwrap().send(before).unwrap();
                        0
                    }
                };
                gate.acquire().await.unwrap().forget();
                Ok::<(), Failure>(())
            }
        },
    );
    let (stop, stopped) = oneshot::channel::<()>();
    let working = tokio::spawn(engine.run_until(stopped));
    let started = || large.load(Ordering::SeqCst);
    eventually("all slots work", async || started() == CONCURRENCY).await;
    client.push(job("small", 0)).await.unwrap();
    may_run.add_permits(jobs() + 1);
    let waited = small.1.await.unwrap() - CONCURRENCY;
    println!("{}: it started behind {waited} turns of {}", store.capabilities().name, jobs());
    // One turn of each of the two tenants, and what runs.
    assert!(waited <= 2 + CONCURRENCY, "{waited}");
    stop.send(()).unwrap();
    working.await.unwrap().unwrap();
}

/// When which job of a key started.
type Starts = Arc<Mutex<Vec<(Instant, String, usize)>>>;

async fn work_until_done(store: &SharedStore, dies: bool, during: impl AsyncFnOnce()) -> Starts {
    let starts = Starts::default();
    let recorded = starts.clone();
    let engine = Engine::builder(store.clone()).concurrency(16).worker(
        QUEUE,
        move |batch: Batch<(String, usize)>| {
            let recorded = recorded.clone();
            async move {
                let now = Instant::now();
                let mut recorded = recorded.lock().unwrap();
                recorded.extend(batch.payloads().map(|(key, number)| (now, key.clone(), *number)));
                match dies {
                    true => Err(Failure::from("the shop is closed")),
                    false => Ok(()),
                }
            }
        },
    );
    let (stop, stopped) = oneshot::channel::<()>();
    let working = tokio::spawn(engine.run_until(stopped));
    during().await;
    let mut left = u64::MAX;
    while left > 0 {
        eventually("fewer jobs wait", async || stats(store).await.jobs < left).await;
        left = stats(store).await.jobs;
    }
    stop.send(()).unwrap();
    working.await.unwrap().unwrap();
    starts
}

async fn dead_jobs_go_back_at_their_rate_and_in_order(server: Server) {
    let queue = Queue::fifo(QUEUE).max_retries(0).retain_dead_max(1_000_000);
    let store = declared(&server, queue).await;
    let (jobs, client) = (jobs(), Client::new(store.clone()));
    let keys = (jobs / JOBS_PER_KEY).min(KEYS_MAX);
    push_all(&client, jobs, |number| {
        let key = format!("key-{}", number % keys);
        Job::new(QUEUE, &(&key, number)).unwrap().key(key)
    })
    .await;
    work_until_done(&store, true, async || ()).await;
    assert_eq!(stats(&store).await.dead, jobs as u64);
    let site = Site::new("");
    let (url, began) = (server.url(), Instant::now());
    let replay = ["morgue", "requeue", QUEUE, "--all", "--rate", "500/s", "--store", &url];
    let starts = work_until_done(&store, false, async || {
        let mut command = tokio::process::Command::from(site.command(&replay));
        let output = command.output().await.unwrap();
        assert!(output.status.success(), "{}", text(&output));
    })
    .await;
    let starts = starts.lock().unwrap();
    let mut last = std::collections::BTreeMap::new();
    for (count, (time, key, number)) in starts.iter().enumerate() {
        let allowed = (time.duration_since(began).as_secs_f64() + 0.25) * RATE * 1.05;
        assert!(
            count as f64 <= allowed + (jobs / keys) as f64,
            "{count} after {:?}",
            time.duration_since(began)
        );
        let before = last.insert(key, *number);
        assert!(before.is_none_or(|before| before < *number), "{key}: {number} after {before:?}");
    }
    assert_eq!(starts.len(), jobs);
    // How long they take depends on the machine.
    let took = starts[jobs - 1].0.duration_since(began);
    println!("{}: {:.1} a second", store.capabilities().name, jobs as f64 / took.as_secs_f64());
}

on_each_server! {
    sqlite_one_job_waits_for_few_turns_of_another_tenant: one_job_waits_for_few_turns_of_another_tenant(sqlite);
    postgres_one_job_waits_for_few_turns_of_another_tenant: one_job_waits_for_few_turns_of_another_tenant(postgres);
    mysql_one_job_waits_for_few_turns_of_another_tenant: one_job_waits_for_few_turns_of_another_tenant(mysql);
    redis_one_job_waits_for_few_turns_of_another_tenant: one_job_waits_for_few_turns_of_another_tenant(redis);
    sqlite_dead_jobs_go_back_at_their_rate_and_in_order: dead_jobs_go_back_at_their_rate_and_in_order(sqlite);
    postgres_dead_jobs_go_back_at_their_rate_and_in_order: dead_jobs_go_back_at_their_rate_and_in_order(postgres);
    mysql_dead_jobs_go_back_at_their_rate_and_in_order: dead_jobs_go_back_at_their_rate_and_in_order(mysql);
    redis_dead_jobs_go_back_at_their_rate_and_in_order: dead_jobs_go_back_at_their_rate_and_in_order(redis);
}
