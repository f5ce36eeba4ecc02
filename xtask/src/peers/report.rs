//! The tables and charts of a comparison.

use std::fmt::Write as _;
use std::fs;
use std::path::Path;

use super::contestants::Group;
use crate::files;
use crate::measured::{cell, largest, least, median, thousands};

const MARK: &str = "bench-peers";
const PAGE: &str = "docs/performance.md";
const CHARTS: &str = "docs/charts";

const WIDTH: f64 = 760.0;
const LABELS: f64 = 330.0;
const VALUES: f64 = 110.0;
const ROW: f64 = 30.0;
const STYLE: &str = "text{font:14px system-ui,sans-serif;fill:#1f2328}.peer{fill:#8c959f}.ours{fill:#0969da}\
    .range{stroke:#1f2328;stroke-width:1.5}\
    @media(prefers-color-scheme:dark){text{fill:#e6edf3}.peer{fill:#6e7681}.ours{fill:#4493f8}.range{stroke:#e6edf3}}";

/// The values of each round.
#[derive(Clone, Default)]
pub(super) struct Rates {
    pub(super) push: Vec<f64>,
    pub(super) single: Vec<f64>,
    pub(super) drain: Vec<f64>,
}

/// A group with the rates of its contestants.
pub(super) type Compared = (&'static Group, Vec<Rates>);

/// The tables in Markdown.
pub(super) fn tables(compared: &[Compared]) -> String {
    let mut text = String::new();
    for (group, rates) in compared {
        let _ = writeln!(text, "**{}**\n", group.title);
        let _ = writeln!(text, "![drained jobs per second](charts/{})\n", chart_name(group));
        text.push_str(
            "| | push, 1,000 at a time | push, single, 32 callers | drain |\n|---|---|---|---|\n",
        );
        for (contestant, rates) in group.contestants.iter().zip(rates) {
            let cells = [&rates.push, &rates.single, &rates.drain].map(|values| cell(values));
            let _ = writeln!(text, "| {} | {} |", contestant.name, cells.join(" | "));
        }
        let _ = writeln!(text, "\n{}\n", verdict(group, rates));
    }
    text
}

/// Writes the tables into the page, and the charts beside it.
pub(super) fn write(root: &Path, compared: &[Compared], about: &str) -> Result<(), String> {
    let failed = |path: &Path, e: std::io::Error| format!("{}: {e}", path.display());
    files::replace_part(root, PAGE, MARK, &format!("{about}\n\n{}", tables(compared)))?;
    let charts = root.join(CHARTS);
    fs::create_dir_all(&charts).map_err(|e| failed(&charts, e))?;
    for (group, rates) in compared {
        let path = charts.join(chart_name(group));
        fs::write(&path, chart(group, rates)).map_err(|e| failed(&path, e))?;
    }
    Ok(())
}

fn chart_name(group: &Group) -> String {
    format!("peers-{}.svg", group.slug)
}

/// What our best setting reaches, as a multiple of the best peer.
fn verdict(group: &Group, rates: &[Rates]) -> String {
    let best = |ours: bool, values: fn(&Rates) -> &Vec<f64>| {
        let all = group.contestants.iter().zip(rates);
        let all = all.filter(|(contestant, _)| contestant.is_ours() == ours);
        all.map(|(_, rates)| median(values(rates))).fold(0.0, f64::max)
    };
    let ratio = |values| best(true, values) / best(false, values);
    format!(
        "Ours at best, of the best peer: push {:.1} ×, single push {:.1} ×, drain {:.1} ×.",
        ratio(|rates| &rates.push),
        ratio(|rates| &rates.single),
        ratio(|rates| &rates.drain),
    )
}

fn chart(group: &Group, rates: &[Rates]) -> String {
    let most = rates.iter().flat_map(|rates| &rates.drain).copied().fold(1.0, f64::max);
    let width = |value: f64| value / most * (WIDTH - LABELS - VALUES);
    let height = ROW * rates.len() as f64 + 10.0;
    let mut svg = format!(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {WIDTH} {height}\" role=\"img\" \
         aria-label=\"{}: drained jobs per second\"><style>{STYLE}</style>\n",
        group.title
    );
    for (i, (contestant, rates)) in group.contestants.iter().zip(rates).enumerate() {
        let (low, median, high) =
            (least(&rates.drain), median(&rates.drain), largest(&rates.drain));
        let (top, class) =
            (ROW * i as f64 + 8.0, if contestant.is_ours() { "ours" } else { "peer" });
        let middle = top + 10.0;
        let _ = writeln!(
            svg,
            "<text x=\"{}\" y=\"{}\" text-anchor=\"end\">{}</text>\
             <rect class=\"{class}\" x=\"{LABELS}\" y=\"{top}\" width=\"{:.1}\" height=\"20\" rx=\"3\"/>\
             <path class=\"range\" d=\"M{:.1} {middle}H{:.1}\"/><text x=\"{:.1}\" y=\"{}\">{}</text>",
            LABELS - 10.0,
            top + 15.0,
            contestant.name,
            width(median),
            LABELS + width(low),
            LABELS + width(high),
            LABELS + width(high) + 8.0,
            top + 15.0,
            thousands(median),
        );
    }
    svg.push_str("</svg>\n");
    svg
}

#[cfg(test)]
mod tests {
    use super::super::contestants::GROUPS;
    use super::{Rates, chart, verdict};

    #[test]
    fn a_lost_comparison_is_below_one_and_every_engine_is_in_the_chart() {
        let group = &GROUPS[0];
        let rates: Vec<Rates> = (1..=group.contestants.len())
            .map(|i| {
                let drain =
                    vec![if group.contestants[i - 1].is_ours() { 1_000.0 } else { 2_000.0 }];
                Rates { push: drain.clone(), single: drain.clone(), drain }
            })
            .collect();
        assert!(verdict(group, &rates).ends_with("drain 0.5 ×."));
        let svg = chart(group, &rates);
        assert!(group.contestants.iter().all(|contestant| svg.contains(contestant.name)));
    }
}
