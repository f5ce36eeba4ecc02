//! Many jobs that are scheduled in Sidekiq, while a producer goes on pushing.

use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant, SystemTime};

use super::site::{Producer, QUEUE, Site, job, until};

/// Pushes of the producer follow each other after so long.
const PACE: Duration = Duration::from_millis(5);
const TOMORROW: u64 = 24 * 60 * 60;
const PATIENCE: Duration = Duration::from_secs(600);

/// How long `jobs` of `schedule` take to come into SQLite, and how long a producer waits for Redis meanwhile.
pub(super) fn measure(root: &Path, jobs: u64) -> Result<(), String> {
    let file = root.join("target/bridges/bridge.db");
    let site = Site::new(root, &format!("sqlite:{}", file.display()), 0, "all")?;
    let now =
        SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).map_err(|e| e.to_string())?;
    Producer::new(&site.sidekiq)?.fill(0..jobs, 0, Some(now.as_secs() + TOMORROW))?;
    let producer = Producer::new(&site.sidekiq)?;
    let moved = AtomicBool::new(false);
    let _serving = site.serve()?;
    let (took, mut waits) = thread::scope(|scope| {
        let pushing = scope.spawn(|| push(producer, jobs, &moved));
        let began = Instant::now();
        let all = until(PATIENCE, || Ok(site.counts(&["ZCARD", "schedule"])? == 0));
        moved.store(true, Ordering::Relaxed);
        let waits = pushing.join().map_err(|_| "the producer panicked")??;
        all.map(|()| (began.elapsed(), waits))
    })?;
    let pushed = waits.len() as u64;
    until(PATIENCE, || Ok(site.counts(&["LLEN", QUEUE])? == 0))?;
    until(PATIENCE, || Ok(site.stored()? >= jobs + pushed))?;
    let stored = site.stored()?;
    waits.sort_unstable();
    let at = |share: usize| waits[(waits.len() - 1) * share / 100].as_secs_f64() * 1e3;
    println!(
        "{jobs} scheduled jobs moved in {:.1} s; {pushed} pushes meanwhile, p50 {:.2} ms, p99 {:.2} ms; {stored} jobs here",
        took.as_secs_f64(),
        at(50),
        at(99),
    );
    match stored == jobs + pushed {
        true => Ok(()),
        false => Err(format!("{} jobs were pushed", jobs + pushed)),
    }
}

/// How long each push took.
fn push(mut producer: Producer, first: u64, ended: &AtomicBool) -> Result<Vec<Duration>, String> {
    let mut waits = Vec::new();
    while !ended.load(Ordering::Relaxed) {
        let job = job(first + waits.len() as u64, 0);
        let began = Instant::now();
        producer.asks(&["LPUSH", QUEUE, &job])?;
        waits.push(began.elapsed());
        thread::sleep(PACE.saturating_sub(began.elapsed()));
    }
    Ok(waits)
}
