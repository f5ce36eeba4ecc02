//! What remote workers report of their lanes: progress, and steps beside it.

use futures_util::{StreamExt, TryStreamExt, stream};
use schemars::JsonSchema;
use serde::Deserialize;
use serde_json::Value;
use serde_json::value::RawValue;
use seriatim::store::{LaneId, Store, Token, TurnReport};
use seriatim::{Error, JobId};

use crate::protocol::document::{StepState, ToldStep};

/// Turns looked up concurrently.
pub(super) const LOOKUPS_MAX: usize = 16;

/// A step of a lane, as a heartbeat names it.
#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
#[schemars(inline)]
pub(super) struct Step {
    /// The name of the step
    name: String,
    /// Whether it has ended. Otherwise it is about to begin
    #[serde(default)]
    done: bool,
    /// The result of a step that has ended, for later runs
    #[serde(default)]
    result: Value,
}

/// What a heartbeat says about a lane, besides that it is held.
pub(super) struct Said {
    pub(super) lane: LaneId,
    pub(super) token: Token,
    pub(super) progress: Option<Box<RawValue>>,
    pub(super) step: Option<Step>,
}

/// What the store keeps of a lane, and the answer about its step.
#[derive(Default)]
pub(super) struct Merged {
    pub(super) kept: Option<std::sync::Arc<str>>,
    pub(super) step: Option<ToldStep>,
}

/// A step that cannot be kept, by the place of its claim.
pub(super) struct Refused(pub(super) usize, pub(super) Error);

/// Joins each report to what the store keeps of its turn. A lane whose claim is lost keeps what it has.
pub(super) async fn merge(
    store: &dyn Store,
    said: Vec<Said>,
) -> Result<Result<Vec<Merged>, Refused>, Error> {
    let merges = said.into_iter().enumerate().map(|(place, said)| async move {
        let jobs = match said.progress.is_some() || said.step.is_some() {
            true => jobs_of(store, &said).await?,
            false => Vec::new(),
        };
        let Some(first) = jobs.first() else { return Ok(Ok(Merged::default())) };
        let kept = store.job(*first).await?.and_then(|job| job.progress);
        let merged = said.merged(TurnReport::read(kept.as_deref()), &jobs);
        Ok::<_, Error>(merged.map_err(|error| Refused(place, error)))
    });
    let merges: Vec<_> = merges.collect();
    let merged: Vec<_> = stream::iter(merges).buffered(LOOKUPS_MAX).try_collect().await?;
    Ok(merged.into_iter().collect())
}

async fn jobs_of(store: &dyn Store, said: &Said) -> Result<Vec<JobId>, Error> {
    let turn = store.turn(said.lane, said.token).await?;
    Ok(turn.map(|turn| turn.jobs.iter().map(|job| job.id).collect()).unwrap_or_default())
}

impl Said {
    fn merged(self, mut report: TurnReport, jobs: &[JobId]) -> Result<Merged, Error> {
        if let Some(progress) = self.progress {
            report.progress = Some(progress.get().into());
        }
        let step = self.step.map(|step| step.told(self.lane, &mut report, jobs)).transpose()?;
        Ok(Merged { kept: report.write(), step })
    }
}

impl Step {
    fn told(
        self,
        lane: LaneId,
        report: &mut TurnReport,
        jobs: &[JobId],
    ) -> Result<ToldStep, Error> {
        let steps = report.steps_of(jobs);
        let (state, result) = if self.done {
            steps.end(&self.name, self.result)?;
            (StepState::Kept, None)
        } else {
            match steps.begin(&self.name)? {
                Some(result) => (StepState::Done, Some(result.clone())),
                None => (StepState::Run, None),
            }
        };
        Ok(ToldStep { lane, step: self.name, state, result })
    }
}
