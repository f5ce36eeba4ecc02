//! `cargo xtask fuzz`: fuzzes every parser of foreign input for a given time.

use std::path::Path;
use std::process::Output;

use seriatim_testkit::fuzz::{REPORT, SECONDS_VARIABLE, SEED_VARIABLE};

use crate::args::Args;
use crate::{Failure, cargo, step};

/// The packages with surfaces. Debug builds, so that arithmetic overflow is found.
const PACKAGES: [&str; 3] = ["seriatim", "seriatim-server", "seriatim-verify"];
/// The common part of their test paths.
const FILTER: &str = "fuzz::";
const USAGE: &str = "usage: cargo xtask fuzz --minutes N [--seed S] [--only PART-OF-A-NAME]";

/// A test that attacks one surface.
struct Surface {
    package: &'static str,
    test: String,
}

pub(crate) fn run(root: &Path, args: &[&str]) -> Result<(), Failure> {
    let mut args = Args::new(args, USAGE);
    let minutes = args.value("--minutes", 0)?;
    let seed = args.value("--seed", std::process::id().into())?;
    let only: String = args.value("--only", String::new())?;
    args.end(minutes > 0)?;
    let mut surfaces: Vec<Surface> = Vec::new();
    for package in PACKAGES {
        surfaces.extend(list(root, package)?);
    }
    surfaces.retain(|surface| surface.test.contains(&only));
    if surfaces.is_empty() {
        return Err(Failure::Failed(format!("no surface has {only:?} in its name")));
    }
    let seconds = (minutes * 60_u64 / surfaces.len() as u64).max(1);
    step::announce(&format!("{} surfaces, {seconds} s each, seed {seed}", surfaces.len()));
    let (mut inputs, mut failed) = (0, Vec::new());
    for surface in &surfaces {
        match surface.attack(root, seconds, seed)? {
            Ok(number) => inputs += number,
            Err(()) => failed.push(surface.test.as_str()),
        }
    }
    println!("{inputs} inputs in all");
    match failed.is_empty() {
        true => Ok(()),
        false => Err(Failure::Failed(format!("failures found by: {}", failed.join(", ")))),
    }
}

fn list(root: &Path, package: &'static str) -> Result<Vec<Surface>, String> {
    let output = output(root, package, &[FILTER, "--list", "--format", "terse"], &[])?;
    if !output.status.success() {
        return Err(String::from_utf8_lossy(&output.stderr).into_owned());
    }
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    let tests = text.lines().filter_map(|line| line.strip_suffix(": test"));
    Ok(tests.map(|test| Surface { package, test: test.to_owned() }).collect())
}

fn output(
    root: &Path,
    package: &str,
    args: &[&str],
    variables: &[(&str, String)],
) -> Result<Output, String> {
    let mut command = cargo::command(root, &["test", "--all-features", "--lib", "--package"]);
    command.arg(package).arg("--").args(args).envs(variables.iter().cloned());
    command.output().map_err(|error| format!("cargo test: {error}"))
}

impl Surface {
    /// Runs in its own process, so that its memory is this surface's. Returns the number of inputs; `Err(())` if one
    /// caused a failure.
    fn attack(&self, root: &Path, seconds: u64, seed: u64) -> Result<Result<u64, ()>, String> {
        let variables =
            [(SECONDS_VARIABLE, seconds.to_string()), (SEED_VARIABLE, seed.to_string())];
        let args = ["--exact", &self.test, "--nocapture"];
        let output = output(root, self.package, &args, &variables)?;
        let text = String::from_utf8_lossy(&output.stdout);
        let report = text.lines().find_map(report);
        match (output.status.success(), report) {
            (true, Some((report, inputs))) => {
                println!("{report}");
                Ok(Ok(inputs))
            }
            _ => {
                eprintln!("{}: {}", self.test, output.status);
                eprintln!("{text}{}", String::from_utf8_lossy(&output.stderr));
                Ok(Err(()))
            }
        }
    }
}

/// The report of a surface, and the number of inputs in it.
fn report(line: &str) -> Option<(&str, u64)> {
    // The test's name may precede it on the same line.
    let (_, report) = line.split_once(REPORT)?;
    let (_, inputs) = report.split_once(": ")?;
    Some((report, inputs.split_once(" inputs")?.0.parse().ok()?))
}

#[cfg(test)]
mod tests {
    use super::report;

    #[test]
    fn the_number_of_inputs_is_read_of_a_report() {
        let line = "test tests::fuzz::x ... fuzz cron: 1234 inputs, 99 a second; 8 MiB resident";
        let told = "cron: 1234 inputs, 99 a second; 8 MiB resident";
        assert_eq!(report(line), Some((told, 1_234)));
        assert_eq!(report("running 1 test"), None);
    }
}
