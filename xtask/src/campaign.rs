//! `cargo xtask campaign`: the tests with real faults, again and again with other seeds, for hours.

use std::collections::BTreeMap;
use std::fs::{self, File};
use std::path::Path;
use std::time::{Duration, Instant};

use serde_json::Value;

use crate::args::Args;
use crate::{Failure, cargo, files, packages, step};

const STORES: [&str; 6] = ["sqlite", "postgres", "mysql", "redis", "cluster", "sentinel"];
const JOBS: u64 = 20_000;
const USAGE: &str = "usage: cargo xtask campaign --hours N [--store sqlite|postgres|mysql|redis|cluster|sentinel]... [--jobs N] \
    [--seed S] [--write]; cluster and sentinel are those of Redis; N may be a fraction; --write: the figures into docs/testing.md";
const PAGE: &str = "docs/testing.md";

struct Options {
    length: Duration,
    stores: Vec<&'static str>,
    jobs: u64,
    seed: u64,
    write: bool,
}

/// What happened on one store.
#[derive(Default)]
struct Figures {
    runs: u64,
    failed: u64,
    pushes: u64,
    deliveries: u64,
    violations: u64,
    rescued: u64,
    faults: BTreeMap<String, u64>,
    duplicates: BTreeMap<String, u64>,
    recoveries_ms: Vec<u64>,
}

/// `args`: see [`USAGE`].
pub(crate) fn run(root: &Path, args: &[&str]) -> Result<(), Failure> {
    let options = parse(args)?;
    packages::ensure()?;
    let folder = root.join("target/campaign");
    let failed = |e: std::io::Error| format!("{}: {e}", folder.display());
    fs::create_dir_all(&folder).map_err(failed)?;
    let started = Instant::now();
    let mut all: BTreeMap<&str, Figures> = BTreeMap::new();
    let mut seed = options.seed;
    while started.elapsed() < options.length {
        for store in &options.stores {
            step::announce(&format!("{store}, seed {seed}"));
            let figures = all.entry(store).or_default();
            one_round(root, &folder, store, seed, options.jobs, figures)?;
        }
        seed += 1;
    }
    let minutes = started.elapsed().as_secs() / 60;
    let seeds = format!("seeds {} to {}", options.seed, seed - 1);
    for (store, figures) in &all {
        let text = format!(
            "{} {minutes} minutes, {seeds}, {} jobs a run.",
            told(store, figures),
            options.jobs
        );
        files::show(root, PAGE, &format!("campaign-{store}"), &text, options.write)?;
    }
    match all.values().map(|figures| figures.failed).sum::<u64>() {
        0 => Ok(()),
        n => Err(Failure::Failed(format!("{n} rounds failed: see {}", folder.display()))),
    }
}

fn parse(args: &[&str]) -> Result<Options, Failure> {
    let mut args = Args::new(args, USAGE);
    let hours = args.value("--hours", 0.0)?;
    let length = Duration::try_from_secs_f64(hours * 3_600.0).map_err(|_| args.wrong())?;
    let stores = args.chosen("--store", &STORES, |store| store)?;
    let jobs = args.value("--jobs", JOBS)?;
    let seed = args.value("--seed", std::process::id().into())?;
    let write = args.has("--write");
    args.end(!length.is_zero() && jobs > 0)?;
    Ok(Options { length, stores, jobs, seed, write })
}

/// All tests of one store. What a failed round printed is kept.
fn one_round(
    root: &Path,
    folder: &Path,
    store: &str,
    seed: u64,
    jobs: u64,
    figures: &mut Figures,
) -> Result<(), String> {
    // The figures of a round, and what it printed.
    let [lines, log] = ["ndjson", "log"].map(|end| folder.join(format!("{store}-{seed}.{end}")));
    let _ = fs::remove_file(&lines);
    let output = File::create(&log).map_err(|e| format!("{}: {e}", log.display()))?;
    let errors = output.try_clone().map_err(|e| format!("{}: {e}", log.display()))?;
    let filter = tests_of(store);
    let args =
        ["nextest", "run", "--package", "seriatim-server", "--profile", "faults", "-E", &filter];
    let mut command = cargo::command(root, &args);
    command.arg("--no-fail-fast").stdout(output).stderr(errors);
    command.env("SERIATIM_FAULT_JOBS", jobs.to_string());
    command.env("SERIATIM_FAULT_SEED", seed.to_string()).env("SERIATIM_FAULT_FIGURES", &lines);
    let status = command.status().map_err(|e| e.to_string())?;
    if status.success() {
        let _ = fs::remove_file(&log);
    } else {
        figures.failed += 1;
        eprintln!("FAILED: {}", log.display());
    }
    for line in fs::read_to_string(&lines).unwrap_or_default().lines() {
        let line: Value =
            serde_json::from_str(line).map_err(|e| format!("{}: {e}", lines.display()))?;
        figures.add(&line);
    }
    Ok(())
}

