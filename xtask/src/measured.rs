//! Figures of measurements: read from programs, and written into tables.

use std::process::{Command, Stdio};

use serde_json::Value;

/// The object that a program prints as a line of JSON.
pub(crate) fn object_of(name: &str, command: &mut Command) -> Result<Value, String> {
    let output = command.stdin(Stdio::null()).output().map_err(|e| format!("{name}: {e}"))?;
    let text = String::from_utf8_lossy(&output.stdout);
    let line = text.lines().find_map(|line| serde_json::from_str::<Value>(line).ok());
    let line = line.filter(|line| line.is_object() && output.status.success());
    let line = line.ok_or_else(|| {
        let errors = String::from_utf8_lossy(&output.stderr);
        let errors: Vec<&str> = errors.lines().take(20).collect();
        format!("{name}: {}\n{}", output.status, errors.join("\n"))
    })?;
    eprintln!("{name}: {line}");
    Ok(line)
}

/// A number of such an object.
pub(crate) fn figure(line: &Value, name: &str) -> Result<f64, String> {
    line[name].as_f64().ok_or_else(|| format!("no {name} in: {line}"))
}

/// Median and range, in thousands.
pub(crate) fn cell(values: &[f64]) -> String {
    let [median, low, high] = [median(values), least(values), largest(values)].map(thousands);
    format!("{median} ({low}–{high})")
}

/// 1234.5 as `1.2 k`, 84512 as `85 k`.
pub(crate) fn thousands(value: f64) -> String {
    let digits = usize::from(value < 9_950.0);
    format!("{:.digits$} k", value / 1_000.0)
}

pub(crate) fn median(values: &[f64]) -> f64 {
    sorted(values).get(values.len() / 2).copied().unwrap_or(f64::NAN)
}

pub(crate) fn least(values: &[f64]) -> f64 {
    sorted(values).first().copied().unwrap_or(f64::NAN)
}

pub(crate) fn largest(values: &[f64]) -> f64 {
    sorted(values).last().copied().unwrap_or(f64::NAN)
}

fn sorted(values: &[f64]) -> Vec<f64> {
    let mut sorted = values.to_vec();
    sorted.sort_by(f64::total_cmp);
    sorted
}

#[cfg(test)]
mod tests {
    use super::cell;

    #[test]
    fn a_cell_has_the_median_and_the_range() {
        assert_eq!(cell(&[30_200.0, 1_000.0, 2_040.0]), "2.0 k (1.0 k–30 k)");
    }
}
