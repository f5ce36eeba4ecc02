//! Developer commands: `cargo xtask help` lists them.

mod cargo;
mod coverage;
mod deny;
mod faults;
mod files;
mod fuzz;
mod names;
mod packages;
mod peers;
mod seeds;
mod servers;
mod simulate;
mod step;
mod test;
mod tidy;
mod totals;

use std::env;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

const HELP: &str = "\
Developer commands of Seriatim.

    cargo xtask test [-- ARGS]  style checks and all tests, on private servers; ARGS go to the
                                test runner (`cargo nextest run`, else `cargo test`)
    cargo xtask tidy            the rules of style that rustfmt and clippy do not know
    cargo xtask tidy --arrows   the table of ARCHITECTURE.md as it would be for the imports there are
    cargo xtask names [--write] public names of the library, compared with the record (or recorded)
    cargo xtask coverage        which lines of the library its tests run; below 85 % it fails
    cargo xtask deny            licences, advisories and duplicates of dependencies (cargo-deny)
    cargo xtask faults [--jobs N]
                                killed, paused and restarted processes and servers under a load of
                                20,000 jobs (or N) in each mode, with the judgement of each
    cargo xtask fuzz --minutes N [--seed S]
                                all readers of what others wrote (HTTP, workers, configuration, files, URLs,
                                …), N minutes in all: no panic, no 5xx, no hang, memory flat
    cargo xtask seeds           the rows of docs/parity.md, and the tests that show them
    cargo xtask servers         a private PostgreSQL, MariaDB and Redis to develop and measure against,
                                until Ctrl-C
    cargo xtask bench-peers [--jobs N] [--rounds N]
                                graphile-worker, pg-boss, BullMQ and Sidekiq beside our own `bench`,
                                by turns on the same servers
    cargo xtask simulate --seeds N [--from S] [--mode safety|liveness]
                                the whole runtime with everything going wrong, N times; a seed that
                                fails is run again with --seed S --trace, which prints its history
    cargo xtask help            this text
";

/// Why a command failed.
enum Failure {
    /// The caller asked for something that does not exist: exit code 2.
    Usage(String),
    /// It was tried and did not work: exit code 1.
    Failed(String),
}

impl From<String> for Failure {
    fn from(message: String) -> Self {
        Self::Failed(message)
    }
}

fn main() -> ExitCode {
    let args: Vec<String> = env::args().skip(1).collect();
    let Err(failure) = run(&args) else {
        return ExitCode::SUCCESS;
    };
    let (code, message) = match failure {
        Failure::Usage(message) => (2, message),
        Failure::Failed(message) => (1, message),
    };
    eprintln!("{message}");
    ExitCode::from(code)
}

fn run(args: &[String]) -> Result<(), Failure> {
    let args: Vec<&str> = args.iter().map(String::as_str).collect();
    match args.as_slice() {
        ["test"] => test::run(&root(), &[])?,
        ["test", "--", rest @ ..] => test::run(&root(), rest)?,
        ["tidy"] => tidy::run(&root())?,
        ["tidy", "--arrows"] => tidy::arrows(&root())?,
        ["names"] => names::check(&root())?,
        ["names", "--write"] => names::write(&root())?,
        ["coverage"] => coverage::run(&root())?,
        ["deny"] => deny::run(&root())?,
        ["faults", rest @ ..] => faults::run(&root(), rest)?,
        ["fuzz", rest @ ..] => fuzz::run(&root(), rest)?,
        ["seeds"] => seeds::run(&root())?,
        ["simulate", rest @ ..] => simulate::run(&root(), rest)?,
        ["bench-peers", rest @ ..] => peers::run(&root(), rest)?,
        ["servers"] => servers::run()?,
        ["help" | "--help" | "-h"] | [] => print!("{HELP}"),
        _ => {
            return Err(Failure::Usage(format!("unknown: {}\n\n{HELP}", args.join(" "))));
        }
    }
    Ok(())
}

/// The root of the repository, wherever in it the command was given. Cargo tells; the second is for
/// a binary that is run without it.
fn root() -> PathBuf {
    let here =
        env::var_os("CARGO_MANIFEST_DIR").unwrap_or_else(|| env!("CARGO_MANIFEST_DIR").into());
    let here = PathBuf::from(here);
    here.parent().map_or_else(|| here.clone(), Path::to_path_buf)
}
