//! Simulates the whole runtime: several engines on one memory store, in virtual time, with all kinds of faults, from
//! one seed. The same seed gives the same history, byte for byte.
//!
//! In [`Mode::Safety`] faults continue until the end, and the checker judges the history. In [`Mode::Liveness`] they
//! stop at some point; then all jobs must be processed in time, the idle engines must be quiet, and all of them must
//! stop in time and leave no claims.
//!
//! ```
//! use seriatim_verify::simulation::{Mode, Options, run}; let outcome = run(7, &Options::new(Mode::Liveness));
//! assert!(outcome.failure.is_none(), "{outcome}");
//! ```

mod alarm;
mod batches;
mod chaos;
mod clock;
mod gate;
mod handler;
mod mutant;
mod node;
mod people;
mod producer;
mod run;
mod scene;
mod scribe;
mod tape;
#[cfg(test)]
mod tests;
mod wire;
mod world;

use std::collections::BTreeMap;
use std::fmt;
use std::time::Duration;

pub use mutant::Mutant;
pub use run::run;

use crate::broken::Fault;
use crate::checker::Report;

/// The property that a run tests.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Mode {
    /// No guarantee is violated while faults happen.
    Safety,
    /// Everything ends after the faults stop.
    Liveness,
}

impl Mode {
    /// Both modes.
    pub const ALL: [Self; 2] = [Self::Safety, Self::Liveness];

    /// The name on the command line.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Safety => "safety",
            Self::Liveness => "liveness",
        }
    }
}

/// How to run a seed.
#[derive(Clone, Copy, Debug)]
pub struct Options {
    /// The property to test.
    pub mode: Mode,
    /// A defect of the store.
    pub fault: Option<Fault>,
    /// A defect of the runtime.
    pub mutant: Option<Mutant>,
    /// Whether to keep the history as text.
    pub trace: bool,
}

impl Options {
    /// A run without defects.
    pub fn new(mode: Mode) -> Self {
        Self { mode, fault: None, mutant: None, trace: false }
    }
}

/// The result of a run.
#[derive(Clone, Debug)]
pub struct Outcome {
    /// The seed.
    pub seed: u64,
    /// The mode of the run.
    pub mode: Mode,
    /// The violation; `None` if there is none.
    pub failure: Option<String>,
    /// The checker's report.
    pub report: Report,
    /// The injected faults, and how often each happened.
    pub injected: BTreeMap<&'static str, u64>,
    /// How much virtual time passed.
    pub simulated: Duration,
    /// The number of store calls.
    pub calls: u64,
    /// The history if requested: one JSON line per event, and notes that begin with `#`.
    pub trace: Vec<String>,
}

impl fmt::Display for Outcome {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (seed, mode) = (self.seed, self.mode.as_str());
        match &self.failure {
            None => write!(f, "seed {seed} ({mode}): ok")?,
            Some(failure) => write!(f, "seed {seed} ({mode}): {failure}")?,
        }
        Ok(())
    }
}
