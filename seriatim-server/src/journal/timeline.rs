//! What happened to a key, in all queues, the last first: events of its jobs, and what people did to it.
//!
//! Where a queue has a journal, its events are from there; of other queues the store knows those of jobs that it still has.

use std::cmp::Reverse;
use std::collections::HashMap;
use std::time::Duration;

use schemars::JsonSchema;
use serde::Serialize;
use serde_json::Value;
use seriatim::store::{JobState, JobView, QueueView, Store};
use seriatim::text::one_line;
use seriatim::{Queue, Timestamp};

use super::search::{self, READ_BYTES_MAX, Start};
use super::shelf;
use crate::app::deeds::{self, Deed};
use crate::app::error::Result;
use crate::app::failures::{self, Noted};
use crate::app::key::{self, InQueue, QUEUES_ASKED_MAX};
use crate::app::words::state_name;
use crate::base::time;
use crate::protocol::document::{Event, JobFailure};
use crate::protocol::value::Time;

/// Failed jobs of a queue that are asked for their failures.
const FAILED_ASKED_MAX: usize = 20;
/// Queues whose journal is asked for a key.
const JOURNALS_ASKED_MAX: usize = 50;
/// Deeds that a page reads: of another object with the key's name, there may be any number.
const DEEDS_READ_MAX: usize = 1_000;

/// Which events.
#[derive(Clone, Copy)]
pub(crate) struct Wanted<'a> {
    pub(crate) key: &'a str,
    pub(crate) since: Option<Timestamp>,
    /// Up to then.
    pub(crate) until: Option<Timestamp>,
    /// `next` of the page before.
    pub(crate) after: Option<&'a str>,
    pub(crate) rows_max: usize,
    /// Whether to include what people did, which may name any queue.
    pub(crate) deeds: bool,
}

/// A page of what happened.
pub(crate) struct Story {
    pub(crate) rows: Vec<(Timestamp, Told)>,
    pub(crate) next: Option<String>,
    /// Queues that have no journal.
    pub(crate) without_journal: Vec<String>,
    /// Queues whose journal was not asked.
    pub(crate) not_asked: usize,
}

/// An event, as the journal has it, or a deed, as the audit log has it.
#[derive(Serialize, JsonSchema)]
#[serde(untagged)]
#[schemars(rename = "KeyEvent")]
pub(crate) enum Told {
    Event(#[schemars(with = "Event<'static>")] Value),
    Deed(Deed),
}

/// What happened to a key.
#[derive(Serialize, JsonSchema)]
pub(crate) struct KeyEvents {
    /// The latest first: events of its jobs, and what people did to it, as in the audit log
    events: Vec<Told>,
    /// The `after` of the next page
    next: Option<String>,
    /// Queues without a journal: of these, only what the store knows of jobs that are still there
    without_journal: Vec<String>,
    /// Queues whose journal was not searched
    not_asked: usize,
}

impl Story {
    pub(crate) fn document(self) -> KeyEvents {
        KeyEvents {
            events: self.rows.into_iter().map(|(_, told)| told).collect(),
            next: self.next,
            without_journal: self.without_journal,
            not_asked: self.not_asked,
        }
    }
}

/// A time range, both ends included.
#[derive(Clone, Copy)]
struct Times {
    since: Timestamp,
    until: Timestamp,
}

impl Times {
    fn has(self, at: Timestamp) -> bool {
        (self.since..=self.until).contains(&at)
    }
}

/// Rows of several sources, and from when on they are all there.
struct Merged {
    rows: Vec<(Timestamp, Told)>,
    complete: Timestamp,
    /// As many as are needed of each source.
    most: usize,
}

impl Merged {
    /// Adds those of a source: as many as are needed, or all from this time on.
    fn add(&mut self, rows: Vec<(Timestamp, Told)>, complete: Timestamp) {
        if rows.len() < self.most {
            self.complete = self.complete.max(complete);
        }
        self.rows.extend(rows);
    }

