//! What the SQLite store does in a second, beside the least that SQLite must do for it.
//!
//! ```text
//! cargo run --release -p seriatim --no-default-features --features sqlite --example sqlite_bench -- [JOBS] [RUNS] [BATCH] [MODE…]
//! ```
//!
//! Every figure is a median of RUNS, with the least and the most, of payloads per second. *Push* is
//! in batches of BATCH; *drain* claims BATCH lanes and settles them as done, two transactions with
//! `synchronous=FULL`. The bare limit is one table with an index on what is ready:
//! `UPDATE … RETURNING` for the claim and `DELETE` for the settle, in the same two transactions.

use std::path::Path;
use std::time::{Duration, Instant};

use rusqlite::{Connection, params};
use seriatim::store::{Claim, Declare, Heartbeat, Lease, NodeInfo, Push, Settle};
use seriatim::{Job, NodeId, Payload, Queue, Settlement, Sqlite, Store};

type Failure = Box<dyn std::error::Error>;

struct Size {
    jobs: usize,
    batch: usize,
}

/// What one run measured.
#[derive(Clone, Copy)]
struct Rates {
    /// Payloads per second.
    push: f64,
    drain: f64,
    /// CPU time of the process for each payload drained, in microseconds. Steadier than the rates
    /// on a machine that others use too.
    drain_cpu: f64,
}

/// A queue, and how many payloads each of its keys has; none for jobs without a key.
struct Load {
    name: &'static str,
    queue: Queue,
    payloads_per_key: Option<usize>,
    /// Keys turn up again and again instead of one after the other.
    interleaved: bool,
}

fn loads() -> Vec<Load> {
    let load = |name, queue, payloads_per_key, interleaved| Load {
        name,
        queue,
        payloads_per_key,
        interleaved,
    };
    let hour = Duration::from_secs(3_600);
    vec![
        load("parallel", Queue::parallel("q"), None, false),
        load("accumulate", Queue::accumulate("q"), Some(1), false),
        load("accumulate-10", Queue::accumulate("q"), Some(10), false),
        load("accumulate-10-mixed", Queue::accumulate("q"), Some(10), true),
        load("fifo", Queue::fifo("q"), Some(1), false),
        load("fifo-100-mixed", Queue::fifo("q"), Some(100), true),
        load("exclusive", Queue::exclusive("q"), Some(1), false),
        load(
            "exclusive-0h",
            Queue::exclusive("q").retain_completed(Duration::ZERO),
            Some(1),
            false,
        ),
        load("parallel-1h", Queue::parallel("q").retain_completed(hour), None, false),
    ]
}

#[tokio::main(flavor = "current_thread")]
async fn main() -> Result<(), Failure> {
    let mut arguments = std::env::args().skip(1).peekable();
    let mut number = |default: usize| -> Result<usize, Failure> {
        match arguments.next_if(|text| text.parse::<usize>().is_ok()) {
            Some(text) => Ok(text.parse()?),
            None => Ok(default),
        }
    };
    let (jobs, runs, batch) = (number(100_000)?, number(5)?, number(1_000)?);
    let chosen: Vec<String> = arguments.collect();
    let size = Size { jobs, batch };
    let folder = tempfile::tempdir_in(".")?;
    println!("{jobs} payloads, batch {batch}, {runs} runs: payloads/s, median (least … most)");
    let bare = (0..runs)
        .map(|run| bare_limit(&folder.path().join(format!("bare-{run}.db")), &size))
        .collect::<Result<Vec<Rates>, Failure>>()?;
    let limit = report("bare limit", bare, None);
    for load in loads() {
        if !chosen.is_empty() && !chosen.iter().any(|name| name == load.name) {
            continue;
        }
        let mut rates = Vec::new();
        for run in 0..runs {
            let path = folder.path().join(format!("{}-{run}.db", load.name));
            rates.push(measure(&path, &load, &size).await?);
        }
        report(load.name, rates, Some(limit));
    }
    println!("peak memory: {} MiB", peak_memory_kib().unwrap_or(0) / 1_024);
    Ok(())
}

/// Prints the rates of one load; returns the medians of drain and its CPU time.
fn report(name: &str, rates: Vec<Rates>, limit: Option<(f64, f64)>) -> (f64, f64) {
    let column = |pick: fn(&Rates) -> f64| {
        let mut column: Vec<f64> = rates.iter().map(pick).collect();
        column.sort_by(f64::total_cmp);
        (column[column.len() / 2], column[0], column[column.len() - 1])
    };
    let (push, drain) = (column(|r| r.push), column(|r| r.drain));
    let cpu = column(|r| r.drain_cpu).0;
    let show = |(median, least, most): (f64, f64, f64)| {
        format!("{:>5.0} k ({:.0} … {:.0})", median / 1e3, least / 1e3, most / 1e3)
    };
    let share = limit.map_or(String::new(), |(rate, limit_cpu)| {
        let (by_time, by_cpu) = (drain.0 / rate * 100.0, limit_cpu / cpu * 100.0);
        format!("{by_time:>4.0} % of bare by time, {by_cpu:>4.0} % by CPU")
    });
    println!(
        "{name:<20} push {:<22} drain {:<22} {cpu:>5.2} µs CPU {share}",
        show(push),
        show(drain)
    );
    (drain.0, cpu)
}

