//! Whether a store stays as fast and as small as it was while much goes through it.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use seriatim::{Client, Queue, SharedStore};
use seriatim_verify::limit;
use tokio::sync::Notify;

use super::settings::{Bench, PUSH_BATCH, declare_empty};
use crate::cli::output::{Failure, Result};

/// Most waiting jobs: pushes must not outrun the drain.
const WAITING_MAX: u64 = 20_000;

/// What had happened at some moment.
struct Moment {
    at: Instant,
    handled: u64,
    bytes: Option<u64>,
}

impl Moment {
    /// Jobs per second since an earlier one.
    fn rate_since(&self, earlier: &Self) -> f64 {
        let length = self.at.duration_since(earlier.at).as_secs_f64();
        (self.handled - earlier.handled) as f64 / length
    }
}

/// What the pushing and the draining know of each other.
#[derive(Default)]
struct Handled {
    jobs: AtomicU64,
    more: Notify,
}

impl Bench {
    /// Pushes and drains for `length`, and compares the first tenth of it with the last.
    pub(super) async fn churn(
        &self,
        store: &SharedStore,
        length: Duration,
    ) -> Result<serde_json::Value> {
        let queue = self.queue();
        declare_empty(store, &queue).await?;
        let handled = Arc::new(Handled::default());
        let count = handled.clone();
        let engine = self.engine_that_tells(store, &queue, move |batch| {
            count.jobs.fetch_add(batch.payloads().count() as u64, Ordering::Relaxed);
            count.more.notify_one();
            Vec::<()>::new()
        });
        let moments = self.push_for(store, &queue, length, &handled).await;
        engine.stop().await?;
        let [start, first, last, end] = moments?;
        let (first_rate, last_rate) = (first.rate_since(&start), end.rate_since(&last));
        Ok(serde_json::json!({
            "store": store.capabilities().name, "mode": queue.mode, "concurrency": self.concurrency,
            "churn_s": length.as_secs_f64(), "jobs": end.handled,
            "first_tenth_per_s": first_rate.round(), "last_tenth_per_s": last_rate.round(),
            "last_of_first": last_rate / first_rate,
            "first_tenth_bytes": first.bytes, "last_tenth_bytes": end.bytes,
        }))
    }

    /// Pushes as fast as jobs are handled. Returns the state at the start, after one and nine tenths, and at
    /// the end.
    async fn push_for(
        &self,
        store: &SharedStore,
        queue: &Queue,
        length: Duration,
        handled: &Handled,
    ) -> Result<[Moment; 4]> {
        let client = Client::new(store.clone());
        let started = Instant::now();
        let mut pushed = 0;
        let mut until = async |share: f64| {
            while started.elapsed() < length.mul_f64(share) {
                if pushed - handled.jobs.load(Ordering::Relaxed).min(pushed) >= WAITING_MAX {
                    handled.more.notified().await;
                    continue;
                }
                let numbers = pushed..pushed + PUSH_BATCH as u64;
                client.push_all(numbers.map(|number| self.job(queue, number)).collect()).await?;
                pushed += PUSH_BATCH as u64;
            }
            let (at, handled) = (Instant::now(), handled.jobs.load(Ordering::Relaxed));
            // Where that can be asked.
            let bytes = limit::bytes(&self.store.url()?).await?;
            Ok::<_, Failure>(Moment { at, handled, bytes })
        };
        Ok([until(0.0).await?, until(0.1).await?, until(0.9).await?, until(1.0).await?])
    }
}
