//! What a request asks for, in words: of its body each field, in short.

use std::fmt;

use serde::de::{DeserializeSeed, Deserializer, Error, IgnoredAny, MapAccess, SeqAccess, Visitor};

use super::super::limits::AUDIT_ASKED_BYTES_MAX;
use crate::base::text::one_line;

/// Values of a list that are shown.
const LIST_SHOWN_MAX: usize = 3;
/// Fields of an object that are shown.
const FIELDS_SHOWN_MAX: usize = 24;
/// Longest text that is shown whole, in bytes.
const TEXT_BYTES_MAX: usize = 100;
/// The field whose value is not shown.
const PAYLOAD: &str = "payload";
/// Objects within objects that are shown.
const DEPTH_MAX: usize = 3;

/// The words for a body; none where there is none, or what is none.
pub(super) fn in_words(body: &[u8]) -> Option<String> {
    if body.iter().all(u8::is_ascii_whitespace) {
        return None;
    }
    let mut reader = serde_json::Deserializer::from_slice(body);
    let Ok(piece) = (Words { depth: 0 }).deserialize(&mut reader) else {
        return Some("invalid JSON".to_owned());
    };
    let mut words = match piece {
        Piece::Fields(fields) => fields,
        piece => piece.of("value"),
    };
    cut(&mut words, AUDIT_ASKED_BYTES_MAX);
    Some(words)
}

fn cut(text: &mut String, bytes_max: usize) {
    if text.len() > bytes_max {
        text.truncate(text.floor_char_boundary(bytes_max));
        text.push('…');
    }
}

enum Piece {
    True,
    Plain(String),
    List(usize, String),
    Fields(String),
}

impl Piece {
    /// It as a field of this name: `all`, `mode: "fifo"`, `2000 jobs: "a", "b", …`.
    fn of(self, name: &str) -> String {
        match self {
            Self::True => name.to_owned(),
            Self::Plain(text) => format!("{name}: {text}"),
            Self::List(count, shown) => format!("{count} {name}: {shown}"),
            Self::Fields(fields) => format!("{name}: {{{fields}}}"),
        }
    }
}

struct Words {
    depth: usize,
}

impl<'de> DeserializeSeed<'de> for Words {
    type Value = Piece;
    fn deserialize<D: Deserializer<'de>>(self, from: D) -> Result<Piece, D::Error> {
        from.deserialize_any(self)
    }
}

impl<'de> Visitor<'de> for Words {
    type Value = Piece;
    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("JSON")
    }
    fn visit_bool<E: Error>(self, value: bool) -> Result<Piece, E> {
        Ok(if value { Piece::True } else { Piece::Plain("false".to_owned()) })
    }
    fn visit_unit<E: Error>(self) -> Result<Piece, E> {
        Ok(Piece::Plain("null".to_owned()))
    }
    fn visit_u64<E: Error>(self, value: u64) -> Result<Piece, E> {
        Ok(Piece::Plain(value.to_string()))
    }
    fn visit_i64<E: Error>(self, value: i64) -> Result<Piece, E> {
        Ok(Piece::Plain(value.to_string()))
    }
    fn visit_f64<E: Error>(self, value: f64) -> Result<Piece, E> {
        Ok(Piece::Plain(value.to_string()))
    }
    fn visit_str<E: Error>(self, text: &str) -> Result<Piece, E> {
        let mut text = one_line(&text[..text.floor_char_boundary(TEXT_BYTES_MAX * 2)]);
        cut(&mut text, TEXT_BYTES_MAX);
        Ok(Piece::Plain(format!("{text:?}")))
    }
    fn visit_seq<A: SeqAccess<'de>>(self, mut list: A) -> Result<Piece, A::Error> {
        let (mut count, mut shown) = (0, Vec::new());
        while count < LIST_SHOWN_MAX && self.depth < DEPTH_MAX {
            let Some(piece) = list.next_element_seed(Self { depth: self.depth + 1 })? else {
                break;
            };
            count += 1;
            shown.push(match piece {
                Piece::True => "true".to_owned(),
                Piece::Plain(text) => text,
                Piece::List(count, _) => format!("a list of {count}"),
                Piece::Fields(fields) => format!("{{{fields}}}"),
            });
        }
        let told = count;
        while list.next_element::<IgnoredAny>()?.is_some() {
            count += 1;
        }
        if count > told {
            shown.push("…".to_owned());
        }
        Ok(Piece::List(count, shown.join(", ")))
    }
    fn visit_map<A: MapAccess<'de>>(self, mut fields: A) -> Result<Piece, A::Error> {
        let (mut more, mut shown) = (0, Vec::new());
        while let Some(name) = fields.next_key::<String>()? {
            if shown.len() >= FIELDS_SHOWN_MAX || self.depth >= DEPTH_MAX {
                fields.next_value::<IgnoredAny>()?;
                more += 1;
                continue;
            }
            if name == PAYLOAD {
                // What jobs are about is no matter of the log, and may be secret.
                fields.next_value::<IgnoredAny>()?;
                shown.push(format!("another {PAYLOAD}"));
                continue;
            }
            let piece = fields.next_value_seed(Self { depth: self.depth + 1 })?;
            let mut name = one_line(&name[..name.floor_char_boundary(TEXT_BYTES_MAX * 2)]);
            cut(&mut name, TEXT_BYTES_MAX);
            shown.push(piece.of(&name));
        }
        if more > 0 {
            shown.push(format!("{more} more fields"));
        }
        Ok(Piece::Fields(shown.join(", ")))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_asked_for_is_told_however_it_was_written() {
        let spaces = " ".repeat(5_000);
        let many = format!("{{\"jobs\":[{}\"j\"]}}", "\"j\",".repeat(1_999));
        let cases = [
            (format!("{spaces}{{\"all\":{spaces}true}}"), "all"),
            ("{\"\\u0061ll\":true}".to_owned(), "all"),
            (many, r#"2000 jobs: "j", "j", "j", …"#),
            (r#"{"keys":["a\u202eb\r"]}"#.to_owned(), r#"1 keys: "a\\u{202e}b""#),
            (
                r#"{"mode":"fifo","backoff":{"kind":"linear"}}"#.to_owned(),
                r#"mode: "fifo", backoff: {kind: "linear"}"#,
            ),
            (
                r#"{"job_id":"j","payload":{"password":1}}"#.to_owned(),
                r#"job_id: "j", another payload"#,
            ),
            ("{\"all\"".to_owned(), "invalid JSON"),
            ("7".to_owned(), "value: 7"),
        ];
        for (body, words) in cases {
            assert_eq!(in_words(body.as_bytes()).as_deref(), Some(words), "{}", body.len());
        }
        assert_eq!(in_words(spaces.as_bytes()), None);
        let long = format!("{{\"a\":\"{}\"{}}}", "x".repeat(900_000), ",\"b\":[1]".repeat(50_000));
        assert!(in_words(long.as_bytes()).is_some_and(|words| words.len() < 1_100));
    }
}
