//! The rows of the present hour and day, which each minute changes.

use std::collections::HashMap;

use seriatim::store::{Note, NoteQuery, Store};

use super::point::{Interval, Row};
use super::series::{DAY, HOUR, MINUTE, Series};

/// By name.
pub(super) struct Rows<P>(HashMap<String, Row<P>>);

impl<P> Default for Rows<P> {
    fn default() -> Self {
        Self(HashMap::new())
    }
}

impl<P: Interval> Rows<P> {
    /// Adds the rows that a point changes to the notes to write: also that of the day, as the queue may be idle from now
    /// on.
    pub(super) async fn note(
        &mut self,
        store: &dyn Store,
        of: &str,
        minute: i64,
        point: P,
        notes: &mut Vec<Note>,
    ) -> seriatim::Result<()> {
        let row = self.row(store, Series::Minutes.name(of, minute)).await?;
        row.set((minute.rem_euclid(HOUR) / MINUTE) as usize, point);
        let (packed, together) = (row.packed(), row.together());
        notes.push(Note::new(Series::Minutes.name(of, minute), packed));
        if let Some(together) = together {
            let name = Series::Hours.name(of, minute);
            let row = self.row(store, name.clone()).await?;
            row.set((minute.rem_euclid(DAY) / HOUR) as usize, together);
            notes.push(Note::new(name, row.packed()));
        }
        Ok(())
    }

    /// Forgets the rows of hours and days before this minute's.
    pub(super) fn keep(&mut self, minute: i64) {
        let present = [Series::Minutes, Series::Hours].map(|series| series.number(minute));
        self.0.retain(|name, _| present.iter().any(|number| name.ends_with(number)));
    }

    /// The row of this name: another node may have written a part of it.
    async fn row(&mut self, store: &dyn Store, name: String) -> seriatim::Result<&mut Row<P>> {
        if !self.0.contains_key(&name) {
            let known = store.read_notes(NoteQuery::only(&name)).await?;
            let row = known.first().map(|note| Row::read(&note.value)).unwrap_or_default();
            self.0.insert(name.clone(), row);
        }
        Ok(self.0.entry(name).or_default())
    }
}
