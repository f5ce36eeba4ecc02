//! The notes of cron entries.
//!
//! `cron/entry/` has what nodes have as entries, without payloads, and `cron/job/` those; a mark names both, so that
//! equal entries of all nodes are one note. `cron/node/` has the marks of a node, `cron/pause/` and `cron/last/` what
//! happened to an entry.

use std::collections::{BTreeMap, BTreeSet};

use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};

use super::{SchedulePause, ScheduleTick};
use crate::contract::{Note, NoteQuery, Store, notes_of};
use crate::cron::{Cron, Missed};
use crate::model::limits::NOTE_BYTES_MAX;
use crate::model::payload::{Digest, digest};
use crate::model::{Error, ErrorKind, HeldJob, Job, NodeId, Result, Timestamp};

const ENTRY: &str = "cron/entry/";
const JOB: &str = "cron/job/";
const NODE: &str = "cron/node/";
const PAUSE: &str = "cron/pause/";
const LAST: &str = "cron/last/";
/// Marks in one note of a node.
const MARKS_PER_NOTE: usize = 300;
/// Notes of entries and jobs in one call: at most 4 MiB, as a call may have.
const NOTES_PER_CALL: usize = 200;

/// What the notes say.
#[derive(Default)]
pub(super) struct Known {
    /// Entries, by mark.
    pub(super) definitions: BTreeMap<String, Held>,
    /// The marks of each node.
    pub(super) holders: BTreeMap<NodeId, BTreeSet<String>>,
    pub(super) pauses: Vec<(String, SchedulePause)>,
    pub(super) ticks: Vec<(String, ScheduleTick)>,
}

/// An entry without its payload.
#[derive(Clone, Serialize, Deserialize)]
pub(super) struct Held {
    pub(super) name: String,
    pub(super) schedule: String,
    pub(super) zone: String,
    pub(super) missed: Missed,
    pub(super) job: HeldJob,
    /// Of the payload before a codec, if that of its stored form differs.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    digest: Option<Digest>,
}

#[derive(Serialize, Deserialize)]
struct Marks {
    node: String,
    marks: Vec<String>,
}

/// With the name that its note's name only has as a hash.
#[derive(Serialize, Deserialize)]
struct Named<T> {
    name: String,
    #[serde(flatten)]
    of: T,
}

fn hash(text: &[u8]) -> String {
    blake3::hash(text).to_hex()[..32].to_owned()
}

fn written(name: String, value: &impl Serialize) -> Note {
    // Texts and numbers only: writing them cannot fail.
    Note::new(name, serde_json::to_vec(value).unwrap_or_default())
}

pub(super) fn pause(name: &str, pause: &SchedulePause) -> Note {
    let at = format!("{PAUSE}{}", hash(name.as_bytes()));
    written(at, &Named { name: name.to_owned(), of: pause })
}

pub(super) fn tick(name: &str, tick: &ScheduleTick) -> Note {
    let at = format!("{LAST}{}", hash(name.as_bytes()));
    written(at, &Named { name: name.to_owned(), of: tick })
}

/// The pause of an entry that holds at `now` or held at `tick`.
pub(crate) async fn is_paused(
    store: &dyn Store,
    name: &str,
    tick: Option<Timestamp>,
) -> Result<bool> {
    let note = one(store, &format!("{PAUSE}{}", hash(name.as_bytes()))).await?;
    let Some(Named { of: pause, .. }) =
        note.map(|note| read_one::<Named<SchedulePause>>(&note)).transpose()?
    else {
        return Ok(false);
    };
    let holds = |until: Timestamp| tick.is_some_and(|tick| pause.since <= tick && tick < until);
    Ok(pause.until.is_none_or(holds))
}

/// Notes how a tick went.
pub(crate) async fn ticked(store: &dyn Store, name: &str, of: &ScheduleTick) -> Result<()> {
    store.write_notes(vec![tick(name, of)]).await
}

/// Notes which entries a node has, each with its job as it is pushed.
pub(crate) async fn register(
    store: &dyn Store,
    node: &NodeId,
    entries: &[(&Cron, Job)],
) -> Result<()> {
    let mut notes = Vec::new();
    let marks: Vec<String> =
        entries.iter().map(|(cron, job)| describe(cron, job, &mut notes)).collect();
    // The marks first: see `tidy`.
    let id = hash(node.0.as_bytes());
    let parts = marks.chunks(MARKS_PER_NOTE).enumerate().map(|(i, marks)| {
        let value = Marks { node: node.0.to_string(), marks: marks.to_vec() };
        written(format!("{NODE}{id}/{i:06}"), &value)
    });
    store.write_notes(parts.collect()).await?;
    for notes in notes.chunks(NOTES_PER_CALL) {
        store.write_notes(notes.to_vec()).await?;
    }
    Ok(())
}