/// Selects the tests of a store.
fn tests_of(store: &str) -> String {
    match store {
        "cluster" | "sentinel" => format!("test(faults::failover::{store}_)"),
        // And those in which a standby is promoted.
        "postgres" => "test(faults::fleet::postgres_) | test(faults::promotion::)".to_owned(),
        _ => format!("test(faults::fleet::{store}_)"),
    }
}

impl Figures {
    /// Adds a line that a test wrote.
    fn add(&mut self, line: &Value) {
        let report = &line["report"];
        let number = |value: &Value| value.as_u64().unwrap_or(0);
        self.runs += 1;
        self.pushes += number(&report["pushes"]);
        self.deliveries += number(&report["deliveries"]);
        self.rescued += number(&report["rescued"]);
        let verdicts = report["verdicts"].as_object().into_iter().flatten();
        self.violations += verdicts.map(|(_, one)| number(&one["violations"])).sum::<u64>();
        for (counts, of) in
            [(&mut self.faults, &line["faults"]), (&mut self.duplicates, &report["duplicates"])]
        {
            for (name, count) in of.as_object().into_iter().flatten() {
                *counts.entry(name.clone()).or_default() += number(count);
            }
        }
        let recoveries = report["recoveries_ms"].as_array().into_iter().flatten();
        self.recoveries_ms.extend(recoveries.map(number));
        self.recoveries_ms.sort_unstable();
    }

    fn recovery(&self, part: f64) -> Option<String> {
        let last = self.recoveries_ms.len().saturating_sub(1);
        let place = (last as f64 * part).round() as usize;
        self.recoveries_ms.get(place).map(|ms| format!("{:.2} s", *ms as f64 / 1_000.0))
    }
}

/// The figures of a store, as a paragraph.
fn told(store: &str, figures: &Figures) -> String {
    let Figures { runs, failed, pushes, deliveries, rescued, violations, .. } = figures;
    // Not known where servers die and not nodes.
    let after = match (figures.recovery(0.5), figures.recovery(0.99)) {
        (Some(median), Some(most)) => format!(", after {median} (median) and {most} (99 %)"),
        _ => String::new(),
    };
    let (faults, again) = (listed(&figures.faults), listed(&figures.duplicates));
    format!(
        "**{store}: {violations} violations**, {runs} runs ({failed} failed), {pushes} jobs, {deliveries} deliveries. {rescued} \
         claims were taken over{after}. Faults: {faults}. Delivered again: {again}."
    )
}

fn listed(counts: &BTreeMap<String, u64>) -> String {
    let each: Vec<String> =
        counts.iter().map(|(name, count)| format!("{count} × {name}")).collect();
    if each.is_empty() { "nothing".to_owned() } else { each.join(", ") }
}

#[cfg(test)]
mod tests {
    use super::{Figures, parse, told};

    #[test]
    fn runs_are_summed_and_violations_are_told() {
        let line = serde_json::json!({
            "faults": { "node killed": 3 },
            "report": {
                "pushes": 10, "deliveries": 12, "rescued": 2, "recoveries_ms": [40, 10],
                "duplicates": { "a crash": 2 },
                "verdicts": { "overlap": { "violations": 0 }, "loss": { "violations": 1 } },
            },
        });
        let mut figures = Figures::default();
        figures.add(&line);
        figures.add(&line);
        let text = told("sqlite", &figures);
        let begin = "**sqlite: 2 violations**, 2 runs (0 failed), 20 jobs, 24 deliveries. 4 claims";
        assert!(text.starts_with(begin), "{text}");
        assert!(text.contains("after 0.04 s (median) and 0.04 s (99 %)"), "{text}");
        assert!(text.contains("6 × node killed. Delivered again: 4 × a crash."), "{text}");
    }

    #[test]
    fn a_campaign_without_a_length_or_with_an_unknown_store_is_refused() {
        assert!(parse(&["--hours", "0.5", "--store", "mysql", "--write"]).is_ok());
        for args in
            [&["--hours", "0"][..], &["--store", "mysql"], &["--hours", "1", "--store", "x"]]
        {
            assert!(parse(args).is_err(), "{args:?}");
        }
    }
}
