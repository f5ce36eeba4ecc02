//! `seriatim bench`: how fast a store pushes and drains blank jobs, and how soon a job starts.

mod across;
mod churn;
mod claims;
mod hot;
mod overhead;
mod process;
mod settings;
mod starts;

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Instant;

use futures_util::future::try_join_all;
use seriatim::{
    Batch, Client, Context, Engine, Failure as Failed, Job, Payload, Queue, SharedStore,
};
use seriatim_verify::limit;
use tokio::sync::Notify;

use self::process::{cpu_seconds, peak_memory_mb};
pub(crate) use self::settings::Bench;
use self::settings::{PUSH_BATCH, declare_empty};
use crate::cli::output::{Failure, Result, say};

/// Callers who push one job at a time, and at most how many jobs they push together.
const CALLERS: u64 = 32;
const SINGLE_PUSHES_MAX: u64 = 20_000;
const NO_LIMIT: &str = "memory: has no bare limit: --limit needs a store that keeps something";

impl Bench {
    pub(crate) async fn run(self) -> Result<()> {
        if self.as_pusher {
            let queue = self.queue();
            return self.store.using(async |store| across::push(&store, &queue).await).await;
        }
        let measure = async |store| match (self.backlog, self.hot, self.churn) {
            (Some(jobs), ..) => claims::measure(&store, jobs).await,
            (_, Some(payloads), _) => self.hot(&store, &self.queue(), payloads).await,
            (.., Some(length)) => self.churn(&store, length).await,
            (None, None, None) => match self.with {
                Some(extra) => self.with_and_without(extra, &store).await,
                None => self.throughput(&store).await,
            },
        };
        let result = self.store.creating(measure).await?;
        say(if self.json {
            result.to_string()
        } else {
            serde_json::to_string_pretty(&result).map_err(Failure::failed)?
        });
        Ok(())
    }

    async fn throughput(&self, store: &SharedStore) -> Result<serde_json::Value> {
        let queue = self.queue();
        let mode = queue.mode;
        declare_empty(store, &queue).await?;
        let push_per_s = self.push_all(store, &queue, &|_| {}).await?;
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
            let limit = limit::jobs_per_second(&self.store.url()?, self.jobs as usize).await?;
            let limit = limit.ok_or_else(|| Failure::usage(NO_LIMIT))?;
            result["limit_per_s"] = limit.round().into();
            result["of_limit"] = (drain_per_s / limit).into();
        }
        Ok(result)
    }

    async fn push_all(
        &self,
        store: &SharedStore,
        queue: &Queue,
        dress: &(dyn Fn(&mut Job) + Sync),
    ) -> Result<f64> {
        let client = Client::new(store.clone());
        let started = Instant::now();
        let numbers: Vec<u64> = (0..self.jobs).collect();
        for batch in numbers.chunks(PUSH_BATCH) {
            let mut jobs: Vec<Job> = batch.iter().map(|number| self.job(queue, *number)).collect();
            jobs.iter_mut().for_each(dress);
            client.push_all(jobs).await?;
        }
        Ok(self.jobs as f64 / started.elapsed().as_secs_f64())
    }

    /// Pushes one job at a time from many callers, which the client groups, and removes them again.
    async fn push_singly(&self, store: &SharedStore, queue: &Queue) -> Result<f64> {
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

    async fn drain(&self, store: &SharedStore, queue: &Queue) -> Result<f64> {
        self.drain_jobs(store, queue, self.jobs).await
    }

    async fn drain_jobs(&self, store: &SharedStore, queue: &Queue, jobs: u64) -> Result<f64> {
        self.drain_by(store, queue, jobs, |_, _| Ok(())).await
    }

    /// Jobs a second until none of these is left; each counts when its handler does not fail.
    async fn drain_by(
        &self,
        store: &SharedStore,
        queue: &Queue,
        jobs: u64,
        handle: impl Fn(&Batch<Payload>, &Context) -> Result<(), Failed> + Send + Sync + 'static,
    ) -> Result<f64> {
        let (handled, all) = (Arc::new(AtomicU64::new(0)), Arc::new(Notify::new()));
        let (count, done) = (handled.clone(), all.clone());
        let engine = Engine::builder(store.clone())
            .concurrency(self.concurrency)
            .queue(queue.clone())
            .worker(queue.name.as_str(), move |batch: Batch<Payload>, call: Context| {
                let ended = handle(&batch, &call);
                let jobs_here = if ended.is_ok() { batch.payloads().count() as u64 } else { 0 };
                if count.fetch_add(jobs_here, Ordering::Relaxed) + jobs_here == jobs {
                    done.notify_one();
                }
                std::future::ready(ended)
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
