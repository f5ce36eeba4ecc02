//! Periodic workers, as their node reports them.

use serde::{Deserialize, Serialize};

/// The state of a periodic worker.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum PeriodicState {
    /// Waits for its next run.
    #[default]
    Idle,
    /// Runs.
    Work,
    /// Ended with its engine.
    Stop,
}

/// A view of a periodic worker.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct PeriodicView {
    /// Its name.
    pub name: String,
    /// Its state.
    pub state: PeriodicState,
    /// How often it has run.
    pub runs: u64,
    /// How often it has failed.
    pub failures: u64,
    /// The last failure, cut to 500 bytes.
    pub error: Option<String>,
}
