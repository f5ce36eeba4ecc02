//! The whole runtime, simulated: several engines on one memory store, in virtual time, with all
//! that can go wrong, from one seed. The same seed gives the same history, byte for byte.
//!
//! In [`Mode::Safety`] things go wrong until the end, and the checker judges what happened. In
//! [`Mode::Liveness`] they stop at some point; then everything must drain in time, the idle engines
//! must be quiet, and all of them must stop in time and leave nothing behind.
//!
//! ```
//! use seriatim_verify::simulation::{Mode, Options, run};
//! let outcome = run(7, &Options::new(Mode::Liveness));
//! assert!(outcome.failure.is_none(), "{outcome}");
//! ```

mod alarm;
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

/// What a run is to show.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Mode {
    /// That nothing wrong happens while things go wrong.
    Safety,
    /// That everything ends when they stop going wrong.
    Liveness,
}

impl Mode {
    /// Both.
    pub const ALL: [Self; 2] = [Self::Safety, Self::Liveness];

    /// The name as the command line knows it.
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
    /// What it is to show.
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

/// What came of a run.
#[derive(Clone, Debug)]
pub struct Outcome {
    /// The seed.
    pub seed: u64,
    /// How it was run.
    pub mode: Mode,
    /// What was violated; none if all is well.
    pub failure: Option<String>,
    /// What the checker says.
    pub report: Report,
    /// What went wrong on purpose, and how often.
    pub injected: BTreeMap<&'static str, u64>,
    /// How much virtual time passed.
    pub simulated: Duration,
    /// Calls of the store.
    pub calls: u64,
    /// The history, if it was asked for: a line of JSON for each event, and notes that begin with `#`.
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
