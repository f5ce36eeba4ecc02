//! Pushes jobs on a schedule.

use std::fmt;

use cronexpr::{Crontab, MakeTimestamp, parse_crontab};
use serde::{Deserialize, Serialize};

use crate::model::clock::Timestamp;
use crate::model::error::{Error, Result};
use crate::model::job::{Job, RunAt, validate_queue_name};
use crate::model::limits::NAME_BYTES_MAX;
use crate::model::queue::Queue;
use crate::model::text::one_line;

/// Longest schedule, in bytes. One that lists each minute, hour and day takes half of it.
const SCHEDULE_BYTES_MAX: usize = 1_000;

/// What to do with ticks that fell due while no node was running, or while the entry was paused.
///
/// A node looks back one day at most, and no further than the queue remembers pushed ticks: its `idempotency_ttl` less
/// two minutes. An entry does not record when it was written. So the past ticks of a new entry, or of one
/// with a new name or schedule, count as missed: with [`Latest`](Self::Latest) a new nightly entry runs immediately
/// when a node first starts with it; with [`All`](Self::All) a new hourly one runs 24 times.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Missed {
    /// Skips them.
    #[default]
    Skip,
    /// Runs the latest one.
    Latest,
    /// Runs all, at most the latest 100, oldest first.
    All,
}

/// A job that is pushed on a schedule: once for each tick, however many nodes have the same entry (same name, same
/// schedule).
///
/// Each node pushes the job with an idempotency key made of the entry's name and the tick. The store takes the first
/// push, so no single node is required. The store's clock counts. The queue must remember such keys for at least five
/// minutes (`idempotency_ttl`; otherwise the engine refuses to start). A tick that could not be pushed within that
/// time is skipped, because the store may have forgotten whether another node pushed it. After you raise
/// `idempotency_ttl`, wait for the old time to pass before you start nodes that catch up.
#[derive(Clone, Debug)]
pub struct Cron {
    name: String,
    expression: String,
    zone: String,
    schedule: Crontab,
    job: Job,
    missed: Missed,
}

impl Cron {
    /// An entry with a schedule in UTC: minute, hour, day of month, month, day of week, as in crontab(5), plus `L`,
    /// `W` and `#`. A wrong schedule is `Invalid`, with the reason.
    ///
    /// ```
    /// # use seriatim::{Cron, Job};
    /// let nightly = Cron::new("nightly", "0 3 * * *", Job::new("reports", "sales")?)?
    ///     .time_zone("Europe/Berlin")?;
    /// # Ok::<(), seriatim::Error>(())
    /// ```
    pub fn new(name: impl Into<String>, schedule: impl Into<String>, job: Job) -> Result<Self> {
        let (name, expression, zone) = (name.into(), schedule.into(), "UTC".to_owned());
        crate::model::job::validate_text("name", &name, NAME_BYTES_MAX / 2)?;
        validate_queue_name(&job.queue)?;
        let schedule = parse(&expression, &zone)?;
        Ok(Self { name, expression, zone, schedule, job, missed: Missed::default() })
    }

    /// Reads the schedule in this time zone (`Europe/Berlin`). A time that a clock change skips or repeats runs once.
    pub fn time_zone(mut self, zone: impl Into<String>) -> Result<Self> {
        self.zone = zone.into();
        self.schedule = parse(&self.expression, &self.zone)?;
        Ok(self)
    }

    /// Sets what to do with missed ticks.
    #[must_use]
    pub fn missed(mut self, missed: Missed) -> Self {
        self.missed = missed;
        self
    }

    /// The name.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// The schedule as written.
    pub fn schedule(&self) -> &str {
        &self.expression
    }

    /// The schedule's time zone.
    pub fn zone(&self) -> &str {
        &self.zone
    }

    /// The queue of its jobs.
    pub fn queue(&self) -> &str {
        &self.job.queue
    }

    /// The first tick after `time`; `None` if the next years have none.
    pub fn next_after(&self, time: Timestamp) -> Option<Timestamp> {
        let from = MakeTimestamp::from_microsecond(time.as_micros()).ok()?;
        let mut next = self.schedule.find_next(from).ok()?;
        // `30 2 * * *` means once a day; `*/10 * * * *` means every ten minutes, also in a repeated hour.
        if self.names_hours() && is_repeated(&next) {
            next = self.schedule.find_next(MakeTimestamp(next.timestamp())).ok()?;
        }
        Some(Timestamp::from_micros(next.timestamp().as_microsecond()))
    }

    fn names_hours(&self) -> bool {
        self.expression.split_whitespace().nth(1).is_some_and(|hours| !hours.contains('*'))
    }

    /// The key of its jobs.
    pub fn key(&self) -> Option<&str> {
        self.job.key.as_deref()
    }

    /// The task of its jobs.
    pub fn task(&self) -> Option<&str> {
        self.job.task.as_deref()
    }

    /// What it does with missed ticks.
    pub fn catches_up(&self) -> Missed {
        self.missed
    }

    pub(crate) fn job(&self) -> &Job {
        &self.job
    }

    /// The idempotency key of a run by hand, which tells its origin.
    pub(crate) fn by_hand(name: &str, at: Timestamp) -> String {
        format!("cron/{name}/by-hand/{}", at.as_micros())
    }

    /// Refuses a job that every store, or this queue, would refuse.
    pub(crate) fn validate(&self, queue: Option<&Queue>) -> Result<()> {
        self.job_at(Timestamp::default()).validate()?;
        match queue {
            Some(queue) => queue.check_key(self.job.key.is_some()),
            None => Ok(()),
        }
    }

    /// The job of one tick.
    pub(crate) fn job_at(&self, tick: Timestamp) -> Job {
        let mut job = self.job.clone();
        job.run_at = RunAt::At(tick);
        job.idempotency_key(format!("cron/{}/{}", self.name, tick.as_micros() / 1_000_000))
    }
}

impl fmt::Display for Cron {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} ({} {})", self.name, self.expression, self.zone)
    }
}

/// Whether this local time occurs for the second time because the clocks were put back.
fn is_repeated(time: &jiff::Zoned) -> bool {
    let offset = time.time_zone().to_ambiguous_timestamp(time.datetime()).offset();
    matches!(offset, jiff::tz::AmbiguousOffset::Fold { after, .. } if after == time.offset())
}

fn parse(expression: &str, zone: &str) -> Result<Crontab> {
    if expression.len() > SCHEDULE_BYTES_MAX {
        let message =
            format!("has {} bytes; at most {SCHEDULE_BYTES_MAX} are taken", expression.len());
        return Err(Error::invalid("schedule", message));
    }
    if expression.split_whitespace().count() != 5 {
        let message = format!(
            "{expression:?} must have five fields: minute, hour, day of month, month, day of week"
        );
        return Err(Error::invalid("schedule", message));
    }
    jiff::tz::TimeZone::get(zone)
        .map_err(|_| Error::invalid("time_zone", format!("{zone:?} is not known")))?;
    parse_crontab(&format!("{expression} {zone}"))
        .map_err(|e| Error::invalid("schedule", format!("{expression:?}: {}", reason(&e))))
}

/// The parser's reason, without the schedule and the arrow that it prints below.
fn reason(error: &cronexpr::Error) -> String {
    let text = error.to_string();
    let last = text.lines().last().unwrap_or_default();
    one_line(last.trim_start_matches([' ', '^']))
}
