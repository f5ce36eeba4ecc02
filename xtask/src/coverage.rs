//! `cargo xtask coverage`: the lines and branches of the workspace that its tests run.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use seriatim_testkit::find_program;

use crate::test::Servers;
use crate::{Failure, cargo, files, packages, step};

const USAGE: &str =
    "usage: cargo xtask coverage [--write]; --write: the table into docs/testing.md";
const PAGE: &str = "docs/testing.md";
/// The lowest accepted shares, in percent.
const LINES_MIN: f64 = 90.0;
const BRANCHES_MIN: f64 = 80.0;
/// Debian's tools of LLVM, of the compiler's version.
const COV: &str = "llvm-cov-22";
const PROFDATA: &str = "llvm-profdata-22";
const LLVM_PACKAGE: &str = "llvm-22";
/// Counting branches needs an unstable option, which the stable compiler accepts if this is set.
const UNSTABLE: (&str, &str) = ("RUSTC_BOOTSTRAP", "1");
/// Programs for developers and tests are not counted.
const LEFT_OUT: [&str; 7] = ["testkit", "xtask", "guide", "examples", "tests", "benches", "bench"];
/// Where cargo-llvm-cov builds.
const BUILT: &str = "target/llvm-cov-target";

/// Lines and branches, each as covered and all.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
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
    packages::ensure_with(&[(COV, LLVM_PACKAGE), (PROFDATA, LLVM_PACKAGE)])?;
    // What earlier builds left has other lines.
    step::run(
        "cargo llvm-cov clean",
        &mut cargo::command(root, &["llvm-cov", "clean", "--workspace"]),
    )?;
    let servers = Servers::start(root)?;
    let mut tests = cargo::command(root, &["llvm-cov", "nextest", "--branch", "--no-report"]);
    tests.args(["--workspace", "--all-features", "--profile", "ci", "--no-fail-fast"]);
    tests.env(UNSTABLE.0, UNSTABLE.1).envs(servers.variables());
    for (variable, program) in [("LLVM_COV", COV), ("LLVM_PROFDATA", PROFDATA)] {
        tests.env(variable, find_program(program, LLVM_PACKAGE).map_err(String::from)?);
    }
    let passed = step::run("cargo llvm-cov nextest", &mut tests);

    let report = Report::open(root)?;
    let (rooms, left_out) = report.rooms(&sources(root)?)?;
    let mut table = table(&rooms);
    if !left_out.is_empty() {
        // As a warning: the tool crashes on branches of some macros.
        table.push_str(&format!("\nFiles that {COV} cannot read, left out: {}.\n", left_out.len()));
        left_out.iter().for_each(|file| eprintln!("left out: {file}"));
    }
    files::show(root, PAGE, "coverage", &table, write)?;
    passed?;
    judge(&rooms)
}

/// The source files that count, by room.
fn sources(root: &Path) -> Result<BTreeMap<String, Vec<String>>, String> {
    let listed = Command::new("git").args(["ls-files", "*.rs"]).current_dir(root).output();
    let listed = listed.map_err(|e| format!("git ls-files: {e}"))?;
    let mut rooms: BTreeMap<String, Vec<String>> = BTreeMap::new();
    for file in String::from_utf8_lossy(&listed.stdout).lines().filter(|file| counts(file)) {
        rooms.entry(room_of(file)).or_default().push(file.to_owned());
    }
    Ok(rooms)
}

fn counts(file: &str) -> bool {
    !file.ends_with("tests.rs") && !file.split('/').any(|folder| LEFT_OUT.contains(&folder))
}

/// What the tests left.
struct Report<'r> {
    root: &'r Path,
    profile: PathBuf,
    /// Programs with counters.
    programs: Vec<PathBuf>,
}

impl<'r> Report<'r> {
    /// Merges the counters of all processes.
    fn open(root: &'r Path) -> Result<Self, String> {
        let built = root.join(BUILT);
        let profile = built.join("all.profdata");
        let (raw, list) = (
            files_in(&built, |path| path.extension().is_some_and(|end| end == "profraw"))?,
            built.join("profraw"),
        );
        let lines: Vec<String> = raw.iter().map(|path| path.display().to_string()).collect();
        fs::write(&list, lines.join("\n")).map_err(|e| format!("{}: {e}", list.display()))?;
        let mut merge = Command::new(find_program(PROFDATA, LLVM_PACKAGE)?);
        merge.args(["merge", "--sparse", "--failure-mode=all", "-o"]).arg(&profile);
        step::run("llvm-profdata merge", merge.arg("-f").arg(&list))?;
        let programs = files_in(&built.join("debug/deps"), is_program)?;
        Ok(Self { root, profile, programs })
    }

