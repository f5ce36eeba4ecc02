//! How a turn ends. The holder knows the turn's jobs and they cannot change. So all consequences of an outcome (the
//! retry formula, which job is buried, what restarts) are decided here, once for all stores; a store only carries
//! them out, fenced by the token.

use std::sync::Arc;
use std::time::Duration;

#[cfg(feature = "sqlite")]
use crate::model::batch::Leave;
use crate::model::id::{JobId, LaneId, Token};
use crate::model::job::JobOptions;
use crate::model::limits::{DELAY_MAX, cut_error};
use crate::model::queue::{Owner, Queue};
use crate::model::result;
use crate::model::retry::{Backoff, Exhaustion};
use crate::model::turn::{Turn, TurnJob};

/// How a turn ended, from the handler or from the engine on its behalf.
#[derive(Clone, Debug, PartialEq)]
pub enum Outcome {
    /// It is done.
    Done,
    /// It failed and is retried; `retry_in` overrides the backoff.
    Retry {
        /// Why.
        error: Arc<str>,
        /// When to try again.
        retry_in: Option<Duration>,
    },
    /// Run it later; not a failure.
    Snooze {
        /// How much later.
        length: Duration,
    },
    /// Bury now: the head in the modes where a failure belongs to the job, the whole turn in `accumulate`.
    Bury {
        /// Why.
        error: Arc<str>,
    },
    /// Cancel it; affects the same jobs as `Bury`.
    Cancel {
        /// Why.
        reason: Arc<str>,
    },
    /// It never started: returned unchanged, not counted.
    Release,
    /// Its process died, or its lease expired.
    Crash {
        /// The known reason.
        error: Arc<str>,
    },
}

impl Outcome {
    /// The outcome's word in worker protocols and logs.
    pub fn name(&self) -> &'static str {
        match self {
            Self::Done => "done",
            Self::Retry { .. } => "retry",
            Self::Snooze { .. } => "snooze",
            Self::Bury { .. } => "bury",
            Self::Cancel { .. } => "cancel",
            Self::Release => "release",
            Self::Crash { .. } => "crash",
        }
    }

    /// The error, or the reason of a cancellation.
    pub(crate) fn error(&self) -> Option<&str> {
        match self {
            Self::Retry { error, .. } | Self::Bury { error } | Self::Crash { error } => Some(error),
            Self::Cancel { reason } => Some(reason),
            Self::Done | Self::Snooze { .. } | Self::Release => None,
        }
    }
}

/// An outcome, and the jobs that end differently.
#[derive(Clone, Debug, PartialEq)]
pub struct Verdict {
    /// This many jobs from the front are done; the outcome applies to the next one. A number above the turn's jobs,
    /// or outcome `Done`, means all.
    pub done: usize,
    /// How the rest ends.
    pub outcome: Outcome,
    /// Jobs that cannot be decoded, and why: buried whatever the outcome. A turn with any of them counts as failed.
    pub undecodable: Vec<(JobId, Arc<str>)>,
    /// Jobs whose `expires_at` passed before their first attempt: cancelled with error `expired`.
    pub expired: Vec<JobId>,
    /// The result, as JSON: kept with each job that is done if the outcome is `Done`, otherwise dropped.
    pub result: Option<Arc<str>>,
}

impl From<Outcome> for Verdict {
    fn from(outcome: Outcome) -> Self {
        Self { done: 0, outcome, undecodable: Vec::new(), expired: Vec::new(), result: None }
    }
}

/// The settlement of a turn that is returned as if it had never started: uncounted.
pub fn release(turn: &Turn, queue: &Queue) -> Settlement {
    plan(turn, queue, &Outcome::Release.into(), &|_| Duration::ZERO)
}

/// The settlement of a turn whose claim was lost: it counts as a crash.
pub(crate) fn crash(turn: &Turn, queue: &Queue, error: &str) -> Settlement {
    let outcome = Outcome::Crash { error: error.into() };
    plan(turn, queue, &outcome.into(), &|_| Duration::ZERO)
}