/// Adds the notes of an entry; returns its mark.
fn describe(cron: &Cron, job: &Job, notes: &mut Vec<Note>) -> String {
    let of_stored = |own: &Digest| *own == digest(job.task.as_deref(), &job.payload);
    let held = Held {
        name: cron.name().to_owned(),
        schedule: cron.schedule().to_owned(),
        zone: cron.zone().to_owned(),
        missed: cron.catches_up(),
        job: HeldJob::of(job),
        digest: job.digest.filter(|own| !of_stored(own)),
    };
    let value = serde_json::to_vec(&held).unwrap_or_default();
    // The payload before any codec: one that encrypts writes another text each time.
    let whole = [&value[..], cron.job().payload.as_bytes()].concat();
    let mark = format!("{}/{}", hash(held.name.as_bytes()), hash(&whole));
    notes.push(Note::new(format!("{ENTRY}{mark}"), value));
    let payload = job.payload.as_bytes();
    if payload.len() <= NOTE_BYTES_MAX {
        notes.push(Note::new(format!("{JOB}{mark}"), payload));
    }
    mark
}

/// The job of an entry, unless its payload is too long for a note.
pub(super) async fn job(store: &dyn Store, mark: &str) -> Result<Option<Job>> {
    let entry = one(store, &format!("{ENTRY}{mark}")).await?;
    let payload = one(store, &format!("{JOB}{mark}")).await?;
    let (Some(entry), Some(payload)) = (entry, payload) else { return Ok(None) };
    let held: Held = read_one(&entry)?;
    let job = held.job.with(payload.value);
    Ok(Some(Job { digest: held.digest, ..job }))
}

/// Forgets the entries of nodes that the store has forgotten.
pub(crate) async fn tidy(store: &dyn Store) -> Result<()> {
    // This reads entries before marks, and a node writes its marks before its entries: a new entry is not taken for
    // one that nobody has.
    let known = read(store).await?;
    let nodes: BTreeSet<NodeId> =
        store.nodes().await?.into_iter().map(|node| node.info.id).collect();
    for node in known.holders.keys().filter(|node| !nodes.contains(*node)) {
        forget(store, &format!("{NODE}{}/", hash(node.0.as_bytes()))).await?;
    }
    let living = known.holders.iter().filter(|(node, _)| nodes.contains(*node));
    let marks: BTreeSet<&String> = living.flat_map(|(_, marks)| marks).collect();
    for mark in known.definitions.keys().filter(|mark| !marks.contains(mark)) {
        forget(store, &format!("{ENTRY}{mark}")).await?;
        forget(store, &format!("{JOB}{mark}")).await?;
    }
    let has = |name: &str| {
        let start = format!("{}/", hash(name.as_bytes()));
        marks.iter().any(|mark| mark.starts_with(&start))
    };
    for (name, _) in known.ticks.iter().filter(|(name, _)| !has(name)) {
        forget(store, &format!("{LAST}{}", hash(name.as_bytes()))).await?;
    }
    // A fleet that was away for days is still paused.
    let ended = known.pauses.iter().filter(|(_, pause)| pause.until.is_some());
    for (name, _) in ended.filter(|(name, _)| !has(name)) {
        forget(store, &format!("{PAUSE}{}", hash(name.as_bytes()))).await?;
    }
    Ok(())
}

async fn forget(store: &dyn Store, prefix: &str) -> Result<()> {
    store.delete_notes(NoteQuery::of(prefix)).await.map(drop)
}

/// All notes except those of payloads.
pub(super) async fn read(store: &dyn Store) -> Result<Known> {
    let mut known = Known::default();
    for note in notes_of(store, ENTRY).await? {
        if let Some(held) = readable(&note) {
            known.definitions.insert(note.name[ENTRY.len()..].to_owned(), held);
        }
    }
    for note in notes_of(store, NODE).await? {
        if let Some(Marks { node, marks }) = readable(&note) {
            known.holders.entry(NodeId::from(node.as_str())).or_default().extend(marks);
        }
    }
    for note in notes_of(store, PAUSE).await? {
        known.pauses.extend(readable(&note).map(|Named { name, of }| (name, of)));
    }
    for note in notes_of(store, LAST).await? {
        known.ticks.extend(readable(&note).map(|Named { name, of }| (name, of)));
    }
    Ok(known)
}

async fn one(store: &dyn Store, name: &str) -> Result<Option<Note>> {
    Ok(store.read_notes(NoteQuery::only(name)).await?.pop())
}

fn read_one<T: DeserializeOwned>(note: &Note) -> Result<T> {
    serde_json::from_slice(&note.value).map_err(|error| {
        let message = format!("cannot read note {}: another version wrote it", note.name);
        Error::new(ErrorKind::Internal, message).because(error)
    })
}

/// For listings, which show what they can read.
fn readable<T: DeserializeOwned>(note: &Note) -> Option<T> {
    read_one(note).inspect_err(|error| tracing::warn!(%error, "left out of the cron entries")).ok()
}
