//! JSON Pointers (RFC 6901): places in a JSON document.

use std::collections::BTreeMap;
use std::fmt;

use serde::de::{Deserializer, Error};
use serde::{Deserialize, Serialize, Serializer};
use serde_json::value::RawValue;

/// Longest pointer, in bytes.
const BYTES_MAX: usize = 512;

/// `/args/0/id`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Pointer {
    text: String,
    parts: Vec<String>,
}

impl Pointer {
    pub(crate) fn read(text: &str) -> Result<Self, String> {
        if text.len() > BYTES_MAX {
            return Err(format!("has {} bytes: at most {BYTES_MAX}", text.len()));
        }
        let Some(rest) = text.strip_prefix('/') else {
            return Err(format!("{text:?} is not a JSON Pointer: write one such as \"/args/0\""));
        };
        let parts = rest.split('/').map(unescaped).collect::<Option<_>>().ok_or_else(|| {
            format!("{text:?} has a `~` that is not an escape: write ~0 for ~ and ~1 for /")
        })?;
        Ok(Self { text: text.to_owned(), parts })
    }

    /// The text at this place, as it is written in the document. Of repeated names the last one counts, as nearly all
    /// readers of JSON have it.
    pub(crate) fn at<'a>(&self, document: &'a RawValue) -> Option<&'a RawValue> {
        self.parts.iter().try_fold(document, |place, part| step(place, part))
    }
}

impl fmt::Display for Pointer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.text)
    }
}

impl<'de> Deserialize<'de> for Pointer {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        Self::read(&String::deserialize(from)?).map_err(D::Error::custom)
    }
}

impl Serialize for Pointer {
    fn serialize<S: Serializer>(&self, to: S) -> Result<S::Ok, S::Error> {
        to.serialize_str(&self.text)
    }
}

fn unescaped(part: &str) -> Option<String> {
    let mut pieces = part.split('~');
    let mut whole = pieces.next().unwrap_or_default().to_owned();
    for piece in pieces {
        let (mark, rest) = piece.split_at_checked(1)?;
        whole.push(match mark {
            "0" => '~',
            "1" => '/',
            _ => return None,
        });
        whole.push_str(rest);
    }
    Some(whole)
}

fn step<'a>(place: &'a RawValue, part: &str) -> Option<&'a RawValue> {
    let text = place.get();
    if text.starts_with('{') {
        return serde_json::from_str::<BTreeMap<String, &RawValue>>(text).ok()?.remove(part);
    }
    let is_number =
        part == "0" || !part.starts_with('0') && part.bytes().all(|b| b.is_ascii_digit());
    if !text.starts_with('[') || !is_number {
        return None;
    }
    let list: Vec<&RawValue> = serde_json::from_str(text).ok()?;
    list.get(part.parse::<usize>().ok()?).copied()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(pointer: &str, document: &str) -> Option<String> {
        let document: Box<RawValue> = serde_json::from_str(document).unwrap();
        Some(Pointer::read(pointer).unwrap().at(&document)?.get().to_owned())
    }

    #[test]
    fn a_pointer_finds_the_text_of_a_value_as_it_is_written() {
        let document =
            r#"{"args":[{"id": 98765432109876543210,"a/b":1,"~":2,"id2":[1.50]}],"args2":0}"#;
        for (pointer, found) in [
            ("/args/0/id", Some("98765432109876543210")),
            ("/args/0/a~1b", Some("1")),
            ("/args/0/~0", Some("2")),
            ("/args/0/id2/0", Some("1.50")),
            ("/args/1", None),
            ("/args/00", None),
            ("/args/-", None),
            ("/args/", None),
            ("/args2/0", None),
            ("/none", None),
        ] {
            assert_eq!(at(pointer, document).as_deref(), found, "{pointer}");
        }
        assert_eq!(at("/a", r#"{"a":1,"a":2}"#).as_deref(), Some("2"));
    }

    #[test]
    fn a_pointer_that_cannot_be_followed_is_refused() {
        for wrong in ["", "args/0", "/a~2", "/a~"] {
            assert!(Pointer::read(wrong).is_err(), "{wrong}");
        }
        assert!(Pointer::read(&format!("/{}", "a".repeat(BYTES_MAX))).is_err());
    }
}
