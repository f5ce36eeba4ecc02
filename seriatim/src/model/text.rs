//! Makes foreign texts safe for one line of a log or a terminal, and cuts them to a size.

use std::borrow::Cow;

/// Room for the marker in a cut text.
const MARKER_BYTES_MAX: usize = 40;

/// The text on one line, with control and bidirectional characters escaped: a key or an error could otherwise forge a
/// log line or move a terminal's cursor.
pub fn one_line(text: &str) -> String {
    let mut line = String::with_capacity(text.len());
    for c in text.trim_end().chars() {
        match c {
            c if is_plain(c) => line.push(c),
            c => line.extend(c.escape_default()),
        }
    }
    line
}

/// Whether `c` is neither a control character (C0, C1, DEL), nor a line separator, nor an invisible character that
/// changes the text direction.
pub fn is_plain(c: char) -> bool {
    let reorders = matches!(
        c,
        '\u{61c}' | '\u{200e}' | '\u{200f}' | '\u{2028}'..='\u{202e}' | '\u{2066}'..='\u{2069}'
    );
    !c.is_control() && !reorders
}

/// Cuts the text to `bytes_max` bytes: keeps the beginning and the end, with a marker between them that gives the
/// number of omitted bytes. Below some 40 bytes only the beginning fits.
pub fn cut_middle(text: &str, bytes_max: usize) -> Cow<'_, str> {
    if text.len() <= bytes_max {
        return Cow::Borrowed(text);
    }
    let Some(room) = bytes_max.checked_sub(MARKER_BYTES_MAX) else {
        return Cow::Borrowed(&text[..text.floor_char_boundary(bytes_max)]);
    };
    let begins = text.floor_char_boundary(room.div_ceil(2));
    let ends = text.ceil_char_boundary(text.len() - room / 2);
    let left_out = ends - begins;
    Cow::Owned(format!("{} [… {left_out} bytes left out …] {}", &text[..begins], &text[ends..]))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nothing_in_a_text_can_forge_a_line_or_move_a_cursor() {
        assert_eq!(one_line("a\u{1b}[2Jb\tc\r\nd\n"), "a\\u{1b}[2Jb\\tc\\r\\nd");
        assert_eq!(one_line("\u{9b}31m\u{85}\u{7f}x"), "\\u{9b}31m\\u{85}\\u{7f}x");
        assert_eq!(one_line("\u{202e}x\u{200f}\u{2028}y"), "\\u{202e}x\\u{200f}\\u{2028}y");
        assert_eq!(one_line("Übung 日本"), "Übung 日本");
    }

    #[test]
    fn a_long_text_keeps_its_beginning_and_its_last_words() {
        let text = format!("it began{}and so it ended", "é".repeat(5_000));
        for bytes_max in [60, 61, 4_096] {
            let cut = cut_middle(&text, bytes_max);
            assert!(cut.len() <= bytes_max, "{} of {bytes_max}", cut.len());
            assert!(cut.starts_with("it began") && cut.ends_with("ended"), "{cut}");
            let (begins, rest) = cut.split_once(" [… ").unwrap();
            let (left_out, ends) = rest.split_once(" bytes left out …] ").unwrap();
            let left_out: usize = left_out.parse().unwrap();
            assert_eq!(begins.len() + left_out + ends.len(), text.len());
        }
        assert_eq!(cut_middle(&text, 11), "it begané");
        assert_eq!(cut_middle("short", 5), "short");
        let longest = cut_middle(&text, MARKER_BYTES_MAX);
        assert!(longest.len() <= MARKER_BYTES_MAX, "{longest}");
    }
}
