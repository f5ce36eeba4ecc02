//! What the holder of a turn has reported, in words.

use seriatim::store::{StepRecord, TurnReport};
use seriatim::text::cut_middle;

use crate::base::text::lines;

/// What a page shows of each, in bytes.
const SHORT_BYTES: usize = 2 << 10;

/// Progress and steps, as people see them.
#[derive(Default)]
pub(crate) struct Reported {
    pub(crate) progress: Option<String>,
    pub(crate) steps: Option<String>,
}

impl Reported {
    /// Of what a store keeps as a turn's progress.
    pub(crate) fn of(kept: Option<&str>) -> Self {
        let TurnReport { progress, steps } = TurnReport::read(kept);
        Self { progress: progress.map(|text| text.to_string()), steps: steps.map(in_words) }
    }

    /// The beginning and end of each, on a page beside much else.
    pub(crate) fn short(self) -> Self {
        let short = |text: String| cut_middle(&lines(&text), SHORT_BYTES).into_owned();
        Self { progress: self.progress.map(short), steps: self.steps.map(short) }
    }

    /// Both on one line.
    pub(crate) fn line(self) -> String {
        let both: Vec<String> = self.progress.into_iter().chain(self.steps).collect();
        both.join("; ")
    }
}

fn in_words(StepRecord { step, done, .. }: StepRecord) -> String {
    let ended: Vec<String> = done.into_keys().collect();
    let ended = (!ended.is_empty()).then(|| format!("ended: {}", ended.join(", ")));
    let running = step.map(|name| format!("under way: {name}"));
    let words: Vec<String> = ended.into_iter().chain(running).collect();
    words.join("; ")
}
