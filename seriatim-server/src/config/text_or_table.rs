//! Settings that are a string or a table.

use std::fmt::{self, Display};
use std::marker::PhantomData;

use serde::de::value::MapAccessDeserializer;
use serde::{Deserialize, Deserializer, de};

pub(super) enum TextOrTable<T> {
    Text(String),
    Table(T),
}

/// `expecting`: what may be written.
pub(super) fn text_or_table<'de, T: Deserialize<'de>, D: Deserializer<'de>>(
    from: D,
    expecting: impl Display,
) -> Result<TextOrTable<T>, D::Error> {
    from.deserialize_any(Read(expecting, PhantomData))
}

struct Read<E, T>(E, PhantomData<T>);

impl<'de, E: Display, T: Deserialize<'de>> de::Visitor<'de> for Read<E, T> {
    type Value = TextOrTable<T>;
    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
    fn visit_str<F>(self, text: &str) -> Result<Self::Value, F> {
        Ok(TextOrTable::Text(text.to_owned()))
    }
    fn visit_map<A: de::MapAccess<'de>>(self, map: A) -> Result<Self::Value, A::Error> {
        T::deserialize(MapAccessDeserializer::new(map)).map(TextOrTable::Table)
    }
}
