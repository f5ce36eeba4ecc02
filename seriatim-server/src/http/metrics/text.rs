//! Prometheus' text format.

use std::fmt::Write;

/// What stands before the samples of a metric.
pub(super) fn head(text: &mut String, name: &str, kind: &str, says: &str) {
    let _ = writeln!(text, "# HELP seriatim_{name} {says}\n# TYPE seriatim_{name} {kind}");
}

/// The value of a label, which strangers may choose.
pub(super) fn label(value: &str) -> String {
    let escaped = value.replace('\\', "\\\\").replace('"', "\\\"").replace('\n', "\\n");
    format!("\"{escaped}\"")
}
