//! Judges recorded histories: whether the store and runtime kept their guarantees.
//!
//! A history has the events that producers and workers saw, one JSON object per line (`docs/history.md`). [`check`]
//! makes seven judgements, each in O(n log n):
//!
//! 1. no two handlers with *current* tokens of one key overlap, and no token is held twice;
//! 2. within a key no acknowledged push is overtaken by a later one, except where the mode allows it;
//! 3. every acknowledged push is done, dead, cancelled, expired, or still stored; or its key was throttled by another one;
//!    and what is done was handed over;
//! 4. nothing is delivered that was not pushed;
//! 5. nothing is delivered more often than failures, crashes, snoozes and releases explain;
//! 6. every accepted settle had the newest token;
//! 7. no more turns run at once, and no more start in a time, than the limits of a queue and its groups allow; and no key gets
//!    a new job while it is throttled.

mod draws;
mod facts;
mod history;
mod judge;
mod lease;
mod limits;
mod order;
mod recorder;
mod report;
mod settles;
mod throttle;

pub use history::{Event, Handed, History, HistoryError, JobFate, PushResult};
#[cfg(feature = "simulation")]
pub(crate) use limits::too_fast;
pub use recorder::Recorder;
#[cfg(feature = "simulation")]
pub(crate) use recorder::{cause, group, tag};
pub use report::{Judgement, Report, Verdict};

#[cfg(test)]
mod fuzz;
#[cfg(all(test, feature = "simulation"))]
mod tests;

/// Judges a history.
pub fn check(history: &History) -> Report {
    judge::judge(history)
}

/// Reads the files and judges them together, as one history. An error names the file and line that cannot be read.
pub fn check_files(paths: &[std::path::PathBuf]) -> Result<Report, HistoryError> {
    let mut history = History::new();
    for path in paths {
        let name = path.display().to_string();
        let file = std::fs::File::open(path)
            .map_err(|e| HistoryError::new(&name, 0, format!("cannot be opened: {e}")))?;
        history.read(std::io::BufReader::new(file), &name)?;
    }
    Ok(check(&history))
}
