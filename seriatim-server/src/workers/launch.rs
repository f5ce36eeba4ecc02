//! How a program of a worker is started: its words, and what it finds in its environment.

use std::io::ErrorKind;
use std::sync::Arc;

use tokio::process::Command;

use super::environment::Environment;
use super::program;

/// A program with its arguments and its environment.
#[derive(Clone, Debug)]
pub(crate) struct Launch {
    words: Arc<[String]>,
    environment: Arc<Environment>,
}

impl Launch {
    pub(crate) fn new(words: &[String], environment: Environment) -> Self {
        Self { words: words.into(), environment: Arc::new(environment) }
    }

    /// The program, as the configuration calls it.
    pub(crate) fn name(&self) -> &str {
        self.words.first().map_or("", String::as_str)
    }

    pub(super) fn words(&self) -> &[String] {
        &self.words
    }

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
