//! Foreign text, made safe for a terminal.

use std::fmt::Write as _;

pub(crate) use seriatim::text::one_line;
use unicode_width::{UnicodeWidthChar, UnicodeWidthStr};

/// The byte order mark, with which programs of Windows begin a file.
pub(crate) const MARK: &str = "\u{feff}";
/// Longest message, in bytes: it may quote input.
const MESSAGE_BYTES_MAX: usize = 16 << 10;
/// The mark where a text was cut.
const CUT: &str = "…";

/// The text with its lines kept and other control characters escaped.
pub(crate) fn lines(text: &str) -> String {
    text.trim_end().lines().map(one_line).collect::<Vec<_>>().join("\n")
}

/// A message for a terminal: quoted input cannot move the cursor or fill the screen.
pub(crate) fn message(text: &str) -> String {
    seriatim::text::cut_middle(&lines(text), MESSAGE_BYTES_MAX).into_owned()
}

/// With commas between the thousands.
pub(crate) fn grouped(number: impl std::fmt::Display) -> String {
    let digits = number.to_string();
    let mut grouped = String::new();
    for (i, digit) in digits.chars().enumerate() {
        if i > 0 && (digits.len() - i).is_multiple_of(3) {
            grouped.push(',');
        }
        grouped.push(digit);
    }
    grouped
}

/// Checks of messages, for fuzz tests.
#[cfg(test)]
pub(crate) fn check_message(text: &str) {
    let told = message(text);
    assert!(told.len() <= MESSAGE_BYTES_MAX, "{} bytes", told.len());
    assert!(told.lines().all(|line| line.chars().all(seriatim::text::is_plain)), "{told:?}");
}

/// How many columns it takes.
pub(crate) fn columns(text: &str) -> usize {
    text.width()
}

/// Columns of a key in a table: one long key would widen every row.
pub(crate) const KEY_COLUMNS: usize = 60;

/// The start that fits into this many columns.
pub(crate) fn cut(text: &str, columns_max: usize) -> String {
    if text.width() <= columns_max {
        return text.to_owned();
    }
    let mut cut = String::new();
    let mut columns = CUT.width();
    for c in text.chars() {
        columns += c.width().unwrap_or(0);
        if columns > columns_max {
            break;
        }
        cut.push(c);
    }
    cut + CUT
}

/// Start and end of a text that does not fit: ids differ at their end.
pub(crate) fn cut_middle(text: &str, columns_max: usize) -> String {
    if text.width() <= columns_max {
        return text.to_owned();
    }
    let end_columns = columns_max.saturating_sub(CUT.width()) / 2;
    let (mut end, mut columns) = (text.len(), 0);
    for (at, c) in text.char_indices().rev() {
        columns += c.width().unwrap_or(0);
        if columns > end_columns {
            break;
        }
        end = at;
    }
    cut(text, columns_max - text[end..].width()) + &text[end..]
}

/// A number of bytes: `812 B`, `3.4 MiB`.
pub(crate) fn size(bytes: u64) -> String {
    const UNITS: [&str; 5] = ["KiB", "MiB", "GiB", "TiB", "PiB"];
    if bytes < 1_024 {
        return format!("{bytes} B");
    }
    let (mut value, mut unit) = (bytes as f64 / 1_024.0, 0);
    while value >= 1_023.95 && unit + 1 < UNITS.len() {
        value /= 1_024.0;
        unit += 1;
    }
    format!("{value:.1} {}", UNITS[unit])
}

/// A text as one word of a shell's command. For a terminal, escape it with [`one_line`] before.
pub(crate) fn shell_word(text: &str) -> String {
    let is_plain = |c: char| c.is_ascii_alphanumeric() || "_./:@%+=,-".contains(c);
    match !text.is_empty() && text.chars().all(is_plain) {
        true => text.to_owned(),
        false => format!("'{}'", text.replace('\'', "'\\''")),
    }
}

/// A text as an operand of a command, also if it begins like an option.
pub(crate) fn operand(text: &str) -> String {
    let word = shell_word(text);
    if text.starts_with('-') { format!("-- {word}") } else { word }
}

/// A name as one part of a key of TOML: a dot would divide it.
pub(crate) fn toml_key(name: &str) -> String {
    let is_bare = |c: char| c.is_ascii_alphanumeric() || "_-".contains(c);
    match !name.is_empty() && name.chars().all(is_bare) {
        true => name.to_owned(),
        false => format!("{name:?}"),
    }
}

/// JSON on one line, in which no character hides or turns the others: so it is pushed as it is read.
pub(crate) fn json_plain(json: &str) -> String {
    let mut plain = String::with_capacity(json.len());
    for c in json.chars() {
        match c {
            // Between values: within them they are escaped already.
            '\n' | '\r' | '\t' => plain.push(' '),
            c if seriatim::text::is_plain(c) => plain.push(c),
            c => {
                let units = c.encode_utf16(&mut [0; 2]).to_vec();
                plain.extend(units.iter().map(|unit| format!("\\u{unit:04x}")));
            }
        }
    }
    plain
}

