//! Reads the imports of a Rust file: its `use` lines and the paths in its code, without tests.

use std::collections::BTreeSet;

use super::tokens::{self, Token};

/// A module in a file: the file itself, or an inline module.
#[derive(Debug, Default)]
pub(super) struct Scope<'a> {
    /// Empty for the file itself.
    pub(super) name: &'a str,
    /// The scope of the file that contains it.
    pub(super) parent: Option<usize>,
    /// Its modules in other files.
    pub(super) declared: Vec<Declared<'a>>,
    pub(super) uses: Vec<Use<'a>>,
    /// Paths of at least two names in its code.
    pub(super) paths: Vec<Mention<'a>>,
    /// The names in its code: types, constants, modules and called functions.
    pub(super) names: BTreeSet<&'a str>,
    pub(super) defined: BTreeSet<&'a str>,
}

/// `mod name;`
#[derive(Debug)]
pub(super) struct Declared<'a> {
    pub(super) name: &'a str,
    /// The file in `#[path = "…"]`.
    pub(super) file: Option<&'a str>,
    pub(super) line: usize,
}

/// One name that a `use` imports.
#[derive(Debug)]
pub(super) struct Use<'a> {
    pub(super) path: Mention<'a>,
    /// Its local name; `*` for all.
    pub(super) name: &'a str,
    pub(super) public: bool,
}

/// A path, and its line.
#[derive(Clone, Debug)]
pub(super) struct Mention<'a> {
    pub(super) path: Vec<&'a str>,
    pub(super) line: usize,
}

/// Words with which an item after `#[cfg(test)]` can begin.
const ITEMS: [&str; 14] = [
    "async",
    "const",
    "enum",
    "extern",
    "fn",
    "impl",
    "macro_rules",
    "mod",
    "static",
    "struct",
    "trait",
    "type",
    "unsafe",
    "use",
];
/// Words that precede the name of a definition.
const DEFINING: [&str; 8] = ["const", "enum", "fn", "static", "struct", "trait", "type", "union"];

/// The scopes of a file; the file itself is the first.
pub(super) fn read(text: &str) -> Vec<Scope<'_>> {
    let mut reader = Reader {
        tokens: tokens::of(text),
        at: 0,
        scopes: vec![Scope::default()],
        open: vec![(0, 0)],
        depth: 0,
        file: None,
    };
    while reader.at < reader.tokens.len() {
        reader.step();
    }
    reader.scopes
}

struct Reader<'a> {
    tokens: Vec<Token<'a>>,
    at: usize,
    scopes: Vec<Scope<'a>>,
    /// The enclosing scopes, each with the brace depth of its items.
    open: Vec<(usize, usize)>,
    depth: usize,
    /// The file in `#[path = "…"]` for the next item.
    file: Option<&'a str>,
}

impl<'a> Reader<'a> {
    fn step(&mut self) {
        match self.word(0) {
            "#" if self.word(1) == "[" || (self.word(1) == "!" && self.word(2) == "[") => {
                self.attribute();
            }
            "pub" if self.word(1) == "(" => self.at += self.group(1),
            "use" if self.word(1) != "<" => self.import(),
            "mod" if self.word(2) == ";" => self.declared(),
            "mod" if self.word(2) == "{" => self.inline(),
            "{" => self.depth += 1,
            "}" => self.close(),
            _ if self.tokens[self.at].is_name() => return self.name(),
            _ => {}
        }
        self.at += 1;
    }

