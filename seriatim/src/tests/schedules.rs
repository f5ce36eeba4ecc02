//! The ticks of cron entries.

use crate::{Cron, ErrorKind, Job, Timestamp};

fn cron(schedule: &str) -> crate::Result<Cron> {
    Cron::new("c", schedule, Job::new("q", &0).unwrap())
}

fn at(text: &str) -> Timestamp {
    Timestamp::from_micros(text.parse::<jiff::Timestamp>().unwrap().as_microsecond())
}

#[test]
fn the_next_tick_is_after_the_time_and_not_at_it() {
    let cron = cron("30 2 * * *").unwrap();
    let tick = at("2026-03-01T02:30:00Z");
    assert_eq!(cron.next_after(at("2026-03-01T02:29:59Z")), Some(tick));
    assert_eq!(cron.next_after(tick), Some(at("2026-03-02T02:30:00Z")));
}

#[test]
fn clocks_that_are_put_forward_or_back_run_a_tick_once() {
    let cron = cron("30 2 * * *").unwrap().time_zone("Europe/Berlin").unwrap();
    // 02:30 does not exist on 29 March 2026, and exists twice on 25 October.
    let forward = cron.next_after(at("2026-03-28T12:00:00Z")).unwrap();
    assert!(forward < at("2026-03-30T12:00:00Z"));
    let first = cron.next_after(at("2026-10-24T12:00:00Z")).unwrap();
    let second = cron.next_after(first).unwrap();
    assert!(second >= at("2026-10-26T01:30:00Z"), "{second}");
}

#[test]
fn a_schedule_that_cannot_be_read_is_named() {
    let cases = [("* * * *", "schedule"), ("61 * * * *", "schedule"), ("a b c d e", "schedule")];
    for (schedule, field) in cases {
        let error = cron(schedule).unwrap_err();
        assert_eq!((error.kind(), error.field()), (ErrorKind::Invalid, Some(field)), "{error}");
        assert!(error.to_string().contains(schedule), "{error}");
    }
    let error = cron("0 0 * * *").unwrap().time_zone("Europe/Atlantis").unwrap_err();
    assert_eq!(error.field(), Some("time_zone"));
}
