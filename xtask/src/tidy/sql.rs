//! SQL statements in Rust code.

use super::tokens::{self, Token};

const VERBS: [&str; 10] = [
    "ALTER ", "CREATE ", "DELETE ", "DROP ", "INSERT ", "MERGE ", "REPLACE ", "SELECT ", "UPDATE ",
    "WITH ",
];

/// A statement in a string, or joined from several by `concat!`.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Statement {
    /// From 1.
    pub(super) first_line: usize,
    pub(super) lines: usize,
}

/// The statements of a file.
pub(super) fn of(text: &str) -> Vec<Statement> {
    let mut statements = Vec::new();
    if !VERBS.iter().any(|verb| text.contains(verb)) {
        return statements;
    }
    let tokens = tokens::of(text);
    let mut at = 0;
    while let Some(token) = tokens.get(at) {
        if token.string().is_some_and(is_sql) {
            let joined = at > 2 && tokens[at - 3].text == "concat";
            let behind = if joined { end(&tokens[at..]) } else { 1 };
            let last = &tokens[at + behind - 1];
            let lines = last.line + last.text.matches('\n').count() + 1 - token.line;
            statements.push(Statement { first_line: token.line, lines });
            at += behind;
        } else {
            at += 1;
        }
    }
    statements
}

fn is_sql(text: &str) -> bool {
    let text = text.trim_start_matches(['\\', '\n', ' ']);
    VERBS.iter().any(|verb| text.starts_with(verb))
}

/// The number of tokens before the closing bracket.
fn end(tokens: &[Token]) -> usize {
    let mut depth = 0_usize;
    let closing = tokens.iter().position(|token| {
        match token.text {
            "(" => depth += 1,
            ")" if depth == 0 => return true,
            ")" => depth -= 1,
            _ => {}
        }
        false
    });
    closing.unwrap_or(tokens.len())
}
