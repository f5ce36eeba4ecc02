//! `[[periodic]]`: programs that run, pause, and run again.

use std::collections::BTreeMap;
use std::time::Duration;

use serde::Deserialize;
use seriatim::limits::NAME_BYTES_MAX;

use super::environment::Environment;
use super::length::length;
use super::worker_kind::Launch;

/// The time limit of a run, if unset.
const TIMEOUT_DEFAULT: Duration = Duration::from_secs(3_600);

/// One entry.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct PeriodicConfig {
    pub(crate) name: String,
    pub(crate) command: Vec<String>,
    /// Between the end of a run and the start of the next.
    #[serde(default, deserialize_with = "length")]
    pub(crate) pause: Option<Duration>,
    /// On one node at a time instead of each.
    #[serde(default)]
    pub(crate) once_in_fleet: bool,
    #[serde(default, deserialize_with = "length")]
    timeout: Option<Duration>,
    /// Further variables for the program.
    env: Option<BTreeMap<String, String>>,
    /// Variables of this process to pass on.
    env_pass: Option<Vec<String>>,
}

impl PeriodicConfig {
    pub(crate) fn launch(&self) -> Launch {
        Launch::new(&self.command, self.environment())
    }

    /// The time limit of a run; none if `timeout` is 0.
    pub(crate) fn timeout(&self) -> Option<Duration> {
        Some(self.timeout.unwrap_or(TIMEOUT_DEFAULT)).filter(|length| !length.is_zero())
    }

    /// Most often once a second: the pause is there so that nothing spins.
    pub(super) fn check(&self, tokens: &[&str]) -> Result<(), String> {
        if self.name.is_empty() || self.name.len() > NAME_BYTES_MAX {
            return Err(format!("`name` has {} bytes: 1 to {NAME_BYTES_MAX}", self.name.len()));
        }
        if self.name.contains(char::is_control) {
            return Err(format!("`name` {:?} has control characters: leave them out", self.name));
        }
        if self.launch().name().is_empty() {
            return Err("`command` is empty: write the program and its arguments".to_owned());
        }
        match self.pause {
            None => {
                Err("needs `pause`, as in \"10m\": from the end of a run to the next".to_owned())
            }
            Some(pause) if pause < Duration::from_secs(1) => {
                Err("`pause` is too short: at least 1s".to_owned())
            }
            Some(_) => self.environment().check(tokens),
        }
    }

    fn environment(&self) -> Environment {
        Environment {
            set: self.env.clone().unwrap_or_default(),
            passed: self.env_pass.clone().unwrap_or_default(),
        }
    }
}
