//! Whether the imports of a crate follow the table: between rooms only the arrows that it allows, and inside a
//! room no circle of more than two files.

use std::collections::{BTreeMap, BTreeSet};

use super::circles::{self, Graph};
use super::source::Source;
use super::table::{self, Arrow, Circle, Table};
use super::tree::{Files, Import, Tree};

/// Two files may need each other: a type and its parts. More are a knot.
const CIRCLE_FILES_MAX: usize = 2;

/// A crate as it is, beside the table of what it should be.
struct Crate<'t, 'a> {
    table: &'t Table<'a>,
    tree: Tree<'a>,
    /// By the rooms from and to: one import for each two files.
    between: BTreeMap<(&'a str, &'a str), Vec<Import<'a>>>,
    /// One import for each two files of a room.
    inside: Vec<Import<'a>>,
    circles: Vec<Circle<'a>>,
}

/// Every breach, one line each.
pub(super) fn judge(sources: &[Source]) -> Vec<String> {
    let tables = match text(sources).and_then(table::read) {
        Ok(tables) => tables,
        Err(fault) => return vec![fault],
    };
    tables.iter().flat_map(|table| Crate::read(table, sources).breaches()).collect()
}

/// The table as it would be for the imports there are, to be put in the place of the one that is there: what is
/// gone is left out, rooms that it lacks and what is forbidden stand behind the rest of their crate.
pub(super) fn measured(sources: &[Source]) -> Result<String, String> {
    let text = text(sources)?;
    let tables = table::read(text)?;
    let (_, lines) = table::block(text)?;
    let parts = lines.chunk_by(|_, next| !table::begins_crate(next));
    let parts = parts.filter(|part| table::begins_crate(part[0]));
    let parts = parts.zip(&tables).map(|(part, table)| {
        let it = Crate::read(table, sources);
        let kept: Vec<String> = part.iter().filter_map(|line| it.kept(line)).collect();
        let parts = [kept.join("\n").trim_end().to_owned(), it.rest().join("\n")];
        parts.join("\n\n").trim_end().to_owned() + "\n"
    });
    Ok(parts.collect::<Vec<_>>().join("\n"))
}

fn text(sources: &[Source]) -> Result<&str, String> {
    let found = sources.iter().find(|source| source.path == table::FILE);
    found.map(|source| source.text.as_str()).ok_or(format!("there is no {}", table::FILE))
}

impl<'t, 'a> Crate<'t, 'a> {
    fn read(table: &'t Table<'a>, sources: &'a [Source]) -> Self {
        let files: Files = sources
            .iter()
            .filter(|source| source.is_rust())
            .filter_map(|source| {
                let path = source.path.strip_prefix(table.sources)?.strip_prefix('/')?;
                Some((path, source.text.as_str()))
            })
            .collect();
        let tree = Tree::read(&files);
        let mut it =
            Self { table, tree, between: BTreeMap::new(), inside: Vec::new(), circles: Vec::new() };
        it.sort(it.tree.imports());
        it.circles = it.knotted();
        it
    }

    /// Tells the imports between rooms from those inside one, and keeps the first of each two files.
    fn sort(&mut self, imports: Vec<Import<'a>>) {
        let mut seen = BTreeSet::new();
        for import in imports {
            let room = |file| self.table.room(file);
            let (from, door, home) = (room(import.from), room(import.door), room(import.home));
            if from != door && seen.insert((import.from, import.door)) {
                self.between.entry((from, door)).or_default().push(import);
            } else if from == door
                && from == home
                && !import.facade
                && seen.insert((import.from, import.home))
            {
                self.inside.push(import);
            }
        }
    }

