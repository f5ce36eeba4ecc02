//! Durations: `10s`.

use std::fmt;
use std::time::Duration;

use serde::{Deserializer, de};

use super::explain;

pub(super) fn length<'de, D: Deserializer<'de>>(from: D) -> Result<Option<Duration>, D::Error> {
    from.deserialize_any(LengthText).map(Some)
}

/// Reads `10s`; a bare number has no unit.
struct LengthText;

impl de::Visitor<'_> for LengthText {
    type Value = Duration;
    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(explain::LENGTH)
    }
    fn visit_str<E: de::Error>(self, text: &str) -> Result<Duration, E> {
        seriatim::duration::parse(text).map_err(|e| E::custom(e.message()))
    }
}
