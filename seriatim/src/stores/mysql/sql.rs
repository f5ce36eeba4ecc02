//! Values as SQL text, and the columns of results.
//!
//! Statements are sent as text, because a batch has more values than a prepared statement allows. Text from users is
//! written in hexadecimal, so it cannot end a literal.

use std::fmt::{Display, Write as _};
use std::sync::Arc;

use mysql_async::{Row, Value};

use super::error::{Fail, Try};
use crate::model::{Error, ErrorKind};

/// The server's time in microseconds since 1970, independent of the session's time zone.
pub(super) const CLOCK: &str = "TIMESTAMPDIFF(MICROSECOND, '1970-01-01', UTC_TIMESTAMP(6))";

/// Whether rows of the inbox wait; also a part of each poll for wake-ups.
pub(super) const INBOX_WAITS: &str =
    "SELECT 1 FROM seriatim_inbox FORCE INDEX (inbox_waiting) WHERE waits = 1 LIMIT 1";

/// A statement is split when it exceeds this number of bytes. A single job may be larger.
pub(super) const STATEMENT_BYTES_MAX: usize = 1 << 20;
/// Most numbers in one list.
pub(super) const LIST_MAX: usize = 10_000;

/// Bytes as a literal.
pub(super) fn bytes(value: &[u8]) -> String {
    const DIGITS: [u8; 16] = *b"0123456789abcdef";
    // Pushed one by one, digits take more than twice the time.
    let mut text = vec![b'\''; value.len() * 2 + 3];
    text[0] = b'x';
    for (pair, &byte) in text[2..].chunks_exact_mut(2).zip(value) {
        pair[0] = DIGITS[usize::from(byte >> 4)];
        pair[1] = DIGITS[usize::from(byte & 15)];
    }
    String::from_utf8(text).expect("all of it is ASCII")
}

pub(super) fn text(value: &str) -> String {
    bytes(value.as_bytes())
}

pub(super) fn maybe_bytes(value: Option<&[u8]>) -> String {
    value.map_or_else(|| "NULL".to_owned(), bytes)
}

pub(super) fn maybe_text(value: Option<&str>) -> String {
    maybe_bytes(value.map(str::as_bytes))
}

pub(super) fn maybe(value: Option<i64>) -> String {
    value.map_or_else(|| "NULL".to_owned(), |value| value.to_string())
}

/// Numbers separated by commas; never empty, which would be a syntax error.
pub(super) fn list(numbers: impl IntoIterator<Item = impl Display>) -> String {
    let mut text = String::new();
    for number in numbers {
        let _ = write!(text, "{number},");
    }
    text.pop();
    if text.is_empty() { "NULL".to_owned() } else { text }
}

/// Deletes the rows with these numbers, for which `also` holds. With `IN`, the server would read and lock all rows of the table
/// where many of them are meant, and wait for those of other sessions; a join by the primary key reads each by its number.
pub(super) fn delete(
    table: &str,
    column: &str,
    numbers: &[impl Copy + Display],
    also: &str,
) -> String {
    let given = given(numbers);
    format!(
        "DELETE t FROM {given} STRAIGHT_JOIN {table} t FORCE INDEX (PRIMARY) ON t.{column} = given.number WHERE TRUE{also}"
    )
}

/// A table `given` with the column `number`. Joined by a key, each row is read through it, whatever the server knows of the
/// table's size; of `IN` that is only sure in a query or change of one table with `FORCE INDEX`.
pub(super) fn given(numbers: &[impl Copy + Display]) -> String {
    let numbers = list(numbers.iter().copied());
    format!("JSON_TABLE('[{numbers}]', '$[*]' COLUMNS (number BIGINT PATH '$')) given")
}

/// Literals separated by commas.
pub(super) fn literals<'a>(values: impl IntoIterator<Item = &'a str>) -> String {
    let values: Vec<String> = values.into_iter().map(text).collect();
    if values.is_empty() { "NULL".to_owned() } else { values.join(",") }
}

/// Reads the columns of a row from left to right.
pub(super) struct Columns {
    row: Row,
    next: usize,
}

impl Columns {
    pub(super) fn of(row: Row) -> Self {
        Self { row, next: 0 }
    }

    /// Skips columns.
    pub(super) fn skip(&mut self, columns: usize) {
        self.next += columns;
    }

    fn value(&mut self) -> Try<Option<Vec<u8>>> {
        let value = self.row.take::<Value, usize>(self.next);
        self.next += 1;
        match value {
            Some(Value::Bytes(bytes)) => Ok(Some(bytes)),
            Some(Value::NULL) => Ok(None),
            _ => Err(corrupt()),
        }
    }

    fn parsed<T: std::str::FromStr>(&mut self) -> Try<Option<T>> {
        let Some(bytes) = self.value()? else { return Ok(None) };
        let text = std::str::from_utf8(&bytes).map_err(|_| corrupt())?;
        text.parse().map(Some).map_err(|_| corrupt())
    }

    pub(super) fn int(&mut self) -> Try<i64> {
        self.maybe_int()?.ok_or_else(corrupt)
    }

    pub(super) fn maybe_int(&mut self) -> Try<Option<i64>> {
        self.parsed()
    }

    pub(super) fn float(&mut self) -> Try<f64> {
        self.parsed()?.ok_or_else(corrupt)
    }

    pub(super) fn bytes(&mut self) -> Try<Option<Vec<u8>>> {
        self.value()
    }

    pub(super) fn maybe_text(&mut self) -> Try<Option<Arc<str>>> {
        let Some(bytes) = self.value()? else { return Ok(None) };
        let text = String::from_utf8(bytes).map_err(|_| corrupt())?;
        Ok(Some(text.into()))
    }

    pub(super) fn text(&mut self) -> Try<Arc<str>> {
        self.maybe_text()?.ok_or_else(corrupt)
    }

    /// A JSON document.
    pub(super) fn json<T: serde::de::DeserializeOwned>(&mut self) -> Try<Option<T>> {
        let Some(bytes) = self.value()? else { return Ok(None) };
        serde_json::from_slice(&bytes).map(Some).map_err(|_| corrupt())
    }
}

pub(super) fn corrupt() -> Fail {
    Error::new(ErrorKind::Corrupt, "MySQL returned a row that cannot be read").into()
}