    /// The counts of each room and of all, and the files that the tool cannot read.
    fn rooms(
        &self,
        sources: &BTreeMap<String, Vec<String>>,
    ) -> Result<(BTreeMap<String, Counts>, Vec<String>), String> {
        let (mut rooms, mut left_out) = (BTreeMap::new(), Vec::new());
        let mut all = Counts::default();
        for (room, files) in sources {
            let counts = self.counts(files, &mut left_out)?;
            all.add(counts);
            rooms.insert(room.clone(), counts);
        }
        rooms.insert("**all**".to_owned(), all);
        Ok((rooms, left_out))
    }

    /// The counts of these files. The tool crashes on some, which are found by halving.
    fn counts(&self, files: &[String], left_out: &mut Vec<String>) -> Result<Counts, String> {
        let mut command = Command::new(find_program(COV, LLVM_PACKAGE)?);
        // Its crashes are expected: their stacks need not be named.
        command.env("LLVM_DISABLE_SYMBOLIZATION", "1");
        command.current_dir(self.root).arg("report").arg("--instr-profile").arg(&self.profile);
        for program in &self.programs {
            command.arg("--object").arg(program);
        }
        command.arg("--sources").args(files.iter().map(|file| self.root.join(file)));
        let output = command.output().map_err(|e| format!("{COV}: {e}"))?;
        if output.status.success() {
            return Counts::read(&String::from_utf8_lossy(&output.stdout));
        }
        if let [file] = files {
            left_out.push(file.clone());
            return Ok(Counts::default());
        }
        let mut counts = Counts::default();
        for half in files.chunks(files.len().div_ceil(2)) {
            counts.add(self.counts(half, left_out)?);
        }
        Ok(counts)
    }
}

fn files_in(folder: &Path, is_wanted: impl Fn(&Path) -> bool) -> Result<Vec<PathBuf>, String> {
    let failed = |e: std::io::Error| format!("{}: {e}", folder.display());
    let paths: Result<Vec<PathBuf>, _> = fs::read_dir(folder)
        .map_err(failed)?
        .map(|entry| entry.map(|entry| entry.path()))
        .collect();
    Ok(paths.map_err(failed)?.into_iter().filter(|path| is_wanted(path)).collect())
}

/// Dependencies are libraries, so each program is a test or the product.
fn is_program(path: &Path) -> bool {
    use std::os::unix::fs::PermissionsExt as _;
    let runs = |of: fs::Metadata| of.is_file() && of.permissions().mode() & 0o111 != 0;
    path.extension().is_none() && path.metadata().is_ok_and(runs)
}

/// `seriatim/src/stores/redis/claim.rs` is in `seriatim/src/stores/redis`, and other rooms are not divided.
fn room_of(path: &str) -> String {
    let deep = if path.starts_with("seriatim/src/stores/") { 4 } else { 3 };
    let parts: Vec<&str> = path.split('/').collect();
    let folders = parts.len().saturating_sub(1).min(deep);
    format!("`{}`", parts[..folders].join("/"))
}

impl Counts {
    /// The last line of a report: of regions, functions, lines and branches how many, how many missed, and a share.
    fn read(report: &str) -> Result<Self, String> {
        let total = report.lines().find_map(|line| line.strip_prefix("TOTAL "));
        let Some(total) = total else { return Ok(Self::default()) };
        let columns: Vec<&str> = total.split_whitespace().collect();
        let covered = |at: usize| {
            let of = |at: usize| columns.get(at).and_then(|number| number.parse::<u64>().ok());
            let (all, missed) = of(at).zip(of(at + 1)).ok_or(format!("{COV}: {total:?}"))?;
            Ok::<_, String>([all - missed, all])
        };
        Ok(Self { lines: covered(6)?, branches: covered(9)? })
    }

    fn add(&mut self, other: Self) {
        for (sum, more) in [(&mut self.lines, other.lines), (&mut self.branches, other.branches)] {
            sum[0] += more[0];
            sum[1] += more[1];
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

    #[test]
    fn the_last_line_of_a_report_is_read() {
        let report =
            "Filename  Regions ...\n---\nTOTAL   9 1 88.9%  4 0 100.0%  100 8 92.0%  12 3 75.0%\n";
        let counts = Counts { lines: [92, 100], branches: [9, 12] };
        assert_eq!(Counts::read(report), Ok(counts));
        assert_eq!(Counts::read(""), Ok(Counts::default()), "no file has code");
    }
}
