//! `cargo xtask fleet`: what a push costs the server while many queues are idle in several engines.

use std::fs;
use std::path::Path;
use std::process::Child;
use std::thread::sleep;
use std::time::{Duration, Instant};

use seriatim_testkit::free_port;

use crate::args::Args;
use crate::serving::{Serving, ask, wait_for, with_store, write};
use crate::{Failure, files, serving, step};

const PAGE: &str = "docs/performance.md";
const USAGE: &str = "usage: cargo xtask fleet [--engines N] [--queues N] [--store postgres|mysql|redis]... [--write]; \
    --write: into docs/performance.md";

const ENGINES: usize = 5;
const QUEUES: usize = 1_000;
const PUSHES: u32 = 200;
/// Between two pushes: each finds the engines idle.
const PAUSE: Duration = Duration::from_millis(50);
/// How long the idle cost is measured.
const IDLE: Duration = Duration::from_secs(15);
/// For the first engines to start and become idle, and for each of them.
const START: Duration = Duration::from_secs(20);
const START_OF_EACH: Duration = Duration::from_millis(100);
/// Clock ticks of `/proc/PID/stat` are hundredths of a second.
const TICK_MS: f64 = 10.0;

struct Options {
    engines: usize,
    queues: usize,
    stores: Vec<&'static str>,
    write: bool,
}

/// Milliseconds of the server's CPU.
struct Cost {
    idle_a_second: f64,
    push: f64,
}

/// `args`: see [`USAGE`].
pub(crate) fn run(root: &Path, args: &[&str]) -> Result<(), Failure> {
    let options = parse(args)?;
    serving::build(root)?;
    for store in &options.stores {
        let mut text = format!(
            "{PUSHES} single pushes to one queue, 20 a second: `cargo xtask fleet --store {store}`. Milliseconds of the \
             server's CPU.\n\n| engines | queues in each | idle, a second | a push |\n|---|---|---|---|\n"
        );
        for (engines, queues) in options.shapes() {
            step::announce(&format!("{store}, {engines} engines, {queues} queues"));
            let cost = with_store(root, store, |url| measure(root, url, engines, queues))?;
            let row = format!(
                "| {engines} | {queues} | {:.1} | {:.2} |\n",
                cost.idle_a_second, cost.push
            );
            eprint!("{row}");
            text.push_str(&row);
        }
        files::show(root, PAGE, &format!("fleet-{store}"), &text, options.write)?;
    }
    Ok(())
}

impl Options {
    /// Numbers of engines and of queues in each. The first is what the others are compared with.
    fn shapes(&self) -> Vec<(usize, usize)> {
        let mut shapes = vec![(1, 1), (self.engines, 1), (self.engines, self.queues)];
        shapes.dedup();
        shapes
    }
}

fn parse(args: &[&str]) -> Result<Options, Failure> {
    let mut args = Args::new(args, USAGE);
    let (engines, queues) = (args.value("--engines", ENGINES)?, args.value("--queues", QUEUES)?);
    let stores = args.chosen("--store", &["postgres", "mysql", "redis"], |store| store)?;
    let write = args.has("--write");
    args.end(engines > 0 && queues > 0)?;
    Ok(Options { engines, queues, stores, write })
}

