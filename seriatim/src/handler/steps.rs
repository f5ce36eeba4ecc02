//! Jobs with several steps.

use std::collections::BTreeMap;
use std::future::Future;

use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::handler::batch::Lane;
use crate::handler::context::Context;
use crate::handler::failure::{Failure, Interrupted};
use crate::model::error::{Error, Result};
use crate::model::id::{JobId, LaneId};
use crate::model::limits::{NAME_BYTES_MAX, PROGRESS_BYTES_MAX};

/// The steps of one lane's turn. When a turn is run again (after a failure, a crash, or on another node), steps that
/// have ended are not repeated. Their results are kept with the lane, as its progress.
///
/// Between two steps the call ends early if its jobs were cancelled or the node stops. An interrupted step runs again
/// from its beginning, so its effects must bear repetition.
///
/// In an `exclusive` queue another job of the key may run in between; if that job reports progress, this one starts
/// from the beginning.
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
    state: State,
    /// The names used in this run; each name must be unique.
    begun: Vec<String>,
}

/// The stored state, which is also the visible progress of the job.
#[derive(Debug, Serialize, Deserialize)]
struct State {
    /// Identifies the jobs to which it belongs.
    jobs: String,
    /// The step under way.
    step: Option<String>,
    /// The results of the steps before it.
    done: BTreeMap<String, Value>,
}

impl Steps {
    pub(crate) async fn resume<T>(context: &Context, lane: &Lane<T>) -> Result<Self> {
        let ids: Vec<JobId> = lane.turn().jobs.iter().map(|job| job.id).collect();
        let jobs = name_of(&ids);
        // Read on every call, because a release does not count as an attempt.
        let job = match ids.first() {
            Some(first) => context.store().job(*first).await?,
            None => None,
        };
        let kept = job.and_then(|job| serde_json::from_str(job.progress.as_deref()?).ok());
        let fresh = || State { jobs: jobs.clone(), step: None, done: BTreeMap::new() };
        let state = kept.filter(|kept: &State| kept.jobs == jobs).unwrap_or_else(fresh);
        Ok(Self { context: context.clone(), lane: lane.id(), state, begun: Vec::new() })
    }

    /// Runs a step, or returns its result from an earlier run. The results of all steps together may have 64 KiB as
    /// JSON; for larger results, return a reference.
    pub async fn run<R, F, Fut>(&mut self, name: &str, step: F) -> Result<R, Failure>
    where
        R: Serialize + DeserializeOwned,
        F: FnOnce() -> Fut,
        Fut: Future<Output = Result<R, Failure>>,
    {
        self.begin(name)?;
        if let Some(value) = self.state.done.get(name) {
            return Ok(R::deserialize(value)?);
        }
        if self.context.is_cancelled() {
            return Err(format!("cancelled before step {name:?}").into());
        }
        if self.context.is_draining() {
            return Err(Interrupted.into());
        }
        self.state.step = Some(name.to_owned());
        self.context.report(self.lane, self.document(name)?);
        let result = step().await?;
        self.state.done.insert(name.to_owned(), serde_json::to_value(&result)?);
        self.state.step = None;
        self.context.report_and_wait(self.lane, self.document(name)?).await;
        Ok(result)
    }

    fn begin(&mut self, name: &str) -> Result<()> {
        let twice = self.begun.iter().any(|begun| begun == name);
        if twice || name.is_empty() || name.len() > NAME_BYTES_MAX {
            let message = format!(
                "{name:?} must have 1 to {NAME_BYTES_MAX} bytes, and each step needs a different name"
            );
            return Err(Error::invalid("step", message));
        }
        self.begun.push(name.to_owned());
        Ok(())
    }

    fn document(&self, name: &str) -> Result<String> {
        let text = serde_json::to_string(&self.state).map_err(|e| {
            Error::invalid("step", "its result cannot be written as JSON").because(e)
        })?;
        if text.len() > PROGRESS_BYTES_MAX {
            let bytes = text.len();
            let message = format!(
                "{name:?}: the results have {bytes} bytes; at most {PROGRESS_BYTES_MAX} are kept: return a reference"
            );
            return Err(Error::invalid("step", message));
        }
        Ok(text)
    }
}

/// A hash that identifies a set of jobs, so that the state of other jobs is not used for them.
fn name_of(jobs: &[JobId]) -> String {
    let mut hasher = blake3::Hasher::new();
    for job in jobs {
        hasher.update(&job.to_bytes());
    }
    hasher.finalize().to_hex()[..16].to_owned()
}