/// How one job of a turn ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fate {
    /// It succeeded.
    Done,
    /// It goes to the morgue.
    Bury,
    /// It ends cancelled.
    Cancel,
    /// It ends cancelled, with error `expired`.
    Expire,
    /// It is deleted.
    Drop,
    /// It returns to its lane.
    Keep,
}

impl Fate {
    /// How a job with this fate leaves its batch.
    #[cfg(feature = "sqlite")]
    pub(crate) fn leaves(self) -> Option<Leave> {
        match self {
            Self::Done => Some(Leave::Done),
            Self::Bury | Self::Drop => Some(Leave::Dead),
            Self::Cancel | Self::Expire => Some(Leave::Cancelled),
            Self::Keep => None,
        }
    }
}

/// When kept jobs are due again.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Due {
    /// At the previous time.
    Unchanged,
    /// Now.
    Now,
    /// This long after the store's now.
    In(Duration),
}

/// The state with which the kept jobs return.
#[derive(Clone, Debug, PartialEq)]
pub struct Keep {
    /// The job whose state the fields below are; `None`: the lane's. If that job ends, it does so with `retry_count`
    /// and `crashes`, and the store ignores the other fields.
    pub job: Option<JobId>,
    /// When they are due.
    pub due: Due,
    /// The new retry count.
    pub retry_count: i32,
    /// The new number of crashes.
    pub crashes: u32,
    /// The error to show; also the reason of buried and cancelled jobs.
    pub error: Option<Arc<str>>,
    /// Whether this claim counts as an attempt of every kept job that was started.
    pub counted: bool,
    /// Whether, of the kept jobs, only `job` was started: where jobs are handed over one after the other
    /// ([`Claim::series_max`](crate::store::Claim::series_max)), and in a release, which names no job.
    pub others_unstarted: bool,
    /// Whether the lane is held until an operator acts.
    pub hold: bool,
}

/// How a store must end one turn.
#[derive(Clone, Debug, PartialEq)]
pub struct Settlement {
    /// The lane.
    pub lane: LaneId,
    /// The token of the claim that ends.
    pub token: Token,
    /// The fate of every job that `exceptions` does not name.
    pub rest: Fate,
    /// The jobs with another fate. Jobs that the turn does not have are ignored.
    pub exceptions: Vec<(JobId, Fate)>,
    /// The state with which the kept jobs return.
    pub keep: Keep,
    /// The result of each done job, as JSON. Dropped if the queue keeps no finished jobs.
    pub result: Option<Arc<str>>,
}

impl Settlement {
    /// The settlement of a turn whose jobs are all done, without a result.
    pub fn done(lane: LaneId, token: Token) -> Self {
        let (rest, exceptions, keep) = (Fate::Done, Vec::new(), Keep::fresh());
        Self { lane, token, rest, exceptions, keep, result: None }
    }

    /// The fate of `job`.
    pub fn fate_of(&self, job: JobId) -> Fate {
        self.exceptions.iter().find(|(id, _)| *id == job).map_or(self.rest, |(_, fate)| *fate)
    }

    /// Whether the job that `keep` names ends.
    pub fn ends_owner(&self) -> bool {
        self.keep.job.is_some_and(|job| self.fate_of(job) != Fate::Keep)
    }

    /// Whether every job is done and leaves nothing: the common case, which stores optimize.
    pub fn is_all_done(&self) -> bool {
        self.rest == Fate::Done && self.exceptions.is_empty() && self.result.is_none()
    }

    /// The text that a store keeps as the error of a job that ends like this, instead of its last error: why it ended,
    /// or its result.
    pub(crate) fn left_by(&self, fate: Fate) -> Option<Arc<str>> {
        match fate {
            Fate::Done => self.result.as_deref().map(result::kept),
            Fate::Expire => Some("expired".into()),
            Fate::Bury | Fate::Cancel | Fate::Drop | Fate::Keep => self.keep.error.clone(),
        }
    }

