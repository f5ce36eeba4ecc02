//! Something that was found, and how bad it is.

use serde::Serialize;

/// How bad something is. In order: the worst first.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "snake_case")]
pub(super) enum Severity {
    /// Work does not get done, or may be lost.
    Serious,
    /// It will be, if nobody looks.
    Warning,
    /// Good to know.
    Notice,
}

/// Something that was found.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub(super) struct Finding {
    pub(super) severity: Severity,
    /// A queue, a lane, a node, the store.
    pub(super) about: String,
    /// What is the matter.
    pub(super) found: String,
    /// What to do.
    pub(super) advice: String,
}

impl Finding {
    pub(super) fn new(
        severity: Severity,
        about: impl Into<String>,
        found: impl Into<String>,
        advice: impl Into<String>,
    ) -> Self {
        Self { severity, about: about.into(), found: found.into(), advice: advice.into() }
    }
}
