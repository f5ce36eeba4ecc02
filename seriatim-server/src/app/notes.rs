//! Notes of the store, as several features keep them.

use seriatim::Timestamp;
use seriatim::limits::NOTES_MAX;
use seriatim::store::{Note, NoteQuery, Store};

/// A time in the name of a note: the name of a later one is greater.
pub(crate) fn moment(at: Timestamp) -> String {
    format!("{:016}", at.clamp(Timestamp::default(), Timestamp::MAX).as_micros())
}

/// How many notes have names that begin so.
pub(crate) async fn count(store: &dyn Store, prefix: &str) -> seriatim::Result<usize> {
    let (mut count, mut query) = (0, NoteQuery { names_only: true, ..NoteQuery::of(prefix) });
    loop {
        let notes = store.read_notes(query.clone()).await?;
        let Some(last) = notes.last() else { return Ok(count) };
        count += notes.len();
        query = query.behind(&last.name);
    }
}

/// Writes them in parts that a store takes, the last part first.
pub(crate) async fn write(store: &dyn Store, mut notes: Vec<Note>) -> seriatim::Result<()> {
    while !notes.is_empty() {
        let part = notes.split_off(notes.len().saturating_sub(NOTES_MAX));
        store.write_notes(part).await?;
    }
    Ok(())
}
