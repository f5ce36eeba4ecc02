//! The definition of a queue: its mode, which is a preset of three policies, and its settings.

use std::fmt;
use std::time::Duration;

use serde::{Deserialize, Serialize};

use crate::model::clock::Timestamp;
use crate::model::duration;
use crate::model::error::{Error, Result};
use crate::model::flow::{Groups, Limit};
use crate::model::job::{Job, RunAt, validate_queue_name};
use crate::model::limits::{
    ATTEMPTS_MAX, BATCH_SIZE_MAX, CRASHES_MAX, DELAY_MAX, LEASE_MAX, SHARDS_MAX, TURN_JOBS_MAX,
    WAITED_RETENTION_MIN, WEIGHT_MAX,
};
use crate::model::rate::Rate;
use crate::model::retry::{Backoff, Exhaustion};
use crate::model::turn::Turn;
use crate::model::window::Window;

/// How a queue orders and excludes its jobs.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Mode {
    /// No keys; every job is its own lane.
    Parallel,
    /// All waiting jobs of a key go to the handler together; equal payloads merge.
    Accumulate,
    /// Strict order per key, by (score, arrival).
    Fifo,
    /// One at a time per key, by (priority, `run_at`, arrival); other jobs may overtake a waiting retry.
    Exclusive,
}

impl Mode {
    /// All four modes.
    pub const ALL: [Self; 4] = [Self::Parallel, Self::Accumulate, Self::Fifo, Self::Exclusive];

    /// The name in configurations.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Parallel => "parallel",
            Self::Accumulate => "accumulate",
            Self::Fifo => "fifo",
            Self::Exclusive => "exclusive",
        }
    }

    /// The mode of this name.
    pub fn from_name(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|mode| mode.as_str() == name)
    }

    /// Whether its jobs must have a key.
    pub fn is_keyed(self) -> bool {
        self != Self::Parallel
    }

    /// Policy 1: which jobs a turn takes.
    pub fn takes(self) -> Takes {
        match self {
            Self::Parallel => Takes::TheJob,
            Self::Accumulate => Takes::AllByScore,
            Self::Fifo => Takes::FirstByScore,
            Self::Exclusive => Takes::BestDue,
        }
    }

    /// Policy 3: whether a failure changes the retry count, crashes, error and `run_at` of the lane or of the job.
    pub fn failure_belongs_to(self) -> Owner {
        match self {
            Self::Accumulate => Owner::Lane,
            Self::Parallel | Self::Fifo | Self::Exclusive => Owner::Job,
        }
    }

    /// Whether node and group bind the whole lane.
    pub fn route_belongs_to_lane(self) -> bool {
        matches!(self, Self::Accumulate | Self::Fifo)
    }
}

impl fmt::Display for Mode {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

/// Which jobs a turn takes from its lane.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Takes {
    /// The lane's only job.
    TheJob,
    /// All waiting jobs, by (score, arrival).
    AllByScore,
    /// The first (or first `take`) by (score, arrival), when it is due.
    FirstByScore,
    /// The best due job by (priority, `run_at`, arrival).
    BestDue,
}

/// Whose state a failure changes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Owner {
    /// The lane's, and so that of all its waiting jobs.
    Lane,
    /// Only the failed job's.
    Job,
}

/// Policy 2: how equal payloads that wait for one key merge (`accumulate` only).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Merge {
    /// They become one job with the lowest score.
    #[default]
    Min,
    /// They become one job with the highest score: the last state wins.
    Max,
    /// They stay separate.
    None,
}

impl Merge {
    /// The name in configurations.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Min => "min",
            Self::Max => "max",
            Self::None => "none",
        }
    }

    /// The score of two equal payloads after they merge.
    pub fn score(self, queued: f64, new: f64) -> f64 {
        match self {
            Self::Min => queued.min(new),
            Self::Max => queued.max(new),
            Self::None => queued,
        }
    }
}

/// How a push changes the due time of a waiting `accumulate` lane.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum DueRule {
    /// The first waiting push sets it; later ones do not change it.
    #[default]
    First,
    /// The earliest due time of the waiting pushes.
    Earliest,
}

/// What happens to a push to a [throttled](Queue::throttle) key.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Throttled {
    /// It is merged into the earlier job; its payload is lost.
    #[default]
    Merge,
    /// It is refused, with the time when it may be repeated.
    Refuse,
}

/// The value for definitions that were written before `lease_max` existed.
fn lease_max() -> Duration {
    LEASE_MAX
}

