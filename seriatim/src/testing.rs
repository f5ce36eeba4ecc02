//! For tests of code that pushes jobs or handles them: a store in memory, whose clock is tokio's.
//!
//! ```
//! use seriatim::testing::Lab;
//! use seriatim::{Batch, Context, Failure, Job, Queue};
//!
//! async fn sync(batch: Batch<u32>, _: Context) -> Result<(), Failure> {
//!     if batch.lanes()[0].attempt() == 1 { Err("not yet".into()) } else { Ok(()) }
//! }
//!
//! # fn main() -> seriatim::Result<()> {
//! # tokio::runtime::Builder::new_current_thread().enable_all().start_paused(true).build().unwrap().block_on(async {
//! // In a test: #[tokio::test(start_paused = true)]
//! let lab = Lab::new();
//! lab.client().push(Job::new("orders", &7)?.key("order-7")).await?;
//! assert_eq!(lab.enqueued("orders").await?.len(), 1);
//! let summary = lab.perform_all(lab.engine().worker("orders", sync)).await?;
//! assert_eq!((summary.failed, summary.done), (1, 1), "the retry took no real time");
//! # Ok(()) }) }
//! ```

use std::time::Duration;

use crate::client::Client;
use crate::error::{Error, ErrorKind, Result};
use crate::limits::PAGE_ROWS_MAX;
use crate::runtime::{Engine, EngineBuilder, Summary};
use crate::store::{JobOrder, JobQuery, JobState, JobView, Memory, SharedStore};

/// The most of tokio's time that [`Lab::perform_all`] lets pass.
const TIME_MAX: Duration = Duration::from_secs(400 * 86_400);
/// How often it looks whether something is left, at least and at most.
const LOOK_MIN: Duration = Duration::from_millis(1);
const LOOK_MAX: Duration = Duration::from_secs(3_600);

/// An empty store for one test.
#[derive(Clone)]
pub struct Lab {
    store: SharedStore,
}

impl Lab {
    /// A new store. Most tests want tokio's time paused: then waits for retries, schedules and
    /// timeouts take none.
    #[must_use]
    pub fn new() -> Self {
        Self { store: std::sync::Arc::new(Memory::in_tokio_time()) }
    }

    /// The store.
    pub fn store(&self) -> &SharedStore {
        &self.store
    }

    /// A client of it.
    pub fn client(&self) -> Client {
        Client::new(self.store.clone())
    }

    /// An engine on it, to be given the workers that are tested.
    pub fn engine(&self) -> EngineBuilder {
        // Long, so that paused time need not stop at every beat of a year.
        let day = Duration::from_secs(86_400);
        Engine::builder(self.store.clone()).lease(day).heartbeat(day / 4).poll_interval(LOOK_MAX)
    }

    /// The jobs that wait in a queue, due or not, in the order of their arrival.
    pub async fn enqueued(&self, queue: &str) -> Result<Vec<JobView>> {
        let jobs = self.jobs(queue, JobState::Queued).await?;
        Ok(jobs.into_iter().filter(|job| job.state == JobState::Queued).collect())
    }

    /// The jobs in the morgue of a queue.
    pub async fn dead(&self, queue: &str) -> Result<Vec<JobView>> {
        self.jobs(queue, JobState::Failed).await
    }

    /// Runs an engine until no job is left that it could still run, however far in the future.
    /// `Unavailable` when a year of tokio's time has not been enough.
    pub async fn perform_all(&self, engine: EngineBuilder) -> Result<Summary> {
        self.run(engine, |jobs, _| jobs == 0).await
    }

    /// Runs an engine until nothing is due now: what is scheduled, and retries, stay.
    pub async fn perform_due(&self, engine: EngineBuilder) -> Result<Summary> {
        self.run(engine, |jobs, due| jobs == 0 || !due).await
    }

