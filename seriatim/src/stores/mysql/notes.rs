//! The notebook role.

use super::error::Try;
use super::sql::{Columns, bytes, corrupt, text};
use super::work::Work;
use crate::contract::{Note, NoteQuery};

pub(super) async fn write(work: &mut Work<'_>, notes: &[Note]) -> Try<()> {
    if notes.is_empty() {
        return Ok(());
    }
    let row = |note: &Note| format!("({}, {})", text(&note.name), bytes(&note.value));
    let rows = notes.iter().map(row).collect::<Vec<_>>().join(", ");
    let sql = format!(
        "INSERT INTO seriatim_note (name, value) VALUES {rows} ON DUPLICATE KEY UPDATE value = VALUES(value)"
    );
    work.run(&sql).await.map(drop)
}

pub(super) async fn read(work: &mut Work<'_>, query: &NoteQuery) -> Try<Vec<Note>> {
    let value = if query.names_only { "''" } else { "value" };
    select(work, value, &range(query)).await
}

pub(super) async fn named(work: &mut Work<'_>, names: &[String]) -> Try<Vec<Note>> {
    if names.is_empty() {
        return Ok(Vec::new());
    }
    let names = names.iter().map(|name| text(name)).collect::<Vec<_>>().join(", ");
    select(work, "value", &format!("WHERE name IN ({names}) ORDER BY name")).await
}

async fn select(work: &mut Work<'_>, value: &str, which: &str) -> Try<Vec<Note>> {
    let rows = work.rows(&format!("SELECT name, {value} FROM seriatim_note {which}")).await?;
    let note = |row| {
        let mut row = Columns::of(row);
        let name = row.text()?.to_string();
        Ok(Note { name, value: row.bytes()?.ok_or_else(corrupt)? })
    };
    rows.into_iter().map(note).collect()
}

pub(super) async fn delete(work: &mut Work<'_>, query: &NoteQuery) -> Try<u64> {
    let names = NoteQuery { names_only: true, ..query.clone() };
    let notes = read(work, &names).await?.len() as u64;
    work.run(&format!("DELETE FROM seriatim_note {}", range(query))).await?;
    Ok(notes)
}

fn range(query: &NoteQuery) -> String {
    let (from, to) = (text(&query.from), text(&query.to));
    let order = if query.backwards { " DESC" } else { "" };
    format!("WHERE name >= {from} AND name < {to} ORDER BY name{order} LIMIT {}", query.most())
}
