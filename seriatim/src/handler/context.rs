//! The access of a running handler to its call.

use std::fmt;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use serde::Serialize;
use tokio::time::Instant;

use crate::contract::{Push, Settle, Settled, SharedStore, Transaction, pushes_of};
use crate::handler::batch::Lane;
use crate::handler::call::Call;
use crate::handler::control::{Committed, Stop};
use crate::handler::steps::Steps;
use crate::model::{
    Error, ErrorKind, Job, JobId, LaneId, Result, Settlement, StepRecord, Timestamp, Turn,
    TurnReport, check_result,
};

/// One handler call: its time limit, cancellation, progress and store. Cheap to clone.
///
/// ```
/// # use seriatim::{Batch, Context, Failure};
/// async fn convert(films: Batch<String>, call: Context) -> Result<(), Failure> {
///     for film in films.lanes() {
///         for percent in 0..100 {
///             if call.is_cancelled() {
///                 return Err("cancelled".into());
///             }
///             call.progress(film, &percent)?;
///         }
///     }
///     Ok(())
/// }
/// ```
#[derive(Clone)]
pub struct Context {
    call: Arc<Call>,
}

impl Context {
    pub(crate) fn new(call: Arc<Call>) -> Self {
        Self { call }
    }

    /// The queue.
    pub fn queue(&self) -> &str {
        &self.call.queue.name
    }

    /// The task of all jobs of the call, if they name one.
    pub fn task(&self) -> Option<&str> {
        self.call.task()
    }

    /// The turns of the call, as the store handed them over.
    pub fn turns(&self) -> &[Turn] {
        &self.call.turns
    }

    /// The store of the call. To push further jobs, clone your [`Client`](crate::Client) into the handler: one that is
    /// made of this store has neither its codec nor its middleware.
    pub fn store(&self) -> &SharedStore {
        &self.call.env.store
    }

    /// Settles all turns of the call as done in `transaction`, and commits it: the handler's writes in it and the end
    /// of the jobs take effect together, or not at all. The handler's later answer then changes nothing.
    ///
    /// Fails as `Conflict` if the claim was taken over; the transaction is rolled back, including the handler's
    /// writes. After any error the handler should return it.
    pub async fn commit_with(&self, mut transaction: impl Transaction) -> Result<()> {
        let call = &*self.call;
        let done = |(place, turn)| {
            call.plan(place, &call.queue, call.done_verdict(turn), &|_| Duration::ZERO)
        };
        let turns: Vec<Settlement> = call.turns.iter().enumerate().map(done).collect();
        if let Err(error) = self.settle_in(&mut transaction, &turns).await {
            // Releases its locks now. If that fails, the connection is broken and the server ends the transaction.
            let _ = transaction.rollback().await;
            return Err(error);
        }
        let sent_at = Timestamp::of_this_machine();
        transaction.commit(&**self.store()).await?;
        self.call.control.commit(Committed { settlements: turns, sent_at });
        Ok(())
    }

    /// Settles all turns, and pushes the jobs about those that cannot be decoded.
    async fn settle_in(
        &self,
        transaction: &mut impl Transaction,
        turns: &[Settlement],
    ) -> Result<()> {
        let (call, store) = (&*self.call, &**self.store());
        let request = Settle::now(turns.to_vec());
        let settled = transaction.settle(store, request).await?;
        if !settled.iter().all(Settled::is_ok) {
            let message = "another node had taken this claim over: nothing was written";
            return Err(Error::new(ErrorKind::Conflict, message));
        }
        let calls = |(place, (end, settled)): (usize, (&Settlement, &Settled))| {
            let is_flagged =
                |job| matches!(settled, Settled::Ok { cancelled, .. } if cancelled.contains(&job));
            call.env.calls_about(call.claimed(place), end, &is_flagged)
        };
        let jobs: Vec<Job> = turns.iter().zip(&settled).enumerate().flat_map(calls).collect();
        for jobs in pushes_of(&jobs) {
            transaction.push(store, Push { now: None, jobs: jobs.to_vec() }).await?;
        }
        Ok(())
    }

    /// Sets the result of a lane, for callers that wait for its jobs (see
    /// [`Client::push_and_wait`](crate::Client::push_and_wait)): each job of the turn keeps it as long as the queue
    /// keeps finished jobs (`retain_completed`). Replaces an earlier one, and is dropped if the turn does not end as
    /// done. At most 64 KiB of JSON, and 16 MiB for all jobs of the turn together. It is stored as written here: no
    /// codec applies.
    ///
    /// ```
    /// # use seriatim::{Batch, Context, Failure};
    /// async fn add_up(orders: Batch<Vec<u32>>, call: Context) -> Result<(), Failure> {
    ///     for order in orders.lanes() {
    ///         let total: u32 = order.payloads().iter().flatten().sum();
    ///         call.result(order, &total)?;
    ///     }
    ///     Ok(())
    /// }
    /// ```
    pub fn result<T>(&self, lane: &Lane<T>, result: &impl Serialize) -> Result<()> {
        self.result_of(lane.id(), result)
    }

