//! `cargo xtask bench`: our own figures on each store, beside the bare limit of its database.

use std::fmt::Write as _;
use std::fs::File;
use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Instant;

use serde_json::Value;

use crate::args::Args;
use crate::measured::{cell, figure, median, object_of};
use crate::options::STORES;
use crate::serving::with_store;
use crate::{Failure, files, serving, step};

const JOBS: u32 = 100_000;
const ROUNDS: usize = 5;
const PAGE: &str = "docs/performance.md";
/// Flushes that are measured in each round, and the bytes before each.
const FLUSHES: usize = 50;
const FLUSHED_BYTES: usize = 4096;
const USAGE: &str = "usage: cargo xtask bench [--jobs N] [--rounds N] [--store sqlite|postgres|mysql|redis]... [--write]; \
    --write: into docs/performance.md";

/// Modes, and numbers of keys; 0: a key for each job. The first is what the others are compared with.
const SHAPES: [(&str, u32, &str); 5] = [
    ("parallel", 0, "parallel"),
    ("accumulate", 0, "accumulate, a key for each job"),
    ("accumulate", 1_000, "accumulate, 1,000 keys"),
    ("fifo", 0, "fifo, a key for each job"),
    ("fifo", 1_000, "fifo, 1,000 keys"),
];

struct Options {
    jobs: u32,
    rounds: usize,
    stores: Vec<&'static str>,
    write: bool,
}

/// The runs of one shape.
type Runs = Vec<Value>;

/// What was measured of a store.
#[derive(Default)]
struct Measured {
    /// Of each of [`SHAPES`].
    runs: Vec<Runs>,
    /// Milliseconds of flushes of the disk, in the same rounds.
    flushes: Vec<f64>,
}

/// `args`: see [`USAGE`].
pub(crate) fn run(root: &Path, args: &[&str]) -> Result<(), Failure> {
    let options = parse(args)?;
    serving::build(root)?;
    for store in &options.stores {
        step::announce(store);
        let table = table(&measure(root, store, &options)?)?;
        let rounds = match options.rounds {
            1 => "One round".to_owned(),
            rounds => format!("Median (smallest–largest) of {rounds} rounds in turns"),
        };
        let about =
            format!("{rounds}, {} jobs: `cargo xtask bench --store {store}`.", options.jobs);
        let text = format!("{about}\n\n{table}");
        files::show(root, PAGE, &format!("bench-{store}"), &text, options.write)?;
    }
    Ok(())
}

fn parse(args: &[&str]) -> Result<Options, Failure> {
    let mut args = Args::new(args, USAGE);
    let (jobs, rounds) = (args.value("--jobs", JOBS)?, args.value("--rounds", ROUNDS)?);
    let stores = args.chosen("--store", &STORES, |store| store)?;
    let write = args.has("--write");
    args.end(jobs >= 1_000 && rounds > 0)?;
    Ok(Options { jobs, rounds, stores, write })
}

fn measure(root: &Path, store: &str, options: &Options) -> Result<Measured, String> {
    match store {
        "sqlite" => rounds(root, options, || new_file(root)),
        _ => with_store(root, store, |url| rounds(root, options, || Ok(url.to_owned()))),
    }
}

fn rounds(
    root: &Path,
    options: &Options,
    url: impl Fn() -> Result<String, String>,
) -> Result<Measured, String> {
    let mut all = Measured { runs: vec![Runs::new(); SHAPES.len()], ..Measured::default() };
    for _ in 0..options.rounds {
        all.flushes.extend(flushes(root)?);
        for ((mode, keys, name), runs) in SHAPES.iter().zip(&mut all.runs) {
            let (jobs, keys) = (options.jobs.to_string(), keys.to_string());
            let mut command = Command::new(root.join("target/release/seriatim"));
            command.args(["bench", "--json", "--store", &url()?, "--jobs", &jobs, "--mode", mode]);
            if keys != "0" {
                command.args(["--keys", &keys]);
            }
            // The limit is that of the round: one run measures it.
            if *name == SHAPES[0].2 {
                command.arg("--limit");
            }
            runs.push(object_of(name, &mut command)?);
        }
    }
    Ok(all)
}

/// The URL of a file that does not exist.
fn new_file(root: &Path) -> Result<String, String> {
    Ok(format!("sqlite:{}", new_folder(root)?.join("jobs.db").display()))
}

