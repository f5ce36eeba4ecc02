//! Times in text and JSON.

use std::time::Duration;

use seriatim::Timestamp;
pub(crate) use seriatim::duration::rounded as length;
use seriatim::store::Store;

/// RFC 3339 in UTC, as in JSON.
pub(crate) fn absolute(time: Timestamp) -> String {
    jiff::Timestamp::from_microsecond(time.as_micros())
        .map_or_else(|_| time.to_string(), |time| time.to_string())
}

/// How long something ran that may take milliseconds.
pub(crate) fn run_time(seconds: f64) -> String {
    match seconds * 1e3 {
        ms if ms < 1.0 => "<1ms".to_owned(),
        ms if ms < 999.5 => format!("{ms:.0}ms"),
        _ => length(Duration::from_secs_f64(seconds)),
    }
}

/// Smaller numbers are no times that anybody means: they were a length, without its unit.
pub(crate) const UNIX_SECONDS_MIN: f64 = 1e9;
/// Greater ones lie beyond all that a store can keep, and beyond what can be written down: they were milliseconds.
pub(crate) const UNIX_SECONDS_MAX: f64 = 9e9;
/// How a time is written.
pub(crate) const WANTED: &str = "write a time such as 2026-01-31T12:00:00Z, or Unix seconds";

/// Reads a time: RFC 3339 or Unix seconds.
pub(crate) fn read(text: &str) -> Result<Timestamp, String> {
    if let Ok(seconds) = text.parse::<f64>() {
        // 0 is the beginning of all.
        let is_early = seconds < UNIX_SECONDS_MIN && seconds != 0.0;
        return match is_early || seconds.is_nan() {
            true => Err(format!("{text} as Unix seconds is long past: {WANTED}")),
            false if seconds > UNIX_SECONDS_MAX => Err(too_late(seconds)),
            false => Ok(Timestamp::from_secs_f64(seconds)),
        };
    }
    let time: jiff::Timestamp = text.parse().map_err(|_| WANTED.to_owned())?;
    Ok(Timestamp::from_micros(time.as_microsecond()))
}

/// Why so many Unix seconds are no time.
pub(crate) fn too_late(seconds: f64) -> String {
    format!("{seconds} as Unix seconds is beyond the year 2255 (are these milliseconds?): {WANTED}")
}

/// A moment of the past or the future, as people write it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Moment {
    At(Timestamp),
    Ago(Duration),
}

impl Moment {
    /// Reads a time, or a length such as `2h`, which is so long ago.
    pub(crate) fn read(text: &str) -> Result<Self, String> {
        let ago = |_| seriatim::duration::parse(text).map(Self::Ago);
        let why = |_| format!("{WANTED}, or 2h for two hours ago");
        read(text).map(Self::At).or_else(ago).map_err(why)
    }

    /// The time, by the clock of the store.
    pub(crate) async fn of(self, store: &dyn Store) -> seriatim::Result<Timestamp> {
        match self {
            Self::At(time) => Ok(time),
            Self::Ago(_) => Ok(self.before(store.now().await?)),
        }
    }

    pub(crate) fn before(self, now: Timestamp) -> Timestamp {
        match self {
            Self::At(time) => time,
            Self::Ago(length) => now - length,
        }
    }
}

/// `3s ago`, `in 2m`, `now`.
pub(crate) fn relative(now: Timestamp, time: Timestamp) -> String {
    let (past, ahead) = (now.since(time), time.since(now));
    match () {
        () if ahead >= Duration::from_secs(1) => format!("in {}", length(ahead)),
        () if past >= Duration::from_secs(1) => format!("{} ago", length(past)),
        () => "now".to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lengths_are_short() {
        let cases = [
            (0, "0s"),
            (9, "9.0s"),
            (42, "42s"),
            (200, "3m20s"),
            (7_500, "2h05m"),
            (356_400, "4d3h"),
        ];
        for (seconds, text) in cases {
            assert_eq!(length(Duration::from_secs(seconds)), text);
        }
    }

    #[test]
    fn a_run_time_is_told_in_milliseconds_as_long_as_it_is_short() {
        let cases =
            [(0.0, "<1ms"), (0.0886, "89ms"), (0.9996, "1.0s"), (1.16, "1.2s"), (200.0, "3m20s")];
        for (seconds, text) in cases {
            assert_eq!(run_time(seconds), text);
        }
    }

    #[test]
    fn a_moment_is_a_time_or_so_long_ago() {
        let now = Timestamp::from_micros(1_700_000_000_000_000);
        let read = |text| Moment::read(text).map(|moment| absolute(moment.before(now)));
        assert_eq!(read("90m").unwrap(), "2023-11-14T20:43:20Z");
        assert_eq!(read("2026-01-31T12:00:00Z").unwrap(), "2026-01-31T12:00:00Z");
        assert_eq!(read("1700000001").unwrap(), "2023-11-14T22:13:21Z");
        assert!(read("60").is_err());
        for late in ["1700000000000", "inf", "1e300"] {
            assert!(read(late).is_err(), "{late}");
            assert!(super::read(late).unwrap_err().contains("beyond the year 2255"), "{late}");
        }
        assert!(read("soon").unwrap_err().contains("2h for two hours ago"));
    }

    #[test]
    fn times_are_relative_for_people_and_absolute_for_programs() {
        let now = Timestamp::from_micros(1_700_000_000_250_000);
        assert_eq!(relative(now, now + Duration::from_secs(120)), "in 2m00s");
        assert_eq!(relative(now, now - Duration::from_secs(30)), "30s ago");
        assert_eq!(relative(now, now), "now");
        assert_eq!(absolute(now), "2023-11-14T22:13:20.25Z");
    }
}
