//! A finding and its severity.

use schemars::JsonSchema;
use serde::Serialize;
use seriatim::Timestamp;
use seriatim::store::LaneStage;

/// Ordered: the worst first.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
#[schemars(inline)]
pub(crate) enum Severity {
    // Work does not get done, or may be lost.
    Serious,
    // It may become serious.
    Warning,
    // Good to know.
    Notice,
}

/// A problem, and what to do.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, JsonSchema)]
pub(crate) struct Finding {
    pub(crate) severity: Severity,
    /// A queue, a lane, a node, the store.
    pub(crate) about: String,
    /// The problem.
    pub(crate) found: String,
    /// What to do.
    pub(crate) advice: String,
    /// The queue, if it is about one.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) queue: Option<String>,
    /// The key, if it is about a single one.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) key: Option<String>,
    #[serde(skip)]
    pub(crate) list: Option<List>,
    #[serde(skip)]
    pub(crate) repair: Option<Repair>,
}

/// The one action that the advice leads to, where nothing else must be decided first.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Repair {
    /// Of the key, or of all that are listed.
    Retry,
    Resume,
    ResumeQueue,
    /// The dead jobs of the queue.
    Requeue,
}

/// What lists that which was found in a queue.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum List {
    Lanes(LaneStage),
    /// Lanes with this retry count or a higher one.
    Failing(i32),
    /// Lanes whose retry is due then or later.
    Blocking(Timestamp),
    Morgue,
}

impl Finding {
    pub(crate) fn new(
        severity: Severity,
        about: impl Into<String>,
        found: impl Into<String>,
        advice: impl Into<String>,
    ) -> Self {
        let (about, found, advice) = (about.into(), found.into(), advice.into());
        Self { severity, about, found, advice, queue: None, key: None, list: None, repair: None }
    }

    pub(super) fn of_queue(
        severity: Severity,
        queue: &str,
        found: impl Into<String>,
        advice: impl Into<String>,
    ) -> Self {
        let finding = Self::new(severity, format!("queue {queue}"), found, advice);
        Self { queue: Some(queue.to_owned()), ..finding }
    }

    pub(super) fn key(self, key: Option<&str>) -> Self {
        Self { key: key.map(str::to_owned), ..self }
    }

    pub(super) fn list(self, list: List) -> Self {
        Self { list: Some(list), ..self }
    }

    pub(super) fn repair(self, repair: Repair) -> Self {
        Self { repair: Some(repair), ..self }
    }
}
