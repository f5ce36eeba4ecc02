//! A finding and its severity.

use serde::Serialize;

/// Ordered: the worst first.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "snake_case")]
pub(super) enum Severity {
    /// Work does not get done, or may be lost.
    Serious,
    /// It may become serious.
    Warning,
    /// Good to know.
    Notice,
}

/// A finding.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub(super) struct Finding {
    pub(super) severity: Severity,
    /// A queue, a lane, a node, the store.
    pub(super) about: String,
    /// The problem.
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