    /// Whether a turn whose jobs ended like this counts as failed. A job that an operator cancelled has the fate
    /// `Cancel`, even if the settlement names another. A kept job that was not started has not failed.
    pub fn has_failed(&self, fates: impl IntoIterator<Item = (JobId, Fate)>) -> bool {
        fates.into_iter().any(|(job, fate)| match fate {
            Fate::Bury | Fate::Drop => true,
            Fate::Keep => self.keep.counted && self.keep.was_started(job) && !self.cancels(),
            Fate::Done | Fate::Cancel | Fate::Expire => false,
        })
    }

    /// How a turn ended that the store has settled. Of its `jobs`, those in `cancelled` ended cancelled because they
    /// were flagged.
    pub fn ending(&self, jobs: impl Iterator<Item = JobId>, cancelled: &[JobId]) -> Ending {
        let fated = |job: JobId| match (self.fate_of(job), cancelled.contains(&job)) {
            (fate, false) | (fate @ Fate::Done, true) => (job, fate),
            (_, true) => (job, Fate::Cancel),
        };
        let fates: Vec<(JobId, Fate)> = jobs.map(fated).collect();
        let count = |wanted| fates.iter().filter(|(_, fate)| *fate == wanted).count();
        let done = count(Fate::Done);
        // A counted turn that has not failed was cancelled, whatever returns with it.
        let may_be_put_off = !self.keep.counted && !self.has_ended_early(done);
        let kind = if self.has_failed(fates.iter().copied()) {
            EndKind::Failed
        } else if may_be_put_off && count(Fate::Keep) > 0 {
            EndKind::PutOff
        } else if done > 0 {
            EndKind::Done
        } else {
            EndKind::Cancelled
        };
        Ending { kind, done }
    }

    /// Whether the jobs that return were never started, after others that are done.
    fn has_ended_early(&self, done: usize) -> bool {
        done > 0 && !self.keep.counted && self.keep.due == Due::Unchanged
    }

    /// Whether the handler cancelled a job. Jobs that return then have not failed, although they were tried.
    fn cancels(&self) -> bool {
        self.exceptions.iter().any(|(_, fate)| *fate == Fate::Cancel)
    }
}

/// How a settled turn ended, in the terms of the metrics (`docs/figures.md`).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Ending {
    /// How the turn ended.
    pub kind: EndKind,
    /// How many of its jobs are done.
    pub done: usize,
}

/// How a turn ended. Each settled turn is exactly one of these.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum EndKind {
    /// Its jobs are done.
    Done,
    /// Its handler failed or its process died: jobs wait for a retry, are held, dead or dropped.
    Failed,
    /// Its jobs returned without a failure: released or snoozed.
    PutOff,
    /// Its jobs were cancelled or had expired.
    Cancelled,
}

impl Keep {
    fn fresh() -> Self {
        Self {
            job: None,
            due: Due::Now,
            retry_count: -1,
            crashes: 0,
            error: None,
            counted: false,
            others_unstarted: false,
            hold: false,
        }
    }

    /// Whether a kept job was started.
    pub(crate) fn was_started(&self, job: JobId) -> bool {
        !self.others_unstarted || self.job == Some(job)
    }

    fn as_it_was(turn: &Turn) -> Self {
        Self {
            due: Due::Unchanged,
            retry_count: turn.retry_count,
            crashes: turn.crashes,
            error: turn.error.clone(),
            ..Self::fresh()
        }
    }
}

