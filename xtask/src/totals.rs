//! The totals of several `cargo test` binaries.

use std::fmt;

/// How many tests passed and failed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Totals {
    passed: u64,
    failed: u64,
}

impl Totals {
    /// Adds a line of a test binary's output, if it is a summary: `test result: ok. 12 passed; 0 failed; …`.
    pub(crate) fn add_line(&mut self, line: &str) {
        let Some(result) = line.strip_prefix("test result: ") else {
            return;
        };
        let count = |what| {
            let before = result.split(what).next()?;
            before.split_whitespace().next_back()?.parse::<u64>().ok()
        };
        self.passed += count(" passed;").unwrap_or(0);
        self.failed += count(" failed;").unwrap_or(0);
    }
}

impl fmt::Display for Totals {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} passed, {} failed", self.passed, self.failed)
    }
}

#[cfg(test)]
mod tests {
    use super::Totals;

    #[test]
    fn the_results_of_all_binaries_are_summed_and_other_lines_are_not() {
        let mut totals = Totals::default();
        for line in [
            "running 3 tests",
            "test result: ok. 12 passed; 0 failed; 0 ignored; 0 measured; 0 filtered out",
            "test that_prints ... 5 passed; 5 failed;",
            "test result: FAILED. 1 passed; 2 failed; 0 ignored; 0 measured; 0 filtered out",
        ] {
            totals.add_line(line);
        }
        assert_eq!(totals.to_string(), "13 passed, 2 failed");
    }
}
