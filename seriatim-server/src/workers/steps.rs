//! Steps of a process's calls: the process announces a step, and the answer says whether to run it.

use std::collections::HashMap;

use serde_json::Value;
use seriatim::engine::Begun;
use seriatim::store::LaneId;
use seriatim::{Context, Result, Steps};

use super::messages::{Go, StepAnswer};

/// What a program says about a step.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Step {
    pub(crate) name: String,
    /// Its result, once it has ended.
    pub(crate) ended: Option<Value>,
}

/// The steps of each lane of a call, while no message about them is under way.
#[derive(Default)]
pub(super) struct Pipelines {
    idle: HashMap<LaneId, Option<Steps>>,
    busy: Vec<LaneId>,
}

impl Pipelines {
    /// Takes the steps of a lane for a message about them. A program hears the answer to one before it writes the next,
    /// so that no order is left to chance.
    pub(super) fn take(&mut self, lane: LaneId) -> Result<Option<Steps>, String> {
        if self.busy.contains(&lane) {
            return Err(format!(
                "a step of lane \"{lane}\" was not answered yet: read the answer before the next message about its steps"
            ));
        }
        self.busy.push(lane);
        Ok(self.idle.remove(&lane).flatten())
    }

    /// Puts them back when the message is answered.
    pub(super) fn put(&mut self, lane: LaneId, steps: Option<Steps>) {
        self.busy.retain(|busy| *busy != lane);
        self.idle.insert(lane, steps);
    }
}

/// Carries a message out. Returns the answer for the program.
pub(super) async fn tell(
    steps: &mut Option<Steps>,
    context: &Context,
    lane: LaneId,
    step: &Step,
) -> Result<StepAnswer> {
    let steps = match steps {
        Some(steps) => steps,
        None => steps.insert(context.steps_of(lane).await?),
    };
    if let Some(result) = &step.ended {
        steps.end(&step.name, result.clone()).await?;
        return Ok(StepAnswer::new(Go::Kept));
    }
    Ok(match steps.begin(&step.name)? {
        Begun::Run => StepAnswer::new(Go::Run),
        Begun::Ended(result) => StepAnswer::done(result),
        Begun::Cancelled => StepAnswer::cancelled(),
        Begun::Stopping => StepAnswer::stopping(),
    })
}