    /// Those of a page, and where the next one begins. What is older than all that was read waits for it, or it would stand
    /// before what has not been read yet.
    fn page(
        self,
        start: Start,
        rows_max: usize,
        since: Timestamp,
    ) -> (Vec<(Timestamp, Told)>, Option<Start>) {
        let Self { mut rows, complete, .. } = self;
        rows.retain(|(at, _)| *at >= complete);
        rows.sort_by_key(|(at, _)| Reverse(*at));
        let end = start.behind + rows_max;
        let more = rows.len() > end;
        rows.truncate(end);
        let next = Start::next(&rows, |(at, _)| *at, more, (complete, since));
        (rows.into_iter().skip(start.behind).collect(), next)
    }
}

/// A page of what happened to a key in the queues that are seen. `keeps`: whether this process keeps a journal of a queue,
/// of which there may be nothing in the store yet.
pub(crate) async fn page(
    store: &dyn Store,
    wanted: Wanted<'_>,
    keeps: impl Fn(&str) -> bool,
    sees: impl Fn(&str) -> bool,
) -> Result<Story> {
    let start = match wanted.after {
        Some(after) => Start::read(after)?,
        None => Start { at: wanted.until.unwrap_or(Timestamp::MAX), behind: 0 },
    };
    let times = Times { since: wanted.since.unwrap_or_default(), until: start.at };
    let most = start.behind + wanted.rows_max + 1;
    let mut merged = Merged { rows: Vec::new(), complete: Timestamp::default(), most };
    let found = key::read(store, key::Wanted::of(wanted.key, Some(0)), &sees).await?;
    let (mut kept, mut without_journal) = (Vec::new(), Vec::new());
    // Of journals that others keep, or kept once.
    let mut known_too = HashMap::new();
    for of in found.queues {
        let queue = of.queue.queue.name.clone();
        if keeps(&queue) {
            kept.push(queue);
            continue;
        }
        let known = known_of(store, &of, times).await?;
        if shelf::has_some(store, &queue).await? {
            known_too.insert(queue.clone(), known);
            kept.push(queue);
        } else {
            merged.add(told(known), Timestamp::default());
            without_journal.push(queue);
        }
    }
    let not_asked = add_others(store, &mut kept, &without_journal, keeps, sees).await?;
    // Together they read no more than a search of one queue.
    let bytes_max = READ_BYTES_MAX / kept.len().max(1);
    // In the same order on each page: it is that of events of one moment.
    kept.sort();
    for queue in kept {
        let of_queue = search::Wanted {
            key: Some(wanted.key),
            since: Some(times.since),
            until: Some(times.until),
            ..search::Wanted::all(&queue)
        };
        let (events, complete) = search::latest(store, of_queue, most, bytes_max).await?;
        let mut known = known_too.remove(&queue).unwrap_or_default();
        known.retain(|(_, known)| !events.iter().any(|(_, event)| is_same(event, known)));
        merged.add(told(known), Timestamp::default());
        merged.add(told(events), complete);
    }
    if wanted.deeds {
        let (deeds, complete) = deeds_of(store, &one_line(wanted.key), times, most).await?;
        merged.add(deeds, complete);
    }
    let (rows, next) = merged.page(start, wanted.rows_max, times.since);
    Ok(Story { rows, next: next.map(Start::text), without_journal, not_asked })
}

/// Adds queues whose journal may remember a key of which nothing else is left. Answers how many are too many.
async fn add_others(
    store: &dyn Store,
    kept: &mut Vec<String>,
    without_journal: &[String],
    keeps: impl Fn(&str) -> bool,
    sees: impl Fn(&str) -> bool,
) -> Result<usize> {
    let is_new = |QueueView { queue, .. }: &QueueView| {
        let is_known = kept.contains(&queue.name) || without_journal.contains(&queue.name);
        queue.mode.is_keyed() && sees(&queue.name) && !is_known
    };
    let others = store.queues().await?.into_iter().filter(is_new);
    let (mut own, mut others): (Vec<String>, Vec<String>) = others
        .map(|QueueView { queue: Queue { name, .. }, .. }| name)
        .partition(|name| keeps(name));
    kept.append(&mut own);
    if !others.is_empty() {
        // Those of other processes.
        let noted = shelf::queues(store, QUEUES_ASKED_MAX).await?;
        others.retain(|name| noted.contains(name));
        kept.append(&mut others);
    }
    let not_asked = kept.len().saturating_sub(JOURNALS_ASKED_MAX);
    kept.truncate(JOURNALS_ASKED_MAX);
    Ok(not_asked)
}

fn told(events: Vec<(Timestamp, Value)>) -> Vec<(Timestamp, Told)> {
    events.into_iter().map(|(at, event)| (at, Told::Event(event))).collect()
}

/// Whether an event of a journal is the one that the store knows too, whose time is by another clock.
fn is_same(event: &Value, known: &Value) -> bool {
    let is_end = event["attempt"] == known["attempt"] && event["event"] != "claimed";
    let is_failure = known["event"] == "failed" && is_end;
    event["job_id"] == known["job_id"] && (event["event"] == known["event"] || is_failure)
}

/// What the store knows of the key's jobs in a queue.
async fn known_of(
    store: &dyn Store,
    of: &InQueue,
    times: Times,
) -> Result<Vec<(Timestamp, Value)>> {
    let mut events: Vec<Value> = of.jobs().flat_map(known).collect();
    // A job with one attempt has one failure, which the event of its end tells.
    let is_told = |job: &&JobView| job.has_ended() && job.attempt <= 1;
    let failed = of.jobs().filter(|job| job.retry_count >= 0 && !is_told(job));
    for job in failed.take(FAILED_ASKED_MAX) {
        events.extend(failed_so(job, &failures::of(store, job.id).await?));
    }
    // Those of one moment: the last one first, as all of them.
    events.reverse();
    let timed = events.into_iter().filter_map(|event| {
        let at = time::read(event["at"].as_str()?).ok()?;
        times.has(at).then_some((at, event))
    });
    Ok(timed.collect())
}

/// The failures that the store has noted.
fn failed_so(job: &JobView, noted: &Noted) -> Vec<Value> {
    let event = |failure: &JobFailure| {
        serde_json::to_value(Event {
            at: failure.at,
            attempt: Some(failure.attempt),
            node: failure.node.as_deref(),
            error: Some(Some(&failure.error)),
            ..Event::new("failed", job.id, &job.queue)
        })
    };
    noted.latest.iter().rev().map(|failure| event(failure).unwrap_or_default()).collect()
}

/// The events that the store knows.
pub(crate) fn known(job: &JobView) -> Vec<Value> {
    let event = |at, what| Event {
        at: Time(at),
        key: Some(job.key.as_deref()),
        ..Event::new(what, job.id, &job.queue)
    };
    let mut events = vec![event(job.created_at, "queued")];
    events.extend(job.started_at.map(|at| event(at, "claimed")));
    events.extend(job.finished_at.map(|at| {
        let error = (job.state != JobState::Succeeded).then_some(job.error.as_deref());
        Event { error, ..event(at, state_name(job.state)) }
    }));
    events.iter().map(|event| serde_json::to_value(event).unwrap_or_default()).collect()
}

/// Deeds on the key, the last one first, and the time from which on they are all there if they are fewer than `most`.
async fn deeds_of(
    store: &dyn Store,
    key: &str,
    times: Times,
    most: usize,
) -> Result<(Vec<(Timestamp, Told)>, Timestamp)> {
    let (mut found, mut read, mut after) = (Vec::new(), 0, None::<String>);
    loop {
        let wanted = deeds::Wanted {
            of: Some(key),
            since: Some(times.since),
            until: Some(times.until),
            after: after.as_deref(),
            ..deeds::Wanted::default()
        };
        let page = deeds::latest(store, wanted, most).await?;
        let last = page.entries.last().map(|deed| deed.noted_at);
        read += page.entries.len();
        // A queue or a node may have the same name.
        let of_key = |deed: &Deed| deed.on.get("key").is_some_and(|on| on == key);
        let deeds = page.entries.into_iter().filter(of_key);
        found.extend(deeds.map(|deed| (deed.noted_at, Told::Deed(deed))));
        let (Some(last), Some(next)) = (last, page.next) else {
            return Ok((found, Timestamp::default()));
        };
        if found.len() >= most || read >= DEEDS_READ_MAX {
            // There may be others of that moment.
            return Ok((found, last + Duration::from_micros(1)));
        }
        after = Some(next);
    }
}

#[cfg(test)]
mod tests {
    use seriatim::Job;
    use seriatim::store::{Declare, Memory, Note, Notebook, Producer, Push, Queues};

