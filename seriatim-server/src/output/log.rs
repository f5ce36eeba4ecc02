//! The log of a serving process, on stderr.

use std::borrow::Cow;
use std::io::{self, IsTerminal, Write};

use clap::ValueEnum;
use serde::Deserialize;
use tracing_subscriber::EnvFilter;

use super::text::is_plain;
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

/// Stderr, on which nothing that others wrote can move the cursor or turn the text around.
struct Plain {
    json: bool,
    /// The log's own colours are let through.
    colour: bool,
}

impl Write for Plain {
    fn write(&mut self, line: &[u8]) -> io::Result<usize> {
        let text = String::from_utf8_lossy(line);
        io::stderr().write_all(self.plain(&text).as_bytes())?;
        Ok(line.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        io::stderr().flush()
    }
}

impl Plain {
    fn plain<'a>(&self, text: &'a str) -> Cow<'a, str> {
        let is_own = |c: char| matches!(c, '\n' | '\t') || (c == '\u{1b}' && self.colour);
        if text.chars().all(|c| is_plain(c) || is_own(c)) {
            return text.into();
        }
        let mut line = String::with_capacity(text.len() + 16);
        for c in text.chars() {
            match c {
                c if is_plain(c) || is_own(c) => line.push(c),
                // All of them are below U+10000.
                c if self.json => line.push_str(&format!("\\u{:04x}", u32::from(c))),
                c => line.extend(c.escape_default()),
            }
        }
        line.into()
    }
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
        .with_writer(move || Plain { json: format == LogFormat::Json, colour })
        .with_ansi(colour);
    // Somebody may have started it before, in a test.
    let _ = match format {
        LogFormat::Json => log.json().try_init(),
        LogFormat::Pretty => log.try_init(),
    };
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_others_wrote_cannot_move_the_cursor_or_turn_the_text_around() {
        let hostile = "a\rb\u{9b}2J\u{202e}c\u{200f}\u{1b}[2J ä\n";
        let plain = Plain { json: false, colour: false };
        assert_eq!(plain.plain(hostile), "a\\rb\\u{9b}2J\\u{202e}c\\u{200f}\\u{1b}[2J ä\n");
        let json = Plain { json: true, colour: false };
        assert_eq!(json.plain("{\"a\":\"\u{202e}\u{85}\"}\n"), "{\"a\":\"\\u202e\\u0085\"}\n");
    }
}
