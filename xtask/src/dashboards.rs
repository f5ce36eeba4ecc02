//! `cargo xtask dashboards`: what 200 open pages of the dashboard take from the claims beside them.

use std::fs;
use std::io::{Read as _, Write as _};
use std::net::TcpStream;
use std::path::Path;
use std::process::Command;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};
use std::thread::{JoinHandle, sleep, spawn};
use std::time::{Duration, Instant};

use seriatim_testkit::free_port;

use crate::measured::{cell, figure, median, object_of};
use crate::options::Options;
use crate::serving::{Serving, ask_with, program, wait_for, with_store, write};
use crate::{Failure, files, serving, step};

const PAGE: &str = "docs/performance.md";
const USAGE: &str = "usage: cargo xtask dashboards [--jobs N] [--store sqlite|postgres|mysql|redis]... [--write]; \
    --write: into docs/performance.md";

/// Of each drain.
const JOBS: u64 = 200_000;
/// Drains alone, and as many beside open pages, in turns.
const ROUNDS: usize = 7;
/// Each page in a browser of its own, which listens for changes.
const PEOPLE: usize = 200;
/// A page asks so long after a change, and at the latest after [`EVERY`], as its script does.
const SOON: Duration = Duration::from_millis(100);
const EVERY: Duration = Duration::from_secs(5);
/// As a script asks: for the parts of a page that change.
const OF_SCRIPT: &str = "X-Parts: 1\r\n";

const VIEWS: [&str; 20] = [
    "/",
    "/queues",
    "/queues/bench-fifo",
    "/queues/bench-fifo/lanes",
    "/queues/bench-fifo/lanes?by=key",
    "/queues/bench-fifo/lanes?by=retries",
    "/queues/bench-fifo/lanes?state=running",
    "/queues/bench-fifo/lanes?prefix=1",
    "/key?k=1",
    "/key?k=2",
    "/jobs?queue=bench-fifo",
    "/jobs?queue=bench-fifo&state=running",
    "/morgue",
    "/morgue?queue=bench-fifo",
    "/scheduled",
    "/cron",
    "/nodes",
    "/audit",
    "/operations",
    "/about",
];

/// `args`: see [`USAGE`].
pub(crate) fn run(root: &Path, args: &[&str]) -> Result<(), Failure> {
    let options = Options::parse(args, JOBS, USAGE)?;
    serving::build(root)?;
    let mut text = format!(
        "Drains of {} jobs of 1,000 keys, alone and while {PEOPLE} people look at {} views that change all the time; \
         median (least to most) of {ROUNDS} in turns: `cargo xtask dashboards`. What the browsers cost is part of the \
         loss.\n\n\
         | store | jobs a second, alone | beside open pages | of alone | answers a second | refused | `serve`, of a core |\n\
         |---|---|---|---|---|---|---|\n",
        options.jobs,
        VIEWS.len(),
    );
    for store in &options.stores {
        step::announce(store);
        let rounds = with_store(root, store, |url| measure(root, url, options.jobs))?;
        let row = rounds.row(store);
        eprint!("{row}");
        text.push_str(&row);
    }
    files::show(root, PAGE, "dashboards", &text, options.write)?;
    Ok(())
}

/// Jobs a second of each round, and what happened beside the second kind.
#[derive(Default)]
struct Rounds {
    alone: Vec<f64>,
    beside: Vec<f64>,
    seconds: f64,
    cpu_s: f64,
    answers: u64,
    refused: u64,
}

impl Rounds {
    fn row(&self, store: &str) -> String {
        format!(
            "| {store} | {} | {} | {:.2} | {:.0} | {} | {:.0} % |\n",
            cell(&self.alone),
            cell(&self.beside),
            median(&self.beside) / median(&self.alone),
            self.answers as f64 / self.seconds,
            self.refused,
            self.cpu_s / self.seconds * 100.0,
        )
    }
}