    use super::*;

    const NOW: Timestamp = Timestamp::from_micros(1_800_000_000_000_000);

    async fn names(store: &Memory, key: &str) -> Vec<String> {
        let wanted =
            Wanted { key, since: None, until: None, after: None, rows_max: 10, deeds: true };
        let story = page(store, wanted, |_| false, |_| true).await.unwrap();
        assert!(story.next.is_none() && story.without_journal.is_empty());
        let name = |(_, told)| match told {
            Told::Event(event) => format!("{} {}", event["queue"], event["event"]),
            Told::Deed(deed) => deed.action,
        };
        story.rows.into_iter().map(name).map(|name| name.replace('"', "")).collect()
    }

    #[tokio::test]
    async fn who_keeps_no_journal_tells_that_of_others_and_what_it_lacks_each_event_once() {
        let store = Memory::with_clock(|| NOW);
        let queues = vec![Queue::fifo("noted"), Queue::fifo("quiet")];
        store.declare(Declare { now: None, queues }).await.unwrap();
        let jobs = (0..2).map(|i| Job::new("noted", &i).unwrap().key("k")).collect();
        let pushed = store.push(Push { now: None, jobs }).await.unwrap();
        let note = |queue: &str, key: &str, job, what, seconds: u64| {
            // The clock of the node is behind that of the store.
            let at = Time(NOW - Duration::from_secs(10 - seconds));
            let event = Event { at, key: Some(Some(key)), ..Event::new(what, job, queue) };
            let name = format!("event/{queue}/{:016}-{what}", at.0.as_micros());
            Note::new(name, event.line())
        };
        let notes = vec![
            note("noted", "k", pushed[0].job_id, "queued", 1),
            note("noted", "k", pushed[0].job_id, "claimed", 2),
            note("quiet", "k", pushed[0].job_id, "succeeded", 3),
            note("quiet", "gone", pushed[0].job_id, "dead", 3),
        ];
        store.write_notes(notes).await.unwrap();
        // The first of them is newer: its push came from a process without a journal.
        let all = ["noted queued", "quiet succeeded", "noted claimed", "noted queued"];
        assert_eq!(names(&store, "k").await, all);
        assert_eq!(names(&store, "gone").await, ["quiet dead"]);
    }
}
