//! What a batch or a limit costs: jobs without and with it are pushed and drained, in turn.

use std::time::{Duration, Instant};

use seriatim::store::{Declare, delete_queue};
use seriatim::{Client, Job, Queue, SharedStore, Timestamp};

use super::settings::{Bench, declare_empty};
use crate::cli::output::Failure;

/// Rounds of each; the quickest counts.
const ROUNDS: usize = 3;
/// The queue of the callbacks.
const AFTER: &str = "bench-after";

/// What the jobs have in every second round.
#[derive(Clone, Copy)]
pub(super) enum Extra {
    /// All are of one batch.
    Batch,
    /// The queue has a limit of running turns, which holds nothing back: what is measured is that they are counted.
    Limit,
}

impl Bench {
    /// Compares them.
    pub(super) async fn with_and_without(
        &self,
        extra: Extra,
        store: &SharedStore,
    ) -> Result<serde_json::Value, Failure> {
        let queue = self.queue();
        declare_empty(store, &queue).await?;
        let (mut alone, mut with) = (Vec::new(), Vec::new());
        for _ in 0..ROUNDS {
            alone.push(self.round(store, &queue, None).await?);
            with.push(match extra {
                Extra::Batch => self.round_in_batch(store, &queue).await?,
                Extra::Limit => self.round_with_limit(store, &queue).await?,
            });
        }
        let best = |rounds: Vec<Round>| rounds.into_iter().min_by_key(Round::took);
        let (Some(alone), Some(with)) = (best(alone), best(with)) else {
            return Err(Failure::failed("nothing was measured"));
        };
        let rate = |took: Duration| (self.jobs as f64 / took.as_secs_f64()).round();
        let percent = |with: Duration, alone: Duration| {
            ((with.as_secs_f64() / alone.as_secs_f64() - 1.0) * 1e3).round() / 10.0
        };
        Ok(serde_json::json!({
            "store": store.capabilities().name, "mode": queue.mode, "jobs": self.jobs,
            "concurrency": self.concurrency,
            "push_per_s": rate(alone.push), "push_per_s_with": rate(with.push),
            "drain_per_s": rate(alone.drain), "drain_per_s_with": rate(with.drain),
            "overhead_percent": percent(with.took(), alone.took()),
            "drain_overhead_percent": percent(with.drain, alone.drain),
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
        delete_queue(&**store, AFTER, true).await?;
        Ok(round)
    }

    async fn round_with_limit(&self, store: &SharedStore, queue: &Queue) -> Result<Round, Failure> {
        let most = u32::try_from(self.jobs).unwrap_or(u32::MAX);
        let limited = queue.clone().running(most);
        let declare = async |queue: &Queue| {
            store.declare(Declare { now: None, queues: vec![queue.clone()] }).await
        };
        declare(&limited).await?;
        let round = self.round(store, &limited, None).await?;
        declare(queue).await?;
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
