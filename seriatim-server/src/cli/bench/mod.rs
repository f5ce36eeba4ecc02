//! `seriatim bench`: how fast a store pushes and drains blank jobs, and how soon a job starts.

mod across;
mod churn;
mod claims;
mod hot;
mod limit;
mod process;
mod starts;

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use clap::{Args, ValueEnum};
use futures_util::future::try_join_all;
use seriatim::store::Declare;
use seriatim::{Batch, Client, Context, Engine, Job, Mode, Payload, Queue, SharedStore};
use tokio::sync::Notify;

use self::process::{cpu_seconds, peak_memory_mb};
use super::args::StoreArg;
use crate::cli::output::{Failure, say};

/// Jobs in one bulk push.
const PUSH_BATCH: usize = 1_000;
/// Callers who push one job at a time, and at most how many jobs they push together.
const CALLERS: u64 = 32;
const SINGLE_PUSHES_MAX: u64 = 20_000;

#[derive(Clone, Copy, ValueEnum)]
enum ModeArg {
    Parallel,
    Accumulate,
    Fifo,
    Exclusive,
}

#[derive(Args)]
pub(crate) struct Bench {
    #[command(flatten)]
    store: StoreArg,
    /// Jobs
    #[arg(long, default_value_t = 100_000, value_parser = clap::value_parser!(u64).range(1..=100_000_000))]
    jobs: u64,
    /// Handler calls at once
    #[arg(long, default_value_t = 5)]
    concurrency: usize,
    /// How the jobs relate
    #[arg(long, value_enum, default_value = "parallel")]
    mode: ModeArg,
    /// Different keys; as many as jobs when none is given
    #[arg(long)]
    keys: Option<u64>,
    /// Bytes of payload
    #[arg(long, default_value_t = 2)]
    payload_bytes: usize,
    /// Keep finished jobs for so long, as `retain_completed` does
    #[arg(long, value_parser = super::args::duration)]
    retain: Option<Duration>,
    /// Instead measure claims of 100 lanes, alone and beside a backlog: so many jobs scheduled, as many
    /// finished, a tenth behind one busy key
    #[arg(long, conflicts_with_all = ["mode", "keys", "payload_bytes", "retain", "limit"],
          value_parser = clap::value_parser!(u64).range(1..=100_000_000))]
    backlog: Option<u64>,
    /// Instead measure single pushes to one key of a queue that has keys: alone, and behind so many payloads
    #[arg(long, value_name = "PAYLOADS", conflicts_with_all = ["jobs", "keys", "payload_bytes", "limit", "backlog"],
          value_parser = clap::value_parser!(u64).range(1..=100_000_000))]
    hot: Option<u64>,
    /// Instead push and drain for so long at full speed, and compare the first tenth of it with the last:
    /// jobs per second, and the room that the store takes
    #[arg(long, value_name = "DURATION", value_parser = super::args::duration,
          conflicts_with_all = ["jobs", "keys", "backlog", "hot", "limit"])]
    churn: Option<Duration>,
    /// Also measure the bare limit: the least work of this store for the same guarantees
    #[arg(long)]
    limit: bool,
    /// Print one JSON object on one line
    #[arg(long)]
    json: bool,
    /// Only push jobs that hold the time of their push: what the command starts itself with
    #[arg(long, hide = true)]
    as_pusher: bool,
}

impl Bench {
    pub(crate) async fn run(self) -> Result<(), Failure> {
        if self.as_pusher {
            let queue = self.queue();
            return self.store.using(async |store| across::push(&store, &queue).await).await;
        }
        let measure = async |store| match (self.backlog, self.hot, self.churn) {
            (Some(jobs), ..) => claims::measure(&store, jobs).await,
            (_, Some(payloads), _) => hot::measure(&store, &self.queue(), payloads).await,
            (.., Some(length)) => self.churn(&store, length).await,
            (None, None, None) => self.throughput(&store).await,
        };
        let result = self.store.creating(measure).await?;
        say(if self.json {
            result.to_string()
        } else {
            serde_json::to_string_pretty(&result).map_err(Failure::failed)?
        });
        Ok(())
    }

    fn queue(&self) -> Queue {
        let mode = match self.mode {
            ModeArg::Parallel => Mode::Parallel,
            ModeArg::Accumulate => Mode::Accumulate,
            ModeArg::Fifo => Mode::Fifo,
            ModeArg::Exclusive => Mode::Exclusive,
        };
        let mut queue = Queue::new(format!("bench-{mode}"), mode);
        queue.retain_completed = self.retain.or(Some(Duration::ZERO));
        queue
    }

