//! The notebook role.

use async_trait::async_trait;
use rusqlite::params;

use super::Sqlite;
use super::tx::Tx;
use crate::contract::{Note, NoteQuery, Notebook, names_to_read, validate_notes};
use crate::model::Result;

#[async_trait]
impl Notebook for Sqlite {
    async fn write_notes(&self, notes: Vec<Note>) -> Result<()> {
        validate_notes(&notes)?;
        self.change(move |tx| tx.write_notes(&notes)).await
    }

    async fn read_notes(&self, query: NoteQuery) -> Result<Vec<Note>> {
        self.look(move |tx| tx.read_notes(&query)).await
    }

    async fn named_notes(&self, names: Vec<String>) -> Result<Vec<Note>> {
        let names = names_to_read(names)?;
        self.look(move |tx| tx.named_notes(&names)).await
    }

    async fn delete_notes(&self, query: NoteQuery) -> Result<u64> {
        self.change(move |tx| tx.delete_notes(&query)).await
    }
}

impl Tx<'_> {
    fn write_notes(&mut self, notes: &[Note]) -> Result<()> {
        for note in notes {
            self.execute(
                "INSERT OR REPLACE INTO note VALUES (?1, ?2)",
                params![note.name, note.value],
            )?;
        }
        Ok(())
    }

    fn read_notes(&mut self, query: &NoteQuery) -> Result<Vec<Note>> {
        let sql = match query.backwards {
            false => {
                "SELECT name, iif(?4, x'', value) FROM note WHERE name >= ?1 AND name < ?2 ORDER BY name LIMIT ?3"
            }
            true => {
                "SELECT name, iif(?4, x'', value) FROM note WHERE name >= ?1 AND name < ?2 ORDER BY name DESC LIMIT ?3"
            }
        };
        let range = params![query.from, query.to, query.most() as i64, query.names_only];
        self.rows(sql, range, |row| Ok(Note { name: row.get(0)?, value: row.get(1)? }))
    }

    fn named_notes(&mut self, names: &[String]) -> Result<Vec<Note>> {
        let mut notes = Vec::new();
        for name in names {
            let sql = "SELECT name, value FROM note WHERE name = ?1";
            notes.extend(
                self.rows(sql, [name], |row| Ok(Note { name: row.get(0)?, value: row.get(1)? }))?,
            );
        }
        Ok(notes)
    }

    fn delete_notes(&mut self, query: &NoteQuery) -> Result<u64> {
        let notes = self.read_notes(&NoteQuery { names_only: true, ..query.clone() })?;
        for note in &notes {
            self.execute("DELETE FROM note WHERE name = ?1", [&note.name])?;
        }
        Ok(notes.len() as u64)
    }
}
