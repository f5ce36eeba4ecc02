//! `cargo xtask simulate`: seeds of the simulation, optimised.

use std::path::Path;

use crate::cargo;
use crate::step;

/// Only what the simulation needs, so that it is soon built.
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

/// `args` go to the program.
pub(crate) fn run(root: &Path, args: &[&str]) -> Result<(), String> {
    let mut command = cargo::command(root, &BUILT);
    step::run("simulate", command.arg("--").args(args))
}