/// Bytes as hexadecimal digits.
pub(crate) fn hex(bytes: &[u8]) -> String {
    bytes.iter().fold(String::with_capacity(bytes.len() * 2), |mut text, byte| {
        // Writing to a String cannot fail.
        let _ = write!(text, "{byte:02x}");
        text
    })
}

/// `1 lane`, `2 lanes`, `2 batches`.
pub(crate) fn count(number: u64, noun: &str) -> String {
    let plural = if noun.ends_with("ch") { "es" } else { "s" };
    format!("{number} {noun}{}", if number == 1 { "" } else { plural })
}

/// How often it failed, in a table: a dash before the first failure. The retry count is one less.
pub(crate) fn failures(retry_count: i32) -> String {
    if retry_count < 0 { "-".to_owned() } else { (i64::from(retry_count) + 1).to_string() }
}

pub(crate) fn retries_in_words(retry_count: i32) -> String {
    match retry_count {
        ..0 => "none: it has not failed".to_owned(),
        0 => "0: it failed once".to_owned(),
        several => format!("{several}: it failed {} times", several + 1),
    }
}

/// The URL without user, password and parameters, which may name a password too.
pub(crate) fn without_password(url: &str) -> String {
    let Some((scheme, rest)) = url.split_once("://") else { return url.to_owned() };
    let (address, parameters) = rest.split_once('?').unwrap_or((rest, ""));
    // With an `@` behind it the `?` may stand in the middle of a password.
    let address = if parameters.contains('@') { "…" } else { address };
    format!("{scheme}://{}", address.rsplit_once('@').map_or(address, |(_, host)| host))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bytes_are_told_in_a_unit_that_fits() {
        let told = [0, 1_023, 1_024, 1_048_575, 3 << 30, u64::MAX].map(size);
        assert_eq!(told, ["0 B", "1023 B", "1.0 KiB", "1.0 MiB", "3.0 GiB", "16384.0 PiB"]);
    }

    #[test]
    fn thousands_have_commas() {
        assert_eq!([0, 999, 1_000, 1_234_567].map(grouped), ["0", "999", "1,000", "1,234,567"]);
    }

    #[test]
    fn a_word_of_a_shell_is_quoted_if_the_shell_would_read_more_than_letters() {
        let words = ["a-7", "", "a b", "it's", "$(x)"].map(shell_word);
        assert_eq!(words, ["a-7", "''", "'a b'", r"'it'\''s'", "'$(x)'"]);
        assert_eq!(["a-7", "--all x"].map(operand), ["a-7", "-- '--all x'"]);
    }

    #[test]
    fn a_part_of_a_key_of_toml_is_quoted_unless_it_is_bare() {
        for name in ["mails", "a-b_7", "seriatim.exhausted", "Shop::Sync", ""] {
            let text = format!("[queues.{}]", toml_key(name));
            let table: toml::Table = toml::from_str(&text).unwrap();
            assert!(table["queues"][name].is_table(), "{text}");
        }
        assert_eq!(["mails", "a.b"].map(toml_key), ["mails", "\"a.b\""]);
    }

    #[test]
    fn json_says_the_same_without_characters_that_hide() {
        let json = "{\n\t\"a\": \"x\u{202e}y\u{e0001} \u{9b}é\" }";
        let plain = json_plain(json);
        assert!(!plain.contains(['\n', '\t', '\u{202e}', '\u{9b}']), "{plain}");
        let read = |text: &str| serde_json::from_str::<serde_json::Value>(text).unwrap();
        assert_eq!(read(&plain), read(json));
    }

    #[test]
    fn control_characters_do_not_reach_the_terminal() {
        assert_eq!(lines("a\nb\u{7}\n"), "a\nb\\u{7}");
    }

    #[test]
    fn a_long_text_is_cut_by_columns() {
        assert_eq!(cut("abcdef", 6), "abcdef");
        assert_eq!(cut("abcdefg", 6), "abcde…");
        assert_eq!(cut("日本語の文", 6), "日本…");
        assert_eq!(cut("abc", 1), "…");
        assert_eq!(cut_middle("host-660c5a518578f-72246dd9", 15), "host-66…2246dd9");
        assert_eq!(cut_middle("a-1", 15), "a-1");
        assert_eq!(cut_middle("日本語の文", 7), "日本…文");
    }

    #[test]
    fn a_password_is_not_shown() {
        assert_eq!(without_password("postgres://me:se@cret@host/db"), "postgres://host/db");
        assert_eq!(without_password("postgres://me@host/db?password=secret"), "postgres://host/db");
        assert_eq!(without_password("postgres://me:sec?ret@host/db"), "postgres://…");
        assert_eq!(without_password("sqlite:a@b.db"), "sqlite:a@b.db");
        assert_eq!(without_password("redis://host:1"), "redis://host:1");
    }
}
