//! Compares the imports of a crate with the table of allowed ones.

use std::collections::{BTreeMap, BTreeSet};

use super::circles::{self, Graph};
use super::source::Source;
use super::table::Table;
use super::tree::{Files, Import, Tree};

/// Two files may need each other, such as a type and its parts. More files are a knot.
pub(super) const CIRCLE_FILES_MAX: usize = 2;

/// Files of a room that all need each other, or its folders, whose names end with a slash.
#[derive(Debug)]
pub(super) struct Circle<'a> {
    pub(super) room: &'a str,
    pub(super) files: BTreeSet<&'a str>,
}

/// The measured crate, with its table.
pub(super) struct Crate<'t, 'a> {
    pub(super) table: &'t Table<'a>,
    pub(super) tree: Tree<'a>,
    /// By the rooms from and to: one import for each pair of files.
    pub(super) between: BTreeMap<(&'a str, &'a str), Vec<Import<'a>>>,
    /// One import for each pair of files in a room.
    pub(super) inside: Vec<Import<'a>>,
    pub(super) circles: Vec<Circle<'a>>,
}

impl<'t, 'a> Crate<'t, 'a> {
    pub(super) fn read(table: &'t Table<'a>, sources: &'a [Source]) -> Self {
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

    /// Separates imports between rooms from those inside one, and keeps the first of each pair of files.
    fn sort(&mut self, imports: Vec<Import<'a>>) {
        let mut seen = BTreeSet::new();
        for import in imports {
            let room = |file| self.table.room(file);
            let (from, door) = (room(import.from), room(import.door));
            if from != door && seen.insert((import.from, import.door)) {
                self.between.entry((from, door)).or_default().push(import);
            } else if from == door && !import.facade && seen.insert((import.from, import.home)) {
                self.inside.push(import);
            }
        }
    }

    fn knotted(&self) -> Vec<Circle<'a>> {
        let mut rooms: BTreeMap<&str, Graph> = BTreeMap::new();
        for import in &self.inside {
            let graph = rooms.entry(self.table.room(import.from)).or_default();
            graph.entry(import.from).or_default().insert(import.home);
            // The names of folders end with a slash, so they are separate nodes.
            if let Some((from, home)) = import.folders() {
                graph.entry(from).or_default().insert(home);
            }
        }
        let circles = rooms.into_iter().flat_map(|(room, graph)| {
            circles::of(&graph).into_iter().map(move |files| Circle { room, files })
        });
        let is_knot = |it: &Circle| {
            it.files.len() > CIRCLE_FILES_MAX || it.files.iter().all(|file| file.ends_with('/'))
        };
        circles.filter(is_knot).collect()
    }

    /// The arrows that the table forbids and the crate has, for rooms in the table.
    pub(super) fn forbidden(&self) -> impl Iterator<Item = ((&'a str, &'a str), &Vec<Import<'a>>)> {
        let between = self.between.iter().map(|(rooms, imports)| (*rooms, imports));
        between.filter(|((from, to), _)| {
            self.table.rooms.contains_key(from) && !self.table.allows(from, to)
        })
    }

    /// The rooms that have files and are missing in the table.
    pub(super) fn lacking(&self) -> BTreeSet<&'a str> {
        let rooms = self.tree.files().into_iter().map(|file| self.table.room(file));
        rooms.filter(|room| !self.table.rooms.contains_key(room)).collect()
    }
}
