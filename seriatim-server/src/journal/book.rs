//! The journal in the store: notes with lines of JSON, for each queue bounded in number and age.
//!
//! A process gathers events for a second and writes them together, a call for all queues. The last note of a queue grows until
//! it is full or [`SPAN`] old, so that a quiet queue takes few notes. Beside it stands what its events are about.

use std::collections::{BTreeMap, HashMap, VecDeque};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, Once};
use std::time::Duration;

use seriatim::Timestamp;
use seriatim::limits::{NOTE_BYTES_MAX, NOTES_BYTES_MAX, NOTES_MAX};
use seriatim::store::{Note, Store};
use tokio::sync::Notify;
use tokio::time::{sleep, timeout};

use super::marks::Marks;
use super::shelf::{self, Limits};
use crate::base::lock::lock;

/// Bytes of events that wait to be written. Further ones are lost and counted: a slow store must not delay the jobs.
const WAITING_BYTES_MAX: usize = 16 << 20;
/// How long events are collected, unless they reach the bytes below.
const GATHERED_FOR: Duration = Duration::from_secs(1);
const GATHERED_BYTES: usize = 1 << 20;
/// A note collects events for this long.
pub(super) const SPAN: Duration = Duration::from_secs(60);
/// Queues whose last note may still grow.
const OPEN_MAX: usize = 1_000;
/// New notes of a queue after which its oldest are deleted.
const TRIM_AFTER: usize = 200;

/// Writes events.
pub(crate) struct Book {
    limits: Limits,
    waiting: Mutex<Waiting>,
    some: Notify,
    many: Notify,
    lost: AtomicU64,
    lost_before: Once,
    writing: tokio::sync::Mutex<Writing>,
}

#[derive(Default)]
struct Waiting {
    queues: BTreeMap<String, Vec<(Timestamp, String)>>,
    bytes: usize,
}

/// What of the notes is not in the store yet.
struct Writing {
    /// Names notes apart from those of other processes.
    writer: u32,
    number: u64,
    open: HashMap<String, Open>,
    unsent: VecDeque<Unsent>,
    /// New notes of each queue since its oldest ones were deleted.
    grown: HashMap<String, usize>,
}

/// The last note of a queue.
struct Open {
    name: String,
    began: Timestamp,
    text: String,
    marks: Marks,
    fresh: u64,
}

struct Unsent {
    note: Note,
    /// Its events that the store does not have.
    fresh: u64,
}

impl Book {
    pub(crate) fn new(limits: Limits) -> Self {
        let writing = Writing {
            writer: fastrand::u32(..),
            number: 0,
            open: HashMap::new(),
            unsent: VecDeque::new(),
            grown: HashMap::new(),
        };
        Self {
            limits,
            waiting: Mutex::default(),
            some: Notify::new(),
            many: Notify::new(),
            lost: AtomicU64::default(),
            lost_before: Once::new(),
            writing: tokio::sync::Mutex::new(writing),
        }
    }

    pub(crate) fn limits(&self) -> &Limits {
        &self.limits
    }

    /// Takes an event, to be written soon.
    pub(crate) fn write(&self, queue: &str, at: Timestamp, line: String) {
        let mut waiting = lock(&self.waiting);
        if line.len() > NOTE_BYTES_MAX || waiting.bytes + line.len() > WAITING_BYTES_MAX {
            drop(waiting);
            return self.lose(1);
        }
        waiting.bytes += line.len();
        let is_much = waiting.bytes >= GATHERED_BYTES;
        match waiting.queues.get_mut(queue) {
            Some(lines) => lines.push((at, line)),
            None => drop(waiting.queues.insert(queue.to_owned(), vec![(at, line)])),
        }
        drop(waiting);
        self.some.notify_one();
        if is_much {
            self.many.notify_one();
        }
    }

    fn lose(&self, events: u64) {
        self.lost.fetch_add(events, Ordering::Relaxed);
        self.lost_before.call_once(|| {
            tracing::warn!(
                "the store does not take the journal: events are lost, counted in seriatim_journal_lost_total"
            );
        });
    }

