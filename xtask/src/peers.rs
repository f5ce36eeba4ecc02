//! `cargo xtask bench-peers`: compares Seriatim with other engines, in turns, on the same private servers.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use seriatim_testkit::{Postgres, Redis, find_program};

use crate::{Failure, cargo, step};

const JOBS: u32 = 50_000;
const ROUNDS: usize = 5;
/// The number of keys in ordered runs.
const KEYS: u32 = 1_000;
/// The figures of a run, under their names in `seriatim bench`.
const FIGURES: [&str; 3] = ["push_per_s", "push_single_32_per_s", "drain_per_s"];

/// One engine in one setting.
struct Contestant {
    name: &'static str,
    server: Server,
    /// Whether each key is in strict order.
    ordered: bool,
    how: How,
    /// Divides the number of jobs, for engines that would take too long.
    share: u32,
}

#[derive(Clone, Copy, PartialEq)]
enum Server {
    Postgres,
    Redis,
}

#[derive(Clone, Copy)]
enum How {
    /// A script in `bench/peers`, run by the given program.
    Script(&'static str, &'static str),
    /// `seriatim bench` in this mode, with a key for each job or with `KEYS` keys.
    Ours(&'static str),
}

const CONTESTANTS: [Contestant; 12] = [
    peer("graphile-worker", Server::Postgres, false, "graphile-worker.mjs", 1),
    peer("pg-boss", Server::Postgres, false, "pg-boss.mjs", 1),
    ours("seriatim parallel", Server::Postgres, false, "parallel"),
    ours("seriatim accumulate, each job its key", Server::Postgres, false, "accumulate"),
    peer("graphile-worker, 1,000 keys", Server::Postgres, true, "graphile-worker.mjs", 10),
    peer("pg-boss, 1,000 keys", Server::Postgres, true, "pg-boss.mjs", 5),
    ours("seriatim fifo, 1,000 keys", Server::Postgres, true, "fifo"),
    ours("seriatim accumulate, 1,000 keys", Server::Postgres, true, "accumulate"),
    peer("BullMQ", Server::Redis, false, "bullmq.mjs", 1),
    peer("Sidekiq", Server::Redis, false, "sidekiq.rb", 1),
    ours("seriatim parallel", Server::Redis, false, "parallel"),
    ours("seriatim accumulate, each job its key", Server::Redis, false, "accumulate"),
];

const fn peer(
    name: &'static str,
    server: Server,
    ordered: bool,
    script: &'static str,
    share: u32,
) -> Contestant {
    let runner = if matches!(script.as_bytes(), [.., b'r', b'b']) { "ruby" } else { "node" };
    Contestant { name, server, ordered, how: How::Script(runner, script), share }
}

const fn ours(name: &'static str, server: Server, ordered: bool, mode: &'static str) -> Contestant {
    Contestant { name, server, ordered, how: How::Ours(mode), share: 1 }
}

/// `args`: any of `--jobs N`, `--rounds N`.
pub(crate) fn run(root: &Path, args: &[&str]) -> Result<(), Failure> {
    let (jobs, rounds) = parse(args)?;
    for (program, package) in [("node", "nodejs"), ("npm", "npm"), ("ruby", "ruby-sidekiq")] {
        find_program(program, package).map_err(|e| e.to_string())?;
    }
    let scripts = install(root)?;
    step::run(
        "build",
        &mut cargo::command(root, &["build", "--release", "--package", "seriatim-server"]),
    )?;
    let (postgres, redis) = (Postgres::start()?, Redis::start()?);
    let mut figures = vec![vec![Vec::new(); FIGURES.len()]; CONTESTANTS.len()];
    for round in 1..=rounds {
        step::announce(&format!("round {round} of {rounds}"));
        for (contestant, rows) in CONTESTANTS.iter().zip(&mut figures) {
            let url = match contestant.server {
                Server::Postgres => postgres.url(),
                Server::Redis => redis.url(),
            };
            let line = measure(contestant, root, &scripts, &url, jobs)?;
            for (figure, values) in FIGURES.iter().zip(rows) {
                values
                    .push(number(&line, figure).ok_or_else(|| format!("no {figure} in: {line}"))?);
            }
        }
    }
    print(&figures, jobs, rounds);
    Ok(())
}

fn parse(args: &[&str]) -> Result<(u32, usize), Failure> {
    let (mut jobs, mut rounds) = (JOBS, ROUNDS);
    for pair in args.chunks(2) {
        match pair {
            ["--jobs", n] if n.parse().is_ok_and(|n: u32| n >= 1_000) => {
                jobs = n.parse().unwrap_or(JOBS);
            }
            ["--rounds", n] if n.parse().is_ok_and(|n: usize| n > 0) => {
                rounds = n.parse().unwrap_or(ROUNDS);
            }
            _ => {
                let usage = "usage: cargo xtask bench-peers [--jobs N] [--rounds N], with at least 1,000 jobs";
                return Err(Failure::Usage(usage.into()));
            }
        }
    }
    Ok((jobs, rounds))
}

/// Copies the scripts to a folder in which their packages can be installed.
fn install(root: &Path) -> Result<PathBuf, String> {
    let (from, to) = (root.join("bench/peers"), root.join("target/peers"));
    let failed = |e: std::io::Error| format!("{}: {e}", to.display());
    fs::create_dir_all(&to).map_err(failed)?;
    for entry in fs::read_dir(&from).map_err(failed)? {
        let entry = entry.map_err(failed)?;
        fs::copy(entry.path(), to.join(entry.file_name())).map_err(failed)?;
    }
    let mut npm = Command::new("npm");
    npm.args(["install", "--silent", "--no-audit", "--no-fund"]).current_dir(&to);
    step::run("npm install", &mut npm)?;
    Ok(to)
}

/// The line of JSON that a run prints.
fn measure(
    contestant: &Contestant,
    root: &Path,
    scripts: &Path,
    url: &str,
    jobs: u32,
) -> Result<String, String> {
    let keys = if contestant.ordered { KEYS } else { 0 };
    let jobs = (jobs / contestant.share).to_string();
    let mut command = match contestant.how {
        How::Script(runner, script) => {
            let mut command = Command::new(runner);
            command.arg(script).arg(url).arg(&jobs).arg(keys.to_string()).current_dir(scripts);
            command
        }
        How::Ours(mode) => {
            let mut command = Command::new(root.join("target/release/seriatim"));
            command.args(["bench", "--json", "--store", url, "--jobs", &jobs, "--mode", mode]);
            if contestant.ordered {
                command.args(["--keys", &keys.to_string()]);
            }
            command
        }
    };
    let output = command.stdin(Stdio::null()).output().map_err(|e| e.to_string())?;
    let text = String::from_utf8_lossy(&output.stdout);
    let line = text.lines().find(|line| line.starts_with('{'));
    let name = contestant.name;
    let line = line.filter(|_| output.status.success()).ok_or_else(|| {
        let errors = String::from_utf8_lossy(&output.stderr);
        format!(
            "{name}: {}\n{}",
            output.status,
            errors.lines().take(20).collect::<Vec<_>>().join("\n")
        )
    })?;
    eprintln!("{name}: {line}");
    Ok(line.to_owned())
}

/// The number under `name` in a line of JSON.
fn number(line: &str, name: &str) -> Option<f64> {
    let (_, rest) = line.split_once(&format!("\"{name}\":"))?;
    rest.split([',', '}']).next()?.trim().parse().ok()
}

fn print(figures: &[Vec<Vec<f64>>], jobs: u32, rounds: usize) {
    println!("\nJobs per second, median of {rounds} rounds (smallest–largest), {jobs} jobs\n");
    println!("| server | engine | push, 1,000 at a time | push, one at a time from 32 | drain |");
    println!("|---|---|---|---|---|");
    for (contestant, rows) in CONTESTANTS.iter().zip(figures) {
        let server = if contestant.server == Server::Postgres { "PostgreSQL" } else { "Redis" };
        let cells: Vec<String> = rows.iter().map(|values| cell(values)).collect();
        println!("| {server} | {} | {} |", contestant.name, cells.join(" | "));
    }
}

fn cell(values: &[f64]) -> String {
    let mut sorted = values.to_vec();
    sorted.sort_by(f64::total_cmp);
    let at = |i: usize| sorted.get(i).copied().unwrap_or(f64::NAN).round();
    format!("{} ({}–{})", at(sorted.len() / 2), at(0), at(sorted.len().saturating_sub(1)))
}

#[cfg(test)]
mod tests {
    use super::{cell, number};

    #[test]
    fn figures_are_read_and_their_median_is_shown() {
        let line = r#"{"push_per_s":12.0,"drain_per_s":7}"#;
        assert_eq!((number(line, "drain_per_s"), number(line, "x")), (Some(7.0), None));
        assert_eq!(cell(&[3.0, 1.0, 2.0]), "2 (1–3)");
    }
}
