//! Jobs by the clock.

use std::fmt;

use cronexpr::{Crontab, MakeTimestamp, parse_crontab};
use serde::{Deserialize, Serialize};

use crate::model::clock::Timestamp;
use crate::model::error::{Error, Result};
use crate::model::job::{Job, RunAt, validate_queue_name};
use crate::model::limits::NAME_BYTES_MAX;
use crate::model::queue::Queue;
use crate::model::text::one_line;

/// Longest schedule, in bytes. One that names each minute, hour and day takes half of it.
const SCHEDULE_BYTES_MAX: usize = 1_000;

/// What becomes of ticks that fell due while no node was running.
///
/// Those are looked for over the last day, and no further back than the queue remembers which
/// ticks it has taken: its `idempotency_ttl`, less two minutes. Nobody knows when an entry was
/// written: to a new one (or one with a new name or schedule) the past ticks of its schedule look
/// missed. With [`Latest`](Self::Latest) a new nightly entry so runs at once, the first time that
/// a node starts with it; with [`All`](Self::All) a new hourly one runs 24 times.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Missed {
    /// Nothing.
    #[default]
    Skip,
    /// The latest of them is run.
    Latest,
    /// All are run, the latest 100 at most, the oldest first.
    All,
}

/// A job that is pushed whenever the clock says so: once for each tick, however many nodes have
/// the same entry (same name, same schedule).
///
/// Each node pushes the job under an idempotency key of the entry's name and the tick, so the
/// store takes the first and no node is needed more than another. The time is the store's. The
/// queue must remember such keys for five minutes at least (`idempotency_ttl`; an engine that finds
/// less refuses to start), and a tick that could not be pushed within that time is skipped, since
/// nobody knows any more whether another node has pushed it. (Who makes `idempotency_ttl` longer
/// should not start nodes that catch up before the old time has passed.)
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
    /// An entry with a schedule in UTC: minute, hour, day of month, month, day of week, as in
    /// crontab(5), with `L`, `W` and `#` besides. `Invalid` says what is wrong with it.
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

    /// Reads the schedule in this time zone (`Europe/Berlin`). A time that a change of the clocks
    /// skips or repeats is run once.
    pub fn time_zone(mut self, zone: impl Into<String>) -> Result<Self> {
        self.zone = zone.into();
        self.schedule = parse(&self.expression, &self.zone)?;
        Ok(self)
    }

    /// Sets what becomes of ticks that nobody was there for.
    #[must_use]
    pub fn missed(mut self, missed: Missed) -> Self {
        self.missed = missed;
        self
    }

    /// The name.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// The schedule, as it was written.
    pub fn schedule(&self) -> &str {
        &self.expression
    }

    /// The time zone that it is read in.
    pub fn zone(&self) -> &str {
        &self.zone
    }

    /// The queue that its jobs go to.
    pub fn queue(&self) -> &str {
        &self.job.queue
    }

    /// The first tick after `time`; none when there is none in the next years.
    pub fn next_after(&self, time: Timestamp) -> Option<Timestamp> {
        let from = MakeTimestamp::from_microsecond(time.as_micros()).ok()?;
        let mut next = self.schedule.find_next(from).ok()?;
        // `30 2 * * *` means once a day; `*/10 * * * *` means every ten minutes of any hour.
        if self.names_hours() && is_repeated(&next) {
            next = self.schedule.find_next(MakeTimestamp(next.timestamp())).ok()?;
        }
        Some(Timestamp::from_micros(next.timestamp().as_microsecond()))
    }

    fn names_hours(&self) -> bool {
        self.expression.split_whitespace().nth(1).is_some_and(|hours| !hours.contains('*'))
    }

    pub(crate) fn catches_up(&self) -> Missed {
        self.missed
    }

    /// Refuses a job that no store would take, or not in this queue.
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

/// Whether the clocks show this time for the second time, having been put back.
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

/// What the reader says is wrong, without the schedule and the arrow that it draws below.
fn reason(error: &cronexpr::Error) -> String {
    let told = error.to_string();
    let last = told.lines().last().unwrap_or_default();
    one_line(last.trim_start_matches([' ', '^']))
}
