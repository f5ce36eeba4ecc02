//! A finding and its severity.

use schemars::JsonSchema;
use serde::Serialize;

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
}

impl Finding {
    pub(crate) fn new(
        severity: Severity,
        about: impl Into<String>,
        found: impl Into<String>,
        advice: impl Into<String>,
    ) -> Self {
        Self { severity, about: about.into(), found: found.into(), advice: advice.into() }
    }
}
