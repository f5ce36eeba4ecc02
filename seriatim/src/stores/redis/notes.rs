//! The notebook role; and the inbox and batches, which Redis has not.

use async_trait::async_trait;
use redis::Value;

use super::Redis;
use super::args::Args;
use super::link::GLOBAL_NOTES;
use super::reply::{Fields, single};
use crate::contract::{Batches, Inbox, Note, NoteQuery, Notebook, names_to_read, validate_notes};
use crate::model::Result;

#[async_trait]
impl Notebook for Redis {
    async fn write_notes(&self, notes: Vec<Note>) -> Result<()> {
        validate_notes(&notes)?;
        let mut args = Args::default();
        args.text("write");
        for note in notes {
            args.text(&note.name).bytes(note.value);
        }
        self.link.run(&GLOBAL_NOTES, &self.global(""), &args).await.map(drop)
    }

    async fn read_notes(&self, query: NoteQuery) -> Result<Vec<Note>> {
        let mut parts = Fields::of(self.in_range("read", &query).await?)?;
        let mut notes = Vec::new();
        while !parts.is_empty() {
            notes.push(Note { name: parts.text()?.to_string(), value: parts.bytes()? });
        }
        Ok(notes)
    }

    async fn named_notes(&self, names: Vec<String>) -> Result<Vec<Note>> {
        let names = names_to_read(names)?;
        if names.is_empty() {
            return Ok(Vec::new());
        }
        let mut get = redis::cmd("HMGET");
        let values = self.link.fields(get.arg(self.global("notes")).arg(&names)).await?;
        let known = names.into_iter().zip(values.rest()).filter(|(_, value)| *value != Value::Nil);
        known.map(|(name, value)| Ok(Note { name, value: single(value)?.bytes()? })).collect()
    }

    async fn delete_notes(&self, query: NoteQuery) -> Result<u64> {
        single(self.in_range("delete", &query).await?)?.int().map(|count| count as u64)
    }
}

/// Only SQL sessions could insert into one.
impl Inbox for Redis {}

impl Batches for Redis {}

impl Redis {
    async fn in_range(&self, what: &str, query: &NoteQuery) -> Result<Value> {
        let mut args = Args::default();
        args.text(what).text(&query.from).text(&query.to).flag(query.backwards);
        args.int(query.most() as i64).flag(query.names_only);
        self.link.run(&GLOBAL_NOTES, &self.global(""), &args).await
    }
}