fn measure(root: &Path, url: &str, jobs: u64) -> Result<Rounds, String> {
    let port = free_port()?;
    let config = format!("[store]\nurl = \"{url}\"\n[http]\nlisten = \"127.0.0.1:{port}\"\n");
    let config = write(&root.join("target/dashboards"), "seriatim.toml", &config)?;
    let mut serving = Serving::default();
    serving.start(root, &config, &[])?;
    wait_for(port)?;
    let pid = serving.0[0].id();
    let drain = || {
        let mut bench = Command::new(program(root));
        bench.args(["bench", "--json", "--mode", "fifo", "--keys", "1000", "--store", url]);
        let line = object_of("bench", bench.args(["--jobs", &jobs.to_string()]))?;
        figure(&line, "drain_per_s")
    };
    // The queue exists from now on.
    drain()?;
    let mut rounds = Rounds::default();
    for _ in 0..ROUNDS {
        rounds.alone.push(drain()?);
        let (people, before, started) = (People::come(port), cpu_s(pid)?, Instant::now());
        rounds.beside.push(drain()?);
        rounds.seconds += started.elapsed().as_secs_f64();
        rounds.cpu_s += cpu_s(pid)? - before;
        let (answers, refused) = people.leave()?;
        rounds.answers += answers;
        rounds.refused += refused;
    }
    Ok(rounds)
}

/// CPU seconds that a process has used.
fn cpu_s(pid: u32) -> Result<f64, String> {
    let stat = fs::read_to_string(format!("/proc/{pid}/stat")).map_err(|e| e.to_string())?;
    let (_, ticks) = crate::fleet::usage(&stat).ok_or("no CPU time in /proc")?;
    Ok(ticks / 100.0)
}

/// They look at pages until they leave.
struct People {
    pages: Vec<JoinHandle<Result<(), String>>>,
    seen: Arc<Seen>,
}

#[derive(Default)]
struct Seen {
    answers: AtomicU64,
    refused: AtomicU64,
    /// Only the first refusal is printed.
    told: OnceLock<()>,
    is_over: AtomicBool,
}

impl People {
    fn come(port: u16) -> Self {
        let seen = Arc::new(Seen::default());
        let views = VIEWS.iter().cycle().take(PEOPLE);
        let look = |view: &'static str| {
            let seen = seen.clone();
            spawn(move || seen.look(port, view))
        };
        Self { pages: views.copied().map(look).collect(), seen }
    }

    /// Numbers of answers and of refusals.
    fn leave(self) -> Result<(u64, u64), String> {
        self.seen.is_over.store(true, Ordering::Relaxed);
        for page in self.pages {
            page.join().map_err(|_| "a visitor panicked")??;
        }
        let number = |of: &AtomicU64| of.load(Ordering::Relaxed);
        Ok((number(&self.seen.answers), number(&self.seen.refused)))
    }
}

impl Seen {
    fn look(&self, port: u16, view: &str) -> Result<(), String> {
        let failed = |e: std::io::Error| format!("{view}: {e}");
        let mut live = TcpStream::connect(("127.0.0.1", port)).map_err(failed)?;
        live.set_read_timeout(Some(EVERY)).map_err(failed)?;
        write!(live, "GET /live HTTP/1.0\r\nHost: 127.0.0.1:{port}\r\n\r\n").map_err(failed)?;
        let mut heard = [0; 1_024];
        while !self.is_over.load(Ordering::Relaxed) {
            if matches!(live.read(&mut heard), Ok(0)) {
                return Err(format!("{view}: /live has ended"));
            }
            sleep(SOON);
            let count = match ask_with(port, OF_SCRIPT, view, None) {
                Ok(_) => &self.answers,
                Err(refusal) => {
                    self.told.get_or_init(|| eprintln!("{refusal}"));
                    &self.refused
                }
            };
            count.fetch_add(1, Ordering::Relaxed);
        }
        Ok(())
    }
}
