//! Durations in text form: `250ms`, `10s`, `5m`, `1h`, `3d`.

use std::fmt;
use std::time::Duration;

use serde::{Deserialize, Deserializer, Serializer, de};

use crate::model::error::{Error, Result};

/// The units, longest first, in microseconds.
const UNITS: [(&str, u64); 6] = [
    ("d", 86_400_000_000),
    ("h", 3_600_000_000),
    ("m", 60_000_000),
    ("s", 1_000_000),
    ("ms", 1_000),
    ("us", 1),
];

/// Reads `250ms`, `10s`, `1.5h`; units can be combined (`1h30m`). A bare `0` is zero.
pub fn parse(text: &str) -> Result<Duration> {
    let wrong = || {
        let message = format!("{text:?} is not a duration: write 250ms, 10s, 5m, 1h or 3d");
        Error::invalid("duration", message)
    };
    if text == "0" {
        return Ok(Duration::ZERO);
    }
    let mut rest = text;
    let mut micros = 0f64;
    while !rest.is_empty() {
        let digits = rest.find(|c: char| !c.is_ascii_digit() && c != '.').ok_or_else(wrong)?;
        let (number, tail) = rest.split_at(digits);
        let letters = tail.find(|c: char| !c.is_ascii_alphabetic()).unwrap_or(tail.len());
        let (unit, after) = tail.split_at(letters);
        let (_, each) = UNITS.iter().find(|(name, _)| *name == unit).ok_or_else(wrong)?;
        micros += number.parse::<f64>().map_err(|_| wrong())? * *each as f64;
        rest = after;
    }
    if text.is_empty() || !(0.0..9e18).contains(&micros) {
        return Err(wrong());
    }
    Ok(Duration::from_micros(micros.round() as u64))
}

/// Writes a duration in the largest unit that gives a whole number.
pub fn format(length: Duration) -> String {
    let micros = length.as_micros();
    if micros == 0 {
        return "0".to_owned();
    }
    UNITS.iter().find(|(_, each)| micros.is_multiple_of(u128::from(*each))).map_or_else(
        || format!("{micros}us"),
        |(unit, each)| format!("{}{unit}", micros / u128::from(*each)),
    )
}

/// Writes an approximate length, in its two largest units: `0.4s`, `12s`, `3m20s`, `2h05m`, `4d3h`.
pub fn rounded(length: Duration) -> String {
    const MINUTE: u64 = 60;
    const HOUR: u64 = 60 * MINUTE;
    const DAY: u64 = 24 * HOUR;
    let seconds = length.as_secs();
    match seconds {
        0 if length.is_zero() => "0s".to_owned(),
        0..10 => format!("{:.1}s", length.as_secs_f64()),
        10..MINUTE => format!("{seconds}s"),
        MINUTE..HOUR => format!("{}m{:02}s", seconds / MINUTE, seconds % MINUTE),
        HOUR..DAY => format!("{}h{:02}m", seconds / HOUR, seconds % HOUR / MINUTE),
        _ => format!("{}d{}h", seconds / DAY, seconds % DAY / HOUR),
    }
}

pub(crate) fn serialize<S: Serializer>(length: &Duration, to: S) -> Result<S::Ok, S::Error> {
    to.serialize_str(&format(*length))
}

pub(crate) fn deserialize<'de, D: Deserializer<'de>>(from: D) -> Result<Duration, D::Error> {
    from.deserialize_str(Text)
}

/// Reads a duration in text form, and says what it expects instead of a bare number.
struct Text;

impl de::Visitor<'_> for Text {
    type Value = Duration;
    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a duration")
    }
    fn visit_str<E: de::Error>(self, text: &str) -> std::result::Result<Duration, E> {
        parse(text).map_err(|e| E::custom(e.message()))
    }
}

/// The same for an optional duration.
pub(crate) mod optional {
    use super::{Deserialize, Deserializer, Duration, Result, Serializer, format};

    #[derive(Deserialize)]
    struct Whole(#[serde(deserialize_with = "super::deserialize")] Duration);

    // Serde passes a reference to the field.
    #[allow(clippy::ref_option)]
    pub(crate) fn serialize<S: Serializer>(
        length: &Option<Duration>,
        to: S,
    ) -> Result<S::Ok, S::Error> {
        match length {
            Some(length) => to.serialize_some(&format(*length)),
            None => to.serialize_none(),
        }
    }

    pub(crate) fn deserialize<'de, D: Deserializer<'de>>(
        from: D,
    ) -> Result<Option<Duration>, D::Error> {
        let length = Option::<Whole>::deserialize(from)?;
        Ok(length.map(|Whole(length)| length))
    }
}
