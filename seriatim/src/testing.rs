//! Tests code that pushes or handles jobs, on a store in memory that uses tokio's clock.
//!
//! ```
//! use seriatim::testing::Lab;
//! use seriatim::{Batch, Job};
//!
//! async fn sync(batch: Batch<u32>) -> Result<(), &'static str> {
//!     if batch.lanes()[0].attempt() == 1 { Err("not yet") } else { Ok(()) }
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

use std::sync::Arc;
use std::time::Duration;

use tokio::time::Instant;

use crate::client::Client;
use crate::contract::{JobQuery, JobState, JobView, SharedStore};
use crate::engine::Summary;
use crate::engine::builder::EngineBuilder;
use crate::engine::lifecycle::Engine;
use crate::model::limits::LEASE_MAX;
use crate::model::{Error, ErrorKind, Result, Timestamp};
use crate::stores::Memory;

/// How much of tokio's time [`Lab::perform_all`] may take.
const TIME_MAX: Duration = Duration::from_secs(400 * 86_400);
/// The shortest and longest wait between two checks whether jobs are left.
const LOOK_MIN: Duration = Duration::from_millis(1);
const LOOK_MAX: Duration = Duration::from_secs(3_600);

/// How long a due job may stay unclaimed: longer than the pause of a worker that cannot start its handler.
const PATIENCE: Duration = Duration::from_secs(60);

/// The state of the engine's queues.
struct Seen {
    jobs: u64,
    claimed: u64,
    /// Time until the next job is due.
    wait: Duration,
    /// Changes whenever a job ends.
    trace: (u64, u64),
}

fn named(queues: &[Arc<str>]) -> String {
    let names: Vec<String> = queues.iter().map(|queue| format!("{queue:?}")).collect();
    names.join(", ")
}

/// An empty store for one test.
#[derive(Clone)]
pub struct Lab {
    store: SharedStore,
}

impl Lab {
    /// The store's clock when the lab is made: 2027-01-01 00:00:00 UTC, a Friday.
    pub const START: Timestamp = Memory::TOKIO_TIME_START;

    /// A new store whose clock starts at [`Self::START`]. Most tests pause tokio's time, so that waits for retries,
    /// schedules and timeouts take no real time.
    #[must_use]
    pub fn new() -> Self {
        Self { store: Arc::new(Memory::in_tokio_time()) }
    }

    /// The store.
    pub fn store(&self) -> &SharedStore {
        &self.store
    }

    /// A client of the store.
    pub fn client(&self) -> Client {
        Client::new(self.store.clone())
    }

    /// An engine on the store; add the workers under test.
    pub fn engine(&self) -> EngineBuilder {
        // Long, so that paused time does not stop at every heartbeat of a year.
        Engine::builder(self.store.clone())
            .lease(LEASE_MAX)
            .heartbeat(LEASE_MAX / 3)
            .poll_interval(LOOK_MAX)
    }

    /// The waiting jobs of a queue, due or not, in order of arrival.
    pub async fn enqueued(&self, queue: &str) -> Result<Vec<JobView>> {
        self.jobs(queue, JobState::Queued).await
    }

    /// The jobs in the morgue of a queue.
    pub async fn dead(&self, queue: &str) -> Result<Vec<JobView>> {
        self.jobs(queue, JobState::Dead).await
    }

    /// Runs an engine until none of its jobs is left, however far in the future they are due.
    ///
    /// Only the queues for which the engine has workers count. Jobs of other queues stay, so that a test can check
    /// what a handler pushed. If jobs are due at the start but all are in such other queues, it fails as `NotFound`
    /// and names the queues. It fails as `Unavailable` if a job is due for a minute and the engine does not take it
    /// (it is bound to another node), or if 400 days of tokio's time are not enough (a paused queue).
    pub async fn perform_all(&self, engine: EngineBuilder) -> Result<Summary> {
        self.run(engine, |seen| seen.jobs == 0).await
    }

    /// Runs an engine until none of its jobs is due now; scheduled jobs and retries stay. Fails as
    /// [`Self::perform_all`] does.
    pub async fn perform_due(&self, engine: EngineBuilder) -> Result<Summary> {
        self.run(engine, |seen| seen.claimed == 0 && !seen.wait.is_zero()).await
    }

    async fn run(&self, engine: EngineBuilder, is_over: fn(&Seen) -> bool) -> Result<Summary> {
        let queues = engine.worked_on();
        self.check_workers(&queues).await?;
        let (sender, receiver) = tokio::sync::oneshot::channel();
        let stop = async {
            let _ = sender.send(self.watch(&queues, is_over).await);
        };
        let summary = engine.run_until(stop).await?;
        match receiver.await {
            Ok(watched) => watched.map(|()| summary),
            Err(_) => Ok(summary),
        }
    }

    async fn watch(&self, queues: &[Arc<str>], is_over: fn(&Seen) -> bool) -> Result<()> {
        let began = Instant::now();
        let mut moved = (began, (0, 0));
        loop {
            let seen = self.look(queues).await?;
            if is_over(&seen) {
                return Ok(());
            }
            if moved.1 != seen.trace || seen.claimed > 0 || !seen.wait.is_zero() {
                moved = (Instant::now() + seen.wait, seen.trace);
            }
            if moved.0.elapsed() > PATIENCE {
                let message = format!(
                    "jobs in {} are due and the engine does not take them: are they bound to another node or group?",
                    named(queues)
                );
                return Err(Error::new(ErrorKind::Unavailable, message));
            }
            if began.elapsed() > TIME_MAX {
                let message = format!("{} jobs are left after more than a year", seen.jobs);
                return Err(Error::new(ErrorKind::Unavailable, message));
            }
            // The longer nothing moves, the rarer the checks.
            let still = moved.0.elapsed() / 8;
            let wait = if seen.claimed > 0 { LOOK_MIN } else { seen.wait.max(still) };
            tokio::time::sleep(wait.clamp(LOOK_MIN, LOOK_MAX)).await;
        }
    }

