//! Finds where functions begin and end.
//!
//! rustfmt closes a function with a brace on its own line, in the column in which the function began. So lines and
//! columns are enough, and no parser is needed.

/// A function with a body.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Function<'a> {
    pub(super) name: &'a str,
    /// From 1.
    pub(super) first_line: usize,
    /// From the line with its name to the closing brace, both included.
    pub(super) lines: usize,
}

/// The functions of a formatted file.
pub(super) fn of(text: &str) -> Vec<Function<'_>> {
    let lines: Vec<&str> = text.lines().collect();
    (0..lines.len())
        .filter_map(|first| {
            let name = name(lines[first])?;
            let count = count(&lines[first..])?;
            Some(Function { name, first_line: first + 1, lines: count })
        })
        .collect()
}

/// The name of the function that begins in this line.
fn name(line: &str) -> Option<&str> {
    let mut words = line.split_whitespace();
    let name = loop {
        match words.next()? {
            "fn" => break words.next()?,
            "pub" | "const" | "async" | "unsafe" | "default" | "extern" => {}
            // `pub(crate)`, `pub(in`, `crate::store)`, `"C"`
            word if word.starts_with("pub(") || word.ends_with([')', '"']) => {}
            _ => return None,
        }
    };
    name.split(['(', '<']).next()
}

/// The number of its lines; `None` for a declaration without a body.
fn count(lines: &[&str]) -> Option<usize> {
    let head = lines.iter().position(|line| line.ends_with(['{', '}', ';']))?;
    match lines[head].chars().next_back() {
        Some('{') => {
            let closing = format!("{}}}", &lines[0][..indent(lines[0])]);
            let body = lines[head..].iter().position(|line| *line == closing)?;
            Some(head + body + 1)
        }
        Some('}') => Some(head + 1),
        _ => None,
    }
}

fn indent(line: &str) -> usize {
    line.len() - line.trim_start().len()
}
