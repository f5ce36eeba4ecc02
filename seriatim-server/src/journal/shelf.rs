//! Where the notes of the journal stand in the store, and how long.

use std::time::Duration;

use seriatim::Timestamp;
use seriatim::limits::{NOTE_BYTES_MAX, NOTES_MAX};
use seriatim::store::{NoteQuery, Store};

use crate::app::notes;
use crate::config::{JOURNAL_BYTES, JOURNAL_RETENTION};

const PREFIX: &str = "event/";
/// Beside each note, by the same name, what its events are about: see `marks.rs`.
const MARKS_PREFIX: &str = "event-of/";

/// How much of the events of each queue is kept.
#[derive(Clone, Debug)]
pub(crate) struct Limits {
    pub(crate) retention: Duration,
    pub(crate) notes_max: usize,
}

impl Default for Limits {
    fn default() -> Self {
        Self::new(JOURNAL_RETENTION, JOURNAL_BYTES)
    }
}

impl Limits {
    /// Notes are mostly full.
    pub(crate) fn new(retention: Duration, bytes_max: u64) -> Self {
        let notes_max = usize::try_from(bytes_max).unwrap_or(usize::MAX) / NOTE_BYTES_MAX;
        Self { retention, notes_max }
    }
}

/// How the names of a queue's notes begin. Names of queues have no slash.
pub(super) fn prefix(queue: &str) -> String {
    format!("{PREFIX}{queue}/")
}

/// The name of the marks of a note, or of a place among the notes.
pub(super) fn marks_of(name: &str) -> String {
    format!("{MARKS_PREFIX}{}", name.strip_prefix(PREFIX).unwrap_or(name))
}

/// How the names of notes begin whose first event is of this time.
pub(super) fn moment(queue: &str, at: Timestamp) -> String {
    prefix(queue) + &notes::moment(at)
}

/// When the first event of a note was.
pub(super) fn began(queue: &str, name: &str) -> Option<Timestamp> {
    let digits = name.strip_prefix(&prefix(queue))?.get(..16)?;
    digits.parse().ok().map(Timestamp::from_micros)
}

/// Deletes what is too old or too much, of all queues that have events. Looks once where there are none.
pub(crate) async fn trim(
    store: &dyn Store,
    limits: &Limits,
    now: Timestamp,
) -> seriatim::Result<()> {
    let mut from = PREFIX.to_owned();
    while let Some(queue) = first_from(store, from).await? {
        trim_queue(store, &queue, limits, now).await?;
        from = behind(&queue);
    }
    Ok(())
}

/// Queues that have events from any process, at most `most`.
pub(super) async fn queues(store: &dyn Store, most: usize) -> seriatim::Result<Vec<String>> {
    let (mut queues, mut from) = (Vec::new(), PREFIX.to_owned());
    while queues.len() < most {
        let Some(queue) = first_from(store, from).await? else { break };
        from = behind(&queue);
        queues.push(queue);
    }
    Ok(queues)
}

/// Whether a queue has events.
pub(super) async fn has_some(store: &dyn Store, queue: &str) -> seriatim::Result<bool> {
    Ok(first_from(store, prefix(queue)).await?.is_some_and(|first| first == queue))
}

/// The queue of the first note from this name on.
async fn first_from(store: &dyn Store, from: String) -> seriatim::Result<Option<String>> {
    let rest = NoteQuery::new(from..format!("{PREFIX}\x7f"));
    let first = NoteQuery { rows_max: 1, names_only: true, ..rest };
    let first = store.read_notes(first).await?.pop();
    let queue = first.as_ref().and_then(|note| note.name.strip_prefix(PREFIX)?.split('/').next());
    Ok(queue.map(str::to_owned))
}

/// Where the notes of the queues behind this one begin: `0` comes next after the slash.
fn behind(queue: &str) -> String {
    format!("{PREFIX}{queue}0")
}

/// Deletes those of one queue.
pub(super) async fn trim_queue(
    store: &dyn Store,
    queue: &str,
    limits: &Limits,
    now: Timestamp,
) -> seriatim::Result<()> {
    let (begin, oldest) = (prefix(queue), moment(queue, now - limits.retention));
    let mut kept = NoteQuery { backwards: true, names_only: true, ..NoteQuery::of(&begin) };
    let mut left = limits.notes_max;
    while left > 0 {
        kept.rows_max = left.min(NOTES_MAX);
        let notes = store.read_notes(kept.clone()).await?;
        left -= notes.len();
        // The last name becomes the end of the range, before which all are too many.
        let Some(last) = notes.last().filter(|_| notes.len() == kept.rows_max) else {
            kept.to.clone_from(&begin);
            break;
        };
        kept.to.clone_from(&last.name);
    }
    let end = kept.to.max(oldest);
    // The marks first: events without them are found all the same.
    for name in [marks_of, str::to_owned] {
        let old = || NoteQuery::new(name(&begin)..name(&end));
        while store.delete_notes(old()).await? == NOTES_MAX as u64 {}
    }
    Ok(())
}
