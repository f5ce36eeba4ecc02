//! Pushes jobs on a schedule.

use std::fmt;

use cronexpr::{Crontab, MakeTimestamp, parse_crontab};
use jiff::civil::DateTime;
use jiff::tz::{Offset, TimeZone};
use jiff::{SignedDuration, Zoned};
use serde::{Deserialize, Serialize};

use crate::model::limits::NAME_BYTES_MAX;
use crate::model::text::one_line;
use crate::model::{Error, Job, Queue, Result, RunAt, Timestamp, validate_queue_name};

/// More than any change of a clock.
const CHANGE_MAX: SignedDuration = SignedDuration::from_hours(24);
/// How far ahead a tick is looked for: from one leap year to the next.
const YEARS: SignedDuration = SignedDuration::from_hours(24 * 366 * 4);
/// Longest schedule, in bytes. One that lists each minute, hour and day takes half of it.
const SCHEDULE_BYTES_MAX: usize = 1_000;

/// What to do with ticks that fell due while no node was running, or while the entry was paused.
///
/// A node looks back one day at most, and no further than the queue remembers pushed ticks: its `idempotency_ttl` less
/// two minutes. An entry does not record when it was created. So the past ticks of a new entry, or of one with a new
/// name or schedule, count as missed: with [`Latest`](Self::Latest) a new nightly entry runs immediately when a node
/// first starts with it; with [`All`](Self::All) a new hourly one runs 24 times.
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
    schedule: Schedule,
    /// The schedule on clocks without time changes.
    plain: Schedule,
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
        crate::model::validate_text("name", &name, NAME_BYTES_MAX / 2)?;
        validate_queue_name(&job.queue)?;
        let schedule = Schedule::parse(&expression, &zone)?;
        let (plain, missed) = (schedule.clone(), Missed::default());
        Ok(Self { name, expression, zone, schedule, plain, job, missed })
    }

    /// Reads the schedule in this time zone (`Europe/Berlin`). A time that a clock change repeats runs once, the first time;
    /// one that it skips runs as long after the change as it would have come after it. Schedules for every hour have neither.
    pub fn time_zone(mut self, zone: impl Into<String>) -> Result<Self> {
        self.zone = zone.into();
        self.schedule = Schedule::parse(&self.expression, &self.zone)?;
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
        let from = jiff::Timestamp::from_microsecond(time.as_micros()).ok()?;
        let mut next = self.schedule.next_after(from).map(|at| at.timestamp());
        // `30 2 * * *` means once a day; `*/10 * * * *` means every ten minutes, also where an hour is repeated or skipped.
        if self.names_hours() {
            let zone = &self.schedule.zone;
            while let Some(at) = next.filter(|at| is_repeated(&at.to_zoned(zone.clone()))) {
                next = self.schedule.next_after(at).map(|at| at.timestamp());
            }
            next = self.next_skipped(zone, from, next).or(next);
        }
        Some(Timestamp::from_micros(next?.as_microsecond()))
    }

    /// The first tick in an hour that the clocks skip, if it comes after `from` and before `until`.
    fn next_skipped(
        &self,
        zone: &TimeZone,
        from: jiff::Timestamp,
        until: Option<jiff::Timestamp>,
    ) -> Option<jiff::Timestamp> {
        // Ticks of a change come after it.
        let changes = zone.following(from.checked_sub(CHANGE_MAX).ok()?);
        let until = until.unwrap_or_else(|| from.saturating_add(YEARS).unwrap_or(from));
        for change in changes.take_while(|change| change.timestamp() < until) {
            let (at, offset) = (change.timestamp(), change.offset());
            let before = zone.to_offset(at.checked_sub(SignedDuration::from_secs(1)).ok()?);
            let (begin, end) = (before.to_datetime(at), offset.to_datetime(at));
            let mut last = begin.checked_sub(SignedDuration::from_mins(1)).ok()?;
            // As UTC a time is what the clock shows.
            while let Some(shown) = self.plain_after(last).filter(|shown| *shown < end) {
                let tick = before.to_timestamp(shown).ok()?;
                if tick > from && tick < until {
                    return Some(tick);
                }
                last = shown;
            }
        }
        None
    }

    /// The next time that the schedule names, whatever the clocks do.
    fn plain_after(&self, shown: DateTime) -> Option<DateTime> {
        let at = Offset::UTC.to_timestamp(shown).ok()?;
        Some(self.plain.next_after(at)?.datetime())
    }

    fn names_hours(&self) -> bool {
        self.expression
            .split_whitespace()
            .nth(1)
            .is_some_and(|hours| !matches!(hours, "*" | "*/1" | "0-23"))
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

/// The times that an expression names.
#[derive(Clone, Debug)]
struct Schedule {
    zone: TimeZone,
    table: Crontab,
    /// The parser misses `L` at the end of December: it takes a day for the last one if the month of the following day
    /// (week) has a greater number. This table names the same days there without `L`.
    december: Option<Crontab>,
}

impl Schedule {
    fn parse(expression: &str, zone: &str) -> Result<Self> {
        let fields = fields(expression)?;
        let known = TimeZone::get(zone).map_err(|_| {
            Error::invalid(
                "time_zone",
                format!("{zone:?} is not known: write a name such as Europe/Berlin or UTC"),
            )
        })?;
        let read = |expression: &str| {
            parse_crontab(&format!("{expression} {zone}"))
                .map_err(|e| Error::invalid("schedule", format!("{expression:?}: {}", reason(&e))))
        };
        let table = read(expression)?;
        let december = at_the_end_of_december(fields).map(|same| read(&same)).transpose()?;
        Ok(Self { zone: known, table, december })
    }

    fn next_after(&self, from: jiff::Timestamp) -> Option<Zoned> {
        let next = self.table.find_next(MakeTimestamp(from)).ok();
        next.into_iter().chain(self.end_of_december_after(from)).min()
    }

    fn end_of_december_after(&self, from: jiff::Timestamp) -> Option<Zoned> {
        let december = self.december.as_ref()?;
        let until = from.saturating_add(YEARS).ok()?;
        let mut at = from.to_zoned(self.zone.clone());
        while at.timestamp() < until {
            if !is_end_of_december(&at) {
                at = at.with().month(12).day(24).hour(23).minute(59).build().ok()?;
            }
            at = december.find_next(MakeTimestamp(at.timestamp())).ok()?;
            if is_end_of_december(&at) {
                return Some(at);
            }
        }
        None
    }
}

/// An expression without `L` that names the same times from 25 December on: the last day is the 31st, and each day of
/// the week is the last of its name. `None` if the expression has no `L`.
fn at_the_end_of_december([minute, hour, day, month, weekday]: [&str; 5]) -> Option<String> {
    let days: Vec<_> = day.split(',').map(|day| if day == "L" { "31" } else { day }).collect();
    let weekdays: Vec<_> =
        weekday.split(',').map(|day| day.strip_suffix('L').unwrap_or(day)).collect();
    let (days, weekdays) = (days.join(","), weekdays.join(","));
    let changed = days != day || weekdays != weekday;
    changed.then(|| format!("{minute} {hour} {days} {month} {weekdays}"))
}

fn is_end_of_december(time: &Zoned) -> bool {
    time.month() == 12 && time.day() >= 25
}

/// Whether this local time occurs for the second time because the clocks were put back.
fn is_repeated(time: &Zoned) -> bool {
    let offset = time.time_zone().to_ambiguous_timestamp(time.datetime()).offset();
    matches!(offset, jiff::tz::AmbiguousOffset::Fold { after, .. } if after == time.offset())
}

/// The five fields of an expression.
fn fields(expression: &str) -> Result<[&str; 5]> {
    if expression.len() > SCHEDULE_BYTES_MAX {
        let message =
            format!("has {} bytes; at most {SCHEDULE_BYTES_MAX} are taken", expression.len());
        return Err(Error::invalid("schedule", message));
    }
    let fields: Vec<_> = expression.split_whitespace().collect();
    fields.try_into().map_err(|_| {
        let message = format!(
            "{expression:?} must have five fields: minute, hour, day of month, month, day of week"
        );
        Error::invalid("schedule", message)
    })
}

/// The parser's reason, without the schedule and the arrow that it prints below.
fn reason(error: &cronexpr::Error) -> String {
    let text = error.to_string();
    let last = text.lines().last().unwrap_or_default();
    one_line(last.trim_start_matches([' ', '^']))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The ticks of a schedule after a time, as texts in UTC.
    fn ticks(schedule: &str, zone: &str, from: &str, count: usize) -> Vec<String> {
        let job = Job::new("reports", &()).unwrap();
        let cron = Cron::new("c", schedule, job).unwrap().time_zone(zone).unwrap();
        let from: jiff::Timestamp = from.parse().unwrap();
        let from = Timestamp::from_micros(from.as_microsecond());
        let after = std::iter::successors(cron.next_after(from), |tick| cron.next_after(*tick));
        let text = |tick: Timestamp| {
            let tick = jiff::Timestamp::from_microsecond(tick.as_micros()).unwrap();
            tick.strftime("%d %H:%M").to_string()
        };
        after.take(count).map(text).collect()
    }

    #[test]
    fn a_time_that_the_clock_skips_runs_once_after_the_change() {
        let berlin =
            |schedule, count| ticks(schedule, "Europe/Berlin", "2027-03-27T00:00:00Z", count);
        assert_eq!(berlin("30 2 * * *", 3), ["27 01:30", "28 01:30", "29 00:30"]);
        assert_eq!(berlin("30 2 28 3 *", 1), ["28 01:30"]);
        assert_eq!(berlin("0,15 2,3 28 3 *", 2), ["28 01:00", "28 01:15"], "each once");
        let howe = ticks("15 2 * * *", "Australia/Lord_Howe", "2027-10-01T00:00:00Z", 3);
        assert_eq!(howe, ["01 15:45", "02 15:45", "03 15:15"]);
    }

    #[test]
    fn a_time_that_the_clock_repeats_runs_once() {
        let berlin =
            |schedule, count| ticks(schedule, "Europe/Berlin", "2027-10-29T23:00:00Z", count);
        assert_eq!(berlin("30 2 * * *", 3), ["30 00:30", "31 00:30", "01 01:30"]);
        let quarters = berlin("*/15 2 * * *", 9);
        let night = ["31 00:00", "31 00:15", "31 00:30", "31 00:45", "01 01:00"];
        assert_eq!(quarters[4..], night);
    }

    #[test]
    fn a_schedule_for_every_other_hour_names_hours() {
        let spring = ticks("0 */2 * * *", "Europe/Berlin", "2027-03-27T23:30:00Z", 2);
        assert_eq!(spring, ["28 01:00", "28 02:00"]);
        let autumn = ticks("0 */2 * * *", "Europe/Berlin", "2027-10-30T23:00:00Z", 2);
        assert_eq!(autumn, ["31 00:00", "31 03:00"]);
    }

    #[test]
    fn a_schedule_for_every_hour_goes_on_through_changes_of_the_clock() {
        let spring = ticks("30 * * * *", "Europe/Berlin", "2027-03-28T00:00:00Z", 3);
        assert_eq!(spring, ["28 00:30", "28 01:30", "28 02:30"]);
        let autumn = ticks("30 * * * *", "Europe/Berlin", "2027-10-31T00:00:00Z", 3);
        assert_eq!(autumn, ["31 00:30", "31 01:30", "31 02:30"]);
    }
}
