//! Backoff, durations, time.

use std::time::Duration;

use proptest::prelude::*;

use crate::model::limits::DELAY_MAX;
use crate::{Backoff, Timestamp, duration};

fn seconds(length: Duration) -> f64 {
    length.as_secs_f64()
}

#[test]
fn s4_the_default_backoff_is_the_one_that_people_know() {
    let wait = |retry_count, random| seconds(Backoff::Polynomial.wait(retry_count, random));
    assert!((wait(0, 0.0) - 15.0).abs() < 1e-9);
    assert!((wait(0, 0.999) - 44.0).abs() < 1e-9);
    assert!((wait(3, 0.5) - (81.0 + 15.0 + 15.0 * 4.0)).abs() < 1e-9);
    let lifetime: f64 = (0..25).map(|n| wait(n, 0.5)).sum();
    assert!((19.0..22.0).contains(&(lifetime / 86_400.0)), "{} days", lifetime / 86_400.0);
}

#[test]
fn a_member_that_a_backoff_does_not_have_is_refused() {
    let read = serde_json::from_str::<Backoff>;
    assert_eq!(read(r#"{"kind":"polynomial"}"#).unwrap(), Backoff::Polynomial);
    for wrong in
        [r#"{"kind":"polynomial","base":"5s"}"#, r#"{"kind":"constant","base":"5s","cap":"9s"}"#]
    {
        let error = read(wrong).unwrap_err().to_string();
        assert!(error.contains("unknown field"), "{wrong}: {error}");
    }
}

#[test]
fn d9_the_other_backoffs_do_what_they_are_called() {
    let base = Duration::from_secs(30);
    assert_eq!(Backoff::Constant { base }.wait(9, 0.5), base);
    assert_eq!(Backoff::Linear { base }.wait(0, 0.5), base);
    assert_eq!(Backoff::Linear { base }.wait(3, 0.5), base * 4);
    let cap = Duration::from_secs(600);
    let exponential = |jitter| Backoff::Exponential { base, cap, jitter };
    assert_eq!(exponential(0).wait(2, 0.9), base * 4);
    assert_eq!(exponential(0).wait(30, 0.9), cap);
    assert_eq!(exponential(50).wait(30, 1.0), cap / 2);
}

proptest! {
    #[test]
    fn no_wait_is_longer_than_the_longest(
        retry_count in any::<u32>(), random in any::<f64>(), micros in any::<u64>(), jitter in any::<u8>(),
    ) {
        let base = Duration::from_micros(micros);
        let kinds = [
            Backoff::Polynomial,
            Backoff::Constant { base },
            Backoff::Linear { base },
            Backoff::Exponential { base, cap: base * 2, jitter },
        ];
        for backoff in kinds {
            prop_assert!(backoff.wait(retry_count, random) <= DELAY_MAX);
        }
    }

    #[test]
    fn a_duration_is_read_as_it_is_written(micros in 0u64..1 << 52) {
        let length = Duration::from_micros(micros);
        let read = duration::parse(&duration::format(length)).unwrap();
        prop_assert_eq!(read, length);
    }

    #[test]
    fn time_never_overflows(micros in any::<i64>(), length in any::<u64>()) {
        let time = Timestamp::from_micros(micros);
        let length = Duration::from_micros(length);
        prop_assert!(time + length <= Timestamp::MAX.max(time));
        prop_assert!(time - length <= time);
    }
}

#[test]
fn durations_are_written_for_people() {
    let read = |text: &str| duration::parse(text).map(seconds).ok();
    let cases =
        [("250ms", 0.25), ("10s", 10.0), ("5m", 300.0), ("1h30m", 5_400.0), ("1.5h", 5_400.0)];
    for (text, expected) in cases {
        assert_eq!(read(text), Some(expected), "{text}");
    }
    for wrong in ["", "10", "s", "10x", "-1s", "1e9s", "1 s", "99999999999999d"] {
        assert_eq!(read(wrong), None, "{wrong}");
        assert!(duration::parse(wrong).unwrap_err().to_string().contains("250ms"));
    }
    assert_eq!(duration::format(Duration::from_secs(90)), "90s");
    assert_eq!(duration::format(Duration::from_secs(3_600)), "1h");
}

#[test]
fn scores_and_times_agree() {
    let time = Timestamp::from_micros(1_700_000_000_123_456);
    assert_eq!(Timestamp::from_secs_f64(time.as_secs_f64()), time);
    assert_eq!(Timestamp::from_secs_f64(f64::NAN), Timestamp::default());
    assert_eq!(time.since(time + Duration::from_secs(1)), Duration::ZERO);
}
