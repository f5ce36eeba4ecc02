//! `cargo xtask bench-peers`: compares Seriatim with other engines, in turns, on the same private servers.

mod contestants;
mod report;

use std::path::{Path, PathBuf};
use std::process::Command;

use serde_json::Value;
use seriatim_testkit::{Postgres, Redis, find_program};

use self::contestants::{Contestant, GROUPS, Group, How, Server};
use self::report::{Compared, Rates};
use crate::args::Args;
use crate::measured::{figure, object_of};
use crate::{Failure, cargo, files, serving, step};

const JOBS: u32 = 50_000;
const ROUNDS: usize = 5;
const USAGE: &str = "usage: cargo xtask bench-peers [--jobs N] [--rounds N] [--only GROUP] [--write], with at least \
    1,000 jobs; GROUP: postgresql, postgresql-in-order, sqlite or redis; --write: into docs/performance.md";

struct Options {
    jobs: u32,
    rounds: usize,
    groups: Vec<&'static Group>,
    write: bool,
}

/// The servers, and the folder with the peers.
struct Bench<'a> {
    root: &'a Path,
    peers: PathBuf,
    postgres: Postgres,
    redis: Redis,
}

/// `args`: see [`USAGE`].
pub(crate) fn run(root: &Path, args: &[&str]) -> Result<(), Failure> {
    let options = parse(args)?;
    for (program, package) in [("node", "nodejs"), ("npm", "npm"), ("ruby", "ruby-sidekiq")] {
        find_program(program, package).map_err(|e| e.to_string())?;
    }
    let peers = install(root)?;
    serving::build(root)?;
    let bench = Bench { root, peers, postgres: Postgres::start()?, redis: Redis::start()? };
    let compared = bench.compare(&options)?;
    let about = format!(
        "Jobs per second, median of {} rounds (smallest–largest), {} jobs, each engine at its best settings, in turns: \
         `cargo xtask bench-peers`.",
        options.rounds, options.jobs
    );
    println!("\n{about}\n\n{}", report::tables(&compared));
    if options.write {
        report::write(root, &compared, &about)?;
    }
    Ok(())
}

fn parse(args: &[&str]) -> Result<Options, Failure> {
    let mut args = Args::new(args, USAGE);
    let (jobs, rounds) = (args.value("--jobs", JOBS)?, args.value("--rounds", ROUNDS)?);
    let groups = args.chosen("--only", &GROUPS.iter().collect::<Vec<_>>(), |group| group.slug)?;
    let write = args.has("--write");
    args.end(jobs >= 1_000 && rounds > 0)?;
    Ok(Options { jobs, rounds, groups, write })
}

/// Installs the peers in a folder of their own.
fn install(root: &Path) -> Result<PathBuf, String> {
    let (from, to) = (root.join("bench/peers"), root.join("target/peers"));
    files::copy_files(&from, &to)?;
    let mut npm = Command::new("npm");
    npm.args(["install", "--silent", "--no-audit", "--no-fund"]).current_dir(&to);
    step::run("npm install", &mut npm)?;
    let mut build = cargo::command(&from.join("rust"), &["build", "--release", "--locked"]);
    step::run("build the peers in Rust", build.env("CARGO_TARGET_DIR", to.join("rust")))?;
    Ok(to)
}

impl Bench<'_> {
    fn compare(&self, options: &Options) -> Result<Vec<Compared>, String> {
        let rates = |group: &Group| vec![Rates::default(); group.contestants.len()];
        let mut compared: Vec<Compared> =
            options.groups.iter().map(|group| (*group, rates(group))).collect();
        for round in 1..=options.rounds {
            step::announce(&format!("round {round} of {}", options.rounds));
            for (group, rates) in &mut compared {
                for (contestant, rates) in group.contestants.iter().zip(rates) {
                    let line = self.measure(group, contestant, options.jobs)?;
                    rates.push.push(figure(&line, "push_per_s")?);
                    rates.single.push(figure(&line, "push_single_32_per_s")?);
                    rates.drain.push(figure(&line, "drain_per_s")?);
                }
            }
        }
        Ok(compared)
    }

    /// The object that a run prints as a line of JSON.
    fn measure(&self, group: &Group, who: &Contestant, jobs: u32) -> Result<Value, String> {
        let (jobs, keys) = ((jobs / who.share).to_string(), group.keys.to_string());
        let url = match group.server {
            Server::Postgres => self.postgres.url(),
            Server::Redis => self.redis.url(),
            Server::Sqlite => self.new_file()?,
        };
        let mut command = match who.how {
            How::Script(runner, script) => {
                let mut command = Command::new(runner);
                command.args([script, &url, &jobs, &keys]).current_dir(&self.peers);
                command
            }
            How::Rust(engine, setting) => {
                let mut command = Command::new(self.peers.join("rust/release/bench-peers"));
                command.args([engine, &url, &jobs, &keys, setting]);
                command
            }
            How::Ours(mode) => {
                let mut command = Command::new(self.root.join("target/release/seriatim"));
                command.args(["bench", "--json", "--store", &url, "--jobs", &jobs, "--mode", mode]);
                if group.keys > 0 {
                    command.args(["--keys", &keys]);
                }
                command
            }
        };
        object_of(who.name, &mut command)
    }

    /// The URL of a file that does not exist.
    fn new_file(&self) -> Result<String, String> {
        let folder = self.peers.join("sqlite");
        files::new_folder(&folder)?;
        Ok(format!("sqlite:{}", folder.join("jobs.db").display()))
    }
}

#[cfg(test)]
mod tests {
    use super::parse;

    #[test]
    fn unknown_groups_and_too_few_jobs_are_refused() {
        assert!(parse(&["--only", "redis", "--rounds", "1", "--write"]).is_ok());
        for args in [["--only", "oracle"], ["--jobs", "999"], ["--rounds", "0"], ["--fast", "1"]] {
            assert!(parse(&args).is_err(), "{args:?}");
        }
    }
}