fn bare_limit(path: &Path, size: &Size) -> Result<Rates, Failure> {
    let mut connection = Connection::open(path)?;
    connection.execute_batch(
        "PRAGMA journal_mode=WAL; PRAGMA synchronous=FULL; PRAGMA wal_autocheckpoint=4000;
         CREATE TABLE job (id INTEGER PRIMARY KEY, st INTEGER NOT NULL, prio INTEGER NOT NULL,
           due INTEGER NOT NULL, tok INTEGER, payload BLOB NOT NULL);
         CREATE INDEX ready ON job (prio, due) WHERE st = 0;",
    )?;
    let start = Instant::now();
    for first in (0..size.jobs).step_by(size.batch) {
        let transaction = connection.transaction()?;
        let sql = "INSERT INTO job (st, prio, due, payload) VALUES (0, 100, ?1, ?2)";
        for i in first..(first + size.batch).min(size.jobs) {
            transaction
                .prepare_cached(sql)?
                .execute(params![i as i64, i.to_string().as_bytes()])?;
        }
        transaction.commit()?;
    }
    let push = start.elapsed();
    let (start, cpu) = (Instant::now(), cpu_nanos());
    let mut left = size.jobs;
    while left > 0 {
        let transaction = connection.transaction()?;
        let claim = "UPDATE job SET st = 1, tok = 7 WHERE id IN
             (SELECT id FROM job WHERE st = 0 ORDER BY prio, due LIMIT ?1) RETURNING id, payload";
        let claimed: Vec<(i64, Vec<u8>)> = transaction
            .prepare_cached(claim)?
            .query_map([size.batch as i64], |row| Ok((row.get(0)?, row.get(1)?)))?
            .collect::<Result<_, _>>()?;
        transaction.commit()?;
        let transaction = connection.transaction()?;
        for (id, _) in &claimed {
            transaction
                .prepare_cached("DELETE FROM job WHERE id = ?1 AND tok = 7")?
                .execute([id])?;
        }
        transaction.commit()?;
        left -= claimed.len();
    }
    Ok(rates(size.jobs, push, start.elapsed(), cpu_nanos() - cpu))
}

async fn measure(path: &Path, load: &Load, size: &Size) -> Result<Rates, Failure> {
    let store = Sqlite::open(path)?;
    store.migrate().await?;
    store.declare(Declare { now: None, queues: vec![load.queue.clone()] }).await?;
    let node = NodeInfo::new(NodeId::unique("bench"), Duration::from_secs(60));
    store.heartbeat(Heartbeat { now: None, node: node.clone(), beats: Vec::new() }).await?;

    // The producer's own work is not what is measured.
    let batches: Vec<Vec<Job>> = (0..size.jobs)
        .step_by(size.batch)
        .map(|first| {
            (first..(first + size.batch).min(size.jobs)).map(|i| job(load, size, i)).collect()
        })
        .collect();
    let start = Instant::now();
    for jobs in batches {
        store.push(Push { now: None, jobs }).await?;
    }
    let push = start.elapsed();
    let (start, cpu) = (Instant::now(), cpu_nanos());
    let mut drained = 0;
    loop {
        let request = Claim {
            now: None,
            queue: "q".into(),
            shard: None,
            node: node.id.clone(),
            node_name: None,
            groups: Vec::new(),
            lanes_max: size.batch,
            crashed_max: size.batch,
            lease: Lease::Node { ttl: Duration::from_secs(60) },
        };
        let turns = store.claim(request).await?.turns;
        if turns.is_empty() {
            break;
        }
        drained += turns.iter().map(|turn| turn.jobs.len()).sum::<usize>();
        let turns = turns.iter().map(|turn| Settlement::done(turn.lane, turn.token)).collect();
        store.settle(Settle { now: None, turns }).await?;
    }
    let (drain, cpu) = (start.elapsed(), cpu_nanos() - cpu);
    store.close().await?;
    assert_eq!(drained, size.jobs, "what was pushed is handed over");
    Ok(rates(size.jobs, push, drain, cpu))
}

fn job(load: &Load, size: &Size, i: usize) -> Job {
    let job = Job::with_payload("q", Payload::from_bytes(i.to_string().into_bytes()));
    match load.payloads_per_key {
        None => job,
        Some(each) if load.interleaved => job.key_from(i % (size.jobs / each).max(1)),
        Some(each) => job.key_from(i / each),
    }
}

fn rates(jobs: usize, push: Duration, drain: Duration, cpu_nanos: u64) -> Rates {
    let rate = |time: Duration| jobs as f64 / time.as_secs_f64();
    let drain_cpu = cpu_nanos as f64 / 1e3 / jobs as f64;
    Rates { push: rate(push), drain: rate(drain), drain_cpu }
}

/// CPU time of all threads that live, where the system tells it.
fn cpu_nanos() -> u64 {
    let Ok(threads) = std::fs::read_dir("/proc/self/task") else { return 0 };
    let of_thread = |thread: std::io::Result<std::fs::DirEntry>| -> Option<u64> {
        let text = std::fs::read_to_string(thread.ok()?.path().join("schedstat")).ok()?;
        text.split_whitespace().next()?.parse().ok()
    };
    threads.filter_map(of_thread).sum()
}

fn peak_memory_kib() -> Option<u64> {
    let status = std::fs::read_to_string("/proc/self/status").ok()?;
    let line = status.lines().find(|line| line.starts_with("VmHWM"))?;
    line.split_whitespace().nth(1)?.parse().ok()
}
