//! Parsers of foreign input, under fuzz: `docs/testing.md`.

use std::fmt::Display;

use serde::Deserialize;
use serde_json::Value;
use seriatim_testkit::fuzz::Surface;

use crate::model::canonical::canonical;
use crate::model::payload::digest;
use crate::model::text::is_plain;
use crate::{
    JobId, Payload, Timestamp, duration,
    store::{LaneId, Token},
};

/// An error is one line that moves no cursor, whatever it quotes.
fn check_error(error: impl Display) {
    let text = error.to_string();
    assert!(text.chars().all(is_plain), "{text:?}");
}

#[cfg(all(feature = "sqlite", feature = "postgres", feature = "mysql", feature = "redis"))]
#[test]
fn store_urls_of_every_kind_are_read_or_refused_without_the_password() {
    const SECRET: &str = "s3cr3t";
    Surface::new("store-urls").inputs(10_000).attack(|input| {
        let url = String::from_utf8_lossy(input);
        let Err(error) = crate::store::check_url(&url) else { return };
        check_error(&error);
        let address = url.split('?').next().unwrap_or_default();
        let is_password = address.contains(&format!(":{SECRET}@"));
        if is_password && url.matches(SECRET).count() == 1 {
            assert!(!error.to_string().contains(SECRET), "{error}");
        }
    });
}

#[test]
fn payloads_have_one_canonical_form_and_errors_that_name_the_field() {
    #[derive(Deserialize)]
    struct Order {
        #[expect(dead_code, reason = "it is only read")]
        lines: Vec<Line>,
    }
    #[derive(Deserialize)]
    struct Line {
        #[expect(dead_code, reason = "it is only read")]
        price: f64,
    }
    Surface::new("payloads").inputs(10_000).attack(|input| {
        let stored = Payload::from_bytes(input.to_vec());
        let _ = (stored.to_value(), stored.validate(), format!("{stored:?}"));
        for error in [stored.decode::<Value>().err(), stored.decode::<Order>().err()] {
            error.into_iter().for_each(|error| {
                let field = error.field().unwrap_or_default();
                assert!(field.starts_with("payload"), "{error}");
            });
        }
        if let Some(form) = canonical(input) {
            let again = canonical(&form);
            assert_eq!(again.as_ref(), Some(&form), "{:?}", String::from_utf8_lossy(&form));
            let own = Payload::from_bytes(form);
            assert_eq!(digest(Some("task"), &own), digest(Some("task"), &stored));
        }
        let text = String::from_utf8_lossy(input);
        match Payload::from_json_text(&text) {
            Ok(payload) => {
                let again = Payload::from_json_text(&String::from_utf8_lossy(payload.as_bytes()));
                assert_eq!(again.unwrap(), payload);
            }
            Err(error) => check_error(error),
        }
    });
}

#[test]
fn lengths_are_written_as_they_are_read() {
    Surface::new("durations").inputs(20_000).attack(|input| {
        let text = String::from_utf8_lossy(input);
        match duration::parse(&text) {
            Ok(length) => {
                let written = duration::format(length);
                assert_eq!(duration::parse(&written).unwrap(), length, "{written}");
                let _ = (duration::rounded(length), Timestamp::MAX + length);
                let _ = Timestamp::from_micros(i64::MIN) - length;
            }
            Err(error) => check_error(error),
        }
    });
}

#[test]
fn ids_are_written_as_they_are_read() {
    Surface::new("ids").inputs(20_000).attack(|input| {
        let text = String::from_utf8_lossy(input);
        match text.parse::<JobId>() {
            Ok(id) => {
                assert_eq!(id.to_string(), text.to_ascii_lowercase());
                assert_eq!(JobId::from_bytes(id.to_bytes()), id);
                let _ = (id.queue(), id.shard(), id.seq(), id.created_at().to_string());
            }
            Err(error) => check_error(error),
        }
        match text.parse::<LaneId>() {
            Ok(lane) => assert_eq!(lane.to_string().parse::<LaneId>().unwrap(), lane),
            Err(error) => check_error(error),
        }
        if let Ok(token) = serde_json::from_str::<Token>(&text) {
            assert_eq!(serde_json::from_str::<Token>(&token.to_string()).unwrap(), token);
        }
    });
}

/// The schedule and the time zone after it.
#[cfg(feature = "cron")]
#[test]
fn ticks_of_whatever_schedule_lie_ahead() {
    use crate::{Cron, Job};

    const TIMES: [i64; 6] =
        [i64::MIN, -1, 0, 1_792_893_600_000_000, Timestamp::MAX.as_micros(), i64::MAX];
    let job = Job::new("reports", &1).unwrap();
    Surface::new("cron").bytes_max(300).inputs(3_000).attack(|input| {
        let text = String::from_utf8_lossy(input);
        let (schedule, zone) = text.rsplit_once(' ').unwrap_or((&text, "UTC"));
        let entry = Cron::new("nightly", schedule, job.clone());
        match entry.and_then(|entry| entry.time_zone(zone)) {
            Ok(entry) => {
                for time in TIMES.map(Timestamp::from_micros) {
                    let next = entry.next_after(time);
                    assert!(next.is_none_or(|next| next > time), "{entry}: {next:?} after {time}");
                }
            }
            Err(error) => check_error(error),
        }
    });
}
