//! Developer commands: `cargo xtask help` lists them.

mod args;
mod axe;
mod bench;
mod book;
mod bridges;
mod campaign;
mod cargo;
mod checks;
mod coverage;
mod dashboards;
mod deny;
mod dist;
mod faktory;
mod faults;
mod files;
mod fleet;
mod fuzz;
mod links;
mod lowkiq;
mod measured;
mod names;
mod options;
mod packages;
mod pages;
mod peers;
mod publish;
mod screenshots;
mod seeds;
mod servers;
mod serving;
mod simulate;
mod step;
mod test;
mod tidy;

use std::env;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

const HELP: &str = "\
Developer commands of Seriatim.

    cargo xtask test [-- ARGS]  style checks and all tests, on private servers; ARGS go to the
                                test runner (`cargo nextest run`, else `cargo test`)
    cargo xtask checks          all of that which runs no test: fmt, tidy, clippy, names, rows
    cargo xtask tidy            style rules that rustfmt and clippy do not check
    cargo xtask names [--write] compares (or records) the public names of the library
    cargo xtask coverage [--write]
                                lines and branches of the crates that the tests run, by folder
    cargo xtask deny            licences, advisories and duplicates of dependencies (cargo-deny)
    cargo xtask book            README.md and docs/ as a book with search (mdBook), in target/book/html
    cargo xtask dist            archive, Debian package, list of parts and checksums of a release
    cargo xtask publish         packs the crates of a release and builds them from their packages; packs
                                the clients for Node and Python; publishes nothing
    cargo xtask faults [--jobs N]
                                kills, pauses and restarts processes and servers under a load of
                                20,000 jobs (or N) in each mode, and checks each history
    cargo xtask campaign --hours N [--store NAME]... [--jobs N] [--seed S] [--write]
                                the same again and again with other seeds, on SQLite too, and
                                the figures of all runs
    cargo xtask fuzz --minutes N [--seed S] [--only PART-OF-A-NAME]
                                fuzzes all parsers of foreign input (HTTP, workers, configuration, files, URLs,
                                …) for N minutes in total: no panic, no 5xx, no hang, no memory growth
    cargo xtask bridges [--jobs N] [--store NAME]... [--write]
                                how fast a bridge moves Sidekiq's jobs here, and an export gives them back
    cargo xtask bridges scheduled [--jobs N]
                                a million scheduled jobs, or N, and how long producers wait meanwhile
    cargo xtask bridges outage [--seconds N]
                                how fast a bridge catches up after its store was away, for 10 minutes or N seconds
    cargo xtask faktory [--jobs N] [--only NAME]... [--write]
                                clients of Faktory for Node, Python, Rust and Ruby push
                                and work; one of two workers is killed, and every job is accounted for
    cargo xtask lowkiq          the tests of Lowkiq's bridge and workers with the gem itself, in three versions
    cargo xtask seeds [--write] compares (or records) the tests of the rows of docs/parity.md
    cargo xtask screenshots     takes the pictures of the dashboard in docs/images anew
    cargo xtask servers         private PostgreSQL, MariaDB and Redis servers for development and
                                measurements, until Ctrl-C
    cargo xtask bench [--jobs N] [--rounds N] [--store NAME]... [--write]
                                our own figures on each store, beside the bare limit of its database
    cargo xtask fleet [--engines N] [--queues N] [--store NAME]... [--write]
                                what a push costs the server while many queues are idle in several engines
    cargo xtask pages [--jobs N] [--store NAME]... [--write]
                                times and sizes of the dashboard's pages with many jobs in the store
    cargo xtask dashboards [--jobs N] [--store NAME]... [--write]
                                what 200 open pages of the dashboard take from the claims beside them
    cargo xtask bench-peers [--jobs N] [--rounds N] [--only GROUP] [--write]
                                measures graphile-worker (Node and Rust), pg-boss, apalis, BullMQ,
                                Sidekiq and Seriatim, in turns on the same servers
    cargo xtask simulate --seeds N [--from S] [--mode safety|liveness]
                                simulates the whole runtime under faults, with N seeds; run a failed
                                seed again with --seed S --trace, which prints its history
    cargo xtask help            this text
";

/// Why a command failed.
enum Failure {
    /// A wrong call: exit code 2.
    Usage(String),
    /// The command failed: exit code 1.
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
        ["checks"] => checks::run(&root())?,
        ["tidy"] => tidy::run(&root())?,
        ["names"] => names::check(&root())?,
        ["names", "--write"] => names::write(&root())?,
        ["coverage", rest @ ..] => coverage::run(&root(), rest)?,
        ["deny"] => deny::run(&root())?,
        ["book"] => book::run(&root())?,
        ["dist"] => dist::run(&root())?,
        ["publish"] => publish::run(&root())?,
        ["campaign", rest @ ..] => campaign::run(&root(), rest)?,
        ["faults", rest @ ..] => faults::run(&root(), rest)?,
        ["bridges", rest @ ..] => bridges::run(&root(), rest)?,
        ["faktory", rest @ ..] => faktory::run(&root(), rest)?,
        ["lowkiq"] => lowkiq::run(&root())?,
        ["fuzz", rest @ ..] => fuzz::run(&root(), rest)?,
        ["seeds"] => seeds::check(&root())?,
        ["seeds", "--write"] => seeds::write(&root())?,
        ["simulate", rest @ ..] => simulate::run(&root(), rest)?,
        ["bench-peers", rest @ ..] => peers::run(&root(), rest)?,
        ["bench", rest @ ..] => bench::run(&root(), rest)?,
        ["fleet", rest @ ..] => fleet::run(&root(), rest)?,
        ["dashboards", rest @ ..] => dashboards::run(&root(), rest)?,
        ["pages", rest @ ..] => pages::run(&root(), rest)?,
        ["screenshots"] => screenshots::run(&root())?,
        ["servers"] => servers::run()?,
        ["help" | "--help" | "-h"] | [] => print!("{HELP}"),
        _ => {
            return Err(Failure::Usage(format!("unknown: {}\n\n{HELP}", args.join(" "))));
        }
    }
    Ok(())
}

/// The root of the repository, wherever the command was called in it. Cargo sets the variable; the fallback is for a
/// binary that is run without cargo.
fn root() -> PathBuf {
    let here =
        env::var_os("CARGO_MANIFEST_DIR").unwrap_or_else(|| env!("CARGO_MANIFEST_DIR").into());
    let here = PathBuf::from(here);
    here.parent().map_or_else(|| here.clone(), Path::to_path_buf)
}
