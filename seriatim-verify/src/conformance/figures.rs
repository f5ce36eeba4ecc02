//! Statistics: one table of turns and their effects, for every store.

use std::time::Duration;

use seriatim::store::{Cancel, QueueStats};
use seriatim::{
    Exhaustion, Job, Mode, Outcome, Queue,
    store::{Turn, Verdict},
};

use super::bench::*;
use super::case::{Case, listed};

pub(super) fn cases() -> Vec<Case> {
    listed![
        the_figures_of_every_ending_are_exact_in_every_mode,
        e1_the_server_tells_its_size_and_its_connections_within_their_limits,
    ]
}

/// A store without a figure never has it.
async fn e1_the_server_tells_its_size_and_its_connections_within_their_limits(mut bench: Bench) {
    let before = bench.store.vitals().await.unwrap();
    bench.push_all((0..200).map(|number| job(&number.to_string())).collect()).await;
    let after = bench.store.vitals().await.unwrap();
    for (vitals, other) in [(before, after), (after, before)] {
        assert_eq!(vitals.bytes.is_some(), other.bytes.is_some());
        assert!(vitals.bytes.is_none_or(|bytes| bytes > 0), "{vitals:?}");
        assert!(vitals.bytes_max.is_none_or(|most| Some(most) >= vitals.bytes), "{vitals:?}");
        assert!(vitals.connections.is_none_or(|open| open > 0), "{vitals:?}");
        assert!(vitals.connections_max.is_none_or(|most| Some(most) >= vitals.connections));
    }
    // PostgreSQL counts a transaction some time after its end.
    assert!(after.operations >= before.operations, "{before:?} {after:?}");
}

/// Turns of several jobs of one key, how they end, and what remains.
struct Row {
    queue: Queue,
    jobs: usize,
    /// How many of them, from the front, are cancelled meanwhile.
    flagged: usize,
    done: usize,
    end: End,
    left: Left,
}

#[derive(Clone, Copy, Debug)]
enum End {
    Says(fn() -> Outcome),
    /// The first job cannot be decoded, the others are done.
    Undecodable,
    /// The first job has expired, the others are done.
    Expired,
}

/// The statistics after a turn. Remaining jobs are in one lane.
#[derive(Clone, Copy, Debug, Default)]
struct Left {
    jobs: u64,
    retrying: u64,
    dead: u64,
    processed: u64,
    failed: u64,
}

/// Every turn runs twice: the statistics of several turns in one batch add up.
const TWICE: u64 = 2;

const NOTHING: Left = Left { jobs: 0, retrying: 0, dead: 0, processed: 0, failed: 0 };
const FAILED: Left = Left { failed: 1, ..NOTHING };

fn done() -> Outcome {
    Outcome::Done
}
fn snooze() -> Outcome {
    Outcome::Snooze { length: WAIT }
}
fn release() -> Outcome {
    Outcome::Release
}
fn bury() -> Outcome {
    Outcome::Bury { error: "hopeless".into() }
}
fn cancel() -> Outcome {
    Outcome::Cancel { reason: "not needed".into() }
}
fn crash() -> Outcome {
    Outcome::Crash { error: "killed".into() }
}

fn row(queue: Queue, jobs: usize, end: End, left: Left) -> Row {
    Row { queue, jobs, flagged: 0, done: 0, end, left }
}

/// The common part of all modes: turns of one job.
fn of_one(mode: Mode) -> Vec<Row> {
    use End::{Expired, Says, Undecodable};
    let usual = || Queue::new("", mode);
    let exhausted = |policy| usual().max_retries(0).exhausted(policy);
    let back = Left { jobs: 1, ..NOTHING };
    let one = |queue, end, left| row(queue, 1, end, left);
    let flagged = |end, left| Row { flagged: 1, ..one(usual(), end, left) };
    let processed = Left { processed: 1, ..NOTHING };
    let dead = Left { dead: 1, ..FAILED };
    vec![
        one(usual(), Says(done), processed),
        one(usual(), Says(failure), Left { jobs: 1, retrying: 1, ..FAILED }),
        one(usual(), Says(bury), dead),
        one(usual(), Says(cancel), NOTHING),
        one(usual(), Says(snooze), back),
        one(usual(), Says(release), back),
        one(usual(), Says(crash), Left { jobs: 1, ..FAILED }),
        one(exhausted(Exhaustion::Bury), Says(failure), dead),
        one(exhausted(Exhaustion::Drop), Says(failure), FAILED),
        one(exhausted(Exhaustion::Hold), Says(failure), Left { jobs: 1, retrying: 1, ..FAILED }),
        one(usual(), Undecodable, dead),
        one(usual(), Expired, NOTHING),
        flagged(Says(done), processed),
        flagged(Says(failure), NOTHING),
        flagged(Says(crash), NOTHING),
        flagged(Says(release), NOTHING),
    ]
}

