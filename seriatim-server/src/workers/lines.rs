//! Lines of output, none of them longer than we can bear.

use std::collections::VecDeque;

use tokio::io::{AsyncBufReadExt, AsyncRead, BufReader};

/// Longest line that is read as a message, in bytes. A result for the 10,000 lanes of the largest
/// call fits.
pub(crate) const LINE_BYTES_MAX: usize = 4 << 20;
/// What of a line goes to the log, in bytes.
pub(crate) const LOG_LINE_BYTES_MAX: usize = 8 << 10;
/// Lines of stderr that become the error.
pub(crate) const ERROR_LINES_MAX: usize = 20;

/// One line, without its end.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Line {
    pub(crate) text: String,
    /// It was longer than the limit: the rest is thrown away.
    pub(crate) is_cut: bool,
}

/// Reads line by line and never holds more than one line up to a limit.
pub(crate) struct Lines<R> {
    reader: BufReader<R>,
    bytes_max: usize,
}

impl<R: AsyncRead + Unpin> Lines<R> {
    pub(crate) fn new(reader: R, bytes_max: usize) -> Self {
        Self { reader: BufReader::new(reader), bytes_max }
    }

    /// The next line; none at the end, and none after an error, which for a pipe is the same.
    pub(crate) async fn next(&mut self) -> Option<Line> {
        let mut line: Vec<u8> = Vec::new();
        let (mut is_cut, mut is_there) = (false, false);
        while let Ok(chunk) = self.reader.fill_buf().await {
            if chunk.is_empty() {
                break;
            }
            is_there = true;
            let end = chunk.iter().position(|byte| *byte == b'\n');
            let part = &chunk[..end.unwrap_or(chunk.len())];
            let room = self.bytes_max - line.len();
            is_cut |= part.len() > room;
            line.extend_from_slice(&part[..part.len().min(room)]);
            let read = end.map_or(chunk.len(), |end| end + 1);
            self.reader.consume(read);
            if end.is_some() {
                break;
            }
        }
        is_there.then(|| Line { text: String::from_utf8_lossy(&line).trim_end().into(), is_cut })
    }
}

/// The last lines of an output, for the error of a job.
#[derive(Debug, Default)]
pub(crate) struct Tail(VecDeque<String>);

impl Tail {
    pub(crate) fn add(&mut self, line: &str) {
        if self.0.len() == ERROR_LINES_MAX {
            self.0.pop_front();
        }
        self.0.push_back(line.to_owned());
    }

    /// The lines, or nothing.
    pub(crate) fn text(&self) -> Option<String> {
        let text = self.0.iter().map(String::as_str).collect::<Vec<_>>().join("\n");
        (!text.trim().is_empty()).then_some(text)
    }
}

/// A text for the log: not longer than [`LOG_LINE_BYTES_MAX`].
pub(crate) fn for_log(text: &str) -> &str {
    &text[..text.floor_char_boundary(LOG_LINE_BYTES_MAX)]
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    #[tokio::test]
    async fn a_line_over_the_limit_is_cut_and_the_next_one_is_whole() {
        let text = format!("short\n{}\n\nlast", "x".repeat(100_000));
        let mut lines = Lines::new(text.as_bytes(), 10);
        let mut read = Vec::new();
        while let Some(line) = lines.next().await {
            read.push((line.text, line.is_cut));
        }
        let expected = [("short", false), ("xxxxxxxxxx", true), ("", false), ("last", false)];
        assert_eq!(read, expected.map(|(text, cut)| (text.to_owned(), cut)));
    }

    #[test]
    fn only_the_last_lines_are_kept() {
        let mut tail = Tail::default();
        assert_eq!(tail.text(), None);
        (0..100).for_each(|number| tail.add(&number.to_string()));
        let text = tail.text().unwrap();
        assert!(text.starts_with("80\n") && text.ends_with("\n99"), "{text}");
    }
}
