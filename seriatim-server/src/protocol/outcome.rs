//! How a worker says that a turn ended: a word, and the fields that go with it.

use std::sync::Arc;
use std::time::Duration;

use schemars::JsonSchema;
use serde::Deserialize;
use seriatim::Outcome;

/// The length of a snooze that names none.
pub(crate) const SNOOZE: Duration = Duration::from_secs(30);

#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
#[schemars(inline)]
pub(crate) enum Word {
    Done,
    Retry,
    Snooze,
    Bury,
    Cancel,
    Release,
}

/// What goes with a word.
pub(crate) struct With<'a> {
    pub(crate) error: Option<&'a str>,
    pub(crate) retry_in: Option<Duration>,
    pub(crate) has_result: bool,
}

/// Why so many jobs at the start of a lane of `jobs` cannot be done beside its outcome; none if they can.
pub(crate) fn miscounted(is_done: bool, done: usize, jobs: usize) -> Option<String> {
    match is_done {
        _ if done > jobs => Some(format!("the lane has {jobs}")),
        true if done > 0 && done < jobs => {
            Some(format!("the outcome is \"done\", for all {jobs} jobs of the lane"))
        }
        false if done == jobs => {
            Some(format!("the lane has {jobs}, which leaves no job for the outcome"))
        }
        _ => None,
    }
}

impl Word {
    pub(crate) const ALL: [Self; 6] =
        [Self::Done, Self::Retry, Self::Snooze, Self::Bury, Self::Cancel, Self::Release];

    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Done => "done",
            Self::Retry => "retry",
            Self::Snooze => "snooze",
            Self::Bury => "bury",
            Self::Cancel => "cancel",
            Self::Release => "release",
        }
    }

    pub(crate) fn named(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|word| word.name() == name)
    }

    /// The first field that would be lost with this word, and the words that it goes with.
    pub(crate) fn misplaced(self, with: &With<'_>) -> Option<(&'static str, &'static str)> {
        let has_error = with.error.is_some_and(|error| !error.is_empty());
        match self {
            _ if with.retry_in.is_some() && !matches!(self, Self::Retry | Self::Snooze) => {
                Some(("retry_in", "retry or snooze"))
            }
            Self::Done | Self::Release if has_error => {
                Some(("error", "retry, snooze, bury or cancel"))
            }
            _ if with.has_result && self != Self::Done => Some(("result", "done")),
            _ => None,
        }
    }

    pub(crate) fn outcome(self, with: &With<'_>) -> Outcome {
        let error = with.error.filter(|error| !error.is_empty());
        let error: Arc<str> = error.unwrap_or("no reason given").into();
        match self {
            Self::Done => Outcome::Done,
            Self::Retry => Outcome::Retry { error, retry_in: with.retry_in },
            Self::Snooze => Outcome::Snooze { length: with.retry_in.unwrap_or(SNOOZE) },
            Self::Bury => Outcome::Bury { error },
            Self::Cancel => Outcome::Cancel { reason: error },
            Self::Release => Outcome::Release,
        }
    }
}
