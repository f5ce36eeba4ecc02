//! Answers, in the format of Redis.

use crate::base::text::one_line;

/// Longest text of an error.
const ERROR_CHARS_MAX: usize = 1_000;

pub(super) const OK: &str = "+OK\r\n";
/// There is no job.
pub(super) const NOTHING: &str = "$-1\r\n";

pub(super) fn error(why: &str) -> String {
    let why: String = one_line(why).chars().take(ERROR_CHARS_MAX).collect();
    format!("-ERR {why}\r\n")
}

pub(super) fn text(text: &str) -> String {
    format!("${}\r\n{text}\r\n", text.len())
}

/// The same of a long text, without a second one beside it.
pub(super) fn made_of(mut text: String) -> String {
    text.insert_str(0, &format!("${}\r\n", text.len()));
    text.push_str("\r\n");
    text
}
