//! Notes of the store, as several features keep them.

use seriatim::limits::NOTES_MAX;
use seriatim::store::{Note, NoteQuery, Store};

/// How many notes have names that begin so.
pub(crate) async fn count(store: &dyn Store, prefix: &str) -> seriatim::Result<usize> {
    let (mut count, mut query) = (0, NoteQuery { names_only: true, ..NoteQuery::of(prefix) });
    loop {
        let notes = store.read_notes(query.clone()).await?;
        let Some(last) = notes.last() else { return Ok(count) };
        count += notes.len();
        query.from = format!("{} ", last.name);
    }
}

/// All notes whose names begin so.
pub(crate) async fn all(store: &dyn Store, prefix: &str) -> seriatim::Result<Vec<Note>> {
    let (mut notes, mut query) = (Vec::new(), NoteQuery::of(prefix));
    loop {
        let page = store.read_notes(query.clone()).await?;
        let is_full = page.len() >= NOTES_MAX;
        notes.extend(page);
        match notes.last() {
            Some(last) if is_full => query.from = format!("{} ", last.name),
            _ => return Ok(notes),
        }
    }
}