fn measure(root: &Path, url: &str, engines: usize, queues: usize) -> Result<Cost, String> {
    let folder = root.join("target/fleet");
    let port = free_port()?;
    let mut fleet = Serving::default();
    let worker = write(&folder, "engine.toml", &config(url, queues))?;
    let pusher = format!("[store]\nurl = \"{url}\"\n[http]\nlisten = \"127.0.0.1:{port}\"\n");
    let pusher = write(&folder, "pusher.toml", &pusher)?;
    // First alone: it makes the tables.
    fleet.start(root, &pusher, &[])?;
    wait_for(port)?;
    for _ in 0..engines {
        fleet.start(root, &worker, &["--no-http"])?;
    }
    sleep(START + START_OF_EACH * engines as u32);
    let of_fleet: Vec<u32> = fleet.0.iter().map(Child::id).collect();
    let cpu = || cpu_of_servers(&of_fleet);
    let before = cpu()?;
    sleep(IDLE);
    let idle_a_second = (cpu()? - before) / IDLE.as_secs_f64();
    let (before, started) = (cpu()?, Instant::now());
    for _ in 0..PUSHES {
        ask(port, "/api/v1/queues/q0/jobs", Some(r#"{"payload":{}}"#))?;
        sleep(PAUSE);
    }
    let took = started.elapsed().as_secs_f64();
    let push = (cpu()? - before - idle_a_second * took) / f64::from(PUSHES);
    Ok(Cost { idle_a_second, push })
}

fn config(url: &str, queues: usize) -> String {
    let mut text = format!("[store]\nurl = \"{url}\"\n");
    for queue in 0..queues {
        text.push_str(&format!(
            "[queues.q{queue}]\nmode = \"parallel\"\n[[workers]]\nqueue = \"q{queue}\"\ncommand = [\"/bin/true\"]\n"
        ));
    }
    text
}

/// The CPU time of all processes below this one, except for those of the fleet and what they started.
fn cpu_of_servers(fleet: &[u32]) -> Result<f64, String> {
    let failed = |e: std::io::Error| format!("/proc: {e}");
    let mut all = std::collections::BTreeMap::new();
    for entry in fs::read_dir("/proc").map_err(failed)? {
        let name = entry.map_err(failed)?.file_name();
        let Some(pid) = name.to_str().and_then(|name| name.parse::<u32>().ok()) else { continue };
        let Ok(text) = fs::read_to_string(format!("/proc/{pid}/stat")) else { continue };
        if let Some(used) = usage(&text) {
            all.insert(pid, used);
        }
    }
    let own = std::process::id();
    let is_server = |mut pid: u32| loop {
        match all.get(&pid) {
            _ if fleet.contains(&pid) => return false,
            Some((parent, _)) if *parent == own => return true,
            Some((parent, _)) if *parent > 1 => pid = *parent,
            _ => return false,
        }
    };
    let servers = all.iter().filter(|(pid, _)| is_server(**pid));
    Ok(servers.map(|(_, (_, ticks))| ticks * TICK_MS).sum())
}

/// The parent of a process, and the ticks that it and its ended children used.
pub(crate) fn usage(stat: &str) -> Option<(u32, f64)> {
    let fields: Vec<&str> = stat.rsplit_once(')')?.1.split_whitespace().collect();
    let ticks = |place: usize| fields.get(place)?.parse::<f64>().ok();
    let used = ticks(11)? + ticks(12)? + ticks(13)? + ticks(14)?;
    Some((fields.get(1)?.parse().ok()?, used))
}

#[cfg(test)]
mod tests {
    use super::{parse, usage};

    #[test]
    fn a_process_has_a_parent_and_cpu_time_whatever_its_name() {
        let stat = "7 (a) b) S 3 7 7 0 -1 4194560 9 0 0 0 11 12 13 14 20 0 1 0 99 1 1";
        assert_eq!(usage(stat), Some((3, 50.0)));
        assert_eq!(usage("7 (a"), None);
    }

    #[test]
    fn a_fleet_is_compared_with_one_engine_and_nothing_is_measured_twice() {
        let shapes =
            |queues| parse(&["--engines", "9", "--queues", queues]).ok().map(|o| o.shapes());
        assert_eq!(shapes("7"), Some(vec![(1, 1), (9, 1), (9, 7)]));
        assert_eq!(shapes("1"), Some(vec![(1, 1), (9, 1)]));
    }

    #[test]
    fn unknown_stores_and_empty_fleets_are_refused() {
        assert!(parse(&["--store", "redis", "--engines", "2", "--write"]).is_ok());
        for args in [["--store", "sqlite"], ["--engines", "0"], ["--queues", "many"]] {
            assert!(parse(&args).is_err(), "{args:?}");
        }
    }
}
