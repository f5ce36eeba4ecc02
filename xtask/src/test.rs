//! `cargo xtask test`: all checks that must pass before a merge.

use std::env;
use std::fs;
use std::num::NonZero;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;

use seriatim_testkit::{
    MYSQL_VARIABLE, Mysql, MysqlOptions, PGBOUNCER_VARIABLE, POSTGRES_VARIABLE, PgBouncer,
    Postgres, PostgresOptions, REDIS_CLUSTER_VARIABLE, REDIS_VARIABLE, Redis, RedisCluster,
    Templates,
};
use signal_hook::consts::SIGINT;

use crate::{axe, cargo, checks, packages, step};

/// Runs everything even if something failed before, so that one run reports all of it. `args` are passed to the test
/// runner.
pub(crate) fn run(root: &Path, args: &[&str]) -> Result<(), String> {
    let mut run = Run::new(root)?;
    packages::ensure()?;
    let servers = Servers::start(root)?;
    let servers = servers.variables();
    if !cargo::has(root, "nextest") {
        run.note(checks::run(root));
        run.cargo_test(args, &servers);
    } else if scope(args).is_none() {
        run.note(checks::run(root));
        run.doctests(&servers);
        run.nextest(&["--all-features"], args, &servers);
    } else {
        run.tests_and_checks(args, &servers)?;
    }
    run.finish()
}

/// The whole workspace, although mainly the library has doctests: with the same packages as the tests, their
/// dependencies are built only once.
const DOCTESTS: [&str; 4] = ["test", "--doc", "--workspace", "--all-features"];

struct Run<'a> {
    root: &'a Path,
    failures: Vec<String>,
    /// Ctrl-C also reaches the running command. We wait for its end, then stop the servers.
    interrupted: Arc<AtomicBool>,
}

impl<'a> Run<'a> {
    fn new(root: &'a Path) -> Result<Self, String> {
        let interrupted = Arc::new(AtomicBool::new(false));
        signal_hook::flag::register(SIGINT, Arc::clone(&interrupted)).map_err(|e| e.to_string())?;
        Ok(Self { root, failures: Vec::new(), interrupted })
    }

    /// The checks use what the tests leave of the machine, which wait a third of their time: for leases to end, for
    /// servers to start. Cargo does one thing at a time in its folder, so all tests are built before.
    fn tests_and_checks(
        &mut self,
        args: &[&str],
        servers: &[(&str, String)],
    ) -> Result<(), String> {
        self.doctests(servers);
        let built = match built(self.root) {
            Ok(built) => built,
            Err(failure) => {
                self.note(Err(failure));
                self.note(checks::run(self.root));
                return Ok(());
            }
        };
        let mut checks = Command::new("nice");
        checks.args(["-n", "19"]).arg(env::current_exe().map_err(|e| e.to_string())?).arg("checks");
        let checks = checks.current_dir(self.root).stdin(Stdio::null()).stdout(Stdio::null());
        let checks = checks.stderr(Stdio::piped()).spawn().map_err(|e| format!("nice: {e}"))?;
        // Somebody has to read it meanwhile.
        let checks = thread::spawn(|| checks.wait_with_output());
        self.nextest(&built.each_ref().map(String::as_str), args, servers);
        let checks = checks.join().map_err(|_| "the checks were not read".to_owned())?;
        let checks = checks.map_err(|e| format!("checks: {e}"))?;
        let said = String::from_utf8_lossy(&checks.stderr);
        step::announce("checks");
        eprint!("{said}");
        self.note(checks.status.success().then_some(()).ok_or("checks: see above".to_owned()));
        Ok(())
    }

    /// nextest does not run them.
    fn doctests(&mut self, servers: &[(&str, String)]) {
        let mut doctests = cargo::command(self.root, &DOCTESTS);
        self.step("doctests", doctests.envs(servers.iter().cloned()));
    }

    fn nextest(&mut self, of: &[&str], args: &[&str], servers: &[(&str, String)]) {
        let mut tests = cargo::command(self.root, &["nextest", "run"]);
        if env::var_os("CI").is_some() {
            tests.args(["--profile", "ci"]);
        }
        if args.is_empty() {
            // See `tests_and_checks`.
            let cores = thread::available_parallelism().map_or(1, NonZero::get);
            tests.arg(format!("--test-threads={}", cores + cores / 2));
        }
        tests.args(of).args(args).envs(servers.iter().cloned());
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
        if self.is_interrupted() {
            return Err("interrupted".to_owned());
        }
        if self.failures.is_empty() { Ok(()) } else { Err(step::list(&self.failures)) }
    }
}

/// Builds all tests; the arguments that tell nextest where they are.
fn built(root: &Path) -> Result<[String; 4], String> {
    step::announce("build of the tests");
    let list = ["nextest", "list", "--all-features", "--workspace", "--list-type", "binaries-only"];
    let metadata = ["metadata", "--all-features", "--format-version", "1"];
    let binaries = written(root, "binaries", &[&list[..], &["--message-format", "json"]].concat())?;
    let metadata = written(root, "metadata", &metadata)?;
    Ok(["--binaries-metadata".to_owned(), binaries, "--cargo-metadata".to_owned(), metadata])
}

/// What cargo tells, in a file.
fn written(root: &Path, name: &str, args: &[&str]) -> Result<String, String> {
    let mut command = cargo::command(root, args);
    let told = command.stderr(Stdio::inherit()).output();
    let told = told.map_err(|e| format!("cargo {}: {e}", args[0]))?;
    if !told.status.success() {
        return Err(format!("cargo {}: {}", args.join(" "), told.status));
    }
    let path = root.join(format!("target/{name}.json"));
    fs::write(&path, &told.stdout).map_err(|e| format!("{}: {e}", path.display()))?;
    Ok(path.display().to_string())
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