    fn knotted(&self) -> Vec<Circle<'a>> {
        let mut rooms: BTreeMap<&str, Graph> = BTreeMap::new();
        for Import { from, home, .. } in &self.inside {
            let graph = rooms.entry(self.table.room(from)).or_default();
            graph.entry(from).or_default().insert(home);
        }
        let circles = rooms.into_iter().flat_map(|(room, graph)| {
            circles::of(&graph).into_iter().map(move |files| Circle { room, files })
        });
        circles.filter(|circle| circle.files.len() > CIRCLE_FILES_MAX).collect()
    }

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

    /// Imports by arrows that are not allowed, and exceptions that are no longer needed.
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
                lines.push(self.shrink(
                    &format!("still {from} -> {to} {imports_max}"),
                    &match is {
                        0 => String::new(),
                        _ => format!("still {from} -> {to} {is}"),
                    },
                ));
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

    fn shrink(&self, line: &str, instead: &str) -> String {
        let does = if instead.is_empty() { "remove" } else { "shrink" };
        let instead = if instead.is_empty() { String::new() } else { format!(" to `{instead}`") };
        format!("{}: {}: {does} `{line}`{instead} (Arrows)", table::FILE, self.table.sources)
    }

    /// The arrows that the table forbids and the crate has, of rooms that the table has.
    fn still(&self) -> impl Iterator<Item = ((&'a str, &'a str), &Vec<Import<'a>>)> {
        let between = self.between.iter().map(|(rooms, imports)| (*rooms, imports));
        between.filter(|((from, to), _)| {
            self.table.rooms.contains_key(from) && !self.table.allows(from, to)
        })
    }

    /// Circles inside rooms that are not known, import by import, and known ones that are smaller now.
    fn knots(&self) -> Vec<String> {
        let known = &self.table.circles;
        let is_known = |circle: &Circle| known.iter().any(|known| circle.is_within(known));
        let new = self.circles.iter().filter(|circle| !is_known(circle));
        let new = new.flat_map(|circle| self.loops(circle));
        let old = known.iter().filter(|known| !self.circles.contains(known)).map(|known| {
            let rest = self.circles.iter().filter(|circle| circle.is_within(known));
            self.shrink(&known.line(), &rest.map(Circle::line).collect::<Vec<_>>().join("` and `"))
        });
        new.chain(old).collect()
    }

    /// The imports that make a circle: those of its new files, if it is a known one that has grown.
    fn loops(&self, circle: &Circle<'a>) -> Vec<String> {
        let known = self.table.circles.iter().filter(|known| known.room == circle.room);
        let known: BTreeSet<&str> = known.flat_map(|known| &known.files).copied().collect();
        let has_grown = !circle.files.is_disjoint(&known) && !circle.files.is_subset(&known);
        let is_new = |file: &str| !has_grown || !known.contains(file);
        let Circle { room, files } = circle;
        let imports = self.inside.iter().filter(|import| {
            let both = files.contains(import.from) && files.contains(import.home);
            both && (is_new(import.from) || is_new(import.home))
        });
        let (count, sources) = (files.len(), self.table.sources);
        let lines = imports.map(|Import { from, home, line, path, .. }| {
            let text =
                format!("`{path}`: {from} -> {home} is in a circle of {count} files of {room}");
            format!("{sources}/{from}.rs:{line}: {text}, of {CIRCLE_FILES_MAX} at most (Arrows)")
        });
        lines.collect()
    }

    /// A line of the table without what is gone; nothing if that is all of it, or if it is measured anew.
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

    /// The rooms that have files.
    fn rooms(&self) -> BTreeSet<&'a str> {
        self.tree.files().into_iter().map(|file| self.table.room(file)).collect()
    }

    /// The rooms that the table lacks.
    fn lacking(&self) -> impl Iterator<Item = &'a str> {
        self.rooms().into_iter().filter(|room| !self.table.rooms.contains_key(room))
    }

    /// Rooms that the table lacks, and what it forbids and is still there.
    fn rest(&self) -> Vec<String> {
        let new = self.lacking().map(|room| {
            let to = self.between.keys().filter(|(from, _)| *from == room).map(|(_, to)| *to);
            format!("  {room} -> {}", to.collect::<Vec<_>>().join(" ")).trim_end().to_owned()
        });
        let still = self
            .still()
            .map(|((from, to), imports)| format!("  still {from} -> {to} {}", imports.len()));
        let circles = self.circles.iter().map(|circle| format!("  {}", circle.line()));
        new.chain(still).chain(circles).collect()
    }
}

impl Circle<'_> {
    fn is_within(&self, other: &Circle) -> bool {
        self.room == other.room && self.files.is_subset(&other.files)
    }

    fn line(&self) -> String {
        let files: Vec<&str> = self.files.iter().copied().collect();
        format!("still {}: {}", self.room, files.join(" "))
    }
}