/// Turns of three jobs.
fn of_three() -> Vec<Row> {
    use End::{Expired, Says, Undecodable};
    let gathers = |end, left| row(Queue::accumulate(""), 3, end, left);
    let ordered = |done, end, left| Row { done, ..row(Queue::fifo("").take(3), 3, end, left) };
    let all_back = Left { jobs: 3, ..NOTHING };
    let all_done = Left { processed: 3, ..NOTHING };
    let retried = Left { jobs: 3, retrying: 1, ..FAILED };
    let cancelled = |flagged, left| Row { flagged, ..gathers(Says(failure), left) };
    vec![
        gathers(Says(done), all_done),
        gathers(Says(failure), retried),
        gathers(Says(bury), Left { dead: 3, ..FAILED }),
        gathers(Says(cancel), NOTHING),
        gathers(Says(snooze), all_back),
        gathers(Says(crash), Left { jobs: 3, ..FAILED }),
        gathers(Undecodable, Left { dead: 1, processed: 2, ..FAILED }),
        gathers(Expired, Left { processed: 2, ..NOTHING }),
        cancelled(1, Left { jobs: 2, retrying: 1, ..FAILED }),
        cancelled(3, NOTHING),
        row(
            Queue::accumulate("").max_retries(0),
            3,
            Says(failure),
            Left { jobs: 2, dead: 1, ..FAILED },
        ),
        ordered(0, Says(done), all_done),
        ordered(0, Says(failure), retried),
        ordered(0, Says(cancel), Left { jobs: 2, ..NOTHING }),
        ordered(0, Says(crash), Left { jobs: 3, ..FAILED }),
        ordered(1, Says(failure), Left { jobs: 2, retrying: 1, processed: 1, ..FAILED }),
        ordered(1, Says(bury), Left { jobs: 1, dead: 1, processed: 1, ..FAILED }),
        ordered(1, Says(cancel), Left { jobs: 1, processed: 1, ..NOTHING }),
        ordered(2, Says(snooze), Left { jobs: 1, processed: 2, ..NOTHING }),
    ]
}

async fn the_figures_of_every_ending_are_exact_in_every_mode(mut bench: Bench) {
    // Retention decides which way a store settles a done job.
    for (name, retention) in [("forgets", Duration::ZERO), ("keeps", WAIT * 100)] {
        let mut rows: Vec<Row> = Mode::ALL.into_iter().flat_map(of_one).chain(of_three()).collect();
        for (number, row) in rows.iter_mut().enumerate() {
            row.queue.name = format!("{name}-{number}");
            row.queue.retain_completed = Some(retention);
            bench.declare(row.queue.clone()).await;
            bench.push_all(jobs(row)).await;
        }
        let mut ends = Vec::new();
        for row in &rows {
            let request = bench.claim_request(&row.queue.name, 10);
            for turn in bench.claimed(request).await.turns {
                assert_eq!(turn.jobs.len(), row.jobs, "{}", row.queue.name);
                let flagged = turn.jobs[..row.flagged].iter().map(|job| job.id).collect();
                let cancel = Cancel { now: Some(bench.now), jobs: flagged };
                bench.store.cancel(cancel).await.expect("the store answers");
                ends.push(bench.planned(&turn, verdict(row, &turn)));
            }
        }
        compare(&bench, &rows, |row| Left { jobs: row.jobs as u64, ..NOTHING }, TWICE).await;
        assert!(bench.settle(ends).await.iter().all(seriatim::store::Settled::is_ok));
        compare(&bench, &rows, |row| row.left, 0).await;
    }
}

/// The jobs of two turns. Equal payloads are one job if they merge.
fn jobs(row: &Row) -> Vec<Job> {
    let merges = row.queue.mode == Mode::Accumulate;
    let job = |key: &str, n: usize| {
        let job = Job::new(&row.queue.name, &n).expect("it is JSON").score(n as f64);
        if row.queue.mode.is_keyed() { job.key(key) } else { job }
    };
    let of = |key| (0..row.jobs).chain(merges.then_some(0)).map(move |n| job(key, n));
    of("a").chain(of("b")).collect()
}

fn verdict(row: &Row, turn: &Turn) -> Verdict {
    let first = turn.jobs[0].id;
    match row.end {
        End::Says(outcome) => Verdict { done: row.done, ..outcome().into() },
        End::Undecodable => {
            Verdict { undecodable: vec![(first, "no JSON".into())], ..Outcome::Done.into() }
        }
        End::Expired => Verdict { expired: vec![first], ..Outcome::Done.into() },
    }
}

fn expected(queue: &Queue, left: Left, claimed: u64) -> QueueStats {
    let lanes = if queue.mode.is_keyed() { u64::from(left.jobs > 0) } else { left.jobs };
    QueueStats {
        queue: queue.name.as_str().into(),
        mode: Some(queue.mode),
        lanes: TWICE * lanes,
        jobs: TWICE * left.jobs,
        claimed,
        retrying: TWICE * left.retrying,
        dead: TWICE * left.dead,
        processed: TWICE * left.processed,
        failed: TWICE * left.failed,
        ..QueueStats::default()
    }
}

async fn compare(bench: &Bench, rows: &[Row], left: impl Fn(&Row) -> Left, claimed: u64) {
    let all = bench.store.stats(Some(bench.now)).await.expect("the store answers");
    for row in rows {
        let mine = all.iter().find(|stats| *stats.queue == row.queue.name);
        let mine = mine.expect("the queue has figures").clone();
        let expected = expected(&row.queue, left(row), claimed);
        assert_eq!(mine.waiting(), expected.waiting(), "{mine:?}");
        let what = (row.queue.mode, row.jobs, row.flagged, row.done, row.end);
        assert_eq!(QueueStats { lag: Duration::ZERO, ..mine }, expected, "after {what:?}");
    }
}
