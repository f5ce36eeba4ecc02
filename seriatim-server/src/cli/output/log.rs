//! The log of a serving process, on stderr: one line per event, whatever its content.

use std::fmt::Write as _;
use std::io::{self, IsTerminal, Write};

use seriatim::text::is_plain;
use tracing_subscriber::fmt::MakeWriter;
use tracing_subscriber::layer::SubscriberExt;
use tracing_subscriber::util::SubscriberInitExt;

use super::terminal;
use crate::base::setup_error::SetupError;
use crate::config::{LogFilter, LogFormat, log_of_variable};

/// Starts the log. It takes the first that is there of `asked`, the variable `SERIATIM_LOG` and
/// `configured`.
pub(crate) fn start_log(
    format: LogFormat,
    asked: Option<LogFilter>,
    configured: Option<LogFilter>,
) -> Result<(), SetupError> {
    let variable = log_of_variable()?;
    let LogFilter(filter) = asked.or(variable).or(configured).unwrap_or_default();
    let colour = io::stderr().is_terminal() && terminal::may_colour();
    let log = tracing_subscriber::fmt::layer().with_ansi(colour);
    let registry = tracing_subscriber::registry().with(filter);
    // A test may have started it before.
    let _ = match format {
        LogFormat::Json => registry.with(log.json().with_writer(Lines(Escape::Json))).try_init(),
        LogFormat::Pretty if colour => {
            registry.with(log.with_writer(Lines(Escape::AllButColours))).try_init()
        }
        LogFormat::Pretty => registry.with(log.with_writer(Lines(Escape::All))).try_init(),
    };
    Ok(())
}

/// How characters are written that could forge a line or move the cursor.
#[derive(Clone, Copy)]
enum Escape {
    All,
    /// The formatter writes colours itself, and no others: it escapes those of the texts.
    AllButColours,
    Json,
}

/// Writes each event as one line to stderr.
struct Lines(Escape);

impl<'a> MakeWriter<'a> for Lines {
    type Writer = Line;

    fn make_writer(&'a self) -> Line {
        Line(self.0)
    }
}

struct Line(Escape);

impl Write for Line {
    /// The formatter hands an event over whole.
    fn write(&mut self, event: &[u8]) -> io::Result<usize> {
        let text = String::from_utf8_lossy(event);
        io::stderr().write_all(escaped(&text, self.0).as_bytes())?;
        Ok(event.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        io::stderr().flush()
    }
}

fn escaped(event: &str, how: Escape) -> String {
    let event = event.trim_end_matches('\n');
    let mut line = String::with_capacity(event.len() + 1);
    for c in event.chars() {
        match (c, how) {
            (c, _) if is_plain(c) => line.push(c),
            ('\u{1b}', Escape::AllButColours) => line.push(c),
            (c, Escape::Json) => {
                // All of them are below U+10000. A text cannot fail to be written to.
                let _ = write!(line, "\\u{:04x}", u32::from(c));
            }
            (c, _) => line.extend(c.escape_default()),
        }
    }
    line.push('\n');
    line
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_event_is_one_line_whatever_it_holds() {
        let event = "a\nb\r\u{85}\u{202e}\u{1b}[31m\n";
        assert_eq!(escaped(event, Escape::All), "a\\nb\\r\\u{85}\\u{202e}\\u{1b}[31m\n");
        assert_eq!(escaped(event, Escape::AllButColours), "a\\nb\\r\\u{85}\\u{202e}\u{1b}[31m\n");
        let json = escaped("{\"a\":\"\u{85}\u{202e}é\"}\n", Escape::Json);
        assert_eq!(json, "{\"a\":\"\\u0085\\u202eé\"}\n");
        let read: serde_json::Value = serde_json::from_str(&json).unwrap();
        assert_eq!(read["a"], "\u{85}\u{202e}é");
    }
}