    async fn throughput(&self, store: &SharedStore) -> Result<serde_json::Value, Failure> {
        let queue = self.queue();
        let mode = queue.mode;
        declare_empty(store, &queue).await?;
        let push_per_s = self.push_all(store, &queue).await?;
        let cpu_before = cpu_seconds();
        let drain_per_s = self.drain(store, &queue).await?;
        let cpu_s = cpu_seconds() - cpu_before;
        let rss_mb = peak_memory_mb();
        let push_single_per_s = self.push_singly(store, &queue).await?;
        let start = self.starts(store, &queue).await?;
        let late = self.lateness(store, &queue).await?;
        let across = match store.capabilities().shared {
            true => Some(self.starts_across(store, &queue).await?),
            false => None,
        };
        let mut result = serde_json::json!({
            "store": store.capabilities().name, "mode": mode, "jobs": self.jobs, "concurrency": self.concurrency,
            "keys": self.keys, "push_per_s": push_per_s.round(),
            "push_single_32_per_s": push_single_per_s.round(), "drain_per_s": drain_per_s.round(),
            "start_ms_p50": start.median, "start_ms_p99": start.p99,
            "late_ms_p50": late.median, "late_ms_p99": late.p99, "rss_mb": rss_mb, "cpu_s": cpu_s,
        });
        if let Some(start) = across {
            result["start_across_ms_p50"] = start.median.into();
            result["start_across_ms_p99"] = start.p99.into();
        }
        if self.limit {
            let limit = limit::per_second(&self.store.url()?, self.jobs as usize).await?;
            result["limit_per_s"] = limit.round().into();
            result["of_limit"] = (drain_per_s / limit).into();
        }
        Ok(result)
    }

    fn job(&self, queue: &Queue, number: u64) -> Job {
        let text = match queue.mode {
            // Different payloads, which do not merge.
            Mode::Accumulate => format!("{number:>width$}", width = self.payload_bytes),
            _ => format!("\"{:width$}\"", "", width = self.payload_bytes.saturating_sub(2)),
        };
        let job =
            Job::with_payload(queue.name.as_str(), Payload::from_bytes(text.trim().to_owned()));
        match queue.mode.is_keyed() {
            true => job.key(format!("key-{}", number % self.keys.unwrap_or(u64::MAX))),
            false => job,
        }
    }

    async fn push_all(&self, store: &SharedStore, queue: &Queue) -> Result<f64, Failure> {
        let client = Client::new(store.clone());
        let started = Instant::now();
        let numbers: Vec<u64> = (0..self.jobs).collect();
        for batch in numbers.chunks(PUSH_BATCH) {
            client.push_all(batch.iter().map(|number| self.job(queue, *number)).collect()).await?;
        }
        Ok(self.jobs as f64 / started.elapsed().as_secs_f64())
    }

    /// Pushes one job at a time from many callers, which the client groups, and removes them again.
    async fn push_singly(&self, store: &SharedStore, queue: &Queue) -> Result<f64, Failure> {
        let client = Client::new(store.clone());
        let jobs = self.jobs.min(SINGLE_PUSHES_MAX);
        let started = Instant::now();
        let push = async |caller: u64| {
            for number in (caller..jobs).step_by(CALLERS as usize) {
                client.push(self.job(queue, number)).await?;
            }
            Ok::<_, seriatim::Error>(())
        };
        try_join_all((0..CALLERS).map(push)).await?;
        let rate = jobs as f64 / started.elapsed().as_secs_f64();
        self.drain_jobs(store, queue, jobs).await?;
        Ok(rate)
    }

    async fn drain(&self, store: &SharedStore, queue: &Queue) -> Result<f64, Failure> {
        self.drain_jobs(store, queue, self.jobs).await
    }

    async fn drain_jobs(
        &self,
        store: &SharedStore,
        queue: &Queue,
        jobs: u64,
    ) -> Result<f64, Failure> {
        let (handled, all) = (Arc::new(AtomicU64::new(0)), Arc::new(Notify::new()));
        let (count, done) = (handled.clone(), all.clone());
        let engine = Engine::builder(store.clone())
            .concurrency(self.concurrency)
            .queue(queue.clone())
            .raw_worker(queue.name.as_str(), move |batch: Batch<Payload>, _: Context| {
                let jobs_here = batch.payloads().count() as u64;
                if count.fetch_add(jobs_here, Ordering::Relaxed) + jobs_here == jobs {
                    done.notify_one();
                }
                std::future::ready(Ok(()))
            });
        let started = Instant::now();
        // Stops at the last job; the engine then settles what is left, which counts too.
        let summary = engine.run_until(async move { all.notified().await }).await?;
        let took = started.elapsed();
        if summary.done == 0 {
            return Err(Failure::failed("nothing was drained"));
        }
        Ok(jobs as f64 / took.as_secs_f64())
    }
}

/// Declares the queue, which must hold nothing.
async fn declare_empty(store: &SharedStore, queue: &Queue) -> Result<(), Failure> {
    store.declare(Declare { now: None, queues: vec![queue.clone()] }).await?;
    let stats = store.stats(None).await?;
    if stats.iter().any(|stats| *stats.queue == queue.name && stats.jobs > 0) {
        let name = &queue.name;
        let message =
            format!("queue {name:?} of this store is not empty: bench on a store of its own");
        return Err(Failure::failed(message));
    }
    Ok(())
}
