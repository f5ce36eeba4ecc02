//! Charts: a line of bars as SVG, which needs no script.

use std::fmt::Write;

use crate::app::history::{Interval, Span};

/// Bars of a chart, and its height, in its own units.
const BARS: usize = 60;
const HEIGHT: u64 = 40;
const BAR: usize = 5;

/// A chart for a template.
#[derive(Clone, Debug)]
pub(super) struct Chart {
    /// With the unit.
    pub(super) title: String,
    pub(super) class: &'static str,
    /// Its bars, as a path of SVG.
    pub(super) path: String,
    pub(super) last: String,
    pub(super) most: String,
    /// Of each bar, in words.
    pub(super) values: Vec<String>,
    /// It has no bar.
    pub(super) is_flat: bool,
}

/// What a bar is, after "per".
pub(super) fn unit(span: Span) -> &'static str {
    match span {
        Span::Hour => "minute",
        Span::Day => "24 min",
        Span::Month => "12 h",
    }
}

/// Seconds of a bar.
fn width(span: Span) -> i64 {
    span.seconds() / BARS as i64
}

/// Where the last bar ends: bars begin at whole intervals, so that they do not change while time goes on.
fn end(span: Span, now: i64) -> i64 {
    let width = width(span);
    now - now.rem_euclid(width) + width
}

/// When each bar begins.
pub(super) fn begins(span: Span, now: i64) -> impl Iterator<Item = i64> {
    (0..BARS as i64).map(move |bar| end(span, now) - (BARS as i64 - bar) * width(span))
}

/// The intervals of a chart: those of one bar together.
pub(super) fn bars<P: Interval>(points: &[(i64, P)], span: Span, now: i64) -> Vec<Option<P>> {
    let (width, end) = (width(span), end(span, now));
    let mut bars: Vec<Option<P>> = vec![None; BARS];
    for (at, point) in points {
        let back = (end - 1 - at).div_euclid(width);
        let place = usize::try_from(back).ok().and_then(|back| (BARS - 1).checked_sub(back));
        if let Some(bar) = place.and_then(|place| bars.get_mut(place)) {
            *bar = Some(bar.map_or(*point, |before| before.then(*point)));
        }
    }
    bars
}

impl Chart {
    pub(super) fn new<P>(
        title: impl Into<String>,
        class: &'static str,
        bars: &[Option<P>],
        value: fn(&P) -> u64,
        words: fn(u64) -> String,
    ) -> Self {
        let values: Vec<Option<u64>> = bars.iter().map(|bar| bar.as_ref().map(value)).collect();
        let most = values.iter().flatten().copied().max().unwrap_or_default();
        let mut path = String::new();
        for (i, value) in values.iter().enumerate() {
            let Some(value) = value.filter(|value| *value > 0) else { continue };
            // What is not nothing is seen.
            let height = (value * HEIGHT).div_ceil(most.max(1));
            let _ = write!(path, "M{} {}v-{height}h{}v{height}z", i * BAR, HEIGHT, BAR - 1);
        }
        let last = values.iter().rev().flatten().next().copied().unwrap_or_default();
        let title = title.into();
        let texts = values.iter().map(|value| value.map_or_else(String::new, words)).collect();
        let (last, is_flat) = (words(last), most == 0);
        Self { title, class, path, last, most: words(most), values: texts, is_flat }
    }

    /// Its size.
    pub(super) fn size() -> (usize, u64) {
        (BARS * BAR, HEIGHT)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::app::history::Point;

    #[test]
    fn a_bar_has_all_of_its_interval_and_a_chart_is_small() {
        let now = 1_700_000_100;
        let point = |done| Point { done, ..Point::default() };
        let points: Vec<_> =
            (0..60).map(|i| (now - now % 60 - i * 60, point(1_000_000 + i as u64))).collect();
        let hour = bars(&points, Span::Hour, now);
        assert_eq!(hour.iter().flatten().count(), 60);
        assert_eq!(hour[59].map(|bar| bar.done), Some(1_000_000));
        let day = bars(&points, Span::Day, now);
        assert!(day.iter().flatten().map(|bar| bar.done).sum::<u64>() > 59 * 1_000_000);
        let chart =
            Chart::new("done", "done", &hour, |point| point.done, |value| value.to_string());
        assert!(chart.path.len() < 4_000, "{}", chart.path.len());
        assert_eq!((&*chart.last, &*chart.most), ("1000000", "1000059"));
        let none = Chart::new(
            "done",
            "done",
            &[None::<Point>; 60],
            |point| point.done,
            |value| value.to_string(),
        );
        assert!(none.path.is_empty() && none.is_flat);
    }
}
