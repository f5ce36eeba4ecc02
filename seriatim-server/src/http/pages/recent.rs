//! What a queue did in the last hour, as cells of a table.

use std::fmt::Write;

use crate::app::history::Point;
use crate::base::text::grouped;

/// Minutes that the rate is the mean of.
const RATE_MINUTES: i64 = 5;
/// Bars of the small chart, the minutes of each, and the size of the chart in its own units.
const BARS: i64 = 20;
const BAR_MINUTES: i64 = 3;
const WIDTH: i64 = 3;
const HEIGHT: u64 = 16;

/// The cells; empty if nothing happened.
#[derive(Clone, Debug, Default)]
pub(super) struct Recent {
    /// Jobs done in a minute.
    pub(super) rate: String,
    /// Failed turns among those and the jobs done, in percent.
    pub(super) failed: String,
    /// The jobs done: the bars of a small chart, as a path of SVG.
    pub(super) bars: String,
}

impl Recent {
    pub(super) fn of(points: &[(i64, Point)], now: i64) -> Self {
        if points.is_empty() {
            return Self::default();
        }
        let minute = now - now.rem_euclid(60);
        // The last minute is written some seconds after its end.
        let is_written = points.iter().any(|(at, _)| *at == minute - 60);
        let end = if is_written { minute } else { minute - 60 };
        let within = |(at, _): &&(i64, Point)| (end - RATE_MINUTES * 60..end).contains(at);
        let done: u64 = points.iter().filter(within).map(|(_, point)| point.done).sum();
        let hour = |of: fn(&Point) -> u64| points.iter().map(|(_, point)| of(point)).sum::<u64>();
        Self {
            rate: rate(done),
            failed: percent(hour(|point| point.failed), hour(|point| point.done)),
            bars: path(&bars(points, end)),
        }
    }

    /// The size of the chart.
    pub(super) fn size() -> (i64, u64) {
        (BARS * WIDTH, HEIGHT)
    }
}

/// A mean by the minute: the smaller, the more exact.
fn rate(done: u64) -> String {
    let minutes = RATE_MINUTES as u64;
    match done {
        0 => "0".to_owned(),
        few if few < 10 * minutes => format!("{:.1}", few as f64 / minutes as f64),
        many => grouped(many / minutes),
    }
}

fn percent(failed: u64, done: u64) -> String {
    match failed as f64 * 100.0 / (failed + done).max(1) as f64 {
        0.0 => "0".to_owned(),
        few if few < 0.05 => "<0.1".to_owned(),
        percent => format!("{percent:.1}"),
    }
}

fn bars(points: &[(i64, Point)], end: i64) -> Vec<u64> {
    let mut bars = vec![0; BARS as usize];
    for (at, point) in points {
        let place = BARS - 1 - (end - 60 - at).div_euclid(60 * BAR_MINUTES);
        if let Some(bar) = usize::try_from(place).ok().and_then(|place| bars.get_mut(place)) {
            *bar += point.done;
        }
    }
    bars
}

/// Lines side by side: on a page with many queues each letter counts.
fn path(bars: &[u64]) -> String {
    let most = bars.iter().copied().max().unwrap_or_default();
    let mut path = String::new();
    for (place, bar) in bars.iter().enumerate().filter(|(_, bar)| **bar > 0) {
        // What is not nothing is seen.
        let height = (bar * HEIGHT).div_ceil(most);
        let _ = write!(path, "M{} {HEIGHT}v-{height}", place as i64 * WIDTH + 1);
    }
    path
}

#[cfg(test)]
mod tests {
    use super::*;

    fn point(done: u64, failed: u64) -> Point {
        Point { done, failed, ..Point::default() }
    }

    #[test]
    fn the_rate_is_that_of_the_last_minutes_and_what_failed_that_of_the_hour() {
        let now = 1_700_000_070;
        let minute = now - now % 60;
        let all: Vec<(i64, Point)> = (0..60)
            .map(|back| (minute - 60 * back, point(if back < 3 { 1_000 } else { 40 }, 10)))
            .collect();
        let recent = Recent::of(&all, now);
        // Of the last five minutes that are over, two had a thousand.
        assert_eq!((&*recent.rate, &*recent.failed), ("424", "10.2"));
        // The last minute is not written yet.
        let late: Vec<_> = all.iter().filter(|(at, _)| *at < minute - 60).copied().collect();
        assert_eq!(Recent::of(&late, now).rate, "232");
        let few = Recent::of(&[(minute - 120, point(4, 0))], now);
        assert_eq!((&*few.rate, &*few.failed), ("0.8", "0"));
        assert_eq!(percent(1, 1_000_000), "<0.1");
        let idle = Recent::of(&[], now);
        assert_eq!((&*idle.rate, &*idle.failed, &*idle.bars), ("", "", ""));
    }

    #[test]
    fn a_small_chart_has_the_hour_and_few_letters() {
        let (now, minute) = (1_700_000_130, 1_700_000_100);
        let all: Vec<_> =
            (1..=60).map(|back| (minute - 60 * back, point(1_000_000 + back as u64, 0))).collect();
        let bars = Recent::of(&all, now).bars;
        assert_eq!(bars.matches('M').count(), 20);
        assert!(bars.len() < 250, "{}: {bars}", bars.len());
    }
}
