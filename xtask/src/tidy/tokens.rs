//! Splits a Rust file into words and signs, without comments: enough to read its imports, and faster than a parser.

/// A name, a sign (`::` is one), or a literal as written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Token<'a> {
    pub(super) text: &'a str,
    /// The line in which it begins, from 1.
    pub(super) line: usize,
}

impl<'a> Token<'a> {
    pub(super) fn is_name(&self) -> bool {
        self.text.starts_with(begins_name)
    }

    /// The contents of the quotes, if this is a string literal.
    pub(super) fn string(&self) -> Option<&'a str> {
        let quoted = self.text.trim_start_matches(['b', 'c', 'r']).trim_matches('#');
        quoted.strip_prefix('"')?.strip_suffix('"')
    }
}

/// The tokens of a file that compiles.
pub(super) fn of(text: &str) -> Vec<Token<'_>> {
    let mut tokens = Vec::new();
    let (mut rest, mut line) = (text, 1);
    while let Some(first) = rest.chars().next() {
        let length = length(rest, first);
        let (piece, behind) = rest.split_at(length);
        if !first.is_whitespace() && !piece.starts_with("//") && !piece.starts_with("/*") {
            tokens.push(Token { text: piece, line });
        }
        line += piece.matches('\n').count();
        rest = behind;
    }
    tokens
}

/// The length in bytes of the first piece of `rest`.
fn length(rest: &str, first: char) -> usize {
    match first {
        '/' if rest.starts_with("//") => rest.find('\n').unwrap_or(rest.len()),
        '/' if rest.starts_with("/*") => block_comment(rest),
        '"' => string(rest, 0),
        '\'' => quote(rest),
        ':' if rest.starts_with("::") => 2,
        _ if first.is_whitespace() => run(rest, char::is_whitespace),
        _ if continues_name(first) => {
            let word = run(rest, continues_name);
            match &rest[..word] {
                "b" | "c" if rest[word..].starts_with('"') => string(rest, word),
                "r" | "br" | "cr" => raw(rest, word),
                _ => word,
            }
        }
        _ => first.len_utf8(),
    }
}

fn run(rest: &str, belongs: impl Fn(char) -> bool) -> usize {
    rest.find(|c| !belongs(c)).unwrap_or(rest.len())
}

fn begins_name(c: char) -> bool {
    c.is_alphabetic() || c == '_'
}

fn continues_name(c: char) -> bool {
    c.is_alphanumeric() || c == '_'
}

fn block_comment(rest: &str) -> usize {
    let (mut depth, mut at) = (0_usize, 0);
    while at < rest.len() {
        if rest[at..].starts_with("/*") {
            (depth, at) = (depth + 1, at + 2);
        } else if rest[at..].starts_with("*/") {
            (depth, at) = (depth - 1, at + 2);
            if depth == 0 {
                break;
            }
        } else {
            at += rest[at..].chars().next().map_or(1, char::len_utf8);
        }
    }
    at
}

/// A string whose opening quote is at `at`.
fn string(rest: &str, at: usize) -> usize {
    let mut escaped = false;
    for (index, byte) in rest.bytes().enumerate().skip(at + 1) {
        match byte {
            _ if escaped => escaped = false,
            b'\\' => escaped = true,
            b'"' => return index + 1,
            _ => {}
        }
    }
    rest.len()
}

/// A raw string after a prefix of `word` bytes, a raw name, or a name that only looks like a prefix.
fn raw(rest: &str, word: usize) -> usize {
    let hashes = run(&rest[word..], |c| c == '#');
    let open = word + hashes;
    if rest[open..].starts_with('"') {
        let closing = format!("\"{}", "#".repeat(hashes));
        let found = rest[open + 1..].find(&closing);
        return found.map_or(rest.len(), |found| open + 1 + found + closing.len());
    }
    if hashes == 1 { open + run(&rest[open..], continues_name) } else { word }
}

/// A character such as `'a'`, or a lifetime such as `'a`.
fn quote(rest: &str) -> usize {
    let mut chars = rest.char_indices().skip(1);
    match (chars.next(), chars.next()) {
        (Some((_, '\\')), Some((escaped, _))) => {
            let behind = escaped + 1;
            rest[behind..].find('\'').map_or(rest.len(), |end| behind + end + 1)
        }
        (Some(_), Some((end, '\''))) => end + 1,
        _ => 1 + run(&rest[1..], continues_name),
    }
}
