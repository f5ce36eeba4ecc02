//! Log lines of turns: failures, jobs given up, and at `debug` every call that ended.

use std::fmt;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use tokio::time::Instant;

use crate::engine::limits::{LOG_ERROR_BYTES_MAX, LOG_LINES_MAX, LOG_WINDOW};
use crate::engine::shield::shielded;
use crate::handler::call::Call;
use crate::handler::control::Undecodable;
use crate::handler::outcomes::Outcomes;
use crate::lock::lock;
use crate::model::text::{cut_middle, one_line};
use crate::model::{Due, EndKind, Fate, JobId, Outcome, Settlement, Turn, TurnJob};

/// Reads the trace id of a turn.
type TraceId = for<'t> fn(&'t Turn) -> Option<&'t str>;

/// Logs how turns end, with `tracing`: a failed attempt and a held key at `WARN`, a job that is given up (buried,
/// deleted, undecodable) at `ERROR`, and every call at `DEBUG`.
///
/// Every engine has one. Share it by [`EngineBuilder::turn_log`](crate::EngineBuilder::turn_log) with other code that
/// settles turns in the same process, so that one limit applies to all: of each kind at most 20 lines in 10 seconds
/// are written. The rest is counted, and the count is logged.
#[derive(Debug, Default)]
pub struct TurnLog {
    retries: Limit,
    endings: Limit,
    trace_id: Option<TraceId>,
    listener: Option<Listener>,
}

/// A turn that failed, crashed or was given up.
#[derive(Debug)]
#[non_exhaustive]
pub struct FailedTurn<'t> {
    /// The turn.
    pub turn: &'t Turn,
    /// The jobs that the failure concerns: in `accumulate` all that did not succeed, otherwise the failed one and those
    /// that are given up.
    pub jobs: Vec<&'t TurnJob>,
    /// The name of the node that ran it; `None` if it crashed, or ran elsewhere.
    pub node: Option<&'t str>,
    /// The error.
    pub error: &'t str,
}

