//! Operations in the notebook of the store: `operation/ID` is the record, which only the process that carries the operation
//! out writes; `operation/ID/stop` asks it to stop; `operation-open/ID` says that it has not ended; `operation-ids/ID/N`
//! have what was named one by one; `operation-step/ID/N` what the step under way is about to do.

use std::time::Duration;

use serde::{Deserialize, Serialize};
use seriatim::Timestamp;
use seriatim::store::{Lead, NodeId, Note, NoteQuery, Store};

use super::intent;
use super::operation::{Operation, Record, State, range};
use super::preview::Preview;
use super::wish::{List, Wish};
use crate::app::error::{Error, Result};
use crate::app::figures::Figures;
use crate::base::time::absolute;

/// Operations that have not ended, at most.
const OPEN_MAX: usize = 20;
/// Operations that are remembered after their end.
const KEPT_MAX: usize = 100;
/// A process that carries one out and has not written for this long is gone.
const SILENT_MAX: Duration = Duration::from_secs(30);
/// How long a process may take to take over what others left.
const LEADS_FOR: Duration = Duration::from_secs(10);
/// Named jobs or lanes of one note.
const IDS_OF_NOTE: usize = 300;

#[derive(Serialize, Deserialize)]
struct Stop {
    by: String,
}

fn name(id: &str) -> String {
    format!("operation/{id}")
}

/// Who begins an operation, and when its first step may be.
pub(crate) struct Begin<'a> {
    pub(crate) who: &'a str,
    pub(crate) runner: &'a str,
    pub(crate) waits: Duration,
}

/// Writes down an operation, to be carried out by `runner`.
pub(crate) async fn begin(
    store: &dyn Store,
    mut wish: Wish,
    preview: &Preview,
    begin: Begin<'_>,
) -> Result<Operation> {
    let open = store.read_notes(NoteQuery::of("operation-open/")).await?.len();
    if open >= OPEN_MAX {
        return Err(Error::TooManyOperations { open });
    }
    let now = store.now().await?;
    let id = format!("{:016}-{:08x}", now.as_micros(), fastrand::u32(..));
    let mut rest = Vec::new();
    for name in wish.names().iter().rev() {
        rest.push((name.clone(), rows_of(store, &wish.of(name)).await?));
    }
    let mut notes = ids(&id, &mut wish);
    wish.before = Some(preview.before);
    let state = if begin.waits.is_zero() { State::Running } else { State::Waiting };
    let operation = Operation {
        id: id.clone(),
        what: wish,
        who: begin.who.to_owned(),
        created_at: absolute(now),
        starts_at: absolute(now + begin.waits),
        state,
        expected: preview.count.count,
        expected_more: preview.count.more,
        looked_at: 0,
        count: 0,
        error: None,
        ended_at: None,
        stopped_by: None,
    };
    let (runner, beat) = (begin.runner.to_owned(), now.as_micros());
    let mut record = Record {
        operation,
        queue: String::new(),
        rest,
        after: None,
        rows_left: 0,
        runner,
        beat,
        next_at: 0,
        steps: 0,
    };
    record.next_queue();
    notes.push(note(&record));
    notes.push(Note::new(format!("operation-open/{id}"), ""));
    store.write_notes(notes).await?;
    trim(store).await?;
    Ok(record.operation)
}

/// Rows of a queue to look at: lanes that come later are not meant.
async fn rows_of(store: &dyn Store, wish: &Wish) -> Result<u64> {
    if wish.action.on_lanes().is_none() || wish.named().is_some() {
        return Ok(u64::MAX);
    }
    let stats = Figures::one(store, &wish.queue).await?.stats;
    let by_jobs = stats.mode.is_some_and(|mode| wish.finds_jobs(mode));
    Ok(if by_jobs { stats.jobs } else { stats.lanes })
}

/// Takes what is named one by one out of the wish, into notes of their own.
fn ids(id: &str, wish: &mut Wish) -> Vec<Note> {
    let names: Vec<String> = match (wish.jobs.take(), wish.lanes.take()) {
        (Some(List(jobs)), _) => jobs.iter().map(ToString::to_string).collect(),
        (None, Some(List(lanes))) => lanes.iter().map(ToString::to_string).collect(),
        (None, None) => Vec::new(),
    };
    let parts = names.chunks(IDS_OF_NOTE).enumerate();
    parts.map(|(i, part)| Note::new(format!("operation-ids/{id}/{i}"), part.join(","))).collect()
}

/// The wish with what is named one by one.
pub(super) async fn whole(store: &dyn Store, operation: &Operation) -> Result<Wish> {
    let notes = store.read_notes(range("operation-ids/", &operation.id)).await?;
    let mut wish = operation.what.clone();
    let text: Vec<String> =
        notes.iter().map(|note| String::from_utf8_lossy(&note.value).into_owned()).collect();
    if text.is_empty() {
        return Ok(wish);
    }
    let text = text.join(",");
    let names = text.split(',');
    match wish.action.on_lanes() {
        None => wish.jobs = Some(List(names.filter_map(|name| name.parse().ok()).collect())),
        Some(_) => wish.lanes = Some(List(names.filter_map(|name| name.parse().ok()).collect())),
    }
    Ok(wish)
}

fn note(record: &Record) -> Note {
    Note::new(name(&record.operation.id), serde_json::to_vec(record).unwrap_or_default())
}

