//! Prints one line of JSON with the figures of an engine: `bench-peers graphile URL JOBS KEYS LOCAL_QUEUE` or
//! `bench-peers apalis URL JOBS KEYS KEPT`.

mod apalis;
mod graphile;

use std::future::Future;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Instant;

use tokio::sync::Notify;

pub const PUSH_BATCH: u64 = 1_000;
const CALLERS: u64 = 32;
const SINGLE_PUSHES_MAX: u64 = 20_000;

/// The jobs that are left in the drain.
static LEFT: AtomicU64 = AtomicU64::new(0);
static ALL: Notify = Notify::const_new();

/// A job was handled.
pub fn did() {
    if LEFT.fetch_sub(1, Ordering::Relaxed) == 1 {
        ALL.notify_one();
    }
}

/// Returns when `jobs` jobs were handled from now on.
pub fn all_of(jobs: u64) -> impl Future<Output = ()> {
    LEFT.store(jobs, Ordering::Relaxed);
    ALL.notified()
}

/// Jobs per second of `work`.
pub async fn rate(jobs: u64, work: impl Future<Output = ()>) -> f64 {
    let started = Instant::now();
    work.await;
    (jobs as f64 / started.elapsed().as_secs_f64()).round()
}

/// Jobs per second of single pushes from concurrent callers.
pub async fn from_callers<F, P>(jobs: u64, push: F) -> f64
where
    F: Fn() -> P,
    P: Future<Output = ()>,
{
    let jobs = jobs.min(SINGLE_PUSHES_MAX);
    let caller = async || {
        for _ in 0..jobs / CALLERS {
            push().await;
        }
    };
    rate(jobs / CALLERS * CALLERS, async {
        futures::future::join_all((0..CALLERS).map(|_| caller())).await;
    })
    .await
}

pub struct Figures {
    pub push: f64,
    pub single: f64,
    pub drain: f64,
}

#[tokio::main]
async fn main() {
    let args: Vec<String> = std::env::args().skip(1).collect();
    let [engine, url, jobs, keys, setting] = &args[..] else {
        panic!("usage: bench-peers graphile|apalis URL JOBS KEYS SETTING");
    };
    let (jobs, keys) = (jobs.parse().unwrap(), keys.parse().unwrap());
    let setting = setting.parse().unwrap();
    let figures = match engine.as_str() {
        "graphile" => graphile::measure(url, jobs, keys, setting).await,
        "apalis" => apalis::measure(url, jobs, setting).await,
        other => panic!("there is no engine {other:?}: graphile or apalis"),
    };
    let Figures { push, single, drain } = figures;
    let line = serde_json::json!({
        "push_per_s": push, "push_single_32_per_s": single, "drain_per_s": drain
    });
    println!("{line}");
    // Their tasks need not end one by one.
    std::process::exit(0);
}
