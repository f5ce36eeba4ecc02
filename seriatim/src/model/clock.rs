//! Points in time as the stores keep them: whole microseconds since 1970.

use std::fmt;
use std::ops::{Add, Sub};
use std::time::Duration;

use serde::{Deserialize, Serialize};

/// Microseconds since the Unix epoch. Arithmetic saturates: no input can overflow it.
#[derive(
    Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize,
)]
#[serde(transparent)]
pub struct Timestamp(i64);

impl Timestamp {
    /// The latest time that every store can keep exactly: 2^53 − 1 µs, in the year 2255.
    pub const MAX: Self = Self((1 << 53) - 1);

    /// A time from microseconds since the epoch.
    pub const fn from_micros(micros: i64) -> Self {
        Self(micros)
    }

    /// A time from seconds since the epoch. NaN becomes 0; microseconds beyond `i64` become `i64::MIN` or `i64::MAX`.
    pub fn from_secs_f64(seconds: f64) -> Self {
        Self((seconds * 1e6).round() as i64)
    }

    /// Microseconds since the epoch.
    pub const fn as_micros(self) -> i64 {
        self.0
    }

    /// Seconds since the epoch, as a score uses them.
    pub fn as_secs_f64(self) -> f64 {
        self.0 as f64 / 1e6
    }

    /// As RFC 3339 in UTC, for messages.
    pub(crate) fn utc(self) -> String {
        let (seconds, micros) = (self.0.max(0) / 1_000_000, self.0.max(0) % 1_000_000);
        let (mut days, of_day) = (seconds / 86_400, seconds % 86_400);
        let is_leap = |year: i64| year % 4 == 0 && (year % 100 != 0 || year % 400 == 0);
        let mut year = 1970;
        while days >= 365 + i64::from(is_leap(year)) {
            days -= 365 + i64::from(is_leap(year));
            year += 1;
        }
        let february = 28 + i64::from(is_leap(year));
        let mut month = 1;
        for length in [31, february, 31, 30, 31, 30, 31, 31, 30, 31, 30] {
            if days < length {
                break;
            }
            (days, month) = (days - length, month + 1);
        }
        let (hour, minute, second) = (of_day / 3_600, of_day / 60 % 60, of_day % 60);
        let day = days + 1;
        format!("{year}-{month:02}-{day:02}T{hour:02}:{minute:02}:{second:02}.{micros:06}Z")
    }

    /// The time from `earlier` to this; zero if `earlier` is later.
    pub fn since(self, earlier: Self) -> Duration {
        Duration::from_micros(u64::try_from(self.0.saturating_sub(earlier.0)).unwrap_or(0))
    }
}

/// Microseconds of a length, at most those of [`Timestamp::MAX`]: adding it to a time overflows nothing.
pub(crate) fn micros(length: Duration) -> i64 {
    i64::try_from(length.as_micros()).unwrap_or(i64::MAX).min(Timestamp::MAX.0)
}

impl Add<Duration> for Timestamp {
    type Output = Self;
    fn add(self, length: Duration) -> Self {
        Self(self.0.saturating_add(micros(length))).min(Self::MAX)
    }
}

impl Sub<Duration> for Timestamp {
    type Output = Self;
    fn sub(self, length: Duration) -> Self {
        Self(self.0.saturating_sub(micros(length)))
    }
}

impl fmt::Display for Timestamp {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}.{:06}", self.0.div_euclid(1_000_000), self.0.rem_euclid(1_000_000))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_time_is_written_in_utc() {
        for (micros, text) in [
            (0, "1970-01-01T00:00:00.000000Z"),
            (68_255_999_999_999, "1972-02-29T23:59:59.999999Z"),
            (951_868_800_000_001, "2000-03-01T00:00:00.000001Z"),
            (1_798_761_599_500_000, "2026-12-31T23:59:59.500000Z"),
            (4_107_542_400_000_000, "2100-03-01T00:00:00.000000Z"),
            (-1, "1970-01-01T00:00:00.000000Z"),
        ] {
            assert_eq!(Timestamp::from_micros(micros).utc(), text);
        }
    }
}