    /// Events that could not be written down.
    pub(crate) fn lost(&self) -> u64 {
        self.lost.load(Ordering::Relaxed)
    }

    /// Writes what comes.
    pub(crate) async fn run(&self, store: &dyn Store) {
        loop {
            self.some.notified().await;
            let _ = timeout(GATHERED_FOR, self.many.notified()).await;
            while let Err(error) = self.flush(store).await {
                tracing::debug!(%error, "cannot write the journal");
                sleep(GATHERED_FOR).await;
            }
        }
    }

    /// Writes what has come. If the store is away for a while, nothing is lost yet.
    pub(crate) async fn flush(&self, store: &dyn Store) -> seriatim::Result<()> {
        let mut writing = self.writing.lock().await;
        if writing.unsent.is_empty() {
            let waiting = std::mem::take(&mut *lock(&self.waiting));
            writing.gather(waiting);
        }
        while let Some(part) = writing.part() {
            let count = part.len();
            match store.write_notes(part).await {
                Err(error) if error.is_transient() => return Err(error),
                Err(error) => {
                    tracing::debug!(%error, "the store refuses a part of the journal");
                    self.lose(writing.unsent.iter().take(count).map(|unsent| unsent.fresh).sum());
                }
                Ok(()) => {}
            }
            writing.unsent.drain(..count);
        }
        let grown =
            |(queue, notes): (&String, &usize)| (*notes >= TRIM_AFTER).then(|| queue.clone());
        for queue in writing.grown.iter().filter_map(grown).collect::<Vec<_>>() {
            shelf::trim_queue(store, &queue, &self.limits, store.now().await?).await?;
            writing.grown.remove(&queue);
        }
        Ok(())
    }
}

impl Writing {
    /// Makes notes of events.
    fn gather(&mut self, waiting: Waiting) {
        for (queue, lines) in waiting.queues {
            let mut open = self.open.remove(&queue);
            for (at, line) in lines {
                let fits = |open: &Open| {
                    at.since(open.began) < SPAN && open.text.len() + line.len() <= NOTE_BYTES_MAX
                };
                let mut note = match open.take() {
                    Some(open) if fits(&open) => open,
                    full => {
                        full.into_iter().for_each(|full| self.send(&full));
                        self.new_note(&queue, at)
                    }
                };
                note.text.push_str(&line);
                note.marks.add(&line);
                note.fresh += 1;
                open = Some(note);
            }
            if let Some(mut open) = open {
                self.send(&open);
                open.fresh = 0;
                self.open.insert(queue, open);
            }
        }
        if self.open.len() > OPEN_MAX {
            self.open.clear();
        }
    }

    fn new_note(&mut self, queue: &str, at: Timestamp) -> Open {
        self.number += 1;
        *self.grown.entry(queue.to_owned()).or_default() += 1;
        let suffix = format!("-{:08x}-{:x}", self.writer, self.number);
        let name = shelf::moment(queue, at) + &suffix;
        Open { name, began: at, text: String::new(), marks: Marks::default(), fresh: 0 }
    }

    fn send(&mut self, open: &Open) {
        if open.fresh > 0 {
            // First: a note with an event that its marks lack would not be found.
            let marks = Note::new(shelf::marks_of(&open.name), open.marks.bytes());
            self.unsent.push_back(Unsent { note: marks, fresh: 0 });
            let note = Note::new(open.name.clone(), open.text.as_bytes());
            self.unsent.push_back(Unsent { note, fresh: open.fresh });
        }
    }

    /// As many notes as one call writes.
    fn part(&self) -> Option<Vec<Note>> {
        let mut bytes = 0;
        let fits = |unsent: &&Unsent| {
            bytes += unsent.note.value.len();
            bytes <= NOTES_BYTES_MAX
        };
        let part: Vec<Note> = (self.unsent.iter().take(NOTES_MAX).take_while(fits))
            .map(|unsent| unsent.note.clone())
            .collect();
        (!part.is_empty()).then_some(part)
    }
}
