//! Times, as pages show them: relative, and in full where the pointer rests.

use jiff::tz::TimeZone;
use seriatim::Timestamp;

use crate::base::time;

/// How a visitor reads times.
#[derive(Clone, Debug)]
pub(super) struct Clock {
    pub(super) now: Timestamp,
    zone: TimeZone,
}

/// A time for a template.
#[derive(Clone, Debug)]
pub(super) struct Moment {
    pub(super) iso: String,
    pub(super) full: String,
    pub(super) relative: String,
}

impl Clock {
    /// `zone` is the name of a time zone; UTC if it is none.
    pub(super) fn new(now: Timestamp, zone: Option<&str>) -> Self {
        let zone = zone.and_then(|name| TimeZone::get(name).ok()).unwrap_or(TimeZone::UTC);
        Self { now, zone }
    }

    pub(super) fn of(&self, at: Timestamp) -> Moment {
        Moment {
            iso: time::absolute(at),
            full: self.format(at, "%Y-%m-%d %H:%M:%S %Z"),
            relative: time::relative(self.now, at),
        }
    }

    /// `12:04:07 UTC`.
    pub(super) fn time_of_day(&self) -> String {
        self.format(self.now, "%H:%M:%S %Z")
    }

    /// `2026-01-31 12:04 UTC`.
    pub(super) fn minute(&self, at: Timestamp) -> String {
        self.format(at, "%Y-%m-%d %H:%M %Z")
    }

    pub(super) fn zone_name(&self) -> String {
        self.zone.iana_name().unwrap_or("UTC").to_owned()
    }

    fn format(&self, at: Timestamp, pattern: &str) -> String {
        match jiff::Timestamp::from_microsecond(at.as_micros()) {
            Ok(at) => at.to_zoned(self.zone.clone()).strftime(pattern).to_string(),
            Err(_) => time::absolute(at),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_time_names_its_zone_also_where_the_clock_is_turned_back() {
        let at = |seconds: i64| Timestamp::from_micros(seconds * 1_000_000);
        let berlin = Clock::new(at(1_761_440_400), Some("Europe/Berlin"));
        let shown = |seconds| berlin.of(at(seconds)).full;
        assert_eq!(shown(1_761_438_600), "2025-10-26 02:30:00 CEST");
        assert_eq!(shown(1_761_442_200), "2025-10-26 02:30:00 CET");
        let unknown = Clock::new(at(0), Some("Mars/Phobos"));
        assert_eq!(unknown.of(at(0)).full, "1970-01-01 00:00:00 UTC");
    }
}
