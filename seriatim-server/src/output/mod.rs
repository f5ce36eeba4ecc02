//! What people read: failures with their exit codes, tables, times, JSON documents, the log.

pub(crate) mod document;
pub(crate) mod fields;
mod log;
pub(crate) mod progress;
pub(crate) mod table;
mod terminal;
pub(crate) mod text;
pub(crate) mod time;

use std::fmt;
use std::io::Write;
use std::process::ExitCode;

pub(crate) use log::{LogFormat, start_log};
pub(crate) use terminal::Terminal;

/// Why a command did not do what it was asked to.
#[derive(Debug)]
pub(crate) struct Failure {
    /// 1: it failed; 2: it was asked wrongly.
    code: u8,
    message: String,
}

impl Failure {
    pub(crate) fn failed(message: impl fmt::Display) -> Self {
        Self { code: 1, message: message.to_string() }
    }

    pub(crate) fn usage(message: impl fmt::Display) -> Self {
        Self { code: 2, message: message.to_string() }
    }

    /// It failed, and all there is to say has been said.
    pub(crate) fn silent() -> Self {
        Self { code: 1, message: String::new() }
    }

    /// Tells it on stderr.
    pub(crate) fn report(&self) -> ExitCode {
        if !self.message.is_empty() {
            let _ = writeln!(std::io::stderr(), "seriatim: {}", self.message);
        }
        ExitCode::from(self.code)
    }
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.message)
    }
}

impl From<seriatim::Error> for Failure {
    fn from(error: seriatim::Error) -> Self {
        match error.kind() {
            seriatim::ErrorKind::Invalid => Self::usage(error),
            _ => Self::failed(error),
        }
    }
}

/// Writes a line to stdout. A reader that has gone away is not an error.
pub(crate) fn say(line: impl fmt::Display) {
    let _ = writeln!(std::io::stdout(), "{line}");
}

/// Writes a line to stderr: a hint that is no part of the result.
pub(crate) fn hint(line: impl fmt::Display) {
    let _ = writeln!(std::io::stderr(), "{line}");
}
