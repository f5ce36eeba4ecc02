//! Checks the imports of a crate against the table: between rooms only the arrows that it allows; inside a room no
//! circle of folders, and no circle of more than two files.

use super::measure::{CIRCLE_FILES_MAX, Circle, Crate};
use super::source::Source;
use super::table;
use super::tree::Import;

/// The crates of the product, all of which the table must have.
const PRODUCT: [&str; 3] = ["seriatim/src", "seriatim-server/src", "seriatim-verify/src"];

/// All breaches, one line each.
pub(super) fn judge(sources: &[Source]) -> Vec<String> {
    let tables = match table::text(sources).and_then(table::read) {
        Ok(tables) => tables,
        Err(fault) => return vec![fault],
    };
    let lacking = PRODUCT.iter().filter(|crate_| {
        let root = format!("{crate_}/lib.rs");
        sources.iter().any(|source| source.path == root)
            && tables.iter().all(|table| table.sources != **crate_)
    });
    let lacking =
        lacking.map(|crate_| format!("{}: the table lacks `{crate_}:` (Arrows)", table::FILE));
    let breaches = tables.iter().flat_map(|table| Crate::read(table, sources).breaches());
    lacking.chain(breaches).collect()
}

impl<'a> Crate<'_, 'a> {
    fn breaches(&self) -> Vec<String> {
        let files = self.tree.files();
        let mut breaches = self.table.faults(&files);
        let sources = self.table.sources;
        breaches.extend(self.tree.troubles.iter().map(|trouble| format!("{sources}/{trouble}")));
        for room in self.lacking() {
            let file = files.iter().find(|file| self.table.room(file) == room).copied();
            let file = file.unwrap_or_default();
            let text = format!("the table in {} has no room `{room}`", table::FILE);
            breaches.push(format!("{sources}/{file}.rs:1: {text} (Arrows)"));
        }
        for ((from, to), imports) in self.forbidden() {
            breaches.extend(imports.iter().map(|import| self.breach(import, from, to)));
        }
        breaches.extend(self.circles.iter().flat_map(|circle| self.loops(circle)));
        breaches
    }

    fn breach(&self, import: &Import, from: &str, to: &str) -> String {
        let Import { from: file, line, path, .. } = import;
        let may: Vec<&str> = self.table.rooms.get(from).into_iter().flatten().copied().collect();
        let may = if may.is_empty() { "nothing".to_owned() } else { may.join(", ") };
        let sources = self.table.sources;
        format!("{sources}/{file}.rs:{line}: `{path}`: {from} may import {may}, not {to} (Arrows)")
    }

    /// The imports that make a circle.
    fn loops(&self, Circle { room, files }: &Circle<'a>) -> Vec<String> {
        let (count, sources) = (files.len(), self.table.sources);
        let is_of_folders = files.iter().all(|file| file.ends_with('/'));
        let of = match is_of_folders {
            true => format!("{count} folders of {room}"),
            false => format!("{count} files of {room}, {CIRCLE_FILES_MAX} at most"),
        };
        let lines = self.inside.iter().filter_map(|import| {
            let Import { from: file, home, line, path, .. } = import;
            let ends = if is_of_folders { import.folders() } else { Some((*file, *home)) };
            let (from, to) =
                ends.filter(|(from, to)| files.contains(from) && files.contains(to))?;
            let text = format!("`{path}`: {from} -> {to} is in a circle of {of} (Arrows)");
            Some(format!("{sources}/{file}.rs:{line}: {text}"))
        });
        lines.collect()
    }
}
