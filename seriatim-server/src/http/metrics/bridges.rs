//! Numbers of bridges, as their nodes noted them in the store.

use std::fmt::Write;

use super::text::{head, label};
use crate::protocol::document::{Bridge, BridgeState, BridgeStatus};

/// A number of a source.
struct Number {
    name: &'static str,
    kind: &'static str,
    says: &'static str,
    of: fn(&BridgeStatus) -> f64,
}

const NUMBERS: [Number; 9] = [
    Number {
        name: "taken_total",
        kind: "counter",
        says: "Jobs that left the source",
        of: |of| of.taken as f64,
    },
    Number {
        name: "pushed_total",
        kind: "counter",
        says: "Of these, jobs that are new here",
        of: |of| of.pushed as f64,
    },
    Number {
        name: "duplicate_total",
        kind: "counter",
        says: "Of these, jobs that were here already",
        of: |of| of.duplicates as f64,
    },
    Number {
        name: "in_flight",
        kind: "gauge",
        says: "Jobs that left the source and are not yet known to be here",
        of: |of| of.in_flight as f64,
    },
    Number {
        name: "in_doubt",
        kind: "gauge",
        says: "Of these, jobs that wait for a decision",
        of: |of| of.in_doubt as f64,
    },
    Number {
        name: "rejected",
        kind: "gauge",
        says: "Refused jobs that are kept beside the source",
        of: |of| of.rejected as f64,
    },
    Number {
        name: "source_length",
        kind: "gauge",
        says: "Jobs in the source",
        of: |of| of.length as f64,
    },
    Number {
        name: "lag_seconds",
        kind: "gauge",
        says: "How long the oldest job has been in the source",
        of: |of| of.lag,
    },
    Number {
        name: "moving",
        kind: "gauge",
        says: "1 if the source is neither paused nor held, and both sides answer",
        of: |of| f64::from(u8::from(of.state == BridgeState::Moving)),
    },
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
    for number in &NUMBERS {
        let name = format!("bridge_{}", number.name);
        head(text, &name, number.kind, number.says);
        for (labels, status) in all() {
            let _ = writeln!(text, "seriatim_{name}{{{labels}}} {}", (number.of)(status));
        }
    }
    head(text, "bridge_refused_total", "counter", "Jobs that were refused, by reason");
    for (labels, status) in all() {
        for (reason, jobs) in &status.refused {
            let _ = writeln!(
                text,
                "seriatim_bridge_refused_total{{{labels},reason=\"{reason}\"}} {jobs}"
            );
        }
    }
    head(text, "bridge_leader", "gauge", "1 for the process that moves the jobs of a source");
    for (labels, status) in all() {
        let _ = writeln!(text, "seriatim_bridge_leader{{{labels},node={}}} 1", label(&status.node));
    }
}
