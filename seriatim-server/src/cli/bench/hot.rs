//! Whether a push or a turn costs more because much waits for its key.

use std::time::Instant;

use seriatim::{Client, Job, Queue, SharedStore};

use super::settings::{Bench, PUSH_BATCH, declare_empty};
use super::starts::Percentiles;
use crate::cli::output::{Failure, Result};

/// Pushes that are timed, one at a time.
const PUSHES: u64 = 1_000;

impl Bench {
    /// Times pushes to a key for which nothing waits, then to the same one behind this many payloads; then the drain of all
    /// that waits, among its first jobs and among its last ones.
    pub(super) async fn hot(
        &self,
        store: &SharedStore,
        queue: &Queue,
        payloads: u64,
    ) -> Result<serde_json::Value> {
        if !queue.mode.is_keyed() {
            let message = "--hot: needs a queue with keys: --mode accumulate, fifo or exclusive";
            return Err(Failure::usage(message));
        }
        declare_empty(store, queue).await?;
        let hot = Hot { client: Client::new(store.clone()), queue: queue.name.clone() };
        let alone = hot.push_singly(0).await?;
        let numbers: Vec<u64> = (PUSHES..payloads.max(PUSHES)).collect();
        for numbers in numbers.chunks(PUSH_BATCH) {
            let jobs: Result<Vec<Job>, _> = numbers.iter().map(|number| hot.job(*number)).collect();
            hot.client.push_all(jobs?).await?;
        }
        let behind = hot.push_singly(payloads.max(PUSHES)).await?;
        let (first, last) = self.drain_tenths(store, queue, payloads.max(PUSHES) + PUSHES).await?;
        Ok(serde_json::json!({
            "store": store.capabilities().name, "mode": queue.mode, "payloads": payloads,
            "push_ms_alone_p50": alone.median, "push_ms_alone_p99": alone.p99,
            "push_ms_behind_p50": behind.median, "push_ms_behind_p99": behind.p99,
            "ratio_p50": behind.median / alone.median,
            "drain_first_tenth_per_s": first.round(), "drain_last_tenth_per_s": last.round(),
            "drain_first_of_last": first / last,
        }))
    }

    /// Jobs a second of the first and of the last tenth of a drain of these jobs, each without the hundredth at its outer end:
    /// there the engine starts and stops.
    async fn drain_tenths(
        &self,
        store: &SharedStore,
        queue: &Queue,
        jobs: u64,
    ) -> Result<(f64, f64)> {
        let mut engine = self.engine_that_tells(store, queue, |batch| {
            vec![Instant::now(); batch.payloads().count()]
        });
        let handled = engine.hear(jobs as usize).await;
        engine.stop().await?;
        if handled.len() < jobs as usize {
            return Err(Failure::failed("the engine ended before all was drained"));
        }
        let tenth = handled.len() / 10;
        let rate = |from: usize| {
            tenth as f64 / handled[from + tenth].duration_since(handled[from]).as_secs_f64()
        };
        Ok((rate(tenth / 10), rate(handled.len() - 1 - tenth - tenth / 10)))
    }
}

struct Hot {
    client: Client,
    queue: String,
}

impl Hot {
    /// Of one key, and equal to no other.
    fn job(&self, number: u64) -> Result<Job> {
        Ok(Job::new(&self.queue, &number)?.key("hot"))
    }

    /// Milliseconds of a push.
    async fn push_singly(&self, first: u64) -> Result<Percentiles> {
        let mut took = Vec::new();
        for number in first..first + PUSHES {
            let job = self.job(number)?;
            let started = Instant::now();
            self.client.push(job).await?;
            took.push(started.elapsed().as_secs_f64() * 1e3);
        }
        Ok(Percentiles::of(took))
    }
}
