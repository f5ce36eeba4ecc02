//! Times as people and as programs read them.

use std::time::Duration;

use seriatim::Timestamp;

const MINUTE: u64 = 60;
const HOUR: u64 = 60 * MINUTE;
const DAY: u64 = 24 * HOUR;

/// RFC 3339 in UTC, as the JSON has it.
pub(crate) fn absolute(time: Timestamp) -> String {
    jiff::Timestamp::from_microsecond(time.as_micros())
        .map_or_else(|_| time.to_string(), |time| time.to_string())
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

/// The two largest units: `0.4s`, `12s`, `3m20s`, `2h05m`, `4d3h`.
pub(crate) fn length(length: Duration) -> String {
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
    fn times_are_relative_for_people_and_absolute_for_programs() {
        let now = Timestamp::from_micros(1_700_000_000_250_000);
        assert_eq!(relative(now, now + Duration::from_secs(120)), "in 2m00s");
        assert_eq!(relative(now, now - Duration::from_secs(30)), "30s ago");
        assert_eq!(relative(now, now), "now");
        assert_eq!(absolute(now), "2023-11-14T22:13:20.25Z");
    }
}
