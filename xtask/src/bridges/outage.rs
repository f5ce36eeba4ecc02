//! A store that is away for long, while a producer goes on pushing.

use std::path::Path;
use std::thread::sleep;
use std::time::{Duration, Instant};

use seriatim_testkit::Redis;

use super::site::{Producer, QUEUE, Site, until};

/// Jobs that are pushed in each second.
const PACE: u64 = 1_000;
const KEYS: u64 = 1_000;
const SECOND: Duration = Duration::from_secs(1);
const PATIENCE: Duration = Duration::from_secs(120);

/// How long pushed jobs take to arrive here after the store, in Redis, was away for this long.
pub(super) fn measure(root: &Path, seconds: u64) -> Result<(), String> {
    let mut store = Redis::start_with(&["--appendonly", "yes"])?;
    let site = Site::new(root, &store.url(), KEYS, "due")?;
    let _serving = site.serve()?;
    let mut pushed = 0;
    let mut push = |seconds: u64| {
        for _ in 0..seconds {
            let began = Instant::now();
            Producer::new(&site.sidekiq)?.fill(pushed..pushed + PACE, KEYS, None)?;
            pushed += PACE;
            sleep(SECOND.saturating_sub(began.elapsed()));
        }
        Ok::<_, String>(pushed)
    };
    let before = push(10)?;
    until(PATIENCE, || Ok(site.stored()? == before))?;
    store.kill()?;
    push(seconds)?;
    store.restart()?;
    let began = Instant::now();
    let waited = site.counts(&["LLEN", QUEUE])?;
    let pushed = push(10)?;
    until(PATIENCE, || Ok(site.counts(&["LLEN", QUEUE])? == 0))?;
    until(PATIENCE, || Ok(site.stored()? >= pushed))?;
    let took = began.elapsed();
    let stored = site.stored()?;
    println!(
        "the store away for {seconds} s under {PACE} jobs a second: {waited} jobs waited, and were here after {:.0} s with \
         what came meanwhile; {stored} of {pushed} jobs here",
        took.as_secs_f64(),
    );
    match stored == pushed {
        true => Ok(()),
        false => Err("some were lost, or are there twice".to_owned()),
    }
}
