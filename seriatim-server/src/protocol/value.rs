//! Values in documents: times, durations, and JSON written by others.

use std::borrow::Cow;
use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use jiff::civil::DateTime;
use jiff::tz::TimeZone;
use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
use serde::de::{self, Deserializer, Visitor};
use serde::{Deserialize, Serialize, Serializer};
use serde_json::value::RawValue;
use seriatim::{Payload, Timestamp};

use super::schema::LENGTH_PATTERN;
use crate::base::time::{self, UNIX_SECONDS_MAX, UNIX_SECONDS_MIN, absolute};

/// A point in time: read from RFC 3339 or Unix seconds, written as RFC 3339.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Time(pub(crate) Timestamp);

/// A point in time that may be written without its zone.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum AnyTime {
    At(Timestamp),
    /// In a zone that is known elsewhere.
    Civil(DateTime),
}

/// A duration: read from `10s`, `5m` or seconds, written with its unit.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Length(pub(crate) Duration);

/// JSON written by others, passed on unchanged: as a tree of values it would take up to a hundred times its
/// length. Text that is not JSON becomes a string.
pub(crate) enum Raw {
    Payload(Payload),
    Text(Arc<str>),
}

impl Serialize for Time {
    fn serialize<S: Serializer>(&self, to: S) -> Result<S::Ok, S::Error> {
        to.serialize_str(&absolute(self.0))
    }
}

impl Serialize for Length {
    fn serialize<S: Serializer>(&self, to: S) -> Result<S::Ok, S::Error> {
        to.serialize_str(&seriatim::duration::format(self.0))
    }
}

impl Serialize for Raw {
    fn serialize<S: Serializer>(&self, to: S) -> Result<S::Ok, S::Error> {
        let bytes = match self {
            Self::Payload(payload) => payload.as_bytes(),
            Self::Text(text) => text.as_bytes(),
        };
        match serde_json::from_slice::<&RawValue>(bytes) {
            Ok(raw) => raw.serialize(to),
            Err(_) => String::from_utf8_lossy(bytes).serialize(to),
        }
    }
}

impl<'de> Deserialize<'de> for AnyTime {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        match from.deserialize_any(TextOrNumber("a time: RFC 3339 or Unix seconds"))? {
            Either::Number(seconds) if seconds < UNIX_SECONDS_MIN => {
                Err(de::Error::custom(format!(
                    "is an absolute time, and {seconds} is long past; to wait that many seconds, write `delay`"
                )))
            }
            Either::Number(seconds) if seconds > UNIX_SECONDS_MAX => {
                Err(de::Error::custom(time::too_late(seconds)))
            }
            Either::Number(seconds) => Ok(Self::At(Timestamp::from_secs_f64(seconds))),
            Either::Text(text) => match (text.parse::<jiff::Timestamp>(), text.parse()) {
                (Ok(time), _) => Ok(Self::At(Timestamp::from_micros(time.as_microsecond()))),
                (_, Ok(civil)) => Ok(Self::Civil(civil)),
                _ => Err(de::Error::custom(time::WANTED)),
            },
        }
    }
}

impl<'de> Deserialize<'de> for Time {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        match AnyTime::deserialize(from)? {
            AnyTime::At(time) => Ok(Self(time)),
            AnyTime::Civil(_) => Err(de::Error::custom(time::WANTED)),
        }
    }
}

impl AnyTime {
    /// The time, in this zone if it names none. `None` if there is no such time.
    pub(crate) fn at(self, zone: &TimeZone) -> Option<Timestamp> {
        match self {
            Self::At(time) => Some(time),
            Self::Civil(civil) => {
                let time = civil.to_zoned(zone.clone()).ok()?.timestamp();
                Some(Timestamp::from_micros(time.as_microsecond()))
            }
        }
    }
}

impl<'de> Deserialize<'de> for Length {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        match from
            .deserialize_any(TextOrNumber("a duration: 250ms, 10s, 5m or a number of seconds"))?
        {
            Either::Number(seconds) => {
                Duration::try_from_secs_f64(seconds).map(Self).map_err(|_| {
                    de::Error::custom(format!("must be 0 seconds or more, not {seconds}"))
                })
            }
            Either::Text(text) => seriatim::duration::parse(&text)
                .map(Self)
                .map_err(|e| de::Error::custom(e.message())),
        }
    }
}

enum Either {
    Text(String),
    Number(f64),
}

/// Reads either, with this description of what was expected.
struct TextOrNumber(&'static str);

impl Visitor<'_> for TextOrNumber {
    type Value = Either;
    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.0)
    }
    fn visit_str<E>(self, text: &str) -> Result<Either, E> {
        Ok(Either::Text(text.to_owned()))
    }
    fn visit_f64<E>(self, number: f64) -> Result<Either, E> {
        Ok(Either::Number(number))
    }
    fn visit_u64<E>(self, number: u64) -> Result<Either, E> {
        Ok(Either::Number(number as f64))
    }
    fn visit_i64<E>(self, number: i64) -> Result<Either, E> {
        Ok(Either::Number(number as f64))
    }
}

macro_rules! inline {
    ($type:ident, $generator:ident => $schema:expr) => {
        impl JsonSchema for $type {
            fn inline_schema() -> bool {
                true
            }
            fn schema_name() -> Cow<'static, str> {
                stringify!($type).into()
            }
            fn json_schema($generator: &mut SchemaGenerator) -> Schema {
                $schema
            }
        }
    };
}

inline!(Raw, _generator => true.into());
inline!(Time, generator => {
    let text = json_schema!({ "type": "string", "format": "date-time" });
    match generator.contract().is_serialize() {
        true => text,
        false => json_schema!({ "description": "RFC 3339, or Unix seconds", "anyOf": [
            text, { "type": "number", "minimum": UNIX_SECONDS_MIN, "maximum": UNIX_SECONDS_MAX },
        ] }),
    }
});
inline!(AnyTime, generator => Time::json_schema(generator));
inline!(Length, generator => match generator.contract().is_serialize() {
    true => json_schema!({ "type": "string" }),
    false => json_schema!({ "description": "250ms, 10s, 5m, 1h, 3d, or seconds", "anyOf": [
        { "type": "string", "pattern": LENGTH_PATTERN },
        { "type": "number", "minimum": 0, "maximum": 3e8 },
    ] }),
});

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_others_wrote_is_passed_on_unchanged() {
        let written = |text: &[u8]| {
            serde_json::to_string(&Raw::Payload(Payload::from_bytes(text.to_vec()))).unwrap()
        };
        assert_eq!(
            written(b"{\"b\": 1.0e2, \"a\":12345678901234567890123}"),
            "{\"b\": 1.0e2, \"a\":12345678901234567890123}"
        );
        assert_eq!(written(b"not \xff json"), "\"not \u{fffd} json\"");
    }

    /// What is stored in words must be read again, as the times of an operation.
    #[test]
    fn a_time_that_can_be_read_can_be_read_as_it_is_written() {
        let read = |text: &str| serde_json::from_str::<Time>(text);
        for text in
            ["1e9", "9e9", "1700000000.25", "\"9999-12-30T22:00:00Z\"", "\"0001-01-01T00:00:00Z\""]
        {
            let time = read(text).unwrap();
            let written = serde_json::to_string(&time).unwrap();
            assert_eq!(read(&written).unwrap(), time, "{text}: {written}");
        }
        for late in ["1700000000000", "1e13", "1e300"] {
            let why = read(late).unwrap_err().to_string();
            assert!(why.contains("beyond the year 2255"), "{why}");
        }
    }
}
