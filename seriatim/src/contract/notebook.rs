//! Notes: small values by name, kept beside the jobs.

use std::ops::Range;

use async_trait::async_trait;

use crate::model::limits::{NOTE_BYTES_MAX, NOTE_NAME_BYTES_MAX, NOTES_BYTES_MAX, NOTES_MAX};
use crate::model::{Error, Result};

/// Notes beside the jobs: the history of metrics, the audit log, the state of cron entries. The writer must limit their
/// number: no store deletes notes.
///
/// A name has 1 to [`NOTE_NAME_BYTES_MAX`](crate::limits::NOTE_NAME_BYTES_MAX) visible ASCII characters; names are
/// ordered byte by byte.
#[async_trait]
pub trait Notebook: Send + Sync {
    /// Writes notes, all or none, at most [`NOTES_MAX`](crate::limits::NOTES_MAX) with
    /// [`NOTES_BYTES_MAX`](crate::limits::NOTES_BYTES_MAX) bytes together. A note with a known name replaces
    /// that one.
    ///
    /// - A name that is not allowed, a value of more than [`NOTE_BYTES_MAX`](crate::limits::NOTE_BYTES_MAX) bytes and too
    ///   many notes are `Invalid`; nothing is written.
    async fn write_notes(&self, notes: Vec<Note>) -> Result<()>;

    /// Reads the notes of a range, in order of their names.
    async fn read_notes(&self, query: NoteQuery) -> Result<Vec<Note>>;

    /// Reads the notes with these names, in order of their names. Names that no note has are left out.
    ///
    /// - More than [`NOTES_MAX`](crate::limits::NOTES_MAX) names are `Invalid`.
    async fn named_notes(&self, names: Vec<String>) -> Result<Vec<Note>>;

    /// Deletes the notes that [`Self::read_notes`] would return. Returns their number.
    async fn delete_notes(&self, query: NoteQuery) -> Result<u64>;
}

/// A note.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Note {
    /// Its name.
    pub name: String,
    /// Its value.
    pub value: Vec<u8>,
}

impl Note {
    /// A note of this name.
    pub fn new(name: impl Into<String>, value: impl Into<Vec<u8>>) -> Self {
        Self { name: name.into(), value: value.into() }
    }
}

/// Which notes: see [`Notebook::read_notes`].
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NoteQuery {
    /// The first name, included.
    pub from: String,
    /// The name before which the range ends.
    pub to: String,
    /// Whether the last notes come first.
    pub backwards: bool,
    /// Most notes; at most [`NOTES_MAX`](crate::limits::NOTES_MAX).
    pub rows_max: usize,
    /// Whether the values are left out: they are empty.
    pub names_only: bool,
}

impl NoteQuery {
    /// All notes of these names, from the first on.
    pub fn new(names: Range<impl Into<String>>) -> Self {
        let (from, to) = (names.start.into(), names.end.into());
        Self { from, to, backwards: false, rows_max: NOTES_MAX, names_only: false }
    }

    /// All notes whose names begin with this.
    pub fn of(prefix: &str) -> Self {
        // No name has a character above `~`.
        Self::new(prefix.to_owned()..format!("{prefix}\x7f"))
    }

    /// This note alone.
    pub fn only(name: &str) -> Self {
        Self { rows_max: 1, ..Self::new(name..&*place_behind(name)) }
    }

    /// The rest of it, if this note was the last of a page.
    #[must_use]
    pub fn behind(self, name: &str) -> Self {
        Self { from: place_behind(name), ..self }
    }

    /// Most notes that it may return.
    pub(crate) fn most(&self) -> usize {
        self.rows_max.min(NOTES_MAX)
    }
}

/// No name has a space, so nothing lies between a name and this.
fn place_behind(name: &str) -> String {
    format!("{name} ")
}

/// All notes whose names begin with this, in as many reads as they need.
///
/// # Errors
///
/// Those of [`Notebook::read_notes`].
pub async fn notes_of(store: &(impl Notebook + ?Sized), prefix: &str) -> Result<Vec<Note>> {
    let (mut notes, mut query) = (Vec::new(), NoteQuery::of(prefix));
    loop {
        let page = store.read_notes(query.clone()).await?;
        let is_full = page.len() >= NOTES_MAX;
        notes.extend(page);
        match notes.last() {
            Some(last) if is_full => query = query.behind(&last.name),
            _ => return Ok(notes),
        }
    }
}

/// Refuses to read more notes by their names than a store reads at once. The names in order, each once.
pub(crate) fn names_to_read(mut names: Vec<String>) -> Result<Vec<String>> {
    if names.len() > NOTES_MAX {
        let message = format!("has {} names; at most {NOTES_MAX}", names.len());
        return Err(Error::invalid("names", message));
    }
    names.sort_unstable();
    names.dedup();
    Ok(names)
}

/// Refuses notes that cannot be written.
pub(crate) fn validate_notes(notes: &[Note]) -> Result<()> {
    if notes.len() > NOTES_MAX {
        return Err(Error::invalid(
            "notes",
            format!("has {} notes; at most {NOTES_MAX}", notes.len()),
        ));
    }
    let bytes: usize = notes.iter().map(|note| note.value.len()).sum();
    if bytes > NOTES_BYTES_MAX {
        let message = format!("have {bytes} bytes together; at most {NOTES_BYTES_MAX}");
        return Err(Error::invalid("notes", message));
    }
    for note in notes {
        let fits = (1..=NOTE_NAME_BYTES_MAX).contains(&note.name.len());
        if !fits || !note.name.bytes().all(|byte| byte.is_ascii_graphic()) {
            let message = format!("must be 1 to {NOTE_NAME_BYTES_MAX} visible ASCII characters");
            return Err(Error::invalid("name", message));
        }
        if note.value.len() > NOTE_BYTES_MAX {
            let message = format!("has {} bytes; at most {NOTE_BYTES_MAX}", note.value.len());
            return Err(Error::invalid("value", message));
        }
    }
    Ok(())
}