/// The definition of a queue, kept in the store so that all nodes and producers use the same.
///
/// ```
/// use seriatim::Queue;
/// let orders = Queue::accumulate("orders").batch_size(10).max_retries(5);
/// ```
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct Queue {
    /// The name, unique in a store.
    pub name: String,
    /// How it orders and excludes its jobs.
    pub mode: Mode,
    /// How equal payloads merge (`accumulate` only).
    pub merge: Merge,
    /// How later pushes change the due time (`accumulate` only).
    pub due: DueRule,
    /// How long a key collects jobs (`accumulate` only). Default: jobs are due when they are pushed.
    pub window: Option<Window>,
    /// Most jobs in a turn (`fifo` only), 1 to 10,000. Default: 1.
    pub take: u32,
    /// Most lanes in one handler call, 1 to 10,000. Default: 1.
    pub batch_size: u32,
    /// Retries after the first try, at most 1,000,000. Default: 25.
    pub max_retries: u32,
    /// The wait before each retry.
    pub backoff: Backoff,
    /// What happens when the retries are used up.
    pub exhausted: Exhaustion,
    /// The number of crashes after which the head is buried as poison, 1 to 1,000. Default: 5.
    pub max_crashes: u32,
    /// The time limit of a handler call. Default: none.
    #[serde(with = "crate::model::duration::optional")]
    pub timeout: Option<Duration>,
    /// How long a claim lasts without a heartbeat. Default: the node's lease.
    #[serde(with = "crate::model::duration::optional")]
    pub lease: Option<Duration>,
    /// The longest lease that a claim, or a job by its `lease_ttl`, may request. Default: 1 h. After a crash a key
    /// waits for the rest of its lease, and heartbeats extend a lease, so long leases are rarely needed.
    #[serde(with = "crate::model::duration", default = "lease_max")]
    pub lease_max: Duration,
    /// How long finished jobs are kept. Default: 1 h in `exclusive`, 0 elsewhere.
    #[serde(with = "crate::model::duration::optional")]
    pub retain_completed: Option<Duration>,
    /// How long dead jobs are kept. Default: 180 days.
    #[serde(with = "crate::model::duration")]
    pub retain_dead: Duration,
    /// Most dead jobs kept. Default: 100,000.
    pub retain_dead_max: u64,
    /// How long an idempotency key is remembered, at least. Default: 1 day.
    #[serde(with = "crate::model::duration")]
    pub idempotency_ttl: Duration,
    /// After a push to a key, further pushes to it create no job for this long (not in `parallel`). Default: each push
    /// creates a job.
    #[serde(with = "crate::model::duration::optional", default)]
    pub throttle: Option<Duration>,
    /// What happens to these pushes. Default: they return `Merged` with the id of the earlier job.
    #[serde(default)]
    pub throttled: Throttled,
    /// How many of its turns may run at once, and how many may start per second, minute or hour. Default: no limit.
    #[serde(default)]
    pub limit: Limit,
    /// If set, its jobs may have groups, which take turns. Default: they may not.
    pub groups: Option<Groups>,
    /// Its share under the `weighted` scheduler, 1 to 1,000. Default: 1.
    pub weight: u32,
    /// The number of shards of a new queue (Redis), 1 to 4,096. Default: 1. An existing queue keeps its number:
    /// [`crate::store::Queues::reshard`] changes it.
    pub shards: u16,
}

impl Queue {
    /// A queue of `mode` with the defaults.
    pub fn new(name: impl Into<String>, mode: Mode) -> Self {
        Self {
            name: name.into(),
            mode,
            merge: Merge::default(),
            due: DueRule::default(),
            window: None,
            take: 1,
            batch_size: 1,
            max_retries: 25,
            backoff: Backoff::default(),
            exhausted: Exhaustion::default(),
            max_crashes: 5,
            timeout: None,
            lease: None,
            lease_max: LEASE_MAX,
            retain_completed: None,
            retain_dead: Duration::from_secs(180 * 86_400),
            retain_dead_max: 100_000,
            idempotency_ttl: Duration::from_secs(86_400),
            throttle: None,
            throttled: Throttled::default(),
            limit: Limit::default(),
            groups: None,
            weight: 1,
            shards: 1,
        }
    }

    /// The queue that a push creates if no queue has this name, for a job with a key or without.
    #[doc(hidden)]
    pub fn implied(name: &str, is_keyed: bool) -> Self {
        Self::new(name, if is_keyed { Mode::Exclusive } else { Mode::Parallel })
    }

    /// A queue of independent jobs.
    pub fn parallel(name: impl Into<String>) -> Self {
        Self::new(name, Mode::Parallel)
    }

