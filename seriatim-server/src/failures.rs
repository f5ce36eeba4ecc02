//! The log lines of turns that failed: one for each, as long as they are few.

use std::collections::HashMap;
use std::fmt;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use seriatim::store::{Pushed, Settled};
use seriatim::{
    Due, EndKind, Error, Fate, Job, JobId, LaneId, Observer, Settlement, Timestamp, Token, Turn,
    TurnJob, Verdict,
};

use crate::http::Meter;
use crate::output::text::{cut, one_line};
use crate::trace::{self, Traces};

/// Lines of one kind (failed, given up) within a window; the others are counted, so that a storm
/// of failures neither floods the log nor hides what was given up.
const LINES_PER_WINDOW_MAX: u32 = 20;
/// How long a window is.
const WINDOW: Duration = Duration::from_secs(10);
/// Columns of an error that are logged; the store keeps all of it.
const ERROR_COLUMNS_MAX: usize = 300;

/// Logs failed turns; shared by the engine and by the API that remote workers settle with.
#[derive(Default)]
pub(crate) struct FailureLog {
    retries: Limit,
    endings: Limit,
}

impl FailureLog {
    /// Logs what a settlement that the store has carried out says of failures.
    pub(crate) fn settled(&self, turn: &Turn, settlement: &Settlement, cancelled: &[JobId]) {
        let Some(failure) = Failure::of(turn, settlement, cancelled) else { return };
        let limit = if failure.is_final() { &self.endings } else { &self.retries };
        let Some(left_out) = limit.admit(Instant::now()) else { return };
        if left_out > 0 {
            tracing::warn!("{left_out} more failed turns were not logged one by one");
        }
        let trace_id = trace::of_turn(turn).and_then(trace::id);
        match failure.is_final() {
            true => tracing::error!(trace_id, "{failure}"),
            false => tracing::warn!(trace_id, "{failure}"),
        }
    }
}

/// So many lines in a window.
#[derive(Default)]
struct Limit(Mutex<Window>);

#[derive(Default)]
struct Window {
    began: Option<Instant>,
    lines: u32,
    left_out: u64,
}

impl Limit {
    /// Whether a line may be written now; then also how many were left out before it.
    fn admit(&self, now: Instant) -> Option<u64> {
        let mut window = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if window.began.is_none_or(|began| now.saturating_duration_since(began) >= WINDOW) {
            (window.began, window.lines) = (Some(now), 0);
        }
        if window.lines == LINES_PER_WINDOW_MAX {
            window.left_out += 1;
            return None;
        }
        window.lines += 1;
        Some(std::mem::take(&mut window.left_out))
    }
}

/// A turn that failed, in words.
struct Failure<'t> {
    turn: &'t Turn,
    /// Whose failure it is.
    job: &'t TurnJob,
    /// Other jobs that share its fate.
    others: usize,
    error: &'t str,
    next: Next,
}

enum Next {
    Retry(Due),
    Held,
    Buried,
    Dropped,
}

impl<'t> Failure<'t> {
    /// None of a turn that does not count as failed.
    fn of(turn: &'t Turn, settlement: &'t Settlement, cancelled: &[JobId]) -> Option<Self> {
        if settlement.is_all_done() {
            return None;
        }
        let ending = settlement.ending(turn.jobs.iter().map(|job| job.id), cancelled);
        if ending.kind != EndKind::Failed {
            return None;
        }
        let fated = |fate: Fate| {
            let left = turn.jobs.iter().filter(|job| !cancelled.contains(&job.id));
            left.filter(move |job| settlement.fate_of(job.id) == fate)
        };
        let keep = &settlement.keep;
        let (fate, next) = if fated(Fate::Bury).next().is_some() {
            (Fate::Bury, Next::Buried)
        } else if fated(Fate::Drop).next().is_some() {
            (Fate::Drop, Next::Dropped)
        } else if keep.hold {
            (Fate::Keep, Next::Held)
        } else {
            (Fate::Keep, Next::Retry(keep.due))
        };
        let job = fated(fate).next()?;
        let error = keep.error.as_deref().unwrap_or("no error is known");
        Some(Self { turn, job, others: fated(fate).count() - 1, error, next })
    }

