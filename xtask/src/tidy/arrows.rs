//! Checks the imports of a crate against the table: between rooms only the arrows that it allows; inside a room no
//! circle of folders, and no circle of more than two files.

use std::collections::BTreeSet;

use super::measure::{CIRCLE_FILES_MAX, Crate};
use super::source::Source;
use super::table::{self, Arrow, Circle};
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
        breaches.extend(self.forbidden());
        breaches.extend(self.knots());
        breaches
    }

    /// Imports along forbidden arrows, and exceptions that are no longer needed.
    fn forbidden(&self) -> Vec<String> {
        let mut lines = Vec::new();
        for ((from, to), imports) in self.still() {
            let known = self.table.arrows.iter().find(|arrow| (arrow.from, arrow.to) == (from, to));
            let known = known.map_or(0, |arrow| arrow.imports_max);
            if imports.len() > known {
                lines.extend(imports.iter().map(|import| self.breach(import, from, to, known)));
            }
        }
        for Arrow { from, to, imports_max } in &self.table.arrows {
            let is = self.still().find(|(rooms, _)| *rooms == (from, to));
            let is = is.map_or(0, |(_, imports)| imports.len());
            if is < *imports_max {
                let known = format!("still {from} -> {to} {imports_max}");
                let left = (is > 0).then(|| format!("still {from} -> {to} {is}"));
                lines.push(self.shrink(&known, left.as_slice()));
            }
        }
        lines
    }

    fn breach(&self, import: &Import, from: &str, to: &str, known: usize) -> String {
        let Import { from: file, line, path, .. } = import;
        let may: Vec<&str> = self.table.rooms.get(from).into_iter().flatten().copied().collect();
        let may = if may.is_empty() { "nothing".to_owned() } else { may.join(", ") };
        let known =
            if known == 0 { String::new() } else { format!("; {known} are known, not more") };
        let sources = self.table.sources;
        format!(
            "{sources}/{file}.rs:{line}: `{path}`: {from} may import {may}, not {to}{known} (Arrows)"
        )
    }

    /// What to do with a line of the table that allows more than there is.
    fn shrink(&self, line: &str, left: &[String]) -> String {
        let todo = match left {
            [] => format!("remove `{line}`"),
            left => format!("shrink `{line}` to `{}`", left.join("` and `")),
        };
        format!("{}: {}: {todo} (Arrows)", table::FILE, self.table.sources)
    }

    /// Circles inside rooms: unknown ones import by import, and known ones that have shrunk.
    fn knots(&self) -> Vec<String> {
        let known = &self.table.circles;
        let is_known = |circle: &Circle| known.iter().any(|known| circle.is_within(known));
        let new = self.circles.iter().filter(|circle| !is_known(circle));
        let new = new.flat_map(|circle| self.loops(circle));
        let old = known.iter().filter(|known| !self.circles.contains(known)).map(|known| {
            let rest = self.circles.iter().filter(|circle| circle.is_within(known));
            self.shrink(&known.line(), &rest.map(Circle::line).collect::<Vec<_>>())
        });
        new.chain(old).collect()
    }

    /// The imports that make a circle; only those of its new files, if it is a known one that has grown.
    fn loops(&self, circle: &Circle<'a>) -> Vec<String> {
        let known = self.table.circles.iter().filter(|known| known.room == circle.room);
        let known: BTreeSet<&str> = known.flat_map(|known| &known.files).copied().collect();
        let has_grown = !circle.files.is_subset(&known);
        let is_new = |file: &str| !has_grown || !known.contains(file);
        let Circle { room, files } = circle;
        let (count, sources) = (files.len(), self.table.sources);
        let of = match circle.is_of_folders() {
            true => format!("{count} folders of {room}"),
            false => format!("{count} files of {room}, {CIRCLE_FILES_MAX} at most"),
        };
        let lines = self.inside.iter().filter_map(|import| {
            let Import { from: file, home, line, path, .. } = import;
            let ends = if circle.is_of_folders() { import.folders() } else { Some((*file, *home)) };
            let (from, to) =
                ends.filter(|(from, to)| files.contains(from) && files.contains(to))?;
            let text = format!("`{path}`: {from} -> {to} is in a circle of {of} (Arrows)");
            (is_new(from) || is_new(to)).then(|| format!("{sources}/{file}.rs:{line}: {text}"))
        });
        lines.collect()
    }
}
