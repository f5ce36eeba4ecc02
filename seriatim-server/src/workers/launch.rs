//! How a program of a worker is started: its words, and what it finds in its environment.

use std::io::ErrorKind;

use tokio::process::Command;

use super::program;
use crate::config::{Environment, Launch};

impl Launch {
    /// What starts it.
    pub(super) fn command(&self) -> std::io::Result<Command> {
        let (name, arguments) = self.words.split_first().ok_or(ErrorKind::NotFound)?;
        let mut command = command(name, &self.environment);
        command.args(arguments);
        Ok(command)
    }

    /// Why it cannot be started; none when nothing speaks against it.
    pub(crate) fn why_not(&self) -> Option<String> {
        program::why_not(self.name(), self.environment.path().as_deref())
    }
}

/// What starts a program with this environment, and without ours.
pub(super) fn command(name: &str, environment: &Environment) -> Command {
    let mut command = Command::new(name);
    command.env_clear().envs(environment.variables());
    command
}
