//! The log of a serving process, on stderr.

use std::io::IsTerminal;

use clap::ValueEnum;
use serde::Deserialize;
use tracing_subscriber::EnvFilter;

use super::{Failure, terminal};

/// The variable that says what is logged.
const VARIABLE: &str = "SERIATIM_LOG";
/// What is logged when nobody says.
pub(crate) const DEFAULT_LEVEL: &str = "info";

/// How the log is written.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize, ValueEnum)]
#[serde(rename_all = "snake_case")]
pub(crate) enum LogFormat {
    /// For people
    #[default]
    Pretty,
    /// One JSON object on a line
    Json,
}

/// Starts the log. What it takes is a level (`info`) or a filter (`info,seriatim=debug`): of
/// `asked`, the variable `SERIATIM_LOG` and `configured` the first that is there.
pub(crate) fn start_log(
    format: LogFormat,
    asked: Option<&str>,
    configured: Option<&str>,
) -> Result<(), Failure> {
    let variable = std::env::var(VARIABLE).ok().filter(|filter| !filter.is_empty());
    let level = asked.or(variable.as_deref()).or(configured).unwrap_or(DEFAULT_LEVEL);
    let filter = EnvFilter::try_new(level).map_err(|e| {
        Failure::usage(format!(
            "the log level {level:?} is not one ({e}): write error, warn, info, debug or trace, or a filter as in info,seriatim=debug"
        ))
    })?;
    let colour = std::io::stderr().is_terminal() && terminal::may_colour();
    let log = tracing_subscriber::fmt()
        .with_env_filter(filter)
        .with_writer(std::io::stderr)
        .with_ansi(colour);
    // Somebody may have started it before, in a test.
    let _ = match format {
        LogFormat::Json => log.json().try_init(),
        LogFormat::Pretty => log.try_init(),
    };
    Ok(())
}
