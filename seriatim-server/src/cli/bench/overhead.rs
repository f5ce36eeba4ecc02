//! What a batch costs: jobs of none and jobs of one are pushed and drained, in turn.

use std::time::{Duration, Instant};

use seriatim::store::delete_queue;
use seriatim::{Client, Job, Queue, SharedStore, Timestamp};

use super::settings::{Bench, declare_empty};
use crate::cli::output::Failure;

/// Rounds of each; the quickest counts.
const ROUNDS: usize = 3;
/// The queue of the callbacks.
const AFTER: &str = "bench-after";

impl Bench {
    /// Compares them.
    pub(super) async fn with_and_without_batch(
        &self,
        store: &SharedStore,
    ) -> Result<serde_json::Value, Failure> {
        let queue = self.queue();
        declare_empty(store, &queue).await?;
        let (mut alone, mut batched) = (Vec::new(), Vec::new());
        for _ in 0..ROUNDS {
            alone.push(self.round(store, &queue, None).await?);
            batched.push(self.round_in_batch(store, &queue).await?);
        }
        delete_queue(&**store, AFTER, true).await?;
        let best = |rounds: Vec<Round>| rounds.into_iter().min_by_key(Round::took);
        let (Some(alone), Some(batched)) = (best(alone), best(batched)) else {
            return Err(Failure::failed("nothing was measured"));
        };
        let rate = |took: Duration| (self.jobs as f64 / took.as_secs_f64()).round();
        let overhead = batched.took().as_secs_f64() / alone.took().as_secs_f64() - 1.0;
        Ok(serde_json::json!({
            "store": store.capabilities().name, "mode": queue.mode, "jobs": self.jobs,
            "concurrency": self.concurrency,
            "push_per_s": rate(alone.push), "push_per_s_in_batch": rate(batched.push),
            "drain_per_s": rate(alone.drain), "drain_per_s_in_batch": rate(batched.drain),
            "overhead_percent": (overhead * 1e3).round() / 10.0,
        }))
    }

    async fn round_in_batch(&self, store: &SharedStore, queue: &Queue) -> Result<Round, Failure> {
        let client = Client::new(store.clone());
        let id = format!("bench-{}", Timestamp::of_this_machine().as_micros());
        client.open_batch(&*id, Job::new(AFTER, &id)?).await?;
        let round = self.round(store, queue, Some(&id)).await?;
        let batch = client.seal_batch(&*id).await?;
        if (batch.done, batch.pending) != (self.jobs, 0) || batch.callback.is_none() {
            return Err(Failure::failed(format!("the batch is wrong: {batch:?}")));
        }
        Ok(round)
    }

    async fn round(
        &self,
        store: &SharedStore,
        queue: &Queue,
        batch: Option<&str>,
    ) -> Result<Round, Failure> {
        let started = Instant::now();
        self.push_all(store, queue, batch).await?;
        let pushed = Instant::now();
        self.drain(store, queue).await?;
        Ok(Round { push: pushed - started, drain: pushed.elapsed() })
    }
}

struct Round {
    push: Duration,
    drain: Duration,
}

impl Round {
    fn took(&self) -> Duration {
        self.push + self.drain
    }
}
