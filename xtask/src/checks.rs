//! `cargo xtask checks`: everything that must hold and runs no test.

use std::path::Path;

use crate::{cargo, names, seeds, step, tidy};

const CLIPPY: [&str; 7] =
    ["clippy", "--workspace", "--all-targets", "--all-features", "--", "-D", "warnings"];
/// The binary without its own features: code that replaces a missing one is compiled only here. The
/// features of the other packages, and an example for the sake of the dependencies of tests, are those of [`CLIPPY`]:
/// nothing else is checked again.
const CLIPPY_BARE: [&str; 11] = [
    "clippy",
    "--workspace",
    "--lib",
    "--bins",
    "--example",
    "http_push",
    "--features",
    "seriatim/testing,seriatim/simulation,seriatim-verify/simulation",
    "--",
    "-D",
    "warnings",
];
/// The library in a service, which has few of its features.
const CHECK_PLAIN: [&str; 3] = ["check", "--package", "seriatim"];
const CHECK_REDIS: [&str; 6] =
    ["check", "--package", "seriatim", "--no-default-features", "--features", "cron,redis"];

/// Runs every check even if an earlier one failed, so that one run reports everything.
pub(crate) fn run(root: &Path) -> Result<(), String> {
    let mut failures = Vec::new();
    let mut note = |result: Result<(), String>| failures.extend(result.err());
    let cargo = |name: &str, args: &[&str]| step::run(name, &mut cargo::command(root, args));
    let component = |name: &str, args: &[&str]| match cargo::has(root, args[0]) {
        true => cargo(name, args),
        false => {
            eprintln!("left out: {name} (not installed: rustup component add rustfmt clippy)");
            Ok(())
        }
    };
    note(component("cargo fmt --check", &["fmt", "--all", "--check"]));
    step::announce("tidy");
    note(tidy::run(root));
    note(component("cargo clippy", &CLIPPY));
    note(component("cargo clippy, without features", &CLIPPY_BARE));
    note(cargo("cargo check, the library as it comes", &CHECK_PLAIN));
    note(cargo("cargo check, the library with one store", &CHECK_REDIS));
    step::announce("public names");
    note(names::check(root));
    step::announce("rows of docs/parity.md");
    note(seeds::check(root));
    if failures.is_empty() { Ok(()) } else { Err(step::list(&failures)) }
}
