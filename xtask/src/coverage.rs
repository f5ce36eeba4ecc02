//! `cargo xtask coverage`: the lines and branches of the workspace that its tests run.

use std::collections::BTreeMap;
use std::path::Path;
use std::process::Command;

use serde_json::Value;
use seriatim_testkit::find_program;

use crate::test::Servers;
use crate::{Failure, cargo, files, packages, step};

const USAGE: &str =
    "usage: cargo xtask coverage [--write]; --write: the table into docs/testing.md";
const PAGE: &str = "docs/testing.md";
/// The lowest accepted shares, in percent.
const LINES_MIN: f64 = 85.0;
const BRANCHES_MIN: f64 = 70.0;
/// Debian's tools of LLVM. They read what a newer compiler writes.
const LLVM: [(&str, &str); 2] =
    [("LLVM_COV", "llvm-cov-19"), ("LLVM_PROFDATA", "llvm-profdata-19")];
const LLVM_PACKAGE: &str = "llvm-19";
/// Counting branches needs an unstable option, which the stable compiler accepts if this is set.
const UNSTABLE: (&str, &str) = ("RUSTC_BOOTSTRAP", "1");
/// Programs for developers and tests are not counted.
const LEFT_OUT: &str = "(^|/)(testkit|xtask|guide|examples|tests|benches)/|tests\\.rs$";

/// Lines and branches, each as covered and all.
#[derive(Clone, Copy, Default)]
struct Counts {
    lines: [u64; 2],
    branches: [u64; 2],
}

/// Runs all tests with cargo-llvm-cov, and prints what they ran by room of the architecture.
pub(crate) fn run(root: &Path, args: &[&str]) -> Result<(), Failure> {
    let write = match args {
        [] => false,
        ["--write"] => true,
        _ => return Err(Failure::Usage(USAGE.into())),
    };
    if !cargo::has(root, "llvm-cov") {
        return Err("coverage needs cargo-llvm-cov: cargo install cargo-llvm-cov --locked"
            .to_owned()
            .into());
    }
    packages::ensure_with(&LLVM.map(|(_, program)| (program, LLVM_PACKAGE)))?;
    let servers = Servers::start(root)?;
    let mut tests =
        command(root, &["nextest", "--branch", "--no-report", "--workspace", "--all-features"])?;
    tests.args(["--profile", "ci", "--no-fail-fast"]).envs(servers.variables());
    let passed = step::run("cargo llvm-cov nextest", &mut tests);

    let mut report = command(root, &["report", "--branch", "--json", "--summary-only"])?;
    report.args(["--ignore-filename-regex", LEFT_OUT]);
    let output = report.output().map_err(|e| format!("cargo llvm-cov report: {e}"))?;
    let summary = serde_json::from_slice(&output.stdout).map_err(|e| {
        format!("cargo llvm-cov report: {e}: {}", String::from_utf8_lossy(&output.stderr))
    })?;
    let rooms = rooms(root, &summary)?;
    let table = table(&rooms);
    files::show(root, PAGE, "coverage", &table, write)?;
    passed?;
    judge(&rooms)
}

fn command(root: &Path, args: &[&str]) -> Result<Command, String> {
    let mut command = cargo::command(root, &["llvm-cov"]);
    command.args(args).env(UNSTABLE.0, UNSTABLE.1);
    for (variable, program) in LLVM {
        command.env(variable, find_program(program, LLVM_PACKAGE)?);
    }
    Ok(command)
}

/// The counts of each folder directly below a crate's sources, and of all.
fn rooms(root: &Path, summary: &Value) -> Result<BTreeMap<String, Counts>, String> {
    let files = summary["data"][0]["files"].as_array().ok_or("cargo llvm-cov report: no files")?;
    let mut rooms: BTreeMap<String, Counts> = BTreeMap::new();
    for file in files {
        let name = file["filename"].as_str().unwrap_or_default();
        let path = Path::new(name).strip_prefix(root).unwrap_or(Path::new(name));
        for room in [room_of(&path.to_string_lossy()), "**all**".to_owned()] {
            rooms.entry(room).or_default().add(&file["summary"]);
        }
    }
    Ok(rooms)
}

/// `seriatim/src/stores/redis/claim.rs` is in `seriatim/src/stores/redis`, and other rooms are not divided.
fn room_of(path: &str) -> String {
    let deep = if path.starts_with("seriatim/src/stores/") { 4 } else { 3 };
    let parts: Vec<&str> = path.split('/').collect();
    let folders = parts.len().saturating_sub(1).min(deep);
    format!("`{}`", parts[..folders].join("/"))
}

impl Counts {
    fn add(&mut self, summary: &Value) {
        for (sum, kind) in [(&mut self.lines, "lines"), (&mut self.branches, "branches")] {
            sum[0] += summary[kind]["covered"].as_u64().unwrap_or_default();
            sum[1] += summary[kind]["count"].as_u64().unwrap_or_default();
        }
    }
}

fn percent([covered, all]: [u64; 2]) -> f64 {
    100.0 * covered as f64 / all.max(1) as f64
}

fn table(rooms: &BTreeMap<String, Counts>) -> String {
    let mut table = "| | lines | of | branches | of |\n|---|---|---|---|---|\n".to_owned();
    for (room, Counts { lines, branches }) in rooms {
        let row = format!(
            "| {room} | {:.0} % | {} | {:.0} % | {} |\n",
            percent(*lines),
            lines[1],
            percent(*branches),
            branches[1]
        );
        table.push_str(&row);
    }
    table
}

fn judge(rooms: &BTreeMap<String, Counts>) -> Result<(), Failure> {
    let all = rooms.get("**all**").copied().unwrap_or_default();
    let (lines, branches) = (percent(all.lines), percent(all.branches));
    if lines < LINES_MIN || branches < BRANCHES_MIN {
        let told = format!(
            "{lines:.1} % of the lines and {branches:.1} % of the branches ran; at least {LINES_MIN} and {BRANCHES_MIN} % must"
        );
        return Err(Failure::Failed(told));
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn stores_are_rooms_of_their_own_and_other_folders_are_one() {
        assert_eq!(room_of("seriatim/src/stores/redis/claim.rs"), "`seriatim/src/stores/redis`");
        assert_eq!(room_of("seriatim/src/stores/sharing.rs"), "`seriatim/src/stores`");
        assert_eq!(
            room_of("seriatim-server/src/http/pages/lanes.rs"),
            "`seriatim-server/src/http`"
        );
        assert_eq!(room_of("seriatim/src/client.rs"), "`seriatim/src`");
    }
}