/// Is called for failed turns.
#[derive(Clone)]
struct Listener(Arc<dyn Fn(&FailedTurn<'_>) + Send + Sync>);

impl fmt::Debug for Listener {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Listener")
    }
}

impl TurnLog {
    /// Adds the field `trace_id` to the lines of turns for which `read` finds one.
    #[must_use]
    pub fn with_trace_id(mut self, read: for<'t> fn(&'t Turn) -> Option<&'t str>) -> Self {
        self.trace_id = Some(read);
        self
    }

    /// Calls a function for every failed turn, including turns without a line. It runs in the tasks of the engine: it
    /// must be quick and must not block.
    #[must_use]
    pub fn with_listener(
        mut self,
        listener: impl Fn(&FailedTurn<'_>) + Send + Sync + 'static,
    ) -> Self {
        self.listener = Some(Listener(Arc::new(listener)));
        self
    }

    /// Logs the failure, if any, of a settlement that took effect. `cancelled` has the jobs that the store cancelled
    /// instead.
    pub fn settled(&self, turn: &Turn, settlement: &Settlement, cancelled: &[JobId]) {
        self.settled_on(None, turn, settlement, cancelled);
    }

    /// The same for a turn that ran on this node.
    pub(in crate::engine) fn settled_on(
        &self,
        node: Option<&str>,
        turn: &Turn,
        settlement: &Settlement,
        cancelled: &[JobId],
    ) {
        let Some(failure) = Failure::of(turn, settlement, cancelled) else { return };
        if let Some(Listener(tell)) = &self.listener
            && let Err(text) = shielded(|| tell(&failure.told(settlement, cancelled, node)))
        {
            tracing::error!("the listener of failed turns panicked: {text}");
        }
        let limit = if failure.is_final() { &self.endings } else { &self.retries };
        if !limit.admit(Instant::now()) {
            return;
        }
        self.log_left_out(false);
        let trace_id = self.trace_id.and_then(|read| shielded(|| read(turn)).ok().flatten());
        match failure.next {
            Next::Retry(_) | Next::Held => tracing::warn!(trace_id, "{failure}"),
            Next::Buried | Next::Dropped => tracing::error!(trace_id, "{failure}"),
        }
    }

    /// Whether [`settled`](Self::settled) logs anything for a settlement.
    pub(in crate::engine) fn logs(settlement: &Settlement) -> bool {
        let is_given_up = |fate: Fate| matches!(fate, Fate::Bury | Fate::Drop);
        settlement.keep.counted
            || is_given_up(settlement.rest)
            || settlement.exceptions.iter().any(|(_, fate)| is_given_up(*fate))
    }

    /// Logs how many failures had no line of their own, if another line is allowed by now; always `at_end`.
    pub(in crate::engine) fn log_left_out(&self, at_end: bool) {
        let now = Instant::now();
        let seconds = LOG_WINDOW.as_secs();
        let rule = format_args!("at most {LOG_LINES_MAX} in {seconds} s are logged one by one");
        if let Some(turns) = self.retries.left_out(now, at_end) {
            tracing::warn!(turns, "more turns failed and will be tried again: {rule}");
        }
        if let Some(turns) = self.endings.left_out(now, at_end) {
            tracing::error!(turns, "more turns were given up or are held: {rule}");
        }
    }

    /// Whether every call is logged.
    pub fn tells_calls() -> bool {
        tracing::enabled!(tracing::Level::DEBUG)
    }

    /// Logs a call that has ended, at `DEBUG`.
    pub fn call_ended(turns: &[Turn], outcome: impl fmt::Display, took: Duration) {
        let Some(first) = turns.first() else { return };
        let key = first.key.as_deref().filter(|_| turns.len() == 1).map(one_line);
        let jobs: usize = turns.iter().map(|turn| turn.jobs.len()).sum();
        tracing::debug!(
            queue = &*first.queue,
            key,
            lanes = turns.len(),
            jobs,
            attempt = first.head().map(|head| head.attempt),
            outcome = %outcome,
            took_ms = took.as_secs_f64() * 1_000.0,
            "call ended"
        );
    }
}

/// The outcome of a call in a word, or the number of each if its lanes differ.
pub(in crate::engine) fn in_a_word(
    call: &Call,
    answer: &Result<Outcomes, Outcome>,
    undecodable: &Undecodable,
) -> String {
    if call.control.is_committed() {
        return "committed".to_owned();
    }
    let mut counts: Vec<(&str, usize)> = Vec::new();
    for turn in &call.turns {
        let outcome = match answer {
            Ok(outcomes) => outcomes.of(turn.lane).outcome,
            Err(outcome) => outcome.clone(),
        };
        let is_spoilt = turn.jobs.iter().any(|job| undecodable.iter().any(|(id, _)| *id == job.id));
        let word = if is_spoilt { "undecodable" } else { outcome.name() };
        match counts.iter_mut().find(|(name, _)| *name == word) {
            Some((_, count)) => *count += 1,
            None => counts.push((word, 1)),
        }
    }
    match counts.as_slice() {
        [(word, _)] => (*word).to_owned(),
        several => {
            let several: Vec<String> =
                several.iter().map(|(word, count)| format!("{count} {word}")).collect();
            several.join(", ")
        }
    }
}

/// Limits the lines in a window.
#[derive(Debug, Default)]
struct Limit(Mutex<Window>);

#[derive(Debug, Default)]
struct Window {
    began: Option<Instant>,
    lines: u32,
    /// Counted since the last report, also over earlier windows.
    left_out: u64,
}

impl Window {
    fn is_over(&self, now: Instant) -> bool {
        self.began.is_none_or(|began| now.saturating_duration_since(began) >= LOG_WINDOW)
    }
}

impl Limit {
    /// Whether a line may be written now.
    fn admit(&self, now: Instant) -> bool {
        let mut window = lock(&self.0);
        if window.is_over(now) {
            (window.began, window.lines) = (Some(now), 0);
        }
        if window.lines == LOG_LINES_MAX {
            window.left_out += 1;
            return false;
        }
        window.lines += 1;
        true
    }

    /// Takes the number of omitted lines, to be logged once: only if a line may be written again, or at the end.
    fn left_out(&self, now: Instant, at_end: bool) -> Option<u64> {
        let mut window = lock(&self.0);
        let may_log = at_end || window.lines < LOG_LINES_MAX || window.is_over(now);
        let left_out = if may_log { std::mem::take(&mut window.left_out) } else { 0 };
        (left_out > 0).then_some(left_out)
    }
}

/// A failed turn, for the log.
struct Failure<'t> {
    turn: &'t Turn,
    /// The job to which the failure belongs.
    job: &'t TurnJob,
    /// The number of other jobs with the same fate.
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
    /// `None` if the turn does not count as failed.
    fn of(turn: &'t Turn, settlement: &'t Settlement, cancelled: &[JobId]) -> Option<Self> {
        let ending = settlement.ending(turn.jobs.iter().map(|job| job.id), cancelled);
        if ending.kind != EndKind::Failed {
            return None;
        }
        let fated = |fate: Fate| {
            let left = turn.jobs.iter().filter(|job| !cancelled.contains(&job.id));
            left.filter(move |job| settlement.fate_of(job.id) == fate)
        };
        let has = |fate: Fate| fated(fate).next().is_some();
        let keep = &settlement.keep;
        let (fate, next) = if has(Fate::Bury) {
            (Fate::Bury, Next::Buried)
        } else if has(Fate::Drop) {
            (Fate::Drop, Next::Dropped)
        } else if keep.hold {
            (Fate::Keep, Next::Held)
        } else {
            (Fate::Keep, Next::Retry(keep.due))
        };
        let mut tried = fated(fate).filter(|job| fate != Fate::Keep || keep.was_started(job.id));
        let job = tried.next()?;
        let error = keep.error.as_deref().unwrap_or("no error is known");
        Some(Self { turn, job, others: tried.count(), error, next })
    }

    fn told(
        &self,
        settlement: &Settlement,
        cancelled: &[JobId],
        node: Option<&'t str>,
    ) -> FailedTurn<'t> {
        let failed = |job: &&TurnJob| match settlement.fate_of(job.id) {
            _ if cancelled.contains(&job.id) => false,
            Fate::Bury | Fate::Drop => true,
            Fate::Keep => {
                let keep = &settlement.keep;
                keep.was_started(job.id) && keep.job.is_none_or(|owner| owner == job.id)
            }
            Fate::Done | Fate::Cancel | Fate::Expire => false,
        };
        let jobs = self.turn.jobs.iter().filter(failed).collect();
        FailedTurn { turn: self.turn, jobs, node, error: self.error }
    }

    /// Whether only an operator can make it run again.
    fn is_final(&self) -> bool {
        !matches!(self.next, Next::Retry(_))
    }
}

