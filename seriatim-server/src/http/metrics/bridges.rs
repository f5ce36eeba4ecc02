//! Numbers of bridges, as their nodes noted them in the store.

use super::text::{Metric, label};
use crate::protocol::document::{Bridge, BridgeState, BridgeStatus};

/// A number of a source: the name of the metric, its help text, and the field.
type Number = (&'static str, &'static str, fn(&BridgeStatus) -> f64);

const NUMBERS: [Number; 9] = [
    ("bridge_taken_total", "Jobs that left the source", |of| of.taken as f64),
    ("bridge_pushed_total", "Of these, jobs that are new here", |of| of.pushed as f64),
    ("bridge_duplicate_total", "Of these, jobs that were here already", |of| of.duplicates as f64),
    ("bridge_in_flight", "Jobs that left the source and are not yet known to be here", |of| {
        of.in_flight as f64
    }),
    ("bridge_in_doubt", "Of these, jobs that wait for a decision", |of| of.in_doubt as f64),
    ("bridge_rejected", "Refused jobs that are kept beside the source", |of| of.rejected as f64),
    ("bridge_source_length", "Jobs in the source", |of| of.length as f64),
    ("bridge_lag_seconds", "How long the oldest job has been in the source", |of| of.lag),
    ("bridge_moving", "1 if the source is neither paused nor held, and both sides answer", |of| {
        f64::from(u8::from(of.state == BridgeState::Moving))
    }),
];

pub(super) fn write(text: &mut String, bridges: &[Bridge]) {
    if bridges.is_empty() {
        return;
    }
    let all = || {
        let sources = bridges
            .iter()
            .flat_map(|bridge| bridge.sources.iter().map(move |source| (bridge, &source.status)));
        sources.map(|(bridge, status)| {
            (format!("bridge={},source={}", label(&bridge.name), label(&status.source)), status)
        })
    };
    for (name, says, of) in &NUMBERS {
        let mut metric = Metric::new(text, name, says);
        all().for_each(|(labels, status)| metric.add(labels, of(status)));
    }
    let mut refused =
        Metric::new(text, "bridge_refused_total", "Jobs that were refused, by reason");
    for (labels, status) in all() {
        for (reason, jobs) in &status.refused {
            refused.add(format_args!("{labels},reason=\"{reason}\""), jobs);
        }
    }
    let says = "1 for the process that moves the jobs of a source";
    let mut leader = Metric::new(text, "bridge_leader", says);
    for (labels, status) in all() {
        leader.add(format_args!("{labels},node={}", label(&status.node)), 1);
    }
}
