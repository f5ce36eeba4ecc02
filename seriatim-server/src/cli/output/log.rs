//! The log of a serving process, on stderr: one line per event, whatever its content.

use std::fmt::Write as _;
use std::io::{self, IsTerminal, Write};
use std::path::Path;

use seriatim::text::is_plain;
use tracing_subscriber::fmt::MakeWriter;
use tracing_subscriber::layer::SubscriberExt;
use tracing_subscriber::util::SubscriberInitExt;

use super::log_file::LogFile;
use super::terminal;
use crate::base::setup_error::SetupError;
use crate::config::{LOG_BYTES, LOG_KEPT, LogConfig, LogFilter, LogFormat, log_of_variable};

/// Starts the log. Its level is the first that is there of `asked`, the variable `SERIATIM_LOG` and the
/// configuration's.
pub(crate) fn start_log(
    config: &LogConfig,
    format: Option<LogFormat>,
    asked: Option<LogFilter>,
) -> Result<(), SetupError> {
    let variable = log_of_variable()?;
    let filter = asked.or(variable).or(config.level.clone()).unwrap_or_default().targets();
    let format = format.unwrap_or(config.format);
    let file = config.file.as_deref().map(|path| open(config, path)).transpose()?;
    let colour = file.is_none() && io::stderr().is_terminal() && terminal::may_colour();
    let log = tracing_subscriber::fmt::layer().with_ansi(colour);
    let registry = tracing_subscriber::registry().with(filter);
    // A test may have started it before.
    let lines = |escape| Lines { escape, file };
    let _ = match format {
        LogFormat::Json => registry.with(log.json().with_writer(lines(Escape::Json))).try_init(),
        LogFormat::Pretty if colour => {
            registry.with(log.with_writer(lines(Escape::AllButColours))).try_init()
        }
        LogFormat::Pretty => registry.with(log.with_writer(lines(Escape::All))).try_init(),
    };
    Ok(())
}

fn open(config: &LogConfig, path: &Path) -> Result<LogFile, SetupError> {
    let bytes_max = config.bytes_max.unwrap_or(LOG_BYTES);
    LogFile::open(path, bytes_max, config.keep.unwrap_or(LOG_KEPT)).map_err(|error| {
        SetupError::invalid(format!("log.file: cannot write to {}: {error}", path.display()))
    })
}

/// How characters are written that could forge a line or move the cursor.
#[derive(Clone, Copy)]
enum Escape {
    All,
    /// The formatter writes colours itself, and no others: it escapes those of the texts.
    AllButColours,
    Json,
}

/// Writes each event as one line to a file, or to stderr.
struct Lines {
    escape: Escape,
    file: Option<LogFile>,
}

impl<'a> MakeWriter<'a> for Lines {
    type Writer = Line<'a>;

    fn make_writer(&'a self) -> Line<'a> {
        Line(self)
    }
}

struct Line<'a>(&'a Lines);

impl Write for Line<'_> {
    /// The formatter hands an event over whole.
    fn write(&mut self, event: &[u8]) -> io::Result<usize> {
        let Lines { escape, file } = self.0;
        let line = escaped(&String::from_utf8_lossy(event), *escape);
        let written = file.as_ref().map(|file| file.write(line.as_bytes()));
        // What the file does not take, as on a full disk, is not lost.
        if !matches!(written, Some(Ok(()))) {
            io::stderr().write_all(line.as_bytes())?;
        }
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
