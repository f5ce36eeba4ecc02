//! Runs seeds of the simulation; `cargo xtask simulate` builds and starts this.
//!
//!     simulate --seeds 10000 [--from S] [--mode safety|liveness] [--threads N]
//!     simulate --seed S [--mode …] [--trace]
#![allow(clippy::print_stdout)]

use std::collections::BTreeMap;
use std::process::ExitCode;
use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use seriatim_verify::simulation::{Mode, Options, Outcome, run};

const USAGE: &str = "\
usage: simulate --seeds N [--from S] [--mode safety|liveness] [--threads N]
       simulate --seed S [--mode safety|liveness] [--trace]";
/// How often the progress is told.
const TELL_EVERY: Duration = Duration::from_secs(10);

/// What to run.
struct Plan {
    from: u64,
    seeds: u64,
    modes: Vec<Mode>,
    threads: usize,
    trace: bool,
}

fn main() -> ExitCode {
    let Some(plan) = parse(std::env::args().skip(1)) else {
        eprintln!("{USAGE}");
        return ExitCode::from(2);
    };
    let failures = simulate(&plan);
    ExitCode::from(u8::from(failures > 0))
}

fn parse(mut args: impl Iterator<Item = String>) -> Option<Plan> {
    let threads = thread::available_parallelism().map_or(1, usize::from);
    let modes = Mode::ALL.to_vec();
    let mut plan = Plan { from: 0, seeds: 300, modes, threads, trace: false };
    while let Some(arg) = args.next() {
        match arg.as_str() {
            "--seeds" => plan.seeds = args.next()?.parse().ok()?,
            "--from" => plan.from = args.next()?.parse().ok()?,
            "--threads" => plan.threads = args.next()?.parse().ok().filter(|n| *n > 0)?,
            "--trace" => plan.trace = true,
            "--seed" => (plan.from, plan.seeds) = (args.next()?.parse().ok()?, 1),
            "--mode" => {
                let name = args.next()?;
                plan.modes.retain(|mode| mode.as_str() == name);
            }
            _ => return None,
        }
    }
    (!plan.modes.is_empty()).then_some(plan)
}

/// Runs all seeds; how many runs failed.
fn simulate(plan: &Plan) -> u64 {
    let began = Instant::now();
    let next = AtomicU64::new(plan.from);
    let totals = Mutex::new(Totals { told: began, ..Totals::new(began) });
    thread::scope(|scope| {
        for _ in 0..plan.threads.min(plan.seeds as usize) {
            scope.spawn(|| {
                loop {
                    let seed = next.fetch_add(1, Ordering::Relaxed);
                    if seed >= plan.from + plan.seeds {
                        return;
                    }
                    for mode in &plan.modes {
                        let outcome =
                            run(seed, &Options { trace: plan.trace, ..Options::new(*mode) });
                        let mut totals = totals.lock().expect("no thread panics with it");
                        totals.add(&outcome, plan);
                    }
                }
            });
        }
    });
    let totals = totals.into_inner().expect("no thread panics with it");
    eprintln!("{}", totals.text());
    for (what, count) in &totals.injected {
        eprintln!("    {count:>9}  {what}");
    }
    totals.failures
}

/// What has been run so far.
struct Totals {
    began: Instant,
    told: Instant,
    runs: u64,
    failures: u64,
    simulated: Duration,
    calls: u64,
    pushes: u64,
    deliveries: u64,
    injected: BTreeMap<&'static str, u64>,
}

impl Totals {
    fn new(began: Instant) -> Self {
        let (runs, failures, calls, pushes, deliveries) = (0, 0, 0, 0, 0);
        let (simulated, injected) = (Duration::ZERO, BTreeMap::new());
        Self { began, told: began, runs, failures, simulated, calls, pushes, deliveries, injected }
    }

    fn add(&mut self, outcome: &Outcome, plan: &Plan) {
        outcome.trace.iter().for_each(|line| println!("{line}"));
        self.runs += 1;
        self.simulated += outcome.simulated;
        self.calls += outcome.calls;
        self.pushes += outcome.report.pushes;
        self.deliveries += outcome.report.deliveries;
        for (what, count) in &outcome.injected {
            *self.injected.entry(what).or_default() += count;
        }
        if outcome.failure.is_some() {
            self.failures += 1;
            let (seed, mode) = (outcome.seed, outcome.mode.as_str());
            eprintln!("{outcome}\n    cargo xtask simulate --seed {seed} --mode {mode} --trace");
        }
        if self.told.elapsed() >= TELL_EVERY && plan.seeds > 1 {
            self.told = Instant::now();
            eprintln!("{}", self.text());
        }
    }

    fn text(&self) -> String {
        let (runs, failures) = (self.runs, self.failures);
        let (took, hours) = (self.began.elapsed().as_secs(), self.simulated.as_secs() / 3_600);
        let (calls, pushes, deliveries) = (self.calls, self.pushes, self.deliveries);
        format!(
            "{runs} runs in {took} s, {failures} failed: {hours} hours of virtual time, \
             {calls} calls of the store, {pushes} pushes, {deliveries} deliveries"
        )
    }
}
