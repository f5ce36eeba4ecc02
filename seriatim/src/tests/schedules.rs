//! The ticks of cron entries.

use std::iter::successors;

use jiff::ToSpan;
use jiff::civil::{Date, Weekday, date};
use jiff::tz::TimeZone;

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

#[test]
fn the_last_day_and_the_last_friday_of_december_are_ticks_too() {
    let cases = [
        ("0 0 L * *", "2026-12-01T00:00:00Z", "2026-12-31T00:00:00Z"),
        ("0 0 * * 5L", "2026-12-01T00:00:00Z", "2026-12-25T00:00:00Z"),
        ("0 0 L 12 *", "2026-12-31T00:00:00Z", "2027-12-31T00:00:00Z"),
    ];
    for (schedule, after, tick) in cases {
        assert_eq!(cron(schedule).unwrap().next_after(at(after)), Some(at(tick)), "{schedule}");
    }
}

fn is_last(day: Date) -> bool {
    day == day.last_of_month()
}

/// Whether it is this Friday of its month; -1 is the last one.
fn is_friday(nth: i8, day: Date) -> bool {
    day.nth_weekday_of_month(nth, Weekday::Friday).is_ok_and(|friday| friday == day)
}

/// Whether a schedule names this day.
type IsNamed = fn(Date) -> bool;

#[test]
fn the_ticks_of_four_years_are_the_days_that_the_schedule_names() {
    let cases: [(&str, IsNamed); 8] = [
        ("0 0 L * *", is_last),
        ("0 0 L 12 *", |day| day.month() == 12 && is_last(day)),
        ("0 0 1,L */3 *", |day| day.month() % 3 == 1 && (day.day() == 1 || is_last(day))),
        ("0 0 * * 5L", |day| is_friday(-1, day)),
        ("0 0 * * friL,Mon", |day| day.weekday() == Weekday::Monday || is_friday(-1, day)),
        ("0 0 */2 * 5L", |day| day.day() % 2 == 1 && is_friday(-1, day)),
        ("0 0 L 2-12/5 FRIL", |day| day.month() % 5 == 2 && (is_last(day) || is_friday(-1, day))),
        ("0 0 15,L DEC 5#2", |day| {
            day.month() == 12 && (day.day() == 15 || is_last(day) || is_friday(2, day))
        }),
    ];
    let (first, end) = (date(2026, 1, 1), date(2030, 1, 1));
    for name in ["UTC", "Pacific/Auckland"] {
        let zone = TimeZone::get(name).unwrap();
        let before = first.yesterday().unwrap().to_zoned(zone.clone()).unwrap().timestamp();
        let before = Timestamp::from_micros(before.as_microsecond());
        let day_of = |tick: Timestamp| {
            let tick = jiff::Timestamp::from_microsecond(tick.as_micros()).unwrap();
            tick.to_zoned(zone.clone()).date()
        };
        for (schedule, is_named) in cases {
            let cron = cron(schedule).unwrap().time_zone(name).unwrap();
            let ticks = successors(cron.next_after(before), |tick| cron.next_after(*tick));
            let days: Vec<_> = ticks.map(day_of).take_while(|day| *day < end).collect();
            let named = first.series(1.day()).take_while(|day| *day < end);
            let named: Vec<_> = named.filter(|day| is_named(*day)).collect();
            assert_eq!(days, named, "{schedule} in {name}");
        }
    }
}
