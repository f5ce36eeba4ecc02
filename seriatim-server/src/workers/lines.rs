//! Lines of output, none of them longer than we can bear.

use std::collections::VecDeque;

use tokio::io::{AsyncBufReadExt, AsyncRead, BufReader};

/// Longest line that is read as a message, in bytes. A result for the 10,000 lanes of the largest
/// call fits.
pub(crate) const LINE_BYTES_MAX: usize = 4 << 20;
/// Most bytes of a line in the log.
pub(crate) const LOG_LINE_BYTES_MAX: usize = 8 << 10;
/// Lines of stderr that become the error.
pub(crate) const ERROR_LINES_MAX: usize = 20;
/// Bytes of them: an error keeps its beginning, and the last words say most.
const ERROR_TAIL_BYTES_MAX: usize = 3 << 10;

/// Lines that are read without a pause. A program that prints without end keeps nothing else waiting:
/// neither its own timeout, nor other workers of this thread.
const IN_A_ROW_MAX: u32 = 128;

/// One line, without its end.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Line {
    pub(crate) text: String,
    /// It was longer than the limit: the rest is thrown away.
    pub(crate) is_cut: bool,
    /// It has an end: what follows is another line.
    pub(crate) is_whole: bool,
}

/// Reads line by line and never holds more than one line up to a limit.
pub(crate) struct Lines<R> {
    reader: BufReader<R>,
    bytes_max: usize,
    /// What has been read of a line that has not ended. Kept here, so that nothing is lost when a
    /// read is given up.
    begun: Option<Begun>,
    in_a_row: u32,
}

#[derive(Default)]
struct Begun {
    bytes: Vec<u8>,
    is_cut: bool,
}

impl<R: AsyncRead + Unpin> Lines<R> {
    pub(crate) fn new(reader: R, bytes_max: usize) -> Self {
        Self { reader: BufReader::new(reader), bytes_max, begun: None, in_a_row: 0 }
    }

    /// The next line; none at the end, and none after an error, which for a pipe is the same.
    pub(crate) async fn next(&mut self) -> Option<Line> {
        self.in_a_row += 1;
        if self.in_a_row > IN_A_ROW_MAX {
            self.in_a_row = 0;
            tokio::task::yield_now().await;
        }
        while let Ok(chunk) = self.reader.fill_buf().await {
            if chunk.is_empty() {
                break;
            }
            let end = chunk.iter().position(|byte| *byte == b'\n');
            let part = &chunk[..end.unwrap_or(chunk.len())];
            let begun = self.begun.get_or_insert_default();
            let room = self.bytes_max - begun.bytes.len();
            begun.is_cut |= part.len() > room;
            begun.bytes.extend_from_slice(&part[..part.len().min(room)]);
            let read = end.map_or(chunk.len(), |end| end + 1);
            self.reader.consume(read);
            if end.is_some() {
                return self.rest().map(|line| Line { is_whole: true, ..line });
            }
        }
        self.rest()
    }

    /// What there is of a line that has not ended.
    pub(crate) fn rest(&mut self) -> Option<Line> {
        let Begun { bytes, is_cut } = self.begun.take()?;
        let text = String::from_utf8_lossy(&bytes).trim_end().into();
        Some(Line { text, is_cut, is_whole: false })
    }

    /// Whether another whole line has arrived.
    pub(crate) fn has_more(&self) -> bool {
        self.reader.buffer().contains(&b'\n')
    }
}

/// The next line of a pipe, if there is one.
pub(crate) async fn next<R: AsyncRead + Unpin>(lines: &mut Option<Lines<R>>) -> Option<Line> {
    lines.as_mut()?.next().await
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

    /// The lines, or nothing. What is too long loses its beginning.
    pub(crate) fn text(&self) -> Option<String> {
        let text = self.0.iter().map(String::as_str).collect::<Vec<_>>().join("\n");
        if text.len() > ERROR_TAIL_BYTES_MAX {
            let from = text.ceil_char_boundary(text.len() - ERROR_TAIL_BYTES_MAX);
            return Some(format!("…{}", &text[from..]));
        }
        (!text.trim().is_empty()).then_some(text)
    }
}

#[cfg(test)]
mod tests {
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

    #[tokio::test]
    async fn what_was_read_of_a_line_survives_a_read_that_is_given_up() {
        let (mut to, from) = tokio::io::duplex(64);
        let mut lines = Lines::new(from, 10);
        tokio::io::AsyncWriteExt::write_all(&mut to, b"a\nb").await.unwrap();
        assert_eq!(lines.next().await.unwrap().text, "a");
        assert!(!lines.has_more());
        assert!(futures_util::FutureExt::now_or_never(lines.next()).is_none());
        let rest = lines.rest().unwrap();
        assert_eq!((rest.text.as_str(), rest.is_whole), ("b", false));
        assert_eq!(lines.rest(), None);
    }

    #[tokio::test]
    async fn lines_without_end_leave_time_for_others() {
        let mut lines = Lines::new(tokio::io::repeat(b'\n'), 10);
        let mut read = 0;
        let reading = async {
            while lines.next().await.is_some() {
                read += 1;
            }
        };
        assert!(futures_util::FutureExt::now_or_never(reading).is_none());
        assert_eq!(read, IN_A_ROW_MAX);
    }

    #[test]
    fn the_last_words_are_kept() {
        let mut tail = Tail::default();
        tail.add(&"é".repeat(10_000));
        tail.add("the reason");
        let text = tail.text().unwrap();
        assert!(text.starts_with("…é") && text.ends_with("é\nthe reason"), "{text}");
        assert!(text.len() < ERROR_TAIL_BYTES_MAX + 8);
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
