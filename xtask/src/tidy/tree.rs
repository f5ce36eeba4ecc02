//! The modules of a crate, and the files to which paths lead.

use std::collections::{BTreeMap, BTreeSet};
use std::mem;

use super::imports::{self, Declared, Mention, Scope, Use};

/// The texts of a crate's files, by their paths from its source directory.
pub(super) type Files<'a> = BTreeMap<&'a str, &'a str>;

/// More re-exports than any name passes through; a name that imports itself would loop forever.
const STEPS_MAX: usize = 12;

/// The modules of one crate, without tests.
#[derive(Debug, Default)]
pub(super) struct Tree<'a> {
    /// The root is the first.
    modules: Vec<Module<'a>>,
    /// Modules that could not be read, as messages.
    pub(super) troubles: Vec<String>,
}

#[derive(Debug)]
struct Module<'a> {
    /// From the crate's source directory, without `.rs`: `lib`, `http/mod`, `http/wire`.
    file: &'a str,
    parent: usize,
    children: Vec<(&'a str, usize)>,
    scope: Scope<'a>,
}

/// An import of one file from another.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Import<'a> {
    pub(super) from: &'a str,
    /// The file through which it is imported: the one with the re-export, unless that is the root.
    pub(super) door: &'a str,
    /// The file with the imported item.
    pub(super) home: &'a str,
    pub(super) line: usize,
    pub(super) path: String,
    /// Whether it is only re-exported.
    pub(super) facade: bool,
}

impl<'a> Import<'a> {
    /// The sibling folders between which it leads, if any: `stores/mysql/`, `stores/memory/`.
    pub(super) fn folders(&self) -> Option<(&'a str, &'a str)> {
        let same = self.from.bytes().zip(self.home.bytes()).take_while(|(a, b)| a == b).count();
        let slash = self.from.as_bytes()[..same].iter().rposition(|byte| *byte == b'/');
        let above = slash.map_or(0, |at| at + 1);
        let end = |path: &str| Some(above + path[above..].find('/')? + 1);
        Some((&self.from[..end(self.from)?], &self.home[..end(self.home)?]))
    }
}

/// The target of a path.
#[derive(Clone, Copy, Debug)]
struct Target {
    door: usize,
    home: usize,
}

impl<'a> Tree<'a> {
    pub(super) fn read(files: &Files<'a>) -> Self {
        let mut tree = Self::default();
        match files.get_key_value("lib.rs") {
            Some((path, text)) => tree.add(files, path, text, 0),
            None => tree.troubles.push("lib.rs: there is none".to_owned()),
        }
        tree
    }

