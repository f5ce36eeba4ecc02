//! `cargo xtask simulate`: runs seeds of the simulation, with an optimized build.

use std::path::Path;

use crate::{cargo, step};

/// Only what the simulation needs, to keep the build short.
const BUILT: [&str; 9] = [
    "run",
    "--release",
    "--quiet",
    "--package",
    "seriatim-verify",
    "--features",
    "simulation",
    "--example",
    "simulate",
];

/// `args` are passed to the program.
pub(crate) fn run(root: &Path, args: &[&str]) -> Result<(), String> {
    let mut command = cargo::command(root, &BUILT);
    step::run("simulate", command.arg("--").args(args))
}
