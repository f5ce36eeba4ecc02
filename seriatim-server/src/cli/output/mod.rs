//! Output: failures with exit codes, tables, JSON documents, the log.

mod fields;
mod log;
mod log_file;
mod progress;
mod table;
mod terminal;

use std::fmt;
use std::io::Write;
use std::process::ExitCode;

use serde::Serialize;
use seriatim::ErrorKind;

use crate::base::setup_error::SetupError;
use crate::base::text;

pub(crate) use fields::Fields;
pub(crate) use log::start_log;
pub(crate) use progress::Progress;
pub(crate) use table::{Cell, Table, Tone, coloured};
pub(crate) use terminal::Terminal;

/// The result of a command, or of a part of it.
pub(crate) type Result<T, E = Failure> = std::result::Result<T, E>;

/// Why a command failed.
#[derive(Debug)]
pub(crate) struct Failure {
    /// 1: it failed; 2: the request was wrong; 130: it was interrupted.
    code: u8,
    message: String,
    kind: ErrorKind,
    field: Option<String>,
    hint: Option<String>,
}

impl Failure {
    /// The exit code after an interrupt, as in shells.
    pub(crate) const INTERRUPTED: u8 = 130;

    pub(crate) fn interrupted(message: impl fmt::Display) -> Self {
        Self::new(Self::INTERRUPTED, message, ErrorKind::Internal)
    }

    pub(crate) fn failed(message: impl fmt::Display) -> Self {
        Self::of_kind(ErrorKind::Internal, message)
    }

    pub(crate) fn usage(message: impl fmt::Display) -> Self {
        Self::of_kind(ErrorKind::Invalid, message)
    }

    /// The named thing does not exist.
    pub(crate) fn missing(message: impl fmt::Display) -> Self {
        Self::of_kind(ErrorKind::NotFound, message)
    }

    /// The present state does not allow it.
    pub(crate) fn conflict(message: impl fmt::Display) -> Self {
        Self::of_kind(ErrorKind::Conflict, message)
    }

    fn new(code: u8, message: impl fmt::Display, kind: ErrorKind) -> Self {
        Self { code, message: message.to_string(), kind, field: None, hint: None }
    }

    pub(crate) fn of_kind(kind: ErrorKind, message: impl fmt::Display) -> Self {
        Self::new(if kind == ErrorKind::Invalid { 2 } else { 1 }, message, kind)
    }

    pub(crate) fn kind(&self) -> ErrorKind {
        self.kind
    }

    /// The same failure with another message.
    pub(crate) fn reworded(self, message: impl fmt::Display) -> Self {
        Self { message: message.to_string(), ..self }
    }

    /// It failed, and the output already explains why.
    pub(crate) fn silent() -> Self {
        Self::failed("")
    }

    /// Adds advice for programs; the message contains it too.
    pub(crate) fn with_hint(mut self, hint: Option<String>) -> Self {
        self.hint = hint;
        self
    }

    /// Prints it on stderr: as a sentence or a JSON object.
    pub(crate) fn report(&self, json: bool) -> ExitCode {
        if !self.message.is_empty() {
            let told = match json {
                true => serde_json::to_string(&self.document()).unwrap_or_default(),
                false => format!("seriatim: {}", self.told()),
            };
            let _ = writeln!(std::io::stderr(), "{told}");
        }
        ExitCode::from(self.code)
    }

    /// The message for a terminal: quoted input cannot move the cursor or fill the screen.
    pub(crate) fn told(&self) -> String {
        text::message(&self.message)
    }

    fn document(&self) -> Document<'_> {
        let kind = match self.code {
            Self::INTERRUPTED => "interrupted",
            _ => self.kind.as_str(),
        };
        let (message, field, hint) = (&*self.message, self.field.as_deref(), self.hint.as_deref());
        Document { error: Told { kind, message, field, hint, exit_code: self.code } }
    }
}

/// A failure in JSON.
#[derive(Serialize)]
struct Document<'a> {
    error: Told<'a>,
}

#[derive(Serialize)]
struct Told<'a> {
    kind: &'a str,
    message: &'a str,
    #[serde(skip_serializing_if = "Option::is_none")]
    field: Option<&'a str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    hint: Option<&'a str>,
    exit_code: u8,
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.message)
    }
}

impl From<SetupError> for Failure {
    fn from(error: SetupError) -> Self {
        match error {
            SetupError::Invalid(message) => Self::usage(message),
            SetupError::Failed(message) => Self::failed(message),
        }
    }
}

impl From<seriatim::Error> for Failure {
    fn from(error: seriatim::Error) -> Self {
        let (kind, field) = (error.kind(), error.field().map(str::to_owned));
        Self { field, ..Self::of_kind(kind, error) }
    }
}

/// Writes a line to stdout. A closed reader is no error.
pub(crate) fn say(line: impl fmt::Display) {
    let _ = writeln!(std::io::stdout(), "{line}");
}

/// Writes a JSON document to stdout, on one line.
pub(crate) fn say_json(document: &impl Serialize) {
    say(serde_json::to_string(document).unwrap_or_default());
}

/// Writes to stdout what a command did or found: as JSON, or in words.
pub(crate) fn tell(json: bool, document: &impl Serialize, words: impl fmt::Display) {
    if json { say_json(document) } else { say(words) }
}

/// Writes a line to stderr: a hint outside the result.
pub(crate) fn hint(line: impl fmt::Display) {
    let _ = writeln!(std::io::stderr(), "{line}");
}
