//! Finds events in the store's notes.

use std::collections::HashMap;
use std::ops::Range;
use std::time::Duration;

use serde_json::Value;
use seriatim::limits::NOTE_BYTES_MAX;
use seriatim::store::{Note, NoteQuery, Store};
use seriatim::{Error, JobId, Timestamp};

use super::book::SPAN;
use super::marks::{self, About};
use super::shelf;
use crate::base::time;
use crate::protocol::document::EventPage;

/// Most events returned for one job: the newest.
pub(crate) const JOB_EVENTS_MAX: usize = 1_000;
/// Notes that a page reads at most, and in one step.
const READ_MAX: usize = 2_000;
const STEP: usize = 50;
/// Notes that a page about a key or a job goes through at most by their marks, and in one step.
const LOOKED_MAX: usize = 25_000;
const NAMES_STEP: usize = 250;
/// Their bytes.
pub(super) const READ_BYTES_MAX: usize = READ_MAX * NOTE_BYTES_MAX;
/// How far a machine's clock may be behind the store's.
const SKEW: Duration = Duration::from_secs(300);

/// Which events.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Wanted<'a> {
    pub(crate) queue: &'a str,
    pub(crate) job: Option<JobId>,
    pub(crate) key: Option<&'a str>,
    pub(crate) since: Option<Timestamp>,
    /// Up to then.
    pub(crate) until: Option<Timestamp>,
    /// `next` of the page before.
    pub(crate) after: Option<&'a str>,
}

impl<'a> Wanted<'a> {
    pub(crate) fn all(queue: &'a str) -> Self {
        Self { queue, job: None, key: None, since: None, until: None, after: None }
    }
}

/// Where a page begins: at a time, skipping this many events of that time.
#[derive(Clone, Copy)]
pub(super) struct Start {
    pub(super) at: Timestamp,
    pub(super) behind: usize,
}

impl Start {
    pub(super) fn read(text: &str) -> seriatim::Result<Self> {
        let parts = text.split_once('.');
        let parts = parts.and_then(|(at, behind)| {
            Some((at.parse().ok()?, behind.parse::<u32>().ok()? as usize))
        });
        let (at, behind) = parts
            .ok_or_else(|| Error::invalid("after", "is not the `next` of a page of events"))?;
        Ok(Self { at: Timestamp::from_micros(at), behind })
    }

    /// Behind the rows of a page, which are all from the time `complete` on, or `more`.
    pub(super) fn next<T>(
        rows: &[T],
        at: impl Fn(&T) -> Timestamp,
        more: bool,
        (complete, since): (Timestamp, Timestamp),
    ) -> Option<Self> {
        match rows.last().map(&at) {
            Some(last) if more => {
                let behind = rows.iter().rev().take_while(|one| at(one) == last).count();
                Some(Self { at: last, behind })
            }
            _ if complete > since => {
                Some(Self { at: complete - Duration::from_micros(1), behind: 0 })
            }
            _ => None,
        }
    }

    pub(super) fn text(self) -> String {
        format!("{}.{}", self.at.as_micros(), self.behind)
    }
}

/// An event, and what orders it among those of its time.
struct Found {
    at: Timestamp,
    place: (String, usize),
    event: Value,
}

/// The events of a job, oldest first. A job's id has the time of its push.
pub(crate) async fn of_job(
    store: &dyn Store,
    queue: &str,
    job: JobId,
) -> seriatim::Result<Vec<Value>> {
    let since = Some(job.created_at() - SKEW);
    let wanted = Wanted { job: Some(job), since, ..Wanted::all(queue) };
    let mut events = page(store, wanted, JOB_EVENTS_MAX).await?.events;
    events.reverse();
    Ok(events)
}

/// The latest events, the last one first. A page may be short, or empty, although there is a next one.
pub(crate) async fn page(
    store: &dyn Store,
    wanted: Wanted<'_>,
    rows_max: usize,
) -> seriatim::Result<EventPage> {
    let start = wanted.after.map(Start::read).transpose()?;
    let ends = [start.map(|start| start.at), wanted.until];
    let until = ends.into_iter().flatten().min().unwrap_or(Timestamp::MAX);
    let behind = start.filter(|start| start.at == until).map_or(0, |start| start.behind);
    let since = wanted.since.unwrap_or_default();
    let wanted = Wanted { until: Some(until), ..wanted };
    let Read { found, more, complete } =
        read(store, wanted, behind + rows_max, READ_BYTES_MAX).await?;
    let next = Start::next(&found, |one| one.at, more, (complete, since));
    let events = found.into_iter().skip(behind).map(|one| one.event).collect();
    Ok(EventPage { events, next: next.map(Start::text) })
}

/// The latest events, the last one first, and the time from which on they are all there if they are fewer than `rows_max`.
pub(super) async fn latest(
    store: &dyn Store,
    wanted: Wanted<'_>,
    rows_max: usize,
    bytes_max: usize,
) -> seriatim::Result<(Vec<(Timestamp, Value)>, Timestamp)> {
    let Read { found, complete, .. } = read(store, wanted, rows_max, bytes_max).await?;
    Ok((found.into_iter().map(|one| (one.at, one.event)).collect(), complete))
}

