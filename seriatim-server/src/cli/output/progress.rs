//! The progress of a long command: one line on stderr, if that is a terminal.

use std::io::{IsTerminal, Write};
use std::time::{Duration, Instant};

use crate::base::time::length;

/// How often the line is written again.
const INTERVAL: Duration = Duration::from_millis(250);

/// A line that is written over and over.
pub(crate) struct Progress {
    started: Instant,
    shown: Option<Instant>,
    is_terminal: bool,
}

impl Progress {
    pub(crate) fn start() -> Self {
        let is_terminal = std::io::stderr().is_terminal();
        Self { started: Instant::now(), shown: None, is_terminal }
    }

    /// Shows a text.
    pub(crate) fn say(&mut self, text: &str) {
        if self.is_due() {
            let _ = write!(std::io::stderr(), "\r\u{1b}[K{text}");
        }
    }

    /// Whether the line is to be written again.
    fn is_due(&mut self) -> bool {
        let due = self.shown.is_none_or(|shown| shown.elapsed() >= INTERVAL);
        if self.is_terminal && due {
            self.shown = Some(Instant::now());
        }
        self.is_terminal && due
    }

    /// Shows the number of jobs done, and of `bytes` read of `total`, if known.
    pub(crate) fn tell(&mut self, jobs: u64, bytes: u64, total: Option<u64>) {
        if self.is_due() {
            let line = line(jobs, bytes, total, self.started.elapsed());
            let _ = write!(std::io::stderr(), "\r\u{1b}[K{line}");
        }
    }
}

impl Drop for Progress {
    /// Clears the line for the next output.
    fn drop(&mut self) {
        if self.shown.is_some() {
            let _ = write!(std::io::stderr(), "\r\u{1b}[K");
        }
    }
}

fn line(jobs: u64, bytes: u64, total: Option<u64>, elapsed: Duration) -> String {
    let rate = jobs as f64 / elapsed.as_secs_f64().max(1e-3);
    let mut line = format!("{jobs} jobs, {rate:.0}/s");
    if let Some(total) = total.filter(|total| *total > 0 && bytes > 0) {
        let part = (bytes as f64 / total as f64).min(1.0);
        let left = elapsed.mul_f64((1.0 - part) / part);
        line += &format!(", {:.0} %, {} left", part * 100.0, length(left));
    }
    line
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_rate_and_the_time_left_follow_from_what_is_done() {
        let text = line(5_000, 250, Some(1_000), Duration::from_secs(10));
        assert_eq!(text, "5000 jobs, 500/s, 25 %, 30s left");
        assert_eq!(line(10, 0, None, Duration::from_secs(1)), "10 jobs, 10/s");
    }
}
