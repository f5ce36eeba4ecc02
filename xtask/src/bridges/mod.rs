//! `cargo xtask bridges`: how fast a bridge moves the jobs of Sidekiq here, and an export gives them back; what it
//! does to producers, and after its store was away.

mod outage;
mod scheduled;
mod site;

use std::path::Path;
use std::time::{Duration, Instant};

use site::{Producer, QUEUE, Site, until};

use crate::measured::thousands;
use crate::options::Options;
use crate::serving::with_store;
use crate::{Failure, files, serving, step};

const PAGE: &str = "docs/bridges.md";
const USAGE: &str = "usage: cargo xtask bridges [--jobs N] [--store sqlite|postgres|mysql|redis]... [--write], \
    or bridges scheduled [--jobs N], or bridges outage [--seconds N]; --write: into docs/bridges.md";
const JOBS: u64 = 100_000;
const SCHEDULED: u64 = 1_000_000;
/// How long the store is away.
const SECONDS: u64 = 600;
/// Keys of the jobs that have some.
const KEYS: u64 = 1_000;
const PATIENCE: Duration = Duration::from_secs(120);

/// `args`: see [`USAGE`].
pub(crate) fn run(root: &Path, args: &[&str]) -> Result<(), Failure> {
    let measurement = Measurement::parse(args)?;
    serving::build(root)?;
    match measurement {
        Measurement::Scheduled { jobs } => Ok(scheduled::measure(root, jobs)?),
        Measurement::Outage { seconds } => Ok(outage::measure(root, seconds)?),
        Measurement::Stores(options) => stores(root, &options),
    }
}

enum Measurement {
    Scheduled { jobs: u64 },
    Outage { seconds: u64 },
    Stores(Options),
}

impl Measurement {
    fn parse(args: &[&str]) -> Result<Self, Failure> {
        Ok(match args {
            ["scheduled"] => Self::Scheduled { jobs: SCHEDULED },
            ["scheduled", "--jobs", jobs] => Self::Scheduled { jobs: number(jobs)? },
            ["outage"] => Self::Outage { seconds: SECONDS },
            ["outage", "--seconds", seconds] => Self::Outage { seconds: number(seconds)? },
            args => Self::Stores(Options::parse(args, JOBS, USAGE)?),
        })
    }
}

fn number(text: &str) -> Result<u64, Failure> {
    text.parse().map_err(|_| Failure::Usage(USAGE.into()))
}

/// How fast on each store.
fn stores(root: &Path, options: &Options) -> Result<(), Failure> {
    let jobs = options.jobs;
    let mut text = format!(
        "{jobs} jobs that wait in Sidekiq's Redis, one run each, all servers on the same machine: `cargo xtask bridges`. Jobs a second \
         here; seconds until all are back there.\n\n| store | without keys | {KEYS} keys, in order | back | back, in order |\n|---|---|---|---|---|\n"
    );
    for &store in &options.stores {
        let mut moved = Vec::new();
        for keys in [0, KEYS] {
            step::announce(&format!("{store}, {jobs} jobs, {keys} keys"));
            moved.push(with_store(root, store, |url| measure(root, url, jobs, keys))?);
        }
        let rate = |took: Duration| thousands(jobs as f64 / took.as_secs_f64());
        let [(plain, plain_back), (keyed, keyed_back)] = moved[..] else { continue };
        let row = format!(
            "| {store} | {} | {} | {:.1} | {:.1} |\n",
            rate(plain),
            rate(keyed),
            plain_back.as_secs_f64(),
            keyed_back.as_secs_f64()
        );
        eprint!("{row}");
        text.push_str(&row);
    }
    Ok(files::show(root, PAGE, "bridges", &text, options.write)?)
}

/// How long they take to come here, and to go back.
fn measure(root: &Path, url: &str, jobs: u64, keys: u64) -> Result<(Duration, Duration), String> {
    let site = Site::new(root, url, keys, "due")?;
    Producer::new(&site.sidekiq)?.fill(0..jobs, keys, None)?;
    let waiting = || site.counts(&["LLEN", QUEUE]);
    let _serving = site.serve()?;
    until(PATIENCE, || Ok(waiting()? < jobs))?;
    let began = Instant::now();
    until(PATIENCE, || Ok(waiting()? == 0))?;
    until(PATIENCE, || Ok(site.stored()? == jobs))?;
    let came = began.elapsed();
    site.run(&["queues", "pause", "jobs"])?;
    site.run(&["bridge", "pause", "bench"])?;
    let began = Instant::now();
    site.run(&["export", "jobs", "--to", "sidekiq"])?;
    let went = began.elapsed();
    match waiting()? {
        back if back == jobs => Ok((came, went)),
        back => Err(format!("{back} of {jobs} jobs came back")),
    }
}