impl fmt::Display for Failure<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (queue, id, attempt) = (&self.turn.queue, self.job.id, self.job.attempt);
        write!(f, "queue {queue}, ")?;
        if let Some(key) = &self.turn.key {
            write!(f, "key \"{}\", ", one_line(key))?;
        }
        write!(f, "job {id}")?;
        if self.others > 0 {
            write!(f, " and {} more", self.others)?;
        }
        let error = one_line(&cut_middle(self.error, LOG_ERROR_BYTES_MAX));
        write!(f, ": attempt {attempt} failed: {error}; ")?;
        match self.next {
            Next::Retry(Due::In(wait)) => {
                write!(f, "tried again in {}", crate::model::duration::rounded(wait))
            }
            Next::Retry(Due::Now | Due::Unchanged) => f.write_str("tried again now"),
            Next::Held => {
                write!(f, "its key is held: `seriatim lanes retry {queue} KEY` resumes it")
            }
            Next::Buried => write!(f, "dead: `seriatim morgue {queue}` shows it"),
            Next::Dropped => f.write_str("deleted: its queue has exhausted = \"drop\""),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn a_storm_of_failures_is_counted_and_told_later() {
        let (limit, start) = (Limit::default(), Instant::now());
        for _ in 0..LOG_LINES_MAX {
            assert!(limit.admit(start));
        }
        for _ in 0..500 {
            assert!(!limit.admit(start + LOG_WINDOW / 2));
        }
        let (within, over) = (start + LOG_WINDOW / 2, start + LOG_WINDOW);
        assert_eq!(limit.left_out(within, false), None, "it would be one line too many");
        assert_eq!(limit.left_out(over, false), Some(500));
        assert_eq!(limit.left_out(over, true), None, "it is logged once");
        assert!(limit.admit(over));
    }
}
