//! Finds events in the store's notes.

use std::time::Duration;

use serde_json::Value;
use seriatim::store::{Note, NoteQuery, Store};
use seriatim::{Error, JobId, Timestamp};

use super::book::SPAN;
use super::shelf;
use crate::base::time;
use crate::protocol::document::EventPage;

/// Most events returned for one job: the newest.
pub(crate) const JOB_EVENTS_MAX: usize = 1_000;
/// Notes that a page reads at most, and in one step.
const READ_MAX: usize = 2_000;
const STEP: usize = 50;
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
struct Start {
    at: Timestamp,
    behind: usize,
}

impl Start {
    fn read(text: &str) -> seriatim::Result<Self> {
        let parts = text.split_once('.');
        let parts = parts.and_then(|(at, behind)| Some((at.parse().ok()?, behind.parse().ok()?)));
        let (at, behind) =
            parts.ok_or_else(|| Error::invalid("after", "is no `next` of a page of events"))?;
        Ok(Self { at: Timestamp::from_micros(at), behind })
    }

    fn text(self) -> String {
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
    // A note has events of a minute.
    let first = shelf::moment(wanted.queue, Timestamp::default().max(since - SPAN));
    let last = shelf::moment(wanted.queue, until) + "~";
    let mut query = NoteQuery { backwards: true, rows_max: STEP, ..NoteQuery::new(first..last) };
    let (mut found, mut read, most) = (Vec::new(), 0, behind + rows_max);
    // All events from this time on have been found.
    let complete = loop {
        let notes = store.read_notes(query.clone()).await?;
        read += notes.len();
        for note in &notes {
            found.extend(events_of(note, wanted).filter(|one| (since..=until).contains(&one.at)));
        }
        found.sort_by(|a: &Found, b| (b.at, &b.place).cmp(&(a.at, &a.place)));
        found.truncate(most + 1);
        let Some(oldest) = notes.last().filter(|_| notes.len() == STEP) else {
            break Timestamp::default();
        };
        let began = shelf::began(wanted.queue, &oldest.name).unwrap_or_default();
        let complete = began + SPAN;
        if found.get(most).is_some_and(|one| one.at >= complete) {
            break complete;
        }
        if read >= READ_MAX {
            // With this many notes in a minute, those of another process may be missing.
            break if complete < until { complete } else { began };
        }
        query.to.clone_from(&oldest.name);
    };
    let more = found.len() > most;
    found.truncate(most);
    found.retain(|one| one.at >= complete);
    let next = match found.last() {
        Some(last) if more => Some(Start {
            at: last.at,
            behind: found.iter().filter(|one| one.at == last.at).count(),
        }),
        _ if complete > since => Some(Start { at: complete - Duration::from_micros(1), behind: 0 }),
        _ => None,
    };
    let events = found.into_iter().skip(behind).map(|one| one.event).collect();
    Ok(EventPage { events, next: next.map(Start::text) })
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