    /// Refuses an engine that has workers for none of the due queues.
    async fn check_workers(&self, queues: &[Arc<str>]) -> Result<()> {
        let now = self.store.now().await?;
        let due = self.store.due(Vec::new()).await?;
        let due =
            due.into_iter().filter(|source| source.may_have_at(now).is_some_and(|due| due <= now));
        let (own, others): (Vec<Arc<str>>, Vec<Arc<str>>) =
            due.map(|source| source.queue).partition(|queue| queues.contains(queue));
        if others.is_empty() || !own.is_empty() {
            return Ok(());
        }
        let message = format!(
            "there is no worker for {}, where jobs are due; there are workers for {}",
            named(&others),
            if queues.is_empty() { "nothing".to_owned() } else { named(queues) }
        );
        Err(Error::new(ErrorKind::NotFound, message).in_field("queue"))
    }

    async fn look(&self, queues: &[Arc<str>]) -> Result<Seen> {
        let stats = self.store.stats(None).await?;
        let own = || stats.iter().filter(|stats| queues.contains(&stats.queue));
        let now = self.store.now().await?;
        let due = self.store.due(Vec::new()).await?;
        let due = due.iter().filter(|source| queues.contains(&source.queue));
        let next = due.filter_map(|source| source.may_have_at(now)).min();
        Ok(Seen {
            jobs: own().map(|queue| queue.jobs).sum(),
            claimed: own().map(|queue| queue.claimed).sum(),
            wait: next.map_or(LOOK_MAX, |due| due.since(now)),
            trace: own().fold((0, 0), |sum, queue| {
                (sum.0 + queue.jobs, sum.1 + queue.processed + queue.failed)
            }),
        })
    }

    async fn jobs(&self, queue: &str, state: JobState) -> Result<Vec<JobView>> {
        let mut query = JobQuery::new(queue, state);
        let mut jobs = Vec::new();
        loop {
            let page = match self.store.jobs(query.clone()).await {
                // No job was ever pushed to it.
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
    use super::Lab;
    use crate::{Batch, Context, ErrorKind, Failure, Job};
    use std::time::Duration;

    #[tokio::test(start_paused = true)]
    async fn n14_a_worker_is_tested_with_its_retries_and_its_morgue_in_no_time() {
        let lab = Lab::new();
        lab.client().push(Job::new("mail", &1).unwrap().max_retries(3)).await.unwrap();
        let later = Job::new("mail", &2).unwrap().run_in(Duration::from_secs(86_400));
        lab.client().push(later).await.unwrap();
        let worker = |batch: Batch<u32>| async move {
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

    /// Pushes a job of `mail` for each order.
    async fn sell(batch: Batch<u32>, context: Context) -> Result<(), Failure> {
        for order in batch.payloads() {
            let mail = Job::new("mail", order)?;
            crate::Client::new(context.store().clone()).push(mail).await?;
        }
        Ok(())
    }

    #[tokio::test(start_paused = true)]
    async fn what_a_handler_pushes_to_another_queue_stays_to_be_looked_at() {
        let lab = Lab::new();
        for perform_all in [true, false] {
            lab.client().push(Job::new("orders", &1).unwrap()).await.unwrap();
            let engine = lab.engine().worker("orders", sell);
            let summary = match perform_all {
                true => lab.perform_all(engine).await.unwrap(),
                false => lab.perform_due(engine).await.unwrap(),
            };
            assert_eq!(summary.done, 1);
        }
        assert_eq!(lab.enqueued("mail").await.unwrap().len(), 2);
    }

    #[tokio::test(start_paused = true)]
    async fn due_jobs_of_which_none_has_a_worker_are_an_error_that_names_their_queue() {
        let lab = Lab::new();
        let client = lab.client();
        let push = |job: Job| client.push(job);
        push(Job::new("orders", &1).unwrap()).await.unwrap();
        let error = lab.perform_due(lab.engine().worker("order", sell)).await.unwrap_err();
        let expected = "queue: there is no worker for \"orders\", where jobs are due; \
                        there are workers for \"order\"";
        assert_eq!(error.to_string(), expected);
        let error = lab.perform_all(lab.engine()).await.unwrap_err();
        assert_eq!(error.kind(), ErrorKind::NotFound);
        push(Job::new("later", &1).unwrap().run_in(Duration::from_secs(9))).await.unwrap();
        let engine = lab.engine().worker("later", sell).worker("orders", sell);
        assert_eq!(lab.perform_all(engine).await.unwrap().done, 2);
    }

    #[tokio::test(start_paused = true)]
    async fn a_due_job_that_the_engine_may_not_take_is_an_error() {
        let lab = Lab::new();
        let bound = Job::new("orders", &1).unwrap().node("elsewhere");
        lab.client().push(bound).await.unwrap();
        let error = lab.perform_due(lab.engine().worker("orders", sell)).await.unwrap_err();
        assert!(error.to_string().contains("\"orders\" are due"), "{error}");
    }

    #[tokio::test(start_paused = true)]
    async fn the_clock_begins_at_a_round_time() {
        let lab = Lab::new();
        assert_eq!(lab.store().now().await.unwrap(), Lab::START);
        let since_midnight = Lab::START.as_micros() % 86_400_000_000;
        assert_eq!(since_midnight, 0);
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