    async fn run(&self, engine: EngineBuilder, is_over: fn(u64, bool) -> bool) -> Result<Summary> {
        let watch = async {
            let began = tokio::time::Instant::now();
            loop {
                let stats = self.store.stats(None).await?;
                let jobs = stats.iter().map(|queue| queue.jobs).sum();
                let running: u64 = stats.iter().map(|queue| queue.running).sum();
                let wait = self.until_due().await?;
                if is_over(jobs, running > 0 || wait.is_zero()) {
                    return Ok(());
                }
                if began.elapsed() > TIME_MAX {
                    let message = format!("{jobs} jobs are left after more than a year");
                    return Err(Error::new(ErrorKind::Unavailable, message));
                }
                let wait = if running > 0 { LOOK_MIN } else { wait };
                tokio::time::sleep(wait.clamp(LOOK_MIN, LOOK_MAX)).await;
            }
        };
        let (sender, receiver) = tokio::sync::oneshot::channel();
        let stop = async {
            let _ = sender.send(watch.await);
        };
        let summary = engine.run_until(stop).await?;
        match receiver.await {
            Ok(watched) => watched.map(|()| summary),
            Err(_) => Ok(summary),
        }
    }

    async fn until_due(&self) -> Result<Duration> {
        let now = self.store.now().await?;
        let query = crate::store::DueQuery { now: None, queues: Vec::new() };
        let due = self.store.due(query).await?;
        let next = due.iter().filter_map(|source| source.due).min();
        Ok(next.map_or(LOOK_MAX, |due| due.since(now)))
    }

    async fn jobs(&self, queue: &str, state: JobState) -> Result<Vec<JobView>> {
        let mut query = JobQuery {
            queue: queue.into(),
            state,
            key: None,
            order: JobOrder::default(),
            after: None,
            rows_max: PAGE_ROWS_MAX,
        };
        let mut jobs = Vec::new();
        loop {
            let page = match self.store.jobs(query.clone()).await {
                // Nothing was ever pushed to it.
                Err(error) if error.kind() == ErrorKind::NotFound => return Ok(jobs),
                page => page?,
            };
            jobs.extend(page.rows);
            match page.next {
                Some(next) => query.after = Some(next),
                None => return Ok(jobs),
            }
        }
    }
}

impl Default for Lab {
    fn default() -> Self {
        Self::new()
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use super::Lab;
    use crate::{Batch, Context, Failure, Job};
    use std::time::Duration;

    #[tokio::test(start_paused = true)]
    async fn n14_a_worker_is_tested_with_its_retries_and_its_morgue_in_no_time() {
        let lab = Lab::new();
        lab.client().push(Job::new("mail", &1).unwrap().max_retries(3)).await.unwrap();
        let later = Job::new("mail", &2).unwrap().run_in(Duration::from_secs(86_400));
        lab.client().push(later).await.unwrap();
        let worker = |batch: Batch<u32>, _: Context| async move {
            let bad = batch.payloads().any(|payload| *payload == 1);
            if bad { Err::<(), Failure>("no stamps".into()) } else { Ok(()) }
        };
        let summary = lab.perform_due(lab.engine().worker("mail", worker)).await.unwrap();
        assert_eq!((summary.failed, summary.done), (1, 0));
        assert_eq!(lab.enqueued("mail").await.unwrap().len(), 2);
        let summary = lab.perform_all(lab.engine().worker("mail", worker)).await.unwrap();
        assert_eq!((summary.failed, summary.done), (3, 1));
        let dead = lab.dead("mail").await.unwrap();
        assert_eq!(dead[0].error.as_deref(), Some("no stamps"));
    }

    #[tokio::test(start_paused = true)]
    async fn n14_what_was_pushed_can_be_looked_at() {
        let lab = Lab::new();
        assert_eq!(lab.enqueued("orders").await.unwrap(), []);
        lab.client()
            .push(Job::new("orders", &7).unwrap().key("order-7").task("sync"))
            .await
            .unwrap();
        let jobs = lab.enqueued("orders").await.unwrap();
        assert_eq!(
            (jobs[0].key.as_deref(), jobs[0].task.as_deref()),
            (Some("order-7"), Some("sync"))
        );
        assert_eq!(jobs[0].payload.decode::<u32>().unwrap(), 7);
    }
}
