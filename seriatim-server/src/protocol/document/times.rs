//! How long turns took.

use schemars::JsonSchema;
use serde::Serialize;

/// How many turns ended, and how long they took.
#[derive(Clone, Copy, Debug, Serialize, JsonSchema)]
pub(crate) struct Times {
    pub(crate) turns: u64,
    /// Those that failed, crashed or were buried
    pub(crate) failed: u64,
    /// How long a turn took, in seconds
    pub(crate) mean: f64,
    /// The longest turn, in seconds
    pub(crate) longest: f64,
    /// Half of the turns took no longer, in seconds: at least half and at most twice the exact value. Null if earlier builds timed them
    pub(crate) p50: Option<f64>,
    /// The same of 95 percent
    pub(crate) p95: Option<f64>,
}
