//! Prometheus' text format.

use std::fmt::{Display, Write};

/// A metric: its head is written first, its samples follow.
pub(super) struct Metric<'a> {
    text: &'a mut String,
    name: &'a str,
}

impl<'a> Metric<'a> {
    /// A counter if the name ends in `_total`, otherwise a gauge.
    pub(super) fn new(text: &'a mut String, name: &'a str, says: &str) -> Self {
        let kind = if name.ends_with("_total") { "counter" } else { "gauge" };
        Self::of_kind(kind, text, name, says)
    }

    pub(super) fn histogram(text: &'a mut String, name: &'a str, says: &str) -> Self {
        Self::of_kind("histogram", text, name, says)
    }

    fn of_kind(kind: &str, text: &'a mut String, name: &'a str, says: &str) -> Self {
        let _ = writeln!(text, "# HELP seriatim_{name} {says}\n# TYPE seriatim_{name} {kind}");
        Self { text, name }
    }

    /// Its only sample.
    pub(super) fn is(self, number: impl Display) {
        let _ = writeln!(self.text, "seriatim_{} {number}", self.name);
    }

    pub(super) fn add(&mut self, labels: impl Display, number: impl Display) {
        self.add_part("", labels, number);
    }

    /// A sample of one of the parts of a histogram.
    pub(super) fn add_part(&mut self, part: &str, labels: impl Display, number: impl Display) {
        let _ = writeln!(self.text, "seriatim_{}{part}{{{labels}}} {number}", self.name);
    }
}

/// The value of a label, which strangers may choose.
pub(super) fn label(value: &str) -> String {
    let escaped = value.replace('\\', "\\\\").replace('"', "\\\"").replace('\n', "\\n");
    format!("\"{escaped}\"")
}