    /// The text of the token at offset `ahead`; empty after the end.
    fn word(&self, ahead: usize) -> &'a str {
        self.tokens.get(self.at + ahead).map_or("", |token| token.text)
    }

    fn scope(&mut self) -> &mut Scope<'a> {
        let current = self.open.last().map_or(0, |(scope, _)| *scope);
        &mut self.scopes[current]
    }

    fn line(&self) -> usize {
        self.tokens.get(self.at).map_or(0, |token| token.line)
    }

    /// The offset of the bracket that closes the one at offset `ahead`.
    fn group(&self, ahead: usize) -> usize {
        let mut depth = 0_usize;
        for (index, token) in self.tokens.iter().enumerate().skip(self.at + ahead) {
            match token.text {
                "(" | "[" | "{" => depth += 1,
                ")" | "]" | "}" => depth -= 1,
                _ => {}
            }
            if depth == 0 {
                return index - self.at;
            }
        }
        self.tokens.len() - 1 - self.at
    }

    /// Handles `#[…]` or `#![…]`; if it requires tests, skips its item too.
    fn attribute(&mut self) {
        let opening = if self.word(1) == "!" { 2 } else { 1 };
        let last = self.group(opening);
        let inside = self.tokens[self.at + opening + 1..self.at + last].to_vec();
        self.at += last;
        match inside.first().map(|token| token.text) {
            Some("cfg") if inside.len() > 2 && needs_test(&inside[2..inside.len() - 1]) => {
                self.skip_item();
            }
            Some("path") => self.file = inside.last().and_then(Token::string),
            // `#[serde(with = "crate::…")]`
            _ => inside.iter().for_each(|token| self.quoted(*token)),
        }
    }

    fn quoted(&mut self, token: Token<'a>) {
        let Some(text) = token.string() else { return };
        let path: Vec<&str> = text.split("::").collect();
        if matches!(path[0], "crate" | "self" | "super") && path.len() > 1 {
            self.scope().paths.push(Mention { path, line: token.line });
        }
    }

    /// Skips from the end of an attribute to the end of its item.
    fn skip_item(&mut self) {
        self.at += 1;
        while self.word(0) == "#" {
            self.at += self.group(1) + 1;
        }
        if self.word(0) == "pub" {
            self.at += if self.word(1) == "(" { self.group(1) + 1 } else { 1 };
        }
        let first = self.word(0);
        loop {
            match self.word(0) {
                ";" | "" => return,
                "," if !ITEMS.contains(&first) => return,
                // The end of the enclosing block: a last field without a comma.
                "}" => {
                    self.at -= 1;
                    return;
                }
                bracket @ ("(" | "[" | "{") => {
                    self.at += self.group(0);
                    if bracket == "{" {
                        return;
                    }
                }
                _ => {}
            }
            self.at += 1;
        }
    }

    /// Reads a `use`; stops at its `;`.
    fn import(&mut self) {
        let public = self.at > 0 && matches!(self.tokens[self.at - 1].text, "pub" | ")");
        self.at += 1;
        self.branch(&[], public);
        while !matches!(self.word(0), ";" | "") {
            self.at += 1;
        }
    }

    /// Reads one branch of a `use` after `stem`; stops after it.
    fn branch(&mut self, stem: &[&'a str], public: bool) {
        let mut path = stem.to_vec();
        let line = self.line();
        loop {
            match self.word(0) {
                // `::name` belongs to another crate, even if a local name is the same.
                "::" if path.is_empty() => path.push(""),
                "::" => {}
                "{" => {
                    self.at += 1;
                    while !matches!(self.word(0), "}" | ";" | "") {
                        self.branch(&path, public);
                        if self.word(0) == "," {
                            self.at += 1;
                        }
                    }
                    self.at += 1;
                    return;
                }
                "*" => {
                    self.at += 1;
                    return self.bring(Use { path: Mention { path, line }, name: "*", public });
                }
                "self" if !path.is_empty() => {}
                "as" => {
                    let name = self.word(1);
                    self.at += 2;
                    return self.bring(Use { path: Mention { path, line }, name, public });
                }
                word if self.tokens.get(self.at).is_some_and(Token::is_name) => path.push(word),
                _ => {
                    let name = path.last().copied().unwrap_or_default();
                    // Not a path, but the pattern of a macro: imports nothing, and must advance.
                    if !matches!(self.word(0), "," | "}" | ";") {
                        self.at = self.at.saturating_add(1);
                    }
                    return self.bring(Use { path: Mention { path, line }, name, public });
                }
            }
            self.at += 1;
        }
    }

    fn bring(&mut self, brought: Use<'a>) {
        if !brought.path.path.is_empty() {
            self.scope().uses.push(brought);
        }
    }

    fn declared(&mut self) {
        let (name, file, line) = (self.word(1), self.file.take(), self.line());
        self.scope().declared.push(Declared { name, file, line });
        self.at += 2;
    }

    fn inline(&mut self) {
        let parent = self.open.last().map(|(scope, _)| *scope);
        self.scopes.push(Scope { name: self.word(1), parent, ..Scope::default() });
        self.at += 2;
        self.depth += 1;
        self.open.push((self.scopes.len() - 1, self.depth));
    }

    fn close(&mut self) {
        if self.open.len() > 1 && self.open.last().is_some_and(|(_, depth)| *depth == self.depth) {
            self.open.pop();
        }
        self.depth = self.depth.saturating_sub(1);
    }

    /// Reads a name in the code with its `::` path; stops after it.
    fn name(&mut self) {
        let (line, first) = (self.line(), self.word(0));
        let before = self.at.checked_sub(1).map_or("", |before| self.tokens[before].text);
        let is_item = self.open.last().is_some_and(|(_, depth)| *depth == self.depth);
        if is_item && DEFINING.contains(&first) {
            let name = self.word(1);
            self.scope().defined.insert(name);
        } else if first == "macro_rules" {
            let name = self.word(2);
            self.scope().defined.insert(name);
        }
        let mut path = vec![first];
        self.at += 1;
        while self.word(0) == "::" && self.tokens.get(self.at + 1).is_some_and(Token::is_name) {
            path.push(self.word(1));
            self.at += 2;
        }
        let says = path.len() > 1
            || matches!(self.word(0), "(" | "!" | "::")
            || first.starts_with(char::is_uppercase);
        if !says || matches!(before, "." | "::" | "fn" | "struct" | "enum" | "trait" | "type") {
            return;
        }
        let scope = self.scope();
        scope.names.insert(first);
        if path.len() > 1 {
            scope.paths.push(Mention { path, line });
        }
    }
}

/// Whether a condition of `cfg` holds only in tests.
fn needs_test(condition: &[Token<'_>]) -> bool {
    match condition {
        [only] => only.text == "test",
        [how, _, parts @ .., _] if how.text == "all" => split(parts).into_iter().any(needs_test),
        [how, _, parts @ .., _] if how.text == "any" => split(parts).into_iter().all(needs_test),
        _ => false,
    }
}

/// Splits at commas outside brackets.
fn split<'t, 'a>(tokens: &'t [Token<'a>]) -> Vec<&'t [Token<'a>]> {
    let mut depth = 0_isize;
    let parts = tokens.split(|token| {
        depth += match token.text {
            "(" => 1,
            ")" => -1,
            _ => 0,
        };
        depth == 0 && token.text == ","
    });
    parts.filter(|part| !part.is_empty()).collect()
}
