//! What people read: failures with their exit codes, the log.

use std::fmt;
use std::io::Write;
use std::process::ExitCode;

use tracing_subscriber::EnvFilter;

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

    /// Tells it on stderr.
    pub(crate) fn report(&self) -> ExitCode {
        if !self.message.is_empty() {
            let _ = writeln!(std::io::stderr(), "seriatim: {}", self.message);
        }
        ExitCode::from(self.code)
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

/// Starts the log, to stderr. `SERIATIM_LOG` filters it (`info`, `seriatim=debug`, …).
pub(crate) fn start_log(json: bool) {
    let filter = EnvFilter::try_from_env("SERIATIM_LOG").unwrap_or_else(|_| EnvFilter::new("info"));
    let log = tracing_subscriber::fmt().with_env_filter(filter).with_writer(std::io::stderr);
    // Somebody may have started it before, in a test.
    let _ = if json { log.json().try_init() } else { log.try_init() };
}