/// An empty folder on the disk that is measured.
fn new_folder(root: &Path) -> Result<PathBuf, String> {
    let folder = root.join("target/bench");
    files::new_folder(&folder)?;
    Ok(folder)
}

/// Milliseconds that the disk takes to keep what was appended to a file.
fn flushes(root: &Path) -> Result<Vec<f64>, String> {
    let path = new_folder(root)?.join("flushed");
    let failed = |e: std::io::Error| format!("{}: {e}", path.display());
    let mut file = File::create(&path).map_err(failed)?;
    let mut flush = || {
        let started = Instant::now();
        file.write_all(&[b'x'; FLUSHED_BYTES]).and_then(|()| file.sync_data()).map_err(failed)?;
        Ok(started.elapsed().as_secs_f64() * 1e3)
    };
    (0..FLUSHES).map(|_| flush()).collect()
}

fn table(all: &Measured) -> Result<String, String> {
    let Measured { runs: all, flushes } = all;
    let values = |runs: &Runs, name| -> Result<Vec<f64>, String> {
        runs.iter().map(|run| figure(run, name)).collect()
    };
    let limits = values(&all[0], "limit_per_s")?;
    let parallel = values(&all[0], "drain_per_s")?;
    let mut text = format!(
        "Bare limit: {}. A flush of the disk: {:.1} ms.\n\n",
        cell(&limits),
        median(flushes)
    );
    text.push_str(
        "| | push, 1,000 at a time | drain | of the bare limit | of `parallel` | push → start, ms: p50; p99 | scheduled, late by \
         ms: p99 | CPU s for 100,000 jobs | MB |\n|---|---|---|---|---|---|---|---|---|\n",
    );
    for ((_, _, name), runs) in SHAPES.iter().zip(all) {
        let drain = values(runs, "drain_per_s")?;
        let ratio = |to: &[f64]| {
            let ratios: Vec<f64> = drain.iter().zip(to).map(|(own, other)| own / other).collect();
            median(&ratios)
        };
        let mid = |name, by: f64| values(runs, name).map(|values| median(&values) * by);
        let jobs = mid("jobs", 1.0)?;
        let _ = writeln!(
            text,
            "| {name} | {} | {} | {:.2} | {:.2} | {:.1}; {:.1} | {:.1} | {:.2} | {:.0} |",
            cell(&values(runs, "push_per_s")?),
            cell(&drain),
            ratio(&limits),
            ratio(&parallel),
            mid("start_ms_p50", 1.0)?,
            mid("start_ms_p99", 1.0)?,
            mid("late_ms_p99", 1.0)?,
            mid("cpu_s", 100_000.0 / jobs)?,
            mid("rss_mb", 1.0)?,
        );
    }
    Ok(text)
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::{Measured, parse, table};

    #[test]
    fn unknown_stores_and_too_few_jobs_are_refused() {
        assert!(parse(&["--store", "redis", "--store", "mysql", "--rounds", "1"]).is_ok());
        for args in [["--store", "oracle"], ["--jobs", "999"], ["--rounds", "0"], ["--fast", "1"]] {
            assert!(parse(&args).is_err(), "{args:?}");
        }
    }

    #[test]
    fn shares_are_those_of_a_round() {
        let run = |drain: f64, limit: f64| {
            json!({"push_per_s": 1000.0, "drain_per_s": drain, "limit_per_s": limit, "start_ms_p50": 1.0,
                "start_ms_p99": 2.0, "late_ms_p99": 3.0, "cpu_s": 0.5, "rss_mb": 20.0, "jobs": 50_000})
        };
        let first = vec![run(50.0, 100.0), run(100.0, 200.0), run(10.0, 20.0)];
        let others = vec![run(25.0, 0.0), run(50.0, 0.0), run(5.0, 0.0)];
        let runs = vec![first, others.clone(), others.clone(), others.clone(), others];
        let text = table(&Measured { runs, flushes: vec![1.0, 1.3, 9.0] }).unwrap();
        assert!(text.contains("A flush of the disk: 1.3 ms."), "{text}");
        assert!(text.contains("| 0.50 | 1.00 | 1.0; 2.0 | 3.0 | 1.00 | 20 |"), "{text}");
        assert!(text.contains("| 0.25 | 0.50 | 1.0; 2.0 | 3.0 | 1.00 | 20 |"), "{text}");
    }
}
