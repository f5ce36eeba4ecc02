//! The notebook role.

use std::borrow::Cow;

use async_trait::async_trait;
use tokio_postgres::Row;

use super::Postgres;
use super::convert::column;
use crate::contract::{Note, NoteQuery, Notebook, names_to_read, validate_notes};
use crate::model::Result;

/// A name that comes twice is written once: the last counts.
const WRITE: &str = "INSERT INTO seriatim.note (name, value) \
    SELECT DISTINCT ON (n) n, v FROM unnest($1::text[], $2::bytea[]) WITH ORDINALITY w (n, v, place) ORDER BY n, place DESC \
    ON CONFLICT (name) DO UPDATE SET value = excluded.value";
const READ: &str =
    "SELECT name, value FROM seriatim.note WHERE name >= $1 AND name < $2 ORDER BY name LIMIT $3";
const READ_BACKWARDS: &str = "SELECT name, value FROM seriatim.note WHERE name >= $1 AND name < $2 ORDER BY name DESC LIMIT $3";
const NAMES: &str = "SELECT name, ''::bytea AS value FROM seriatim.note WHERE name >= $1 AND name < $2 ORDER BY name LIMIT $3";
const NAMES_BACKWARDS: &str = "SELECT name, ''::bytea AS value FROM seriatim.note WHERE name >= $1 AND name < $2 ORDER BY name DESC LIMIT $3";
const NAMED: &str =
    "SELECT name, value FROM seriatim.note WHERE name = ANY ($1::text[]) ORDER BY name";
const DELETE: &str = "DELETE FROM seriatim.note WHERE name IN \
    (SELECT name FROM seriatim.note WHERE name >= $1 AND name < $2 ORDER BY name LIMIT $3) RETURNING name";
const DELETE_BACKWARDS: &str = "DELETE FROM seriatim.note WHERE name IN \
    (SELECT name FROM seriatim.note WHERE name >= $1 AND name < $2 ORDER BY name DESC LIMIT $3) RETURNING name";

#[async_trait]
impl Notebook for Postgres {
    async fn write_notes(&self, notes: Vec<Note>) -> Result<()> {
        validate_notes(&notes)?;
        let names: Vec<Cow<'_, str>> = notes.iter().map(|note| note.name.as_str().into()).collect();
        let values: Vec<&[u8]> = notes.iter().map(|note| note.value.as_slice()).collect();
        self.pool.query(WRITE, &[&names, &values]).await.map(drop)
    }

    async fn read_notes(&self, query: NoteQuery) -> Result<Vec<Note>> {
        let sql = match (query.names_only, query.backwards) {
            (false, false) => READ,
            (false, true) => READ_BACKWARDS,
            (true, false) => NAMES,
            (true, true) => NAMES_BACKWARDS,
        };
        self.in_range(sql, &query).await?.iter().map(note).collect()
    }

    async fn named_notes(&self, names: Vec<String>) -> Result<Vec<Note>> {
        let names = names_to_read(names)?;
        let names: Vec<Cow<'_, str>> = names.iter().map(Cow::from).collect();
        self.pool.query(NAMED, &[&names]).await?.iter().map(note).collect()
    }

    async fn delete_notes(&self, query: NoteQuery) -> Result<u64> {
        let sql = if query.backwards { DELETE_BACKWARDS } else { DELETE };
        Ok(self.in_range(sql, &query).await?.len() as u64)
    }
}

impl Postgres {
    async fn in_range(&self, sql: &'static str, query: &NoteQuery) -> Result<Vec<Row>> {
        let most = query.most() as i64;
        self.pool.query(sql, &[&query.from, &query.to, &most]).await
    }
}

fn note(row: &Row) -> Result<Note> {
    Ok(Note { name: column(row, "name")?, value: column(row, "value")? })
}
