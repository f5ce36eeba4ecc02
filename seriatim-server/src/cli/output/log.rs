//! The log of a serving process, on stderr: a line for each event, whatever it holds.

use std::fmt::Write as _;
use std::io::{self, IsTerminal, Write};
use std::str::FromStr;

use clap::ValueEnum;
use serde::{Deserialize, Deserializer, de};
use seriatim::text::is_plain;
use tracing_subscriber::filter::{LevelFilter, Targets};
use tracing_subscriber::fmt::MakeWriter;
use tracing_subscriber::layer::SubscriberExt;
use tracing_subscriber::util::SubscriberInitExt;

use super::{Failure, terminal};
use crate::config::closest;

/// The variable that says what is logged.
const VARIABLE: &str = "SERIATIM_LOG";
/// What is logged by default.
pub(crate) const DEFAULT_LEVEL: LevelFilter = LevelFilter::INFO;
const LEVELS: [(&str, LevelFilter); 6] = [
    ("off", LevelFilter::OFF),
    ("error", LevelFilter::ERROR),
    ("warn", LevelFilter::WARN),
    ("info", LevelFilter::INFO),
    ("debug", LevelFilter::DEBUG),
    ("trace", LevelFilter::TRACE),
];

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

/// What is logged: a level, or levels by part of the program, as in `info,seriatim=debug`.
#[derive(Clone, Debug)]
pub(crate) struct LogFilter(Targets);

impl FromStr for LogFilter {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let mut targets = Targets::new();
        for part in text.split(',').map(str::trim) {
            targets = match part.split_once('=') {
                None => targets.with_default(level(part)?),
                Some((target, word)) if is_target(target.trim()) => {
                    targets.with_target(target.trim(), level(word.trim())?)
                }
                Some((target, _)) => {
                    return Err(format!(
                        "{target:?} is not a part of the program: write it as in seriatim=debug or hyper::proto=warn"
                    ));
                }
            };
        }
        Ok(Self(targets))
    }
}

impl<'de> Deserialize<'de> for LogFilter {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        String::deserialize(from)?.parse().map_err(de::Error::custom)
    }
}

fn level(word: &str) -> Result<LevelFilter, String> {
    let lower = word.to_ascii_lowercase();
    if let Some((_, level)) = LEVELS.iter().find(|(name, _)| *name == lower) {
        return Ok(*level);
    }
    let names = LEVELS.map(|(name, _)| name);
    let meant = closest(&lower, &names).map(|name| format!(" (did you mean {name}?)"));
    let (meant, names) = (meant.unwrap_or_default(), names.join(", "));
    Err(format!(
        "{word:?} is not a log level{meant}: write {names}, or levels by part as in info,seriatim=debug"
    ))
}

/// The path of a module.
fn is_target(text: &str) -> bool {
    !text.is_empty() && text.chars().all(|c| c.is_ascii_alphanumeric() || "_:-".contains(c))
}

/// What the variable says of the log.
pub(crate) fn check_log() -> Result<Option<LogFilter>, Failure> {
    let variable = std::env::var(VARIABLE).ok().filter(|filter| !filter.is_empty());
    let read = |text: String| {
        text.parse().map_err(|e| Failure::usage(format!("variable {VARIABLE}: {e}")))
    };
    variable.map(read).transpose()
}

/// Starts the log. It takes the first that is there of `asked`, the variable `SERIATIM_LOG` and
/// `configured`.
pub(crate) fn start_log(
    format: LogFormat,
    asked: Option<LogFilter>,
    configured: Option<LogFilter>,
) -> Result<(), Failure> {
    let variable = check_log()?;
    let default = || LogFilter(Targets::new().with_default(DEFAULT_LEVEL));
    let LogFilter(filter) = asked.or(variable).or(configured).unwrap_or_else(default);
    let colour = io::stderr().is_terminal() && terminal::may_colour();
    let log = tracing_subscriber::fmt::layer().with_ansi(colour);
    let registry = tracing_subscriber::registry().with(filter);
    // Somebody may have started it before, in a test.
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
    fn a_level_that_is_none_is_refused_with_the_valid_ones() {
        let refused = |text: &str| text.parse::<LogFilter>().err();
        for good in ["info", "WARN", "off", "info,seriatim=debug", "seriatim=debug, hyper=warn"] {
            assert_eq!(refused(good), None, "{good}");
        }
        let said = refused("inf").unwrap();
        assert!(
            said.starts_with("\"inf\" is not a log level (did you mean info?): write off, error,"),
            "{said}"
        );
        for bad in ["", "wran", "info,", "seriatim=", "seriatim=loud", "3", "info;debug"] {
            assert!(refused(bad).unwrap().contains("is not a log level"), "{bad}");
        }
        for bad in ["=debug", "my app=debug", "[span{a=1}]=info"] {
            assert!(refused(bad).is_some(), "{bad}");
        }
    }

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
