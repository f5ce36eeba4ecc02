//! A number per period, as people write it: `500/s`.

use std::fmt;
use std::str::FromStr;
use std::time::Duration;

use serde::de::{self, Deserializer};
use serde::{Deserialize, Serialize, Serializer};

use crate::model::error::{Error, Result};

/// Most in a period.
const COUNT_MAX: u32 = 1_000_000;

/// A number per second, minute or hour; as text `500/s`, `30/m` or `1000/h`. The number must be 1 to 1,000,000; another
/// one is refused when the queue is declared.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Rate {
    count: u32,
    per: Per,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Per {
    Second,
    Minute,
    Hour,
}

impl Per {
    const ALL: [Self; 3] = [Self::Second, Self::Minute, Self::Hour];

    fn name(self) -> &'static str {
        match self {
            Self::Second => "s",
            Self::Minute => "m",
            Self::Hour => "h",
        }
    }

    fn seconds(self) -> u32 {
        match self {
            Self::Second => 1,
            Self::Minute => 60,
            Self::Hour => 3_600,
        }
    }
}

impl Rate {
    /// This many per second, 1 to 1,000,000.
    pub fn per_second(count: u32) -> Self {
        Self { count, per: Per::Second }
    }

    /// This many per minute, 1 to 1,000,000.
    pub fn per_minute(count: u32) -> Self {
        Self { count, per: Per::Minute }
    }

    /// This many per hour, 1 to 1,000,000.
    pub fn per_hour(count: u32) -> Self {
        Self { count, per: Per::Hour }
    }

    /// Refuses 0 and more than [`COUNT_MAX`].
    pub(crate) fn validate(self) -> Result<()> {
        match (1..=COUNT_MAX).contains(&self.count) {
            true => Ok(()),
            false => Err(Error::invalid("rate", wanted(&self.to_string()))),
        }
    }

    /// The time between two, in nanoseconds.
    pub(crate) fn interval(self) -> i64 {
        let period = i64::from(self.per.seconds()) * 1_000_000_000;
        let count = i64::from(self.count.max(1));
        (period + count - 1) / count
    }

    /// How long this many take.
    pub fn time_of(self, count: u64) -> Duration {
        let seconds = count as f64 * f64::from(self.per.seconds()) / f64::from(self.count);
        Duration::try_from_secs_f64(seconds).unwrap_or(Duration::MAX)
    }

    /// How many in this time, at least one.
    pub fn count_in(self, time: Duration) -> u64 {
        let count = time.as_secs_f64() * f64::from(self.count) / f64::from(self.per.seconds());
        (count as u64).max(1)
    }
}

impl fmt::Display for Rate {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", self.count, self.per.name())
    }
}

impl FromStr for Rate {
    type Err = String;

    fn from_str(text: &str) -> std::result::Result<Self, String> {
        let wanted = || wanted(text);
        let (count, per) = text.split_once('/').ok_or_else(wanted)?;
        let count = count.parse().ok().filter(|count| (1..=COUNT_MAX).contains(count));
        let per = Per::ALL.into_iter().find(|known| known.name() == per);
        Ok(Self { count: count.ok_or_else(wanted)?, per: per.ok_or_else(wanted)? })
    }
}

fn wanted(text: &str) -> String {
    format!(
        "write 1 to {COUNT_MAX} in a second, minute or hour: `500/s`, `30/m`, `1000/h`, not {text:?}"
    )
}

impl Serialize for Rate {
    fn serialize<S: Serializer>(&self, to: S) -> std::result::Result<S::Ok, S::Error> {
        to.collect_str(self)
    }
}

impl<'de> Deserialize<'de> for Rate {
    fn deserialize<D: Deserializer<'de>>(from: D) -> std::result::Result<Self, D::Error> {
        from.deserialize_str(RateText)
    }
}

/// Reads `100/s`; a bare number has no period.
struct RateText;

impl de::Visitor<'_> for RateText {
    type Value = Rate;
    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a rate in quotes: \"500/s\", \"30/m\" or \"1000/h\"")
    }
    fn visit_str<E: de::Error>(self, text: &str) -> std::result::Result<Rate, E> {
        text.parse().map_err(E::custom)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_rate_is_a_number_in_a_second_a_minute_or_an_hour() {
        let read = |text: &str| text.parse::<Rate>();
        for text in ["500/s", "30/m", "1000000/h", "1/s"] {
            assert_eq!(read(text).unwrap().to_string(), text);
        }
        for text in ["", "500", "0/s", "-1/s", "1000001/s", "5/d", "5/ s", "1.5/s", "/s"] {
            assert!(read(text).unwrap_err().contains("`500/s`"), "{text}");
        }
    }

    #[test]
    fn a_rate_says_how_long_so_many_take() {
        let rate: Rate = "30/m".parse().unwrap();
        assert_eq!(rate.time_of(90), Duration::from_secs(180));
        assert_eq!(
            (rate.count_in(Duration::from_secs(20)), rate.count_in(Duration::ZERO)),
            (10, 1)
        );
    }
}