/// Writes how far it is; an operation that has ended is open no more.
pub(super) async fn write(store: &dyn Store, record: &Record) -> seriatim::Result<()> {
    store.write_notes(vec![note(record)]).await?;
    if !record.operation.state.is_open() {
        let id = &record.operation.id;
        store.delete_notes(NoteQuery::only(&format!("operation-open/{id}"))).await?;
        store.delete_notes(range("operation-ids/", id)).await?;
        store.delete_notes(range(intent::PREFIX, id)).await?;
    }
    Ok(())
}

/// The record, and who asked to stop it.
pub(super) async fn read(
    store: &dyn Store,
    id: &str,
) -> seriatim::Result<Option<(Record, Option<String>)>> {
    let is_id = !id.is_empty() && id.bytes().all(|byte| byte.is_ascii_hexdigit() || byte == b'-');
    if !is_id {
        return Ok(None);
    }
    Ok(records(store.read_notes(range("operation/", id)).await?).pop())
}

/// Whether nobody has written the record since it was read.
pub(super) async fn is_as_read(store: &dyn Store, record: &Record) -> seriatim::Result<bool> {
    let known = read(store, &record.operation.id).await?;
    Ok(known.is_some_and(|(known, _)| known.runner == record.runner && known.steps == record.steps))
}

/// Records with who asked to stop them, from notes in order.
fn records(notes: Vec<Note>) -> Vec<(Record, Option<String>)> {
    let mut records: Vec<(Record, Option<String>)> = Vec::new();
    for note in notes {
        if let Some(id) = note.name.strip_suffix("/stop") {
            let stop = serde_json::from_slice::<Stop>(&note.value).ok();
            let of = records.last_mut().filter(|(record, _)| name(&record.operation.id) == id);
            if let (Some((_, stopped)), Some(stop)) = (of, stop) {
                *stopped = Some(stop.by);
            }
        } else if let Ok(record) = serde_json::from_slice(&note.value) {
            records.push((record, None));
        }
    }
    records
}

/// As it is shown: one that is asked to stop before it began has stopped.
fn shown((record, stopped): (Record, Option<String>)) -> Operation {
    let mut operation = record.operation;
    if operation.state == State::Waiting && stopped.is_some() {
        operation.state = State::Stopped;
    }
    operation.stopped_by = stopped;
    operation
}

/// All that are known, the latest first.
pub(crate) async fn list(store: &dyn Store) -> seriatim::Result<Vec<Operation>> {
    let notes = store.read_notes(NoteQuery::of("operation/")).await?;
    Ok(records(notes).into_iter().rev().map(shown).collect())
}

/// Those of callers who may use these queues.
pub(crate) async fn list_within(
    store: &dyn Store,
    may_use: impl Fn(&str) -> bool,
) -> seriatim::Result<Vec<Operation>> {
    let mut all = list(store).await?;
    all.retain(|operation| operation.is_within(&may_use));
    Ok(all)
}

/// The operation of this id.
pub(crate) async fn show(store: &dyn Store, id: &str) -> Result<Operation> {
    let missing = || Error::NoOperation(id.to_owned());
    read(store, id).await?.map(shown).ok_or_else(missing)
}

/// Asks who carries it out to stop before the next step.
pub(crate) async fn stop(store: &dyn Store, id: &str, by: &str) -> Result<Operation> {
    let mut operation = show(store, id).await?;
    if !operation.state.is_open() {
        return Ok(operation);
    }
    let stop = serde_json::to_vec(&Stop { by: by.to_owned() }).unwrap_or_default();
    store.write_notes(vec![Note::new(format!("{}/stop", name(id)), stop)]).await?;
    operation = show(store, id).await?;
    Ok(operation)
}

/// Makes `runner` carry out what others left. Their ids.
pub(crate) async fn take_over(store: &dyn Store, runner: &str) -> Result<Vec<String>> {
    let open = store.read_notes(NoteQuery::of("operation-open/")).await?;
    if open.is_empty() {
        return Ok(Vec::new());
    }
    let now = store.now().await?;
    let mut taken = Vec::new();
    for note in open {
        let id = note.name.strip_prefix("operation-open/").unwrap_or_default();
        let Some((mut record, _)) = read(store, id).await? else {
            store.delete_notes(NoteQuery::only(&note.name)).await?;
            continue;
        };
        let is_silent = Timestamp::from_micros(record.beat) + SILENT_MAX < now;
        if !record.operation.state.is_open() {
            write(store, &record).await?;
        } else if (record.runner.is_empty() || is_silent) && leads(store, runner).await? {
            let done = intent::done_unwritten(store, &record).await?;
            // To count takes a while: its runner may have come back from an outage, and counted too.
            if is_as_read(store, &record).await? {
                record.operation.count += done;
                record.steps += 1;
                (record.runner, record.beat) = (runner.to_owned(), now.as_micros());
                write(store, &record).await?;
                taken.push(record.operation.id);
            }
        }
    }
    Ok(taken)
}

/// Whether no other process takes over at this moment.
async fn leads(store: &dyn Store, runner: &str) -> seriatim::Result<bool> {
    let node = NodeId::from(runner);
    store.lead(Lead { now: None, role: "operations".into(), node, ttl: LEADS_FOR }).await
}

/// Forgets the oldest of those that have ended.
async fn trim(store: &dyn Store) -> seriatim::Result<()> {
    let known = records(store.read_notes(NoteQuery::of("operation/")).await?);
    let surplus = known.len().saturating_sub(KEPT_MAX + OPEN_MAX);
    for (record, _) in known.iter().filter(|(r, _)| !r.operation.state.is_open()).take(surplus) {
        store.delete_notes(range("operation/", &record.operation.id)).await?;
    }
    Ok(())
}