/// Decides how `turn` of `queue` ends. `wait`: how long a retry waits (by [`NextRetry::backoff`], or otherwise).
pub fn plan(
    turn: &Turn,
    queue: &Queue,
    verdict: &Verdict,
    wait: &dyn Fn(NextRetry<'_>) -> Duration,
) -> Settlement {
    let mut exceptions: Vec<(JobId, Fate)> = Vec::new();
    exceptions.extend(verdict.undecodable.iter().map(|(id, _)| (*id, Fate::Bury)));
    exceptions.extend(verdict.expired.iter().map(|id| (*id, Fate::Expire)));
    let taken_out = |job: &&TurnJob| !exceptions.iter().any(|(id, _)| *id == job.id);
    let mut left = turn.jobs.iter().filter(taken_out);
    let done: Vec<JobId> = match verdict.outcome {
        Outcome::Done => Vec::new(),
        _ => left.by_ref().take(verdict.done).map(|job| job.id).collect(),
    };
    let head = left.next();
    // A failure after finished jobs belongs to the next job, whose own count starts afresh.
    let is_first = head.map(|job| job.id) == turn.head().map(|job| job.id);
    exceptions.extend(done.into_iter().map(|id| (id, Fate::Done)));
    let mut planner = Planner { turn, queue, head, is_first, exceptions, wait };
    let (rest, mut keep) = match head {
        Some(_) => planner.outcome(&verdict.outcome),
        None => (Fate::Done, Keep::fresh()),
    };
    if let Some((_, why)) = verdict.undecodable.first() {
        keep.counted |= rest == Fate::Done;
        // A settlement has one error, for the buried job and for the outcome of the others.
        let own = keep.error.filter(|_| head.is_some() && verdict.outcome.error().is_some());
        let error = own.map_or_else(|| why.to_string(), |own| format!("{why}; the others: {own}"));
        keep.error = Some(error_text(&error));
    }
    let exceptions = planner.exceptions;
    // Without a record of the job there is no place for it; the settlement stays simple.
    let keeps = rest == Fate::Done && !queue.retention().is_zero();
    let result = verdict.result.clone().filter(|_| keeps);
    Settlement { lane: turn.lane, token: turn.token, rest, exceptions, keep, result }
}

/// An error as stores keep it.
fn error_text(error: &str) -> Arc<str> {
    cut_error(result::without_mark(error)).into()
}

/// A retry after a failure.
#[derive(Clone, Copy, Debug)]
pub struct NextRetry<'t> {
    /// The job that failed; if failures belong to lanes, the first of those that did not succeed.
    pub job: Option<&'t TurnJob>,
    /// Its number: 0 for the first.
    pub count: u32,
}

impl NextRetry<'_> {
    /// The job's own backoff, otherwise the queue's.
    pub fn backoff(&self, queue: &Queue) -> Backoff {
        self.own_backoff().unwrap_or(queue.backoff)
    }

    pub(crate) fn own_backoff(&self) -> Option<Backoff> {
        self.job?.options.as_ref()?.backoff
    }
}

struct Planner<'a> {
    turn: &'a Turn,
    queue: &'a Queue,
    /// The first job that is neither done nor taken out.
    head: Option<&'a TurnJob>,
    is_first: bool,
    exceptions: Vec<(JobId, Fate)>,
    wait: &'a dyn Fn(NextRetry<'_>) -> Duration,
}

