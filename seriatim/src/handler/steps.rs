//! Jobs with several steps.

use std::future::Future;

use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::Value;

use crate::handler::context::Context;
use crate::handler::failure::{Failure, Interrupted};
use crate::model::{Error, JobId, LaneId, Result, StepRecord, Turn};

/// The steps of one lane's turn. When a turn is run again (after a failure, a crash, or on another node), steps that
/// have ended are not repeated. Their results are kept with the lane, beside its progress.
///
/// Between two steps the call ends early if its jobs were cancelled or the node stops. If the node stops and the
/// handler returns an error, the jobs are returned uncounted, whatever the error is. A lane that the handler fails in
/// [`Outcomes`](crate::Outcomes) is counted: give it [`Outcome::Release`](crate::Outcome::Release). An interrupted step
/// runs again from its beginning, so it must be safe to repeat.
///
/// A lane keeps the steps of one turn, until a turn of the key keeps none of its jobs. So a job that waits for its
/// retry starts from the beginning if another job of its key ends or has steps in between: in `exclusive` any job, in
/// `fifo` one with a lower score. So does a turn in `accumulate` that other jobs have joined.
///
/// ```
/// # use seriatim::{Batch, Context, Failure};
/// # async fn extract(_: &str) -> Result<Vec<u32>, Failure> { Ok(vec![]) }
/// # async fn load(_: &[u32]) -> Result<(), Failure> { Ok(()) }
/// async fn import(batch: Batch<String>, call: Context) -> Result<(), Failure> {
///     for lane in batch.lanes() {
///         let mut steps = call.steps(lane).await?;
///         let rows = steps.run("extract", || extract(&lane.payloads()[0])).await?;
///         steps.run("load", || load(&rows)).await?;
///     }
///     Ok(())
/// }
/// ```
#[derive(Debug)]
pub struct Steps {
    context: Context,
    lane: LaneId,
    record: StepRecord,
    /// The names used in this run; each name must be unique.
    begun: Vec<String>,
}

/// What to do about a step.
#[derive(Clone, Debug, PartialEq)]
pub enum Begun {
    /// Run it, then call [`Steps::end`].
    Run,
    /// It ended in an earlier run, with this result.
    Ended(Value),
    /// All jobs of the call are cancelled, or it must end: run no further step.
    Cancelled,
    /// The node stops: run no further step, and release the lane.
    Stopping,
}

impl Steps {
    pub(crate) async fn resume(context: &Context, turn: &Turn) -> Result<Self> {
        let jobs: Vec<JobId> = turn.jobs.iter().map(|job| job.id).collect();
        let mut report = context.reported(turn).await?;
        let record = report.steps_of(&jobs).clone();
        Ok(Self { context: context.clone(), lane: turn.lane, record, begun: Vec::new() })
    }

    /// Runs a step, or returns its result from an earlier run. The results of all steps together have at most 64 KiB of
    /// JSON; for larger results, return a reference.
    pub async fn run<R, F, Fut>(&mut self, name: &str, step: F) -> Result<R, Failure>
    where
        R: Serialize + DeserializeOwned,
        F: FnOnce() -> Fut,
        Fut: Future<Output = Result<R, Failure>>,
    {
        match self.begin(name)? {
            Begun::Run => {}
            Begun::Ended(result) => return Ok(R::deserialize(result)?),
            Begun::Cancelled => return Err(format!("cancelled before step {name:?}").into()),
            Begun::Stopping => return Err(Interrupted.into()),
        }
        let result = step().await?;
        let stored = serde_json::to_value(&result)?;
        // As every later run will read it.
        R::deserialize(&stored).map_err(|error| {
            Error::invalid("step", format!("{name:?}: its result cannot be read back: {error}"))
        })?;
        self.end(name, stored).await?;
        Ok(result)
    }

    /// Begins a step that runs elsewhere, for example in another process. [`run`](Self::run) does all of it.
    pub fn begin(&mut self, name: &str) -> Result<Begun> {
        if self.begun.iter().any(|begun| begun == name) {
            let message = format!("{name:?} was started before: each step needs a name of its own");
            return Err(Error::invalid("step", message));
        }
        let mut record = self.record.clone();
        if let Some(result) = record.begin(name)? {
            self.begun.push(name.to_owned());
            return Ok(Begun::Ended(result.clone()));
        }
        if self.context.is_cancelled() {
            return Ok(Begun::Cancelled);
        }
        if self.context.is_draining() {
            self.context.interrupt();
            return Ok(Begun::Stopping);
        }
        self.begun.push(name.to_owned());
        self.keep(record);
        Ok(Begun::Run)
    }

    /// Ends a step that was begun, and waits until the store has its result, or the call is asked to stop.
    pub async fn end(&mut self, name: &str, result: Value) -> Result<()> {
        if self.record.step.as_deref() != Some(name) {
            let message = format!("{name:?} has not been started: start it first");
            return Err(Error::invalid("step", message));
        }
        let mut record = self.record.clone();
        record.end(name, result)?;
        self.keep(record);
        self.context.reports_arrived().await;
        Ok(())
    }

    fn keep(&mut self, record: StepRecord) {
        self.context.report_steps(self.lane, record.clone());
        self.record = record;
    }
}