    /// The files, each once.
    pub(super) fn files(&self) -> BTreeSet<&'a str> {
        self.modules.iter().map(|module| module.file).collect()
    }

    /// Adds the modules of a file, and all that they declare.
    fn add(&mut self, files: &Files<'a>, path: &'a str, text: &'a str, parent: usize) {
        let first = self.modules.len();
        let file = path.strip_suffix(".rs").unwrap_or(path);
        let mut directories = vec![directory(path)];
        for (index, scope) in imports::read(text).into_iter().enumerate() {
            let around = scope.parent.map(|around| first + around);
            if let Some(around) = around {
                directories.push(format!("{}{}/", directories[around - first], scope.name));
                self.modules[around].children.push((scope.name, first + index));
            }
            let parent = around.unwrap_or(parent);
            self.modules.push(Module { file, parent, children: Vec::new(), scope });
        }
        for (module, directory) in (first..).zip(directories) {
            for declared in mem::take(&mut self.modules[module].scope.declared) {
                let Some((path, text)) = declared.find(files, path, &directory) else {
                    let line =
                        format!("{path}:{}: `mod {}` has no file", declared.line, declared.name);
                    self.troubles.push(line);
                    continue;
                };
                let child = self.modules.len();
                self.modules[module].children.push((declared.name, child));
                self.add(files, path, text, module);
            }
        }
    }

    /// All imports of one file from another, ordered by line.
    pub(super) fn imports(&self) -> Vec<Import<'a>> {
        let mut imports = Vec::new();
        for (module, Module { scope, .. }) in self.modules.iter().enumerate() {
            for brought in &scope.uses {
                self.brought(module, brought, &mut imports);
            }
            for mention in &scope.paths {
                let targets = match mention.path[0] {
                    "crate" | "self" | "super" => self.resolve(module, &mention.path, 0),
                    _ => self.exposed(module, &mention.path, 0),
                };
                self.note(module, targets, mention, false, &mut imports);
            }
        }
        imports.sort_by(|a, b| (a.from, a.line).cmp(&(b.from, b.line)));
        imports
    }

    fn brought(&self, module: usize, brought: &Use<'a>, imports: &mut Vec<Import<'a>>) {
        let names = &self.modules[module].scope.names;
        let targets = self.resolve(module, &brought.path.path, 0);
        if brought.name != "*" {
            let facade = brought.public && !names.contains(brought.name);
            return self.note(module, targets, &brought.path, facade, imports);
        }
        if brought.public {
            self.note(module, targets.clone(), &brought.path, true, imports);
        }
        for Target { home, .. } in targets {
            let unnamed = names.iter().filter(|name| self.own(module, &[name], 0).is_empty());
            for name in unnamed {
                let targets = self.offered(home, &[name], 0);
                self.note(module, targets, &brought.path, false, imports);
            }
        }
    }

    fn note(
        &self,
        module: usize,
        targets: Vec<Target>,
        mention: &Mention<'a>,
        facade: bool,
        imports: &mut Vec<Import<'a>>,
    ) {
        let from = self.modules[module].file;
        for Target { door, home } in targets {
            let (door, home) = (self.modules[door].file, self.modules[home].file);
            if home != from || door != from {
                let (line, path) = (mention.line, mention.path.join("::"));
                imports.push(Import { from, door, home, line, path, facade });
            }
        }
    }

    /// The targets of a `use` path in `module`; empty if it belongs to another crate.
    fn resolve(&self, module: usize, path: &[&str], steps: usize) -> Vec<Target> {
        match path {
            [] => Vec::new(),
            ["crate", rest @ ..] => self.walk(0, rest, steps),
            ["self", rest @ ..] => self.walk(module, rest, steps),
            ["super", ..] => self.walk(module, path, steps),
            _ => self.own(module, path, steps),
        }
    }

    /// The targets of `path`, seen from outside `module`. If nothing is found, a macro of `module` is assumed to
    /// create it.
    fn walk(&self, module: usize, path: &[&str], steps: usize) -> Vec<Target> {
        let here = Target { door: module, home: module };
        match path {
            [] => vec![here],
            ["super", rest @ ..] => self.walk(self.modules[module].parent, rest, steps),
            _ => {
                let found = self.offered(module, path, steps);
                let foreign = || self.names(module, path[0]).next().is_some();
                if found.is_empty() && !foreign() { vec![here] } else { found }
            }
        }
    }

    /// As [`Self::exposed`], seen from outside: re-exports count as imports through `module`.
    fn offered(&self, module: usize, path: &[&str], steps: usize) -> Vec<Target> {
        let mut targets = self.exposed(module, path, steps);
        let is_below = self.modules[module].children.iter().any(|(name, _)| *name == path[0]);
        // The root is only a list of names.
        if module != 0 && !is_below {
            targets.iter_mut().for_each(|target| target.door = module);
        }
        targets
    }

    /// The targets of `path`, by all that `module` contains, defines or imports.
    fn exposed(&self, module: usize, path: &[&str], steps: usize) -> Vec<Target> {
        let own = self.own(module, path, steps);
        if !own.is_empty() || steps > STEPS_MAX {
            return own;
        }
        let globs = self.names(module, "*");
        let homes = globs.flat_map(|glob| self.resolve(module, &glob.path.path, steps + 1));
        homes.flat_map(|target| self.offered(target.home, path, steps + 1)).collect()
    }

    /// The targets of `path`, by what `module` contains, defines or imports by name.
    fn own(&self, module: usize, path: &[&str], steps: usize) -> Vec<Target> {
        let [first, rest @ ..] = path else { return Vec::new() };
        if steps > STEPS_MAX {
            return Vec::new();
        }
        let Module { children, scope, .. } = &self.modules[module];
        let below = children.iter().filter(|(name, _)| name == first);
        let below: Vec<Target> =
            below.flat_map(|(_, child)| self.walk(*child, rest, steps + 1)).collect();
        if !below.is_empty() {
            return below;
        }
        if scope.defined.contains(first) {
            return vec![Target { door: module, home: module }];
        }
        let named = self.names(module, first).flat_map(|brought| {
            let path: Vec<&str> = brought.path.path.iter().chain(rest).copied().collect();
            self.resolve(module, &path, steps + 1)
        });
        named.collect()
    }

    /// The imports of `module` that introduce `name`.
    fn names(&self, module: usize, name: &str) -> impl Iterator<Item = &Use<'a>> {
        self.modules[module].scope.uses.iter().filter(move |brought| brought.name == name)
    }
}

impl<'a> Declared<'a> {
    /// Its file, if `from` declares it and the files of its modules are in `directory`.
    fn find(&self, files: &Files<'a>, from: &str, directory: &str) -> Option<(&'a str, &'a str)> {
        let places = match self.file {
            Some(file) => {
                vec![format!("{}{file}", &from[..from.rfind('/').map_or(0, |at| at + 1)])]
            }
            None => ["", "/mod"].map(|end| format!("{directory}{}{end}.rs", self.name)).to_vec(),
        };
        let found = places.iter().find_map(|place| files.get_key_value(place.as_str()))?;
        Some((found.0, found.1))
    }
}

/// The directory with the files of a file's modules.
fn directory(path: &str) -> String {
    let stem = path.strip_suffix(".rs").unwrap_or(path);
    match stem.strip_suffix("mod") {
        Some(directory) if path.ends_with("/mod.rs") => directory.to_owned(),
        _ if stem == "lib" => String::new(),
        _ => format!("{stem}/"),
    }
}
