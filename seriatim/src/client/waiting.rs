//! Waiting for the end of a job. Its state is in the store, so any process can wait for it, also after another one
//! died. The client polls: notifications would cost every job something, even if no caller waits.

use std::time::Duration;

use tokio::time::{Instant, sleep};

use super::Client;
use crate::contract::JobView;
use crate::model::limits::{LOOK_PAUSE_MAX, LOOK_PAUSE_MIN};
use crate::model::{Error, ErrorKind, Job, JobId, Queue, Result};

/// The client polls again after this part of the time that it has waited so far.
const PAUSE_PART: u32 = 4;

impl Client {
    /// Pushes a job and waits until it has ended, but no longer than `wait`. Returns the job as it is then: check
    /// [`JobView::has_ended`], its `state`, `result` and `error`. If time is up, the job goes on; [`Client::wait`]
    /// waits again.
    ///
    /// Fails as `Invalid` (field `wait`), and pushes nothing, if the queue keeps no finished jobs: set its
    /// [`retain_completed`](Queue::retain_completed). A push that merges waits for the job it merged into, a repeated
    /// idempotency key for the first job, which may have ended long ago. Fails as `Conflict` if the queue refuses the push of a
    /// throttled key: the message says when to push it again.
    ///
    /// ```
    /// # use std::time::Duration;
    /// # use seriatim::{Batch, Client, Context, Engine, Failure, Job, Queue, store::Memory};
    /// # #[tokio::main(flavor = "current_thread")] async fn main() -> seriatim::Result<()> {
    /// # let store = std::sync::Arc::new(Memory::new());
    /// # let sums = Queue::fifo("sums").retain_completed(Duration::from_secs(60));
    /// # let add = |batch: Batch<Vec<u32>>, call: Context| async move {
    /// #     for lane in batch.lanes() { call.result(lane, &lane.payloads()[0].iter().sum::<u32>())?; }
    /// #     Ok::<(), Failure>(())
    /// # };
    /// # let (stop, stopped) = tokio::sync::oneshot::channel::<()>();
    /// # let engine = Engine::builder(store.clone()).queue(sums.clone()).worker("sums", add);
    /// # tokio::spawn(engine.run_until(stopped));
    /// # let client = Client::new(store).queues([sums]);
    /// let job = Job::new("sums", &[1, 2, 3])?.key("k");
    /// let job = client.push_and_wait(job, Duration::from_secs(20)).await?;
    /// assert_eq!(job.result.as_deref(), Some("6"));
    /// # drop(stop); Ok(()) }
    /// ```
    pub async fn push_and_wait(&self, mut job: Job, wait: Duration) -> Result<JobView> {
        self.shared.around.pass(&mut job)?;
        self.shared.declare().await?;
        let queues = self.shared.store.queues().await?;
        let known = queues.into_iter().find(|view| view.queue.name == *job.queue);
        let implied = || Queue::implied(&job.queue, job.key.is_some());
        known.map_or_else(implied, |view| view.queue).check_wait()?;
        let (began, key) = (Instant::now(), job.key.clone());
        let id = self.push_passed(job).await?.taken(key.as_deref())?;
        self.end_of(id, began, wait).await
    }

    /// Waits until a job has ended, but no longer than `wait`, and returns it as it is then.
    ///
    /// Fails as `NotFound` if the store does not know the job, or no longer knows it, and as `Invalid` (field `wait`)
    /// if it has not ended and its queue keeps no finished jobs.
    pub async fn wait(&self, id: JobId, wait: Duration) -> Result<JobView> {
        let began = Instant::now();
        let job = self.look(id).await?;
        if job.has_ended() {
            return Ok(job);
        }
        let queues = self.shared.store.queues().await?;
        if let Some(view) = queues.into_iter().find(|view| *view.queue.name == *job.queue) {
            view.queue.check_wait()?;
        }
        self.end_of(id, began, wait).await
    }

    /// Polls the job until it has ended or time is up, less often the longer it takes.
    async fn end_of(&self, id: JobId, began: Instant, wait: Duration) -> Result<JobView> {
        loop {
            let job = self.look(id).await?;
            let waited = began.elapsed();
            let left = wait.saturating_sub(waited);
            if job.has_ended() || left.is_zero() {
                return Ok(job);
            }
            sleep((waited / PAUSE_PART).clamp(LOOK_PAUSE_MIN, LOOK_PAUSE_MAX).min(left)).await;
        }
    }

    async fn look(&self, id: JobId) -> Result<JobView> {
        let gone = || {
            let message = format!(
                "job {id} is not stored: it ended, and its queue no longer keeps it, or it was deleted"
            );
            Error::new(ErrorKind::NotFound, message)
        };
        self.shared.store.job(id).await?.ok_or_else(gone)
    }
}
