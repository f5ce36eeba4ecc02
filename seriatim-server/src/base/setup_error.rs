//! The error of a process that cannot start.

use std::fmt;

/// Wrong settings, or a failure of the machine.
#[derive(Debug)]
pub(crate) enum SetupError {
    /// The configuration, a variable or a flag is wrong.
    Invalid(String),
    /// An operation failed.
    Failed(String),
}

impl SetupError {
    pub(crate) fn invalid(message: impl fmt::Display) -> Self {
        Self::Invalid(message.to_string())
    }

    pub(crate) fn failed(message: impl fmt::Display) -> Self {
        Self::Failed(message.to_string())
    }
}

impl fmt::Display for SetupError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (Self::Invalid(message) | Self::Failed(message)) = self;
        f.write_str(message)
    }
}
