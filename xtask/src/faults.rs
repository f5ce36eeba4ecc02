//! `cargo xtask faults`: the tests with real faults, with more load than in normal test runs.

use std::path::Path;

use crate::{Failure, cargo, packages};

const JOBS: &str = "20000";
/// The variable with the number of jobs for the tests.
const JOBS_VARIABLE: &str = "SERIATIM_FAULT_JOBS";
const TESTS: [&str; 11] = [
    "nextest",
    "run",
    "--package",
    "seriatim-server",
    "--profile",
    "faults",
    "--success-output",
    "immediate",
    "-E",
    "test(faults::fleet) | test(bridges::faults) | test(bridges::back)",
    "--no-fail-fast",
];

/// `args`: nothing, or `--jobs N`.
pub(crate) fn run(root: &Path, args: &[&str]) -> Result<(), Failure> {
    let jobs = match args {
        [] => JOBS,
        ["--jobs", jobs] if jobs.parse::<u32>().is_ok_and(|jobs| jobs > 0) => jobs,
        _ => return Err(Failure::Usage("usage: cargo xtask faults [--jobs N]".into())),
    };
    packages::ensure()?;
    let mut command = cargo::command(root, &TESTS);
    let status = command.env(JOBS_VARIABLE, jobs).status().map_err(|e| e.to_string())?;
    match status.success() {
        true => Ok(()),
        false => Err(Failure::Failed("a guarantee was broken, or a test could not run".into())),
    }
}
