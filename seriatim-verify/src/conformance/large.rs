//! Turns as large as a claim may be, and keys with more jobs than that.

use seriatim::store::*;
use seriatim::{Mode, Outcome, Queue};

use super::bench::*;
use super::case::{Case, listed};

/// Most jobs of a turn.
const MOST: usize = 10_000;

pub(super) fn cases() -> Vec<Case> {
    listed![
        a_turn_of_most_jobs_that_fails_keeps_them_in_order,
        a_turn_of_most_jobs_may_end_after_its_first_job,
        a_key_has_jobs_of_as_many_priorities_as_there_are,
    ]
}

fn numbers(jobs: std::ops::Range<usize>) -> Vec<String> {
    jobs.map(|number| number.to_string()).collect()
}

/// The jobs that are handed over until none is left, each turn done.
async fn drained(bench: &mut Bench) -> Vec<String> {
    let mut seen = Vec::new();
    while let Some(turn) = bench.claim(1).await.first() {
        seen.extend(tags(turn));
        bench.done(turn).await;
    }
    seen
}

async fn a_turn_of_most_jobs_that_fails_keeps_them_in_order(mut bench: Bench) {
    bench.declare(Queue::fifo("q").take(MOST as u32)).await;
    bench.push_all(numbers(0..MOST).iter().map(|tag| job(tag)).collect()).await;
    bench.push(job("last")).await;
    for outcome in [failure(), Outcome::Crash { error: "killed".into() }, Outcome::Release] {
        let turn = bench.one().await;
        bench.end(&turn, outcome).await;
        bench.pass(WAIT);
    }
    let mut all = numbers(0..MOST);
    all.push("last".to_owned());
    assert!(drained(&mut bench).await == all, "each job once, in order");
}

async fn a_turn_of_most_jobs_may_end_after_its_first_job(mut bench: Bench) {
    bench.queue(Mode::Accumulate).await;
    bench.push_all(numbers(0..MOST).iter().map(|tag| job(tag)).collect()).await;
    for done in 0..3 {
        let turn = bench.one().await;
        assert_eq!(tags(&turn)[0], done.to_string());
        bench.end(&turn, Verdict { done: 1, ..failure().into() }).await;
        bench.pass(WAIT);
    }
    assert!(drained(&mut bench).await == numbers(3..MOST), "each job once, in order");
}

async fn a_key_has_jobs_of_as_many_priorities_as_there_are(mut bench: Bench) {
    bench.queue(Mode::Accumulate).await;
    for first in [0, 9_000] {
        // The most urgent one comes last.
        let jobs = (first..first + 9_000).rev().map(|number| {
            let priority = number as u16;
            job(&number.to_string()).priority(priority)
        });
        bench.push_all(jobs.collect()).await;
    }
    let turn = bench.one().await;
    assert_eq!(turn.jobs.len(), MOST);
    bench.end(&turn, failure()).await;
    bench.pass(WAIT);
    let mut seen = drained(&mut bench).await;
    seen.sort_by_key(|tag| tag.parse::<usize>().unwrap_or(usize::MAX));
    assert!(seen == numbers(0..18_000), "each job once");
}
