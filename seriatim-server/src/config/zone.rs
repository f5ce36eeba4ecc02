//! A time zone by its name.

use jiff::tz::TimeZone;
use serde::{Deserialize, Deserializer, de};

#[derive(Clone, Debug)]
pub(crate) struct Zone(pub(crate) TimeZone);

impl Default for Zone {
    fn default() -> Self {
        Self(TimeZone::UTC)
    }
}

impl<'de> Deserialize<'de> for Zone {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        let name = String::deserialize(from)?;
        let wrong =
            || format!("{name:?} is not a time zone: write UTC, or a name such as Europe/Berlin");
        TimeZone::get(&name).map(Self).map_err(|_| de::Error::custom(wrong()))
    }
}
