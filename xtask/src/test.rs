//! `cargo xtask test`: all checks that must pass before a merge.

use std::env;
use std::num::NonZero;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;

use seriatim_testkit::{
    MYSQL_VARIABLE, Mysql, MysqlOptions, PGBOUNCER_VARIABLE, POSTGRES_VARIABLE, PgBouncer,
    Postgres, PostgresOptions, REDIS_CLUSTER_VARIABLE, REDIS_VARIABLE, Redis, RedisCluster,
    Templates,
};
use signal_hook::consts::SIGINT;

use crate::{axe, cargo, names, packages, seeds, step, tidy};

/// Runs every check even if an earlier one failed, so that one run reports everything. `args` are passed to the test
/// runner.
pub(crate) fn run(root: &Path, args: &[&str]) -> Result<(), String> {
    let mut run = Run::new(root)?;
    packages::ensure()?;
    run.check("fmt", "cargo fmt --check", &["fmt", "--all", "--check"]);
    run.tidy();
    run.check("clippy", "cargo clippy", &CLIPPY);
    run.check("clippy", "cargo clippy, without features", &CLIPPY_BARE);
    run.step("cargo check, the library as it comes", &mut cargo::command(root, &CHECK_PLAIN));
    run.step("cargo check, the library with one store", &mut cargo::command(root, &CHECK_REDIS));
    run.names();
    run.tests(args)?;
    run.finish()
}

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
/// The whole workspace, although mainly the library has doctests: with the same packages as the tests, their
/// dependencies are built only once.
const DOCTESTS: [&str; 4] = ["test", "--doc", "--workspace", "--all-features"];

struct Run<'a> {
    root: &'a Path,
    failures: Vec<String>,
    left_out: Vec<&'static str>,
    /// Ctrl-C also reaches the running command. We wait for its end, then stop the servers.
    interrupted: Arc<AtomicBool>,
}

impl<'a> Run<'a> {
    fn new(root: &'a Path) -> Result<Self, String> {
        let interrupted = Arc::new(AtomicBool::new(false));
        signal_hook::flag::register(SIGINT, Arc::clone(&interrupted)).map_err(|e| e.to_string())?;
        Ok(Self { root, failures: Vec::new(), left_out: Vec::new(), interrupted })
    }

    /// Runs a check whose component may not be installed.
    fn check(&mut self, subcommand: &str, name: &'static str, args: &[&str]) {
        if cargo::has(self.root, subcommand) {
            self.step(name, &mut cargo::command(self.root, args));
        } else {
            self.left_out.push(name);
        }
    }

    fn tidy(&mut self) {
        step::announce("tidy");
        self.note(tidy::run(self.root));
    }

    fn names(&mut self) {
        if !self.is_interrupted() {
            step::announce("public names");
            self.note(names::check(self.root));
            step::announce("rows of docs/parity.md");
            self.note(seeds::check(self.root));
        }
    }

    fn tests(&mut self, args: &[&str]) -> Result<(), String> {
        if self.is_interrupted() {
            return Ok(());
        }
        let servers = Servers::start(self.root)?;
        let servers = servers.variables();
        if cargo::has(self.root, "nextest") {
            self.nextest(args, &servers);
        } else {
            self.cargo_test(args, &servers);
        }
        Ok(())
    }

    /// nextest does not run doctests. They run first, so that its summary is the last line.
    fn nextest(&mut self, args: &[&str], servers: &[(&str, String)]) {
        let mut doctests = cargo::command(self.root, &DOCTESTS);
        self.step("doctests", doctests.envs(servers.iter().cloned()));

        let mut tests = cargo::command(self.root, &["nextest", "run", "--all-features"]);
        if env::var_os("CI").is_some() {
            tests.args(["--profile", "ci"]);
        }
        // Some arguments of nextest, as `--no-capture`, exclude this one.
        if args.is_empty() {
            // A third of their time tests wait: for leases to end, for servers to start.
            let cores = thread::available_parallelism().map_or(1, NonZero::get);
            tests.arg(format!("--test-threads={}", cores + cores / 2));
        }
        tests.args(scope(args)).args(args).envs(servers.iter().cloned());
        self.step("cargo nextest run", &mut tests);
    }

    /// Includes the doctests.
    fn cargo_test(&mut self, args: &[&str], servers: &[(&str, String)]) {
        let mut tests = cargo::command(self.root, &["test", "--all-features", "--no-fail-fast"]);
        tests.args(scope(args)).args(args).envs(servers.iter().cloned());
        self.step("cargo test (cargo-nextest is not installed)", &mut tests);
    }

    fn step(&mut self, name: &str, command: &mut Command) {
        if !self.is_interrupted() {
            let result = step::run(name, command);
            self.note(result);
        }
    }

    fn note(&mut self, result: Result<(), String>) {
        self.failures.extend(result.err());
    }

    fn is_interrupted(&self) -> bool {
        self.interrupted.load(Ordering::Relaxed)
    }

    fn finish(self) -> Result<(), String> {
        for name in &self.left_out {
            eprintln!("left out: {name} (not installed: rustup component add rustfmt clippy)");
        }
        if self.is_interrupted() {
            return Err("interrupted".to_owned());
        }
        if self.failures.is_empty() {
            return Ok(());
        }
        Err(format!("\nfailed:\n  {}", self.failures.join("\n  ")))
    }
}

/// Private servers of all kinds, and what else tests are told of.
pub(crate) struct Servers {
    // Before the server behind it: fields are dropped in order.
    bouncer: PgBouncer,
    postgres: Postgres,
    mysql: Mysql,
    redis: Redis,
    cluster: RedisCluster,
    axe: PathBuf,
    /// Most tests that stop their server need one of their own.
    templates: Templates,
}

impl Servers {
    pub(crate) fn start(root: &Path) -> Result<Self, String> {
        let postgres = Postgres::start_with(PostgresOptions::shared())?;
        let bouncer = PgBouncer::start(postgres.port())?;
        let options = MysqlOptions { durable: false, ..MysqlOptions::default() };
        let mysql = Mysql::start_with(options)?;
        let (redis, cluster) = (Redis::start()?, RedisCluster::start()?);
        let (axe, templates) = (axe::ensure(root)?, Templates::create()?);
        Ok(Self { bouncer, postgres, mysql, redis, cluster, axe, templates })
    }

    /// The variables that name them.
    pub(crate) fn variables(&self) -> [(&'static str, String); 7] {
        [
            self.templates.variable(),
            (axe::VARIABLE, self.axe.display().to_string()),
            (PGBOUNCER_VARIABLE, self.bouncer.port().to_string()),
            (POSTGRES_VARIABLE, self.postgres.url()),
            (MYSQL_VARIABLE, self.mysql.url()),
            (REDIS_VARIABLE, self.redis.url()),
            (REDIS_CLUSTER_VARIABLE, self.cluster.url()),
        ]
    }
}

/// The whole workspace, unless the caller chose packages.
fn scope(args: &[&str]) -> Option<&'static str> {
    let chosen = |arg: &&str| arg.starts_with("-p") || arg.starts_with("--package");
    (!args.iter().take_while(|arg| **arg != "--").any(chosen)).then_some("--workspace")
}

#[cfg(test)]
mod tests {
    use super::scope;

    #[test]
    fn the_whole_workspace_is_tested_unless_packages_are_chosen() {
        assert_eq!(scope(&[]), Some("--workspace"));
        assert_eq!(scope(&["some_test", "--", "-p"]), Some("--workspace"));
        assert_eq!(scope(&["-p", "seriatim"]), None);
        assert_eq!(scope(&["--package=seriatim"]), None);
    }
}
