//! Cron entries across changes of the clock, in a browser of another time zone.

use jiff::civil::DateTime;
use jiff::tz::TimeZone;
use jiff::{SignedDuration, Timestamp};
use serde_json::{Value, json};

use super::window::Window;
use crate::http::Api;

const ZONES: [&str; 3] = ["Europe/Berlin", "America/New_York", "Australia/Lord_Howe"];
/// Where the browser is.
const ELSEWHERE: &str = "Pacific/Chatham";

/// A time of the next hour that the zone skips, and of the next that it repeats.
fn skipped_and_repeated(zone: &TimeZone, now: Timestamp) -> [DateTime; 2] {
    let quarter = SignedDuration::from_mins(15);
    let offset_before = |at: Timestamp| zone.to_offset(at - SignedDuration::from_secs(1));
    let changes: Vec<_> = zone.following(now).take(2).collect();
    let change = |is_forward: bool| {
        let of = |change: &&jiff::tz::TimeZoneTransition<'_>| {
            (change.offset() > offset_before(change.timestamp())) == is_forward
        };
        changes.iter().find(of).unwrap()
    };
    let (forward, back) = (change(true), change(false));
    [
        offset_before(forward.timestamp()).to_datetime(forward.timestamp()) + quarter,
        back.offset().to_datetime(back.timestamp()) + quarter,
    ]
}

/// A schedule for this time of each year, and when it is in the next three: once, also if the clock skips or repeats it.
fn yearly(zone: &TimeZone, first: DateTime) -> (String, Vec<Timestamp>) {
    let schedule =
        format!("{} {} {} {} *", first.minute(), first.hour(), first.day(), first.month());
    let year = |years: i16| first.with().year(first.year() + years).build().unwrap();
    let at = |years| zone.to_ambiguous_timestamp(year(years)).compatible().unwrap();
    (schedule, (0..3).map(at).collect())
}

/// Noon on the first of January and of July: one of them is in summer time.
fn half_yearly(zone: &TimeZone, now: Timestamp) -> (String, Vec<Timestamp>) {
    let year = now.to_zoned(zone.clone()).year();
    let noons = (year..year + 3)
        .flat_map(|year| [1, 7].map(|month| jiff::civil::date(year, month, 1).at(12, 0, 0, 0)));
    let noons = noons.map(|noon| zone.to_ambiguous_timestamp(noon).compatible().unwrap());
    ("0 12 1 1,7 *".to_owned(), noons.filter(|noon| *noon > now).take(3).collect())
}

/// The times that the page shows as next of each entry: as machines read them, and as people do.
async fn shown(window: &Window) -> Vec<(String, Vec<(Timestamp, String)>)> {
    let rows =
        "return [...document.querySelectorAll('tbody tr')].map((row) => [row.cells[0].innerText,
        [...row.cells[5].querySelectorAll('time')].map((time) => [time.dateTime, time.title])])";
    let rows: Value = window.run(rows).await;
    let text = |value: &Value| value.as_str().unwrap().to_owned();
    let time = |time: &Value| (text(&time[0]).parse().unwrap(), text(&time[1]));
    let row = |row: &Value| (text(&row[0]), row[1].as_array().unwrap().iter().map(time).collect());
    rows.as_array().unwrap().iter().map(row).collect()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_next_ticks_of_three_zones_are_right_across_clock_changes_wherever_the_browser_is() {
    let now = Timestamp::now();
    let (mut config, mut wanted) = ("[queues.q]\nmode = \"parallel\"\n".to_owned(), Vec::new());
    for name in ZONES {
        let zone = TimeZone::get(name).unwrap();
        let [skipped, repeated] = skipped_and_repeated(&zone, now);
        for (what, (schedule, ticks)) in [
            ("noon", half_yearly(&zone, now)),
            ("skipped", yearly(&zone, skipped)),
            ("repeated", yearly(&zone, repeated)),
        ] {
            let entry = format!("{name} {what}");
            config += &format!(
                "[[cron]]\nname = \"{entry}\"\nschedule = \"{schedule}\"\ntime_zone = \"{name}\"\nqueue = \"q\"\n"
            );
            wanted.push((entry, ticks));
        }
    }
    wanted.sort();
    let api = Api::start(&config);
    wanted.iter().for_each(|(name, _)| api.knows_cron(name, None));
    let window = Window::open(&api.address, 1280, 900).await;
    window.in_zone(ELSEWHERE).await;
    let elsewhere = TimeZone::get(ELSEWHERE).unwrap();
    for zone in [TimeZone::UTC, elsewhere] {
        window.go("/cron").await;
        let in_zone = |at: Timestamp| {
            (at, at.to_zoned(zone.clone()).strftime("%Y-%m-%d %H:%M:%S %Z").to_string())
        };
        let rows = wanted.iter().map(|(name, ticks)| {
            (name.clone(), ticks.iter().copied().map(in_zone).collect::<Vec<_>>())
        });
        assert_eq!(shown(&window).await, rows.collect::<Vec<_>>());
        let text = window.text().await;
        assert!(text.contains("at 12:00, on the 1st") || text.contains("Europe/Berlin"), "{text}");
        window.go("/about").await;
        let choose = "const zone = document.querySelector('[name=zone]'); zone.value = 'local';
            zone.dispatchEvent(new Event('change', { bubbles: true }))";
        window.run(choose).await;
        window.until("it is chosen", "document.cookie.includes('Chatham')").await;
    }
    window.go("/about").await;
    let dark = "const theme = document.querySelector('[name=theme]'); theme.value = 'dark';
        theme.dispatchEvent(new Event('change', { bubbles: true }))";
    window.run(dark).await;
    window.until("it is dark", "document.documentElement.dataset.theme === 'dark'").await;
    let zone =
        "return [document.cookie.includes('Chatham'), document.querySelector('[name=zone]').value]";
    assert_eq!(
        window.run(zone).await,
        json!([true, "local"]),
        "the theme leaves the zone as it is"
    );
    assert_eq!(
        window.run("return Intl.DateTimeFormat().resolvedOptions().timeZone").await,
        json!(ELSEWHERE)
    );
    window.close().await;
}
