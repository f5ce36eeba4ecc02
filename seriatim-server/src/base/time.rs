//! Times in text and JSON.

use std::time::Duration;

use seriatim::Timestamp;
pub(crate) use seriatim::duration::rounded as length;

/// RFC 3339 in UTC, as in JSON.
pub(crate) fn absolute(time: Timestamp) -> String {
    jiff::Timestamp::from_microsecond(time.as_micros())
        .map_or_else(|_| time.to_string(), |time| time.to_string())
}

/// Reads a time: RFC 3339 or Unix seconds.
pub(crate) fn read(text: &str) -> Result<Timestamp, String> {
    if let Ok(seconds) = text.parse::<f64>() {
        return Ok(Timestamp::from_secs_f64(seconds));
    }
    let time: jiff::Timestamp = text
        .parse()
        .map_err(|_| "write a time as 2026-01-31T12:00:00Z or as Unix seconds".to_owned())?;
    Ok(Timestamp::from_micros(time.as_microsecond()))
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
    fn times_are_relative_for_people_and_absolute_for_programs() {
        let now = Timestamp::from_micros(1_700_000_000_250_000);
        assert_eq!(relative(now, now + Duration::from_secs(120)), "in 2m00s");
        assert_eq!(relative(now, now - Duration::from_secs(30)), "30s ago");
        assert_eq!(relative(now, now), "now");
        assert_eq!(absolute(now), "2023-11-14T22:13:20.25Z");
    }
}