    /// A queue that hands over all waiting jobs of a key together.
    pub fn accumulate(name: impl Into<String>) -> Self {
        Self::new(name, Mode::Accumulate)
    }

    /// A queue with strict order per key.
    pub fn fifo(name: impl Into<String>) -> Self {
        Self::new(name, Mode::Fifo)
    }

    /// A queue that runs one job per key at a time.
    pub fn exclusive(name: impl Into<String>) -> Self {
        Self::new(name, Mode::Exclusive)
    }

    /// Sets the most lanes in one handler call, 1 to 10,000.
    #[must_use]
    pub fn batch_size(mut self, lanes: u32) -> Self {
        self.batch_size = lanes;
        self
    }

    /// Sets the most jobs in a `fifo` turn, 1 to 10,000.
    #[must_use]
    pub fn take(mut self, jobs: u32) -> Self {
        self.take = jobs;
        self
    }

    /// Sets the retries after the first try, at most 1,000,000.
    #[must_use]
    pub fn max_retries(mut self, retries: u32) -> Self {
        self.max_retries = retries;
        self
    }

    /// Sets the number of crashes after which the head is buried, 1 to 1,000.
    #[must_use]
    pub fn max_crashes(mut self, crashes: u32) -> Self {
        self.max_crashes = crashes;
        self
    }

    /// Sets the wait before each retry.
    #[must_use]
    pub fn backoff(mut self, backoff: Backoff) -> Self {
        self.backoff = backoff;
        self
    }

    /// Sets what happens when the retries are used up.
    #[must_use]
    pub fn exhausted(mut self, exhausted: Exhaustion) -> Self {
        self.exhausted = exhausted;
        self
    }

    /// Sets how equal payloads merge.
    #[must_use]
    pub fn merge(mut self, merge: Merge) -> Self {
        self.merge = merge;
        self
    }

    /// Sets how later pushes change the due time.
    #[must_use]
    pub fn due(mut self, due: DueRule) -> Self {
        self.due = due;
        self
    }

    /// Sets how long a key collects jobs.
    #[must_use]
    pub fn window(mut self, window: Window) -> Self {
        self.window = Some(window);
        self
    }

    /// Sets how long finished jobs are kept.
    #[must_use]
    pub fn retain_completed(mut self, length: Duration) -> Self {
        self.retain_completed = Some(length);
        self
    }

    /// Sets the time limit of a handler call.
    #[must_use]
    pub fn timeout(mut self, length: Duration) -> Self {
        self.timeout = Some(length);
        self
    }

    /// Sets how long a claim lasts without a heartbeat. Default: the engine's lease.
    #[must_use]
    pub fn lease(mut self, length: Duration) -> Self {
        self.lease = Some(length);
        self
    }

    /// Sets how long dead jobs are kept.
    #[must_use]
    pub fn retain_dead(mut self, length: Duration) -> Self {
        self.retain_dead = length;
        self
    }

    /// Sets the most dead jobs that are kept.
    #[must_use]
    pub fn retain_dead_max(mut self, jobs: u64) -> Self {
        self.retain_dead_max = jobs;
        self
    }

    /// Sets how long an idempotency key is remembered, at least.
    #[must_use]
    pub fn idempotency_ttl(mut self, length: Duration) -> Self {
        self.idempotency_ttl = length;
        self
    }

    /// Sets for how long after a push to a key further pushes to it create no job.
    #[must_use]
    pub fn throttle(mut self, period: Duration) -> Self {
        self.throttle = Some(period);
        self
    }

    /// Refuses pushes to a throttled key ([`throttle`](Self::throttle)), with the time when they may be repeated:
    /// [`PushStatus::Throttled`](crate::store::PushStatus::Throttled).
    #[must_use]
    pub fn refuse_throttled(mut self) -> Self {
        self.throttled = Throttled::Refuse;
        self
    }

    /// Sets how many of its turns may run at once, on all nodes together: 1 to 1,000,000.
    #[must_use]
    pub fn running(mut self, turns: u32) -> Self {
        self.limit.running = Some(turns);
        self
    }

    /// Sets how many of its turns may start per second, minute or hour, on all nodes together.
    #[must_use]
    pub fn rate(mut self, rate: Rate) -> Self {
        self.limit.rate = Some(rate);
        self
    }

    /// Sets how many of its turns may start at once after a pause, 1 to 1,000,000; needs a rate.
    #[must_use]
    pub fn burst(mut self, turns: u32) -> Self {
        self.limit.burst = Some(turns);
        self
    }

