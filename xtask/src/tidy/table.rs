//! The table of allowed arrows: the `arrows` block in ARCHITECTURE.md.
//!
//! ```text
//! seriatim-server/src:               a crate
//!   app = figures job_input          a room that is more than its own folder or file
//!   config -> protocol               what a room may import; `*` is everything
//! ```

use std::collections::{BTreeMap, BTreeSet};

use super::circles::{self, Graph};
use super::source::Source;

/// The file with the table.
pub(super) const FILE: &str = "ARCHITECTURE.md";
const BEGIN: &str = "```arrows";
const END: &str = "```";
const ALL: &str = "*";

/// The part of the table for one crate.
#[derive(Debug, Default)]
pub(super) struct Table<'a> {
    /// The directory of its sources.
    pub(super) sources: &'a str,
    /// The files and folders of a room, if they differ from its name.
    places: BTreeMap<&'a str, Vec<&'a str>>,
    /// The rooms that each room may import.
    pub(super) rooms: BTreeMap<&'a str, BTreeSet<&'a str>>,
}

/// The text of the file with the table.
pub(super) fn text(sources: &[Source]) -> Result<&str, String> {
    let found = sources.iter().find(|source| source.path == FILE);
    found.map(|source| source.text.as_str()).ok_or(format!("there is no {FILE}"))
}

/// The lines of the block, with the number of the first one.
fn block(text: &str) -> Result<(usize, Vec<&str>), String> {
    let lines: Vec<&str> = text.lines().collect();
    let begin = lines.iter().position(|line| *line == BEGIN);
    let begin = begin.ok_or(format!("{FILE}: it has no block that begins with {BEGIN}"))?;
    let inside = lines[begin + 1..].iter().take_while(|line| **line != END);
    Ok((begin + 2, inside.copied().collect()))
}

/// Reads the table of all crates.
pub(super) fn read(text: &str) -> Result<Vec<Table<'_>>, String> {
    let (first, lines) = block(text)?;
    let mut tables: Vec<Table> = Vec::new();
    for (number, line) in (first..).zip(lines) {
        let line = line.split('#').next().unwrap_or_default();
        let words: Vec<&str> = line.split_whitespace().collect();
        let known = match (words.as_slice(), tables.last_mut()) {
            ([], _) => Some(()),
            ([_], _) if begins_crate(line) => {
                let sources = words[0].trim_end_matches(':');
                tables.push(Table { sources, ..Table::default() });
                Some(())
            }
            (words, Some(table)) => table.line(words),
            (_, None) => None,
        };
        known.ok_or_else(|| format!("{FILE}:{number}: no line of the table: `{}`", line.trim()))?;
    }
    Ok(tables)
}

/// Whether the part for a crate begins in this line of the block.
fn begins_crate(line: &str) -> bool {
    !line.starts_with(' ') && line.trim().ends_with(':')
}

/// Whether `place` is a file of the crate, or a folder with files of it.
fn exists(place: &str, files: &BTreeSet<&str>) -> bool {
    files.iter().any(|file| is_within(file, place))
}

impl<'a> Table<'a> {
    /// Reads one line; `None` if it is not valid.
    fn line(&mut self, words: &[&'a str]) -> Option<()> {
        let is_new = match words {
            [room, "=", places @ ..] if !places.is_empty() => {
                self.places.insert(room, places.to_vec()).is_none()
            }
            [room, "->", may @ ..] => {
                self.rooms.insert(room, may.iter().copied().collect()).is_none()
            }
            _ => false,
        };
        is_new.then_some(())
    }

    /// The room of a file: by the longest matching place, otherwise its top-level folder or file.
    pub(super) fn room<'f>(&self, file: &'f str) -> &'f str
    where
        'a: 'f,
    {
        let places = self
            .places
            .iter()
            .flat_map(|(room, places)| places.iter().map(move |place| (*room, *place)));
        let within = places.filter(|(_, place)| is_within(file, place));
        let top = file.split('/').next().unwrap_or(file);
        within.max_by_key(|(_, place)| place.len()).map_or(top, |(room, _)| room)
    }

    pub(super) fn allows(&self, from: &str, to: &str) -> bool {
        self.rooms.get(from).is_some_and(|may| may.contains(ALL) || may.contains(to))
    }

    /// Faults of the table itself, given the files of the crate.
    pub(super) fn faults(&self, files: &BTreeSet<&str>) -> Vec<String> {
        let mut faults = Vec::new();
        let mut fault = |text: String| faults.push(format!("{FILE}: {}: {text}", self.sources));
        for (room, places) in &self.places {
            for place in places.iter().filter(|place| !exists(place, files)) {
                fault(format!("`{room} = {place}`: there is no such file or folder"));
            }
        }
        let real: BTreeSet<&str> = files.iter().map(|file| self.room(file)).collect();
        for (room, may) in &self.rooms {
            if !real.contains(room) {
                fault(format!("`{room} ->`: no file is in this room"));
            }
            for other in
                may.iter().filter(|other| **other != ALL && !self.rooms.contains_key(*other))
            {
                fault(format!("`{room} -> {other}`: the table has no room `{other}`"));
            }
        }
        let graph: Graph = self.rooms.iter().map(|(room, may)| (*room, self.all(may))).collect();
        for circle in circles::of(&graph) {
            let circle: Vec<&str> = circle.into_iter().collect();
            fault(format!("the table allows a circle: {}", circle.join(", ")));
        }
        faults
    }

    /// `may`, with `*` expanded.
    fn all(&self, may: &BTreeSet<&'a str>) -> BTreeSet<&'a str> {
        if may.contains(ALL) { self.rooms.keys().copied().collect() } else { may.clone() }
    }
}

/// Whether `file` is `place`, or in that folder.
fn is_within(file: &str, place: &str) -> bool {
    file.strip_prefix(place).is_some_and(|rest| rest.is_empty() || rest.starts_with('/'))
}
