//! Durations: `10s`.

use std::borrow::Cow;
use std::fmt;
use std::time::Duration;

use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
use serde::{Deserializer, de};

use super::explain;
use crate::protocol::schema::LENGTH_PATTERN;

pub(super) fn length<'de, D: Deserializer<'de>>(from: D) -> Result<Option<Duration>, D::Error> {
    from.deserialize_any(LengthText).map(Some)
}

/// Reads `10s`; a bare number has no unit.
pub(super) struct LengthText;

impl JsonSchema for LengthText {
    fn inline_schema() -> bool {
        true
    }
    fn schema_name() -> Cow<'static, str> {
        "LengthText".into()
    }
    fn json_schema(_: &mut SchemaGenerator) -> Schema {
        json_schema!({ "type": "string", "pattern": LENGTH_PATTERN })
    }
}

impl de::Visitor<'_> for LengthText {
    type Value = Duration;
    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(explain::LENGTH)
    }
    fn visit_str<E: de::Error>(self, text: &str) -> Result<Duration, E> {
        seriatim::duration::parse(text).map_err(|e| E::custom(e.message()))
    }
}