    /// Whether only a person can make it run again.
    fn is_final(&self) -> bool {
        !matches!(self.next, Next::Retry(_))
    }
}

impl fmt::Display for Failure<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (queue, id, attempt) = (&self.turn.queue, self.job.id, self.job.attempt);
        write!(f, "queue {queue}, ")?;
        if let Some(key) = &self.turn.key {
            write!(f, "key {:?}, ", one_line(key))?;
        }
        write!(f, "job {id}")?;
        if self.others > 0 {
            write!(f, " and {} more", self.others)?;
        }
        let error = cut(&one_line(self.error), ERROR_COLUMNS_MAX);
        write!(f, ": attempt {attempt} failed: {error}; ")?;
        match self.next {
            Next::Retry(Due::In(wait)) => {
                write!(f, "tried again in {}", crate::output::time::length(wait))
            }
            Next::Retry(Due::Now | Due::Unchanged) => f.write_str("tried again now"),
            Next::Held => {
                write!(f, "its key is held: `seriatim lanes {queue} retry KEY` lets it go on")
            }
            Next::Buried => write!(f, "dead: `seriatim morgue {queue}` shows it"),
            Next::Dropped => f.write_str("deleted, as the queue says of exhausted jobs"),
        }
    }
}

/// Tells of an engine: its failures to the log, how long its handlers take to the meter, how they
/// end to the traces, and everything to the recorder, if there is one.
pub(crate) struct Watch {
    failures: Arc<FailureLog>,
    meter: Arc<Meter>,
    traces: Traces,
    recorder: Option<Arc<dyn Observer>>,
    /// When the turns under way began.
    began: Mutex<HashMap<(LaneId, Token), Instant>>,
}

impl Watch {
    pub(crate) fn new(
        failures: Arc<FailureLog>,
        meter: Arc<Meter>,
        traces: Traces,
        recorder: Option<Arc<dyn Observer>>,
    ) -> Self {
        Self { failures, meter, traces, recorder, began: Mutex::default() }
    }

    fn began(&self) -> MutexGuard<'_, HashMap<(LaneId, Token), Instant>> {
        self.began.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Observer for Watch {
    fn push_answered(&self, sent_at: Timestamp, jobs: &[Job], answer: Result<&[Pushed], &Error>) {
        self.recorder.iter().for_each(|to| to.push_answered(sent_at, jobs, answer));
    }

    fn started(&self, turn: &Turn) {
        self.began().insert((turn.lane, turn.token), Instant::now());
        self.recorder.iter().for_each(|to| to.started(turn));
    }

    fn ended(&self, turn: &Turn, verdict: &Verdict) {
        if let Some(began) = self.began().remove(&(turn.lane, turn.token)) {
            self.meter.handled(&turn.queue, began.elapsed());
        }
        self.traces.ended(turn, verdict);
        self.recorder.iter().for_each(|to| to.ended(turn, verdict));
    }

    fn settling(&self, turn: &Turn, settlement: &Settlement) {
        self.recorder.iter().for_each(|to| to.settling(turn, settlement));
    }

    fn settled(&self, turn: &Turn, settlement: &Settlement, settled: &Settled, sent_at: Timestamp) {
        if let Settled::Ok { cancelled } = settled {
            self.failures.settled(turn, settlement, cancelled);
        }
        self.recorder.iter().for_each(|to| to.settled(turn, settlement, settled, sent_at));
    }

    fn rescued(&self, turn: &Turn) {
        self.recorder.iter().for_each(|to| to.rescued(turn));
    }

    fn lost(&self, tokens: &[Token]) {
        self.began().retain(|(_, token), _| !tokens.contains(token));
        self.recorder.iter().for_each(|to| to.lost(tokens));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_storm_of_failures_is_counted_and_told_later() {
        let (limit, start) = (Limit::default(), Instant::now());
        for _ in 0..LINES_PER_WINDOW_MAX {
            assert_eq!(limit.admit(start), Some(0));
        }
        for _ in 0..500 {
            assert_eq!(limit.admit(start + WINDOW / 2), None);
        }
        assert_eq!(limit.admit(start + WINDOW), Some(500));
        assert_eq!(limit.admit(start + WINDOW), Some(0));
    }
}
