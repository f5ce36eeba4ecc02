//! Notes of the store, as several features keep them.

use seriatim::store::{NoteQuery, Store};

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