impl Planner<'_> {
    fn outcome(&mut self, outcome: &Outcome) -> (Fate, Keep) {
        match outcome {
            Outcome::Done => (Fate::Done, Keep::fresh()),
            Outcome::Retry { error, retry_in } => self.failed(error, *retry_in),
            Outcome::Crash { error } => self.crashed(error),
            Outcome::Snooze { length } => {
                (Fate::Keep, Keep { due: Due::In((*length).min(DELAY_MAX)), ..self.unchanged() })
            }
            Outcome::Release => {
                (Fate::Keep, Keep { job: None, others_unstarted: true, ..self.unchanged() })
            }
            Outcome::Bury { error } => self.end(Fate::Bury, error),
            Outcome::Cancel { reason } => self.end(Fate::Cancel, reason),
        }
    }

    fn owner(&self) -> Owner {
        self.queue.mode.failure_belongs_to()
    }

    fn retry_count(&self) -> i32 {
        if self.owner() == Owner::Job && !self.is_first { -1 } else { self.turn.retry_count }
    }

    fn crashes(&self) -> u32 {
        if self.owner() == Owner::Job && !self.is_first { 0 } else { self.turn.crashes }
    }

    /// The head's job id, if failures belong to jobs.
    fn owning_job(&self) -> Option<JobId> {
        match self.owner() {
            Owner::Job => self.head.map(|job| job.id),
            Owner::Lane => None,
        }
    }

    fn unchanged(&self) -> Keep {
        Keep {
            job: self.owning_job(),
            retry_count: self.retry_count(),
            crashes: self.crashes(),
            ..Keep::as_it_was(self.turn)
        }
    }

    fn failed(&mut self, error: &Arc<str>, retry_in: Option<Duration>) -> (Fate, Keep) {
        let error = error_text(error);
        let retry_count = self.retry_count().saturating_add(1);
        if retry_count >= self.retries_max() || self.attempts_are_used_up() {
            return self.exhausted(error);
        }
        let retry = NextRetry { job: self.head, count: retry_count.max(0) as u32 };
        let wait = retry_in.unwrap_or_else(|| (self.wait)(retry));
        // A longer wait could exceed the latest time that stores can keep.
        let due = Due::In(wait.min(DELAY_MAX));
        let keep = Keep { due, retry_count, error: Some(error), counted: true, ..self.unchanged() };
        (Fate::Keep, keep)
    }

    fn crashed(&mut self, error: &Arc<str>) -> (Fate, Keep) {
        let error = error_text(error);
        let crashes = self.crashes().saturating_add(1);
        if crashes >= self.queue.max_crashes || self.attempts_are_used_up() {
            return self.take_out_head(Fate::Bury, error, (self.retry_count(), crashes));
        }
        let keep =
            Keep { due: Due::Now, crashes, error: Some(error), counted: true, ..self.unchanged() };
        (Fate::Keep, keep)
    }

    fn retries_max(&self) -> i32 {
        let options = self.head.and_then(|job| job.options.as_deref());
        i32::try_from(retries_max(options, self.queue)).unwrap_or(i32::MAX)
    }

    fn attempts_are_used_up(&self) -> bool {
        self.head.is_some_and(|job| {
            let most = job.options.as_ref().and_then(|options| options.max_attempts);
            most.is_some_and(|most| job.attempt >= most)
        })
    }

    fn exhausted(&mut self, error: Arc<str>) -> (Fate, Keep) {
        let retry_count = self.retry_count().saturating_add(1);
        let counts = (retry_count, self.crashes());
        match self.queue.exhausted {
            Exhaustion::Bury => self.take_out_head(Fate::Bury, error, counts),
            Exhaustion::Drop => self.take_out_head(Fate::Drop, error, counts),
            Exhaustion::Hold => {
                let keep = Keep {
                    retry_count,
                    error: Some(error),
                    counted: true,
                    hold: true,
                    ..self.unchanged()
                };
                (Fate::Keep, keep)
            }
        }
    }

    /// Ends the head with `fate` and these retries and crashes, if they are its own; the rest restarts, due now.
    fn take_out_head(
        &mut self,
        fate: Fate,
        error: Arc<str>,
        (retry_count, crashes): (i32, u32),
    ) -> (Fate, Keep) {
        self.exceptions.extend(self.head.map(|job| (job.id, fate)));
        let rest = Keep { error: Some(error), counted: true, ..Keep::fresh() };
        let keep = match self.owning_job() {
            Some(job) => Keep { job: Some(job), retry_count, crashes, ..rest },
            None => rest,
        };
        (Fate::Keep, keep)
    }

    /// The handler's own decision: for the head if failures belong to jobs, otherwise for the turn.
    fn end(&mut self, fate: Fate, why: &Arc<str>) -> (Fate, Keep) {
        let error = error_text(why);
        match self.owner() {
            Owner::Job => {
                let failures = i32::from(fate == Fate::Bury);
                let counts = (self.retry_count().saturating_add(failures), self.crashes());
                self.take_out_head(fate, error, counts)
            }
            Owner::Lane => (fate, Keep { error: Some(error), ..Keep::fresh() }),
        }
    }
}
/// Retries of a job after its first try: by its options, or the queue's.
pub fn retries_max(options: Option<&JobOptions>, queue: &Queue) -> u32 {
    let own = options.and_then(|options| {
        options.max_retries.or(options.max_attempts.map(|n| n.saturating_sub(1)))
    });
    own.unwrap_or(queue.max_retries)
}
