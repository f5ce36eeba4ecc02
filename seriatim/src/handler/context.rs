//! What a handler can ask and tell while it runs.

use std::fmt;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use serde::Serialize;
use tokio::time::Instant;

use super::call::Call;
use super::control::Stop;
use crate::contract::{Settle, Settled, SharedStore, Transaction};
use crate::handler::batch::Lane;
use crate::handler::steps::Steps;
use crate::model::error::{Error, ErrorKind, Result};
use crate::model::id::{JobId, LaneId};
use crate::model::limits::PROGRESS_BYTES_MAX;
use crate::model::settle::{Settlement, plan};
use crate::model::turn::Turn;

/// One handler call: how long it may take, whether it is cancelled, its progress, its store. Cheap to clone.
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

    /// The task of all jobs of the call, where they name one.
    pub fn task(&self) -> Option<&str> {
        self.call.turns.first()?.task().map(AsRef::as_ref)
    }

    /// The turns of the call, as the store handed them over.
    pub fn turns(&self) -> &[Turn] {
        &self.call.turns
    }

    /// The store that the call came from: to push what follows from it, for one.
    pub fn store(&self) -> &SharedStore {
        &self.call.env.store
    }

    /// Ends all turns of the call as done in `transaction`, and commits it: what the handler wrote in it
    /// and the end of the jobs hold together, or not at all. What the handler then answers
    /// changes nothing any more.
    ///
    /// Fails as `Conflict` when the claim has been taken over: then the transaction is rolled back,
    /// and the handler's writes with it. After any error the handler should answer with it.
    pub async fn commit_with(&self, mut transaction: impl Transaction) -> Result<()> {
        let done =
            |turn| plan(turn, &self.call.queue, &self.call.done_verdict(turn), &|_| Duration::ZERO);
        let turns: Vec<Settlement> = self.call.turns.iter().map(done).collect();
        let request = Settle { now: None, turns: turns.clone() };
        let taken_over = match transaction.settle(&**self.store(), request).await {
            Ok(settled) if settled.iter().all(Settled::is_ok) => None,
            Ok(_) => Some(Error::new(
                ErrorKind::Conflict,
                "another node had taken this claim over: nothing was written",
            )),
            Err(error) => Some(error),
        };
        if let Some(error) = taken_over {
            // Its locks go now. Where that fails, the connection is broken and the server ends it.
            let _ = transaction.rollback().await;
            return Err(error);
        }
        transaction.commit(&**self.store()).await?;
        self.call.control.commit(turns);
        Ok(())
    }

    /// Whether the node stops: a handler that can be taken up again later had better end.
    pub fn is_draining(&self) -> bool {
        self.call.env.draining.load(Ordering::Relaxed)
    }

    /// The steps of a lane, of which those that have ended already are not run again.
    pub async fn steps<T>(&self, lane: &Lane<T>) -> Result<Steps> {
        Steps::resume(self, lane).await
    }

    pub(crate) fn tell(&self, lane: LaneId, progress: String) {
        self.call.control.tell(lane, progress.into());
    }

    /// The same, and returns when the store has it (or the call is to end anyway).
    pub(crate) async fn tell_and_wait(&self, lane: LaneId, progress: String) {
        self.tell(lane, progress);
        // Once pending, the call is listed among those whose progress is looked for.
        tokio::task::yield_now().await;
        self.call.env.hurry.notify_one();
        self.call.control.all_arrived().await;
    }

    /// Waits until the call is to end early: all its jobs are cancelled, its time is up, its
    /// lease can no longer be kept, or the node stops and will not wait longer.
    ///
    /// What the handler then answers counts, if it answers soon: a few seconds later it is dropped.
    pub async fn cancelled(&self) {
        self.call.control.reached(Stop::Cancelled).await;
    }

    /// The same, but for a cancellation by a person, at which a handler may still finish its
    /// work: waits until the call cannot go on, and is dropped if it does not end soon.
    pub async fn must_end(&self) {
        self.call.control.reached(Stop::TimedOut).await;
    }

    /// Whether the call is to end early.
    pub fn is_cancelled(&self) -> bool {
        self.call.control.reason().is_some()
    }

    /// Waits until more jobs of the call are flagged for cancellation than the `known` ones, or
    /// the call is to end early. Answers all that are flagged, by lane.
    pub async fn flagged(&self, known: usize) -> Vec<(LaneId, Vec<JobId>)> {
        self.call.control.flagged(known).await
    }

    /// When the handler is stopped for taking too long; none without a `timeout`.
    pub fn deadline(&self) -> Option<Instant> {
        self.call.deadline
    }

    /// How long the handler may still take; none without a `timeout`.
    pub fn time_left(&self) -> Option<Duration> {
        self.call.deadline.map(|end| end.saturating_duration_since(Instant::now()))
    }

    /// Tells how far a lane is. Replaces what was told before and goes out within about a second.
    /// At most 64 KiB of JSON.
    pub fn progress<T>(&self, lane: &Lane<T>, progress: &impl Serialize) -> Result<()> {
        self.progress_of(lane.id(), progress)
    }

    /// The same, by the lane's name.
    pub fn progress_of(&self, lane: LaneId, progress: &impl Serialize) -> Result<()> {
        let text = serde_json::to_string(progress)
            .map_err(|e| Error::invalid("progress", "cannot be written as JSON").because(e))?;
        if text.len() > PROGRESS_BYTES_MAX {
            let message =
                format!("has {} bytes; at most {PROGRESS_BYTES_MAX} are kept", text.len());
            return Err(Error::invalid("progress", message));
        }
        self.tell(lane, text);
        Ok(())
    }
}

impl fmt::Debug for Context {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Context").field("queue", &self.queue()).finish_non_exhaustive()
    }
}
