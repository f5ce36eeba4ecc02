//! What the holder of a turn has reported.

use std::sync::Arc;

use schemars::JsonSchema;
use serde::Serialize;
use seriatim::store::{StepRecord, TurnReport};

use crate::protocol::value::Raw;

/// Progress and steps, as fields of a job or lane.
#[derive(Serialize, JsonSchema)]
pub(super) struct Reported {
    /// The last progress that the handler reported
    progress: Option<Raw>,
    /// Absent without steps
    #[serde(skip_serializing_if = "Option::is_none")]
    steps: Option<Steps>,
}

/// The steps of a turn.
#[derive(Serialize, JsonSchema)]
#[schemars(inline)]
struct Steps {
    /// The step under way
    step: Option<String>,
    /// The steps that have ended
    done: Vec<String>,
}

impl From<Option<Arc<str>>> for Reported {
    fn from(kept: Option<Arc<str>>) -> Self {
        let TurnReport { progress, steps } = TurnReport::read(kept.as_deref());
        let named =
            |StepRecord { step, done, .. }| Steps { step, done: done.into_keys().collect() };
        Self { progress: progress.map(Raw::Text), steps: steps.map(named) }
    }
}