    /// Lets its jobs have groups, which take turns.
    #[must_use]
    pub fn groups(mut self, groups: Groups) -> Self {
        self.groups = Some(groups);
        self
    }

    /// Sets its share under the `weighted` scheduler, 1 to 1,000.
    #[must_use]
    pub fn weight(mut self, weight: u32) -> Self {
        self.weight = weight;
        self
    }

    /// Sets the number of shards of a new queue (Redis), 1 to 4,096.
    #[must_use]
    pub fn shards(mut self, shards: u16) -> Self {
        self.shards = shards;
        self
    }

    /// Sets the longest lease that a claim or a job may request.
    #[must_use]
    pub fn lease_max(mut self, length: Duration) -> Self {
        self.lease_max = length;
        self
    }

    /// How long finished jobs are kept, including the mode's default.
    pub fn retention(&self) -> Duration {
        let default = match self.mode {
            Mode::Exclusive => Duration::from_secs(3_600),
            _ => Duration::ZERO,
        };
        self.retain_completed.unwrap_or(default)
    }

    /// When a job that is pushed at `now` is due: a push without a time of its own is quiet for the queue's window.
    pub(crate) fn due_at(&self, job: &Job, now: Timestamp) -> Timestamp {
        match (&self.window, job.run_at) {
            (Some(window), RunAt::Now) => now + window.quiet,
            _ => job.due_at(now),
        }
    }

    /// Whether equal payloads merge.
    pub fn merges(&self) -> bool {
        self.mode == Mode::Accumulate && self.merge != Merge::None
    }

    /// Refuses a key in a `parallel` queue and a missing key in a keyed one.
    pub(crate) fn check_key(&self, has_key: bool) -> Result<()> {
        let message = match (self.mode.is_keyed(), has_key) {
            (true, false) => "is needed: the jobs of this queue are ordered by key",
            (false, true) => "must be absent: the jobs of this queue run in parallel",
            _ => return Ok(()),
        };
        Err(Error::invalid("key", format!("{message} (queue {:?} is {})", self.name, self.mode)))
    }

    /// Refuses a group in a queue whose jobs have none.
    pub(crate) fn check_group(&self, group: Option<&str>) -> Result<()> {
        if group.is_none() || self.groups.is_some() {
            return Ok(());
        }
        let message = format!("must be absent: queue {:?} has no `groups`", self.name);
        Err(Error::invalid("group", message))
    }

    /// Whether several jobs of a key may be claimed at once, to be handed over one after the other: if a call has one job,
    /// which leaves no record and no result when it is done, and survives a crash.
    pub(crate) fn hands_over_singly(&self) -> bool {
        let is_one = self.mode == Mode::Fifo && self.take == 1 && self.batch_size == 1;
        is_one && self.retention().is_zero() && self.max_crashes > 1 && !self.is_shared_out()
    }

    /// Whether the jobs of this turn were claimed so.
    pub(crate) fn hands_over_in_parts(&self, turn: &Turn) -> bool {
        self.mode == Mode::Fifo && turn.jobs.len() > self.take as usize
    }

    /// A text that differs if the rates differ: the turns counted for one rate mean nothing for another.
    pub(crate) fn rates(&self) -> String {
        let rate = |limit: &Limit| limit.rate.map(|rate| (rate, limit.burst()));
        let groups = self.groups.as_ref().map(|groups| {
            let named =
                groups.named.keys().map(|name| (name, rate(&groups.share(Some(name)).limit)));
            (rate(&groups.each.limit), named.collect::<Vec<_>>())
        });
        let rates = format!("{:?}", (rate(&self.limit), groups));
        blake3::hash(rates.as_bytes()).to_hex().to_string()
    }

    /// Whether its claims follow limits or groups.
    pub(crate) fn is_shared_out(&self) -> bool {
        self.limit.is_set() || self.groups.is_some()
    }

    /// Refuses to wait for the end of a job (field `wait`), if this queue does not keep finished jobs long enough for it to
    /// be seen.
    pub fn check_wait(&self) -> Result<()> {
        let (name, retention) = (&self.name, self.retention());
        if retention >= WAITED_RETENTION_MIN {
            return Ok(());
        }
        let keeps = match retention.is_zero() {
            true => "keeps no finished jobs".to_owned(),
            false => format!("keeps finished jobs for {} only", duration::format(retention)),
        };
        let least = duration::format(WAITED_RETENTION_MIN);
        let message = format!(
            "queue {name:?} {keeps}, so nobody can wait for one: set its retain_completed to {least} or more"
        );
        Err(Error::invalid("wait", message))
    }

