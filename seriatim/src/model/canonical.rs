//! The canonical form of a JSON document: equal documents have the same one, however they are written.
//!
//! It is written while the document is read. A tree of values would take up to a hundred times the memory of the
//! text, and any producer can push the text.

use std::fmt;
use std::ops::Range;

use serde::Serialize;
use serde::de::{DeserializeSeed, Deserializer, Error, MapAccess, SeqAccess, Visitor};

use super::numbers::Numbers;

/// The document with sorted keys, the last of repeated keys, and no white space. Integers of any length are exact. `None`
/// if it is not JSON.
pub(crate) fn canonical(text: &[u8]) -> Option<Vec<u8>> {
    let mut out = Vec::with_capacity(text.len());
    let mut reader = serde_json::Deserializer::from_slice(text);
    let mut numbers = Numbers::of(text);
    Writer(&mut out, &mut numbers).deserialize(&mut reader).ok()?;
    reader.end().ok()?;
    Some(out)
}

/// Appends a value to the output.
struct Writer<'a, 't>(&'a mut Vec<u8>, &'a mut Numbers<'t>);

impl Writer<'_, '_> {
    fn write<E: Error>(self, value: impl Serialize) -> Result<(), E> {
        serde_json::to_writer(self.0, &value).map_err(E::custom)
    }
}

impl<'de> DeserializeSeed<'de> for Writer<'_, '_> {
    type Value = ();
    fn deserialize<D: Deserializer<'de>>(self, from: D) -> Result<(), D::Error> {
        from.deserialize_any(self)
    }
}

impl<'de> Visitor<'de> for Writer<'_, '_> {
    type Value = ();
    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("JSON")
    }
    fn visit_unit<E: Error>(self) -> Result<(), E> {
        self.write(())
    }
    fn visit_bool<E: Error>(self, value: bool) -> Result<(), E> {
        self.write(value)
    }
    fn visit_u64<E: Error>(self, value: u64) -> Result<(), E> {
        self.write(value)
    }
    fn visit_i64<E: Error>(self, value: i64) -> Result<(), E> {
        self.write(value)
    }
    fn visit_f64<E: Error>(self, value: f64) -> Result<(), E> {
        match self.1.next_as(value) {
            Ok(Some(integer)) => self.0.extend_from_slice(integer),
            Ok(None) => self.write(value)?,
            Err(()) => return Err(E::custom("another number was expected")),
        }
        Ok(())
    }
    fn visit_str<E: Error>(self, text: &str) -> Result<(), E> {
        self.write(text)
    }
    fn visit_seq<A: SeqAccess<'de>>(self, mut list: A) -> Result<(), A::Error> {
        self.0.push(b'[');
        let start = self.0.len();
        loop {
            let before = self.0.len();
            if before > start {
                self.0.push(b',');
            }
            if list.next_element_seed(Writer(self.0, self.1))?.is_none() {
                self.0.truncate(before);
                self.0.push(b']');
                return Ok(());
            }
        }
    }
    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<(), A::Error> {
        let Self(out, numbers) = self;
        let start = out.len();
        let mut fields: Vec<(Box<str>, Range<usize>)> = Vec::new();
        while let Some(name) = map.next_key::<Box<str>>()? {
            let from = out.len();
            serde_json::to_writer(&mut *out, &name).map_err(A::Error::custom)?;
            out.push(b':');
            map.next_value_seed(Writer(&mut *out, &mut *numbers))?;
            fields.push((name, from..out.len()));
        }
        // Stable, so that the last of repeated keys stays last.
        fields.sort_by(|(a, _), (b, _)| a.cmp(b));
        let mut sorted = Vec::with_capacity(out.len() - start + fields.len() + 2);
        sorted.push(b'{');
        for (i, (name, place)) in fields.iter().enumerate() {
            if fields.get(i + 1).is_some_and(|(next, _)| next == name) {
                continue;
            }
            if sorted.len() > 1 {
                sorted.push(b',');
            }
            sorted.extend_from_slice(&out[place.clone()]);
        }
        sorted.push(b'}');
        out.truncate(start);
        out.extend_from_slice(&sorted);
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use serde_json::{Map, Value};

    use super::*;

    /// The canonical form, made from a tree of values.
    fn by_tree(text: &str) -> Option<String> {
        fn sorted(value: Value) -> Value {
            match value {
                Value::Array(items) => items.into_iter().map(sorted).collect(),
                Value::Object(fields) => {
                    let mut fields: Vec<_> = fields.into_iter().collect();
                    fields.sort_by(|(a, _), (b, _)| a.cmp(b));
                    let fields = fields.into_iter().map(|(name, value)| (name, sorted(value)));
                    Value::Object(fields.collect::<Map<_, _>>())
                }
                plain => plain,
            }
        }
        serde_json::from_str(text).ok().map(sorted).map(|value| value.to_string())
    }

    /// JSON with white space, repeated keys, escapes and all kinds of numbers.
    fn text() -> impl Strategy<Value = String> {
        let plain = prop_oneof![
            Just("null".to_owned()),
            Just("true".to_owned()),
            any::<i64>().prop_map(|n| n.to_string()),
            any::<u64>().prop_map(|n| n.to_string()),
            any::<f64>().prop_map(|n| format!("{n:e}")),
            Just("-0".to_owned()),
            Just("1E2".to_owned()),
            Just("1e999".to_owned()),
            Just("{".to_owned()),
            // With it all numbers are looked at.
            Just(r#""\\\"12345678901234567890""#.to_owned()),
            "[a-c]{0,2}".prop_map(|text| format!("\"\\u00e4{text}\\n\"")),
        ];
        plain.prop_recursive(4, 40, 5, |inner| {
            let field = ("[a-c]{0,1}", inner.clone())
                .prop_map(|(name, value)| format!(" \"{name}\" :{value}"));
            prop_oneof![
                proptest::collection::vec(inner, 0..5)
                    .prop_map(|of| format!("[ {} ]", of.join(" ,"))),
                proptest::collection::vec(field, 0..5)
                    .prop_map(|of| format!("{{{}}} ", of.join(","))),
            ]
        })
    }

    proptest! {
        #[test]
        fn a_tree_would_give_the_same(text in text()) {
            let written = canonical(text.as_bytes()).map(|bytes| String::from_utf8(bytes).unwrap());
            prop_assert_eq!(written, by_tree(&text));
        }
    }

    #[test]
    fn integers_of_any_length_are_exact() {
        let form = |text: &str| canonical(text.as_bytes()).map(|of| String::from_utf8(of).unwrap());
        for exact in ["[18446744073709551616]", "[18446744073709551617]", "[-9223372036854775809]"]
        {
            assert_eq!(form(exact).as_deref(), Some(exact));
        }
        let text =
            r#"{"b":[1.5,123456789012345678901234567890,-0,7],"a\"12345678901234567890123":1e3}"#;
        let expected = r#"{"a\"12345678901234567890123":1000.0,"b":[1.5,123456789012345678901234567890,-0.0,7]}"#;
        assert_eq!(form(text).as_deref(), Some(expected));
    }

    #[test]
    fn what_is_nested_too_deep_is_no_json_to_either() {
        let deep = "[".repeat(200) + &"]".repeat(200);
        assert_eq!(canonical(deep.as_bytes()), None);
        assert_eq!(by_tree(&deep), None);
        assert_eq!(canonical(b"[] x"), None);
    }
}