/// What was read of a queue's events.
struct Read {
    found: Vec<Found>,
    /// Whether there are more of the times that were read.
    more: bool,
    /// All events from this time on have been found, or `more`.
    complete: Timestamp,
}

async fn read(
    store: &dyn Store,
    wanted: Wanted<'_>,
    most: usize,
    bytes_max: usize,
) -> seriatim::Result<Read> {
    let since = wanted.since.unwrap_or_default();
    let until = wanted.until.unwrap_or(Timestamp::MAX);
    // A note has events of a minute.
    let first = shelf::moment(wanted.queue, Timestamp::default().max(since - SPAN));
    let last = shelf::moment(wanted.queue, until) + "~";
    // A part of the bytes is as large a part of the notes to go through.
    let looked_max = LOOKED_MAX * (bytes_max / NOTE_BYTES_MAX) / READ_MAX;
    let mut names = first..last;
    let (mut found, mut read, mut looked, mut bytes) = (Vec::new(), 0, 0, 0);
    let complete = loop {
        let step = Step::read(store, names.clone(), wanted).await?;
        (read, looked) = (read + step.notes.len(), looked + step.looked);
        bytes += step.notes.iter().map(|note| note.value.len()).sum::<usize>();
        for note in &step.notes {
            found.extend(events_of(note, wanted).filter(|one| (since..=until).contains(&one.at)));
        }
        found.sort_by(|a: &Found, b| (b.at, &b.place).cmp(&(a.at, &a.place)));
        found.truncate(most + 1);
        let Some(oldest) = step.oldest else { break Timestamp::default() };
        let began = shelf::began(wanted.queue, &oldest).unwrap_or_default();
        let complete = began + SPAN;
        if found.get(most).is_some_and(|one| one.at >= complete) {
            break complete;
        }
        if read >= READ_MAX || looked >= looked_max || bytes >= bytes_max {
            // With this many notes in a minute, those of another process may be missing.
            break if complete < until { complete } else { began };
        }
        names.end = oldest;
    };
    let more = found.len() > most;
    found.truncate(most);
    found.retain(|one| one.at >= complete);
    Ok(Read { found, more, complete })
}

/// Notes of a range, the last ones first.
struct Step {
    /// Those that may have what is wanted.
    notes: Vec<Note>,
    /// How many it went through.
    looked: usize,
    /// The first of these; none if there are no others before it.
    oldest: Option<String>,
}

impl Step {
    async fn read(
        store: &dyn Store,
        names: Range<String>,
        wanted: Wanted<'_>,
    ) -> seriatim::Result<Self> {
        let about: Vec<About<'_>> =
            wanted.key.map(About::Key).into_iter().chain(wanted.job.map(About::Job)).collect();
        let (rows_max, names_only) =
            if about.is_empty() { (STEP, false) } else { (NAMES_STEP, true) };
        let query =
            NoteQuery { backwards: true, rows_max, names_only, ..NoteQuery::new(names.clone()) };
        let mut notes = store.read_notes(query).await?;
        let looked = notes.len();
        let oldest = notes.last().filter(|_| looked == rows_max).map(|note| note.name.clone());
        if let (true, Some(first), Some(last)) = (names_only, notes.last(), notes.first()) {
            // Marks are written before their note, so those of a note that was just listed are there.
            let marks = shelf::marks_of(&first.name)..shelf::marks_of(&last.name) + "~";
            let marks = store.read_notes(NoteQuery::new(marks)).await?;
            let marks: HashMap<String, Vec<u8>> =
                marks.into_iter().map(|note| (note.name, note.value)).collect();
            // An earlier build wrote none.
            let may_have = |note: &Note| {
                let marks = marks.get(&shelf::marks_of(&note.name));
                marks.is_none_or(|marks| marks::may_have(marks, &about))
            };
            let names = notes.iter().filter(|note| may_have(note)).map(|note| note.name.clone());
            notes = store.named_notes(names.collect()).await?;
        }
        Ok(Self { notes, looked, oldest })
    }
}

/// The events of a note. Text that is none was written by others.
fn events_of<'a>(note: &'a Note, wanted: Wanted<'a>) -> impl Iterator<Item = Found> + 'a {
    let job = wanted.job.map(|job| job.to_string());
    let key = wanted.key.map(|key| serde_json::to_string(key).unwrap_or_default());
    let lines = note.value.split(|byte| *byte == b'\n').enumerate();
    lines.filter_map(move |(place, line)| {
        let line = std::str::from_utf8(line).ok()?;
        let may = |sought: &Option<String>| sought.as_ref().is_none_or(|text| line.contains(text));
        if line.is_empty() || !may(&job) || !may(&key) {
            return None;
        }
        let event: Value = serde_json::from_str(line).ok()?;
        let is_its = |name: &str, sought: Option<&str>| {
            sought.is_none_or(|sought| event[name].as_str() == Some(sought))
        };
        if !is_its("job_id", job.as_deref()) || !is_its("key", wanted.key) {
            return None;
        }
        let at = time::read(event["at"].as_str()?).ok()?;
        Some(Found { at, place: (note.name.clone(), place), event })
    })
}

#[cfg(test)]
#[path = "search_fuzz.rs"]
mod fuzz;

#[cfg(test)]
#[path = "search_tests.rs"]
mod tests;