    /// The same, by the lane's id.
    pub fn result_of(&self, lane: LaneId, result: &impl Serialize) -> Result<()> {
        let text = serde_json::to_string(result)
            .map_err(|e| Error::invalid("result", "cannot be written as JSON").because(e))?;
        check_result(&text, self.turn_of(lane)?.jobs.len())?;
        if !self.call.queue.retention().is_zero() {
            self.call.control.keep_result(lane, text.into());
        }
        Ok(())
    }

    /// Whether the node is stopping: a handler whose work can be resumed later should end.
    pub fn is_draining(&self) -> bool {
        self.call.env.draining.load(Ordering::Relaxed)
    }

    /// The steps of a lane; steps that have ended are not run again.
    pub async fn steps<T>(&self, lane: &Lane<T>) -> Result<Steps> {
        self.steps_of(lane.id()).await
    }

    /// The same, by the lane's id.
    pub async fn steps_of(&self, lane: LaneId) -> Result<Steps> {
        Steps::resume(self, self.turn_of(lane)?).await
    }

    fn turn_of(&self, lane: LaneId) -> Result<&Turn> {
        let message = || format!("{lane} is not a lane of this call");
        self.call.turn_of(lane).ok_or_else(|| Error::invalid("lane", message()))
    }

    /// The reports of the lane's turns so far.
    pub(crate) async fn reported(&self, turn: &Turn) -> Result<TurnReport> {
        if let Some(report) = self.call.control.recalled(turn.lane) {
            return Ok(report);
        }
        // Whatever the attempt: a release does not count as one.
        let job = match turn.head() {
            Some(head) => self.store().job(head.id).await?,
            None => None,
        };
        let kept = TurnReport::read(job.and_then(|job| job.progress).as_deref());
        self.call.control.recall(turn.lane, kept.clone());
        Ok(self.call.control.recalled(turn.lane).unwrap_or(kept))
    }

    /// Notes that the call ends between two steps because the node stops.
    pub(crate) fn interrupt(&self) {
        self.call.control.interrupt();
    }

    pub(crate) fn report_steps(&self, lane: LaneId, steps: StepRecord) {
        self.call.control.report_steps(lane, steps);
    }

    /// Waits until the store has all reports, or the call is asked to stop.
    pub(crate) async fn reports_arrived(&self) {
        // Once pending, the call is listed among those whose progress is collected.
        tokio::task::yield_now().await;
        self.call.env.hurry.notify_one();
        self.call.control.all_arrived().await;
    }

    /// Waits until the call is asked to stop early: all its jobs are cancelled, its time limit is reached, its lease
    /// may expire, or the node stops and its `shutdown_timeout` has passed.
    ///
    /// The handler's answer counts if it comes within `cancel_grace` (default: 5 s); after that the handler is dropped.
    /// If only its jobs are cancelled, it is not dropped and may finish.
    pub async fn cancelled(&self) {
        self.call.control.reached(Stop::Cancelled).await;
    }

    /// Like [`Self::cancelled`], but ignores a cancellation of its jobs. When this resolves, the handler is dropped
    /// unless it ends within `cancel_grace`.
    pub async fn must_end(&self) {
        self.call.control.reached(Stop::TimedOut).await;
    }

    /// Whether the call was asked to stop early.
    pub fn is_cancelled(&self) -> bool {
        self.call.control.reason().is_some()
    }

    /// Waits until more than `known` jobs of the call are flagged for cancellation, or the call is asked to stop early.
    /// Returns all flagged jobs, by lane.
    pub async fn flagged(&self, known: usize) -> Vec<(LaneId, Vec<JobId>)> {
        self.call.control.flagged(known).await
    }

    /// When the time limit is reached; `None` without a `timeout`.
    pub fn deadline(&self) -> Option<Instant> {
        self.call.deadline
    }

    /// The time left for the handler; `None` without a `timeout`.
    pub fn time_left(&self) -> Option<Duration> {
        self.call.deadline.map(|end| end.saturating_duration_since(Instant::now()))
    }

    /// Reports the progress of a lane. Replaces the previous report, not the steps, and reaches the store within about a
    /// second. At most 64 KiB of JSON.
    pub fn progress<T>(&self, lane: &Lane<T>, progress: &impl Serialize) -> Result<()> {
        self.progress_of(lane.id(), progress)
    }

    /// The same, by the lane's id.
    pub fn progress_of(&self, lane: LaneId, progress: &impl Serialize) -> Result<()> {
        let text = serde_json::to_string(progress)
            .map_err(|e| Error::invalid("progress", "cannot be written as JSON").because(e))?;
        TurnReport::check_progress(&text)?;
        self.turn_of(lane)?;
        self.call.control.report(lane, text.into());
        Ok(())
    }
}

impl fmt::Debug for Context {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Context").field("queue", &self.queue()).finish_non_exhaustive()
    }
}
