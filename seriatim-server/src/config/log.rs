//! Log level and format.

use std::path::PathBuf;
use std::str::FromStr;

use clap::ValueEnum;
use serde::{Deserialize, Deserializer, de};
use seriatim::names::closest;
use tracing_subscriber::filter::{LevelFilter, Targets};

use crate::base::setup_error::SetupError;

/// The variable of the log level.
const VARIABLE: &str = "SERIATIM_LOG";
/// The default log level.
pub(crate) const DEFAULT_LEVEL: LevelFilter = LevelFilter::INFO;
/// The target of the audit log's lines, where it has no file.
pub(crate) const AUDIT: &str = "seriatim::audit";
const LEVELS: [(&str, LevelFilter); 6] = [
    ("off", LevelFilter::OFF),
    ("error", LevelFilter::ERROR),
    ("warn", LevelFilter::WARN),
    ("info", LevelFilter::INFO),
    ("debug", LevelFilter::DEBUG),
    ("trace", LevelFilter::TRACE),
];

/// Bytes of a log file when it is full, by default.
pub(crate) const LOG_BYTES: u64 = 64 << 20;
/// How many full log files are kept by default.
pub(crate) const LOG_KEPT: u32 = 9;
const LOG_BYTES_MIN: u64 = 1 << 20;
const LOG_KEPT_MAX: u32 = 1_000;

/// `[log]`.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub(crate) struct LogConfig {
    pub(crate) format: LogFormat,
    pub(crate) level: Option<LogFilter>,
    /// Instead of stderr.
    pub(crate) file: Option<PathBuf>,
    /// When the file is full.
    pub(crate) bytes_max: Option<u64>,
    /// Full files that are kept.
    pub(crate) keep: Option<u32>,
}

impl LogConfig {
    pub(super) fn check(&self) -> Result<(), String> {
        let of_file = [("bytes_max", self.bytes_max.is_some()), ("keep", self.keep.is_some())];
        if let Some((key, _)) = of_file.iter().find(|(_, set)| *set && self.file.is_none()) {
            return Err(format!("log.{key}: write `file` too, which it limits"));
        }
        match (self.bytes_max, self.keep) {
            (Some(bytes), _) if bytes < LOG_BYTES_MIN => {
                Err(format!("log.bytes_max: {bytes} is too small: at least {LOG_BYTES_MIN}"))
            }
            (_, Some(keep)) if !(1..=LOG_KEPT_MAX).contains(&keep) => {
                Err(format!("log.keep: {keep} files: write 1 to {LOG_KEPT_MAX}"))
            }
            _ => Ok(()),
        }
    }
}

/// How the log is written.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize, ValueEnum)]
#[serde(rename_all = "snake_case")]
pub(crate) enum LogFormat {
    /// Text
    #[default]
    Pretty,
    /// One JSON object per line
    Json,
}

/// A log level, or levels by module, as in `info,seriatim=debug`.
#[derive(Clone, Debug)]
pub(crate) struct LogFilter(Targets);

impl LogFilter {
    /// The filter, which lets the lines of the audit log pass at any level: who changed what is not less important than a
    /// warning. Unless it names them itself.
    pub(crate) fn targets(self) -> Targets {
        let Self(targets) = self;
        let is_named = targets.iter().any(|(target, _)| target == AUDIT);
        if is_named { targets } else { targets.with_target(AUDIT, LevelFilter::INFO) }
    }
}

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
                        "{target:?} is not a module of the program: write it as in seriatim=debug or hyper::proto=warn"
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
    let meant =
        closest(&lower, names.iter().copied()).map(|name| format!(" (did you mean {name}?)"));
    let (meant, names) = (meant.unwrap_or_default(), names.join(", "));
    Err(format!(
        "{word:?} is not a log level{meant}: write {names}, or levels by module as in info,seriatim=debug"
    ))
}

/// The path of a module.
fn is_target(text: &str) -> bool {
    !text.is_empty() && text.chars().all(|c| c.is_ascii_alphanumeric() || "_:-".contains(c))
}

/// The log level of the variable.
pub(crate) fn log_of_variable() -> Result<Option<LogFilter>, SetupError> {
    let variable = std::env::var(VARIABLE).ok().filter(|filter| !filter.is_empty());
    let read = |text: String| {
        text.parse().map_err(|e| SetupError::invalid(format!("variable {VARIABLE}: {e}")))
    };
    variable.map(read).transpose()
}

impl Default for LogFilter {
    fn default() -> Self {
        Self(Targets::new().with_default(DEFAULT_LEVEL))
    }
}

#[cfg(test)]
mod tests {
    use tracing::Level;

    use super::*;

    #[test]
    fn the_audit_log_passes_at_any_level_unless_it_is_named() {
        let lets = |text: &str, target: &str| {
            text.parse::<LogFilter>().unwrap().targets().would_enable(target, &Level::INFO)
        };
        for filter in ["warn", "error", "off", "error,seriatim=warn"] {
            assert!(lets(filter, AUDIT) && !lets(filter, "seriatim_server::http"), "{filter}");
        }
        assert!(!lets("info,seriatim::audit=off", AUDIT));
        assert!(LogFilter::default().targets().would_enable("seriatim_server::http", &Level::INFO));
    }

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
}