    /// Refuses a claim's lease that is longer than this queue allows.
    pub fn check_lease(&self, length: Duration) -> Result<()> {
        self.check_length("lease", length)
    }

    /// Refuses a job's own lease that is longer than this queue allows.
    pub(crate) fn check_job_lease(&self, length: Option<Duration>) -> Result<()> {
        length.map_or(Ok(()), |length| self.check_length("lease_ttl", length))
    }

    fn check_length(&self, field: &'static str, length: Duration) -> Result<()> {
        if length <= self.lease_max {
            return Ok(());
        }
        Err(Error::invalid(field, self.longest_lease()))
    }

    /// The message for a longer lease.
    pub(crate) fn longest_lease(&self) -> String {
        let most = crate::model::duration::format(self.lease_max);
        format!("must be at most {most}, the lease_max of queue {:?}", self.name)
    }

    /// Refuses a contradictory definition; the error names the field.
    pub fn validate(&self) -> Result<()> {
        validate_queue_name(&self.name)
            .map_err(|e| Error::invalid("name", e.message().to_owned()))?;
        let only = |field, holds: bool, mode: Mode| match holds || self.mode == mode {
            true => Ok(()),
            false => Err(Error::invalid(
                field,
                format!("applies only in mode {mode}; this queue is {}", self.mode),
            )),
        };
        only("merge", self.merge == Merge::default(), Mode::Accumulate)?;
        only("due", self.due == DueRule::default(), Mode::Accumulate)?;
        only("window", self.window.is_none(), Mode::Accumulate)?;
        only("take", self.take == 1, Mode::Fifo)?;
        if let Some(window) = &self.window {
            window.validate()?;
            if self.due != DueRule::default() {
                let message = "cannot be set with a window, which decides when a key is due";
                return Err(Error::invalid("due", message));
            }
        }
        self.limit.validate().map_err(|e| e.in_field("limit"))?;
        self.groups.as_ref().map_or(Ok(()), Groups::validate)?;
        let ranges = [
            ("take", u64::from(self.take), 1, TURN_JOBS_MAX as u64),
            ("batch_size", u64::from(self.batch_size), 1, u64::from(BATCH_SIZE_MAX)),
            ("max_crashes", u64::from(self.max_crashes), 1, u64::from(CRASHES_MAX)),
            ("max_retries", u64::from(self.max_retries), 0, u64::from(ATTEMPTS_MAX)),
            ("weight", u64::from(self.weight), 1, u64::from(WEIGHT_MAX)),
            ("shards", u64::from(self.shards), 1, u64::from(SHARDS_MAX)),
        ];
        for (field, value, least, most) in ranges {
            if !(least..=most).contains(&value) {
                return Err(Error::invalid(
                    field,
                    format!("must be {least} to {most}, not {value}"),
                ));
            }
        }
        self.validate_lengths()
    }

    fn validate_throttle(&self) -> Result<()> {
        if self.throttle.is_none() && self.throttled != Throttled::default() {
            let message =
                "needs a `throttle`, the time for which further pushes to a key are refused";
            return Err(Error::invalid("throttled", message));
        }
        let message = match self.throttle {
            Some(_) if !self.mode.is_keyed() => {
                "needs keys, which it throttles one by one; this queue is parallel"
            }
            Some(period) if period.is_zero() => "must be more than zero",
            _ => return Ok(()),
        };
        Err(Error::invalid("throttle", message))
    }

    fn validate_lengths(&self) -> Result<()> {
        let lengths = [
            ("retain_completed", self.retain_completed),
            ("retain_dead", Some(self.retain_dead)),
            ("idempotency_ttl", Some(self.idempotency_ttl)),
            ("throttle", self.throttle),
            ("timeout", self.timeout),
            ("lease", self.lease),
            ("lease_max", Some(self.lease_max)),
        ];
        let nonzero =
            [("timeout", self.timeout), ("lease", self.lease), ("lease_max", Some(self.lease_max))];
        if let Some((field, _)) =
            nonzero.into_iter().find(|(_, length)| length.is_some_and(|length| length.is_zero()))
        {
            return Err(Error::invalid(field, "must be more than zero"));
        }
        if let Some(lease) = self.lease {
            self.check_lease(lease)?;
        }
        self.validate_throttle()?;
        self.backoff.validate()?;
        match lengths.into_iter().find(|(_, length)| length.is_some_and(|l| l > DELAY_MAX)) {
            Some((field, _)) => Err(Error::invalid(field, "must be at most ten years")),
            None => Ok(()),
        }
    }
}
