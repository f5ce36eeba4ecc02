//! Prints the table for the current imports.

use super::measure::Crate;
use super::source::Source;
use super::table;

/// Replaces the existing table: entries that no longer exist are omitted; missing rooms and forbidden arrows follow
/// at the end of their crate.
pub(super) fn of(sources: &[Source]) -> Result<String, String> {
    let text = table::text(sources)?;
    let tables = table::read(text)?;
    let (_, lines) = table::block(text)?;
    let parts = lines.chunk_by(|_, next| !table::begins_crate(next));
    let parts = parts.filter(|part| table::begins_crate(part[0]));
    let parts = parts.zip(&tables).map(|(part, table)| {
        let it = Crate::read(table, sources);
        let mut lines: Vec<String> = part.iter().filter_map(|line| it.kept(line)).collect();
        while lines.last().is_some_and(|line| line.trim().is_empty()) {
            lines.pop();
        }
        lines.extend(it.new_rooms());
        if it.exceptions().next().is_some() {
            lines.push(String::new());
        }
        lines.extend(it.exceptions());
        lines.join("\n") + "\n"
    });
    Ok(parts.collect::<Vec<_>>().join("\n"))
}

impl Crate<'_, '_> {
    /// A line of the table without entries that no longer exist; `None` if nothing is left, or if the line is measured
    /// again.
    fn kept(&self, line: &str) -> Option<String> {
        let words: Vec<&str> = line.split('#').next()?.split_whitespace().collect();
        let files = self.tree.files();
        let rooms = self.rooms();
        let (room, sign, gone): (&str, &str, Vec<&str>) = match words.as_slice() {
            ["still", ..] => return None,
            [room, "=", places @ ..] => {
                let gone = places.iter().filter(|place| !table::exists(place, &files));
                (room, "=", gone.copied().collect())
            }
            [room, "->", may @ ..] => {
                let gone = may.iter().filter(|other| **other != "*" && !rooms.contains(*other));
                (room, "->", gone.copied().collect())
            }
            _ => return Some(line.to_owned()),
        };
        let left = words.into_iter().skip(2).filter(|word| !gone.contains(word));
        let left: Vec<&str> = left.collect();
        if !rooms.contains(room) || (sign == "=" && left.is_empty()) {
            return None;
        }
        let line_left = format!("  {room} {sign} {}", left.join(" "));
        Some(if gone.is_empty() { line.to_owned() } else { line_left.trim_end().to_owned() })
    }

    /// Lines for the rooms that are missing in the table.
    fn new_rooms(&self) -> impl Iterator<Item = String> {
        self.lacking().map(|room| {
            let to = self.between.keys().filter(|(from, _)| *from == room).map(|(_, to)| *to);
            format!("  {room} -> {}", to.collect::<Vec<_>>().join(" ")).trim_end().to_owned()
        })
    }

    /// Lines for forbidden arrows and circles that still exist.
    fn exceptions(&self) -> impl Iterator<Item = String> {
        let arrows = self.still();
        let arrows =
            arrows.map(|((from, to), imports)| format!("  still {from} -> {to} {}", imports.len()));
        arrows.chain(self.circles.iter().map(|circle| format!("  {}", circle.line())))
    }
}
