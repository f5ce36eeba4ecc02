//! Planned settlements.

use std::collections::BTreeSet;
use std::time::Duration;

use proptest::prelude::*;

use crate::{
    Backoff, Exhaustion, JobId, Mode, Outcome, Payload, Queue, Timestamp,
    store::{
        Due, EndKind, Fate, JobOptions, LaneId, Settlement, Token, Turn, TurnJob, Verdict, plan,
    },
};

const WAIT: Duration = Duration::from_secs(10);

fn turn(jobs: u64) -> Turn {
    let job = |seq| TurnJob {
        id: JobId::new(Timestamp::default(), 1, 0, seq),
        task: None,
        payload: Payload::from_bytes(&b"1"[..]),
        score: seq as f64,
        priority: 100,
        run_at: Timestamp::default(),
        attempt: 1,
        options: None,
    };
    Turn {
        lane: LaneId { queue: 1, shard: 0, number: 1 },
        queue: "q".into(),
        key: Some("k".into()),
        token: Token(7),
        retry_count: -1,
        crashes: 0,
        error: None,
        claimed_at: Timestamp::default(),
        jobs: (1..=jobs).map(job).collect(),
    }
}

fn failure() -> Outcome {
    Outcome::Retry { error: "no".into(), retry_in: None }
}

fn settle(turn: &Turn, queue: &Queue, verdict: impl Into<Verdict>) -> Settlement {
    plan(turn, queue, &verdict.into(), &|retry| WAIT * (retry.count + 1))
}

fn fates(turn: &Turn, settlement: &Settlement) -> Vec<Fate> {
    turn.jobs.iter().map(|job| settlement.fate_of(job.id)).collect()
}

#[test]
fn a_failure_waits_longer_each_time() {
    let queue = Queue::accumulate("q");
    let mut turn = turn(2);
    for retry_count in 0..3 {
        let settlement = settle(&turn, &queue, failure());
        assert_eq!(settlement.keep.retry_count, retry_count);
        assert_eq!(settlement.keep.due, Due::In(WAIT * (retry_count as u32 + 1)));
        assert_eq!(fates(&turn, &settlement), [Fate::Keep, Fate::Keep]);
        turn.retry_count = settlement.keep.retry_count;
    }
}

#[test]
fn a_failure_is_that_of_a_started_job_and_of_none_if_that_was_cancelled() {
    let turn = turn(3);
    let [first, second, _] = [0, 1, 2].map(|place| turn.jobs[place].id);
    let ended = |done: usize, cancelled: &[JobId]| {
        let verdict = Verdict { done, ..failure().into() };
        let mut settlement = settle(&turn, &Queue::fifo("q"), verdict);
        settlement.keep.others_unstarted = true;
        settlement.ending(turn.jobs.iter().map(|job| job.id), cancelled).kind
    };
    assert_eq!(ended(0, &[]), EndKind::Failed);
    assert_eq!(ended(0, &[second]), EndKind::Failed);
    assert_eq!(ended(0, &[first]), EndKind::Cancelled);
    assert_eq!(ended(1, &[second]), EndKind::Done);
}

#[test]
fn a_handler_may_say_how_long_to_wait() {
    let soon = Outcome::Retry { error: "no".into(), retry_in: Some(Duration::from_secs(1)) };
    let settlement = settle(&turn(1), &Queue::fifo("q"), soon);
    assert_eq!(settlement.keep.due, Due::In(Duration::from_secs(1)));
    assert_eq!(settlement.keep.retry_count, 0, "it still counts");
}

#[test]
fn the_last_failure_takes_the_head_out() {
    for (exhausted, fate) in [(Exhaustion::Bury, Fate::Bury), (Exhaustion::Drop, Fate::Drop)] {
        let queue = Queue::accumulate("q").max_retries(3).exhausted(exhausted);
        let turn = Turn { retry_count: 2, ..turn(3) };
        let settlement = settle(&turn, &queue, failure());
        assert_eq!(fates(&turn, &settlement), [fate, Fate::Keep, Fate::Keep]);
        assert_eq!((settlement.keep.retry_count, settlement.keep.due), (-1, Due::Now));
    }
}

#[test]
fn a_job_that_ends_takes_its_counts_along() {
    let queue = Queue::fifo("q").max_retries(3);
    let turn = Turn { retry_count: 2, crashes: 1, ..turn(3) };
    let ends = [
        (failure(), 3, 1),
        (Outcome::Crash { error: "died".into() }, 2, 2),
        (Outcome::Bury { error: "no".into() }, 3, 1),
        (Outcome::Cancel { reason: "no".into() }, 2, 1),
    ];
    for (outcome, retry_count, crashes) in ends {
        let queue = Queue { max_crashes: 2, ..queue.clone() };
        let settlement = settle(&turn, &queue, outcome);
        assert!(settlement.ends_owner());
        assert_eq!((settlement.keep.retry_count, settlement.keep.crashes), (retry_count, crashes));
    }
}

#[test]
fn one_try_is_all_when_there_are_no_retries() {
    let turn = turn(1);
    let settlement = settle(&turn, &Queue::parallel("q").max_retries(0), failure());
    assert_eq!(fates(&turn, &settlement), [Fate::Bury]);
}

#[test]
fn the_failure_behind_finished_jobs_starts_afresh() {
    let mut turn = turn(3);
    turn.retry_count = 4;
    let settlement =
        settle(&turn, &Queue::fifo("q").take(3), Verdict { done: 1, ..failure().into() });
    assert_eq!(fates(&turn, &settlement), [Fate::Done, Fate::Keep, Fate::Keep]);
    assert_eq!((settlement.keep.job, settlement.keep.retry_count), (Some(turn.jobs[1].id), 0));
}

#[test]
fn the_failure_behind_finished_jobs_waits_by_its_own_backoff() {
    let mut turn = turn(2);
    let own =
        |base| JobOptions { backoff: Some(Backoff::Constant { base }), ..JobOptions::default() };
    for (job, base) in turn.jobs.iter_mut().zip([WAIT, WAIT * 9]) {
        job.options = Some(own(base).into());
    }
    for (done, wait) in [(0, WAIT), (1, WAIT * 9)] {
        let (queue, verdict) = (Queue::fifo("q").take(2), Verdict { done, ..failure().into() });
        let settlement =
            plan(&turn, &queue, &verdict, &|retry| retry.backoff(&queue).wait(retry.count, 0.5));
        assert_eq!(settlement.keep.due, Due::In(wait), "{done} of the jobs are done");
    }
}

#[test]
fn more_done_than_there_are_means_all() {
    let turn = turn(2);
    let settlement = settle(&turn, &Queue::fifo("q"), Verdict { done: 9, ..failure().into() });
    assert_eq!(fates(&turn, &settlement), [Fate::Done, Fate::Done]);
    assert!(!settlement.keep.counted);
}

#[test]
fn own_limits_win_over_the_queue_s() {
    let mut turn = turn(1);
    let options = JobOptions { max_attempts: Some(2), ..JobOptions::default() };
    turn.jobs[0].options = Some(options.into());
    let queue = Queue::exclusive("q");
    assert_eq!(fates(&turn, &settle(&turn, &queue, failure())), [Fate::Keep]);
    turn.jobs[0].attempt = 2;
    assert_eq!(fates(&turn, &settle(&turn, &queue, failure())), [Fate::Bury]);
    let crash = Outcome::Crash { error: "died".into() };
    assert_eq!(fates(&turn, &settle(&turn, &queue, crash)), [Fate::Bury]);
}

#[test]
fn a_long_error_keeps_its_beginning_and_its_last_words() {
    let error = format!("reading{}: no space left on device", "é".repeat(10_000));
    let outcome = Outcome::Retry { error: error.into(), retry_in: None };
    let settlement = settle(&turn(1), &Queue::parallel("q"), outcome);
    let kept = settlement.keep.error.unwrap();
    assert!(kept.len() <= crate::model::limits::ERROR_BYTES_MAX, "{}", kept.len());
    assert!(kept.starts_with("readingéé") && kept.ends_with("no space left on device"), "{kept}");
    assert!(kept.contains(" bytes left out "), "{kept}");
}

fn outcomes() -> impl Strategy<Value = Outcome> {
    prop_oneof![
        Just(Outcome::Done),
        Just(failure()),
        Just(Outcome::Retry { error: "no".into(), retry_in: Some(WAIT) }),
        Just(Outcome::Snooze { length: WAIT }),
        Just(Outcome::Bury { error: "no".into() }),
        Just(Outcome::Cancel { reason: "no".into() }),
        Just(Outcome::Release),
        Just(Outcome::Crash { error: "no".into() }),
    ]
}

#[test]
fn a_job_that_goes_back_as_it_was_does_not_get_the_error_of_one_that_cannot_be_read() {
    let (queue, turn) = (Queue::fifo("q"), turn(2));
    let undecodable = vec![(turn.jobs[0].id, "no JSON".into())];
    let settlement = settle(&turn, &queue, Verdict { undecodable, ..Outcome::Release.into() });
    assert_eq!(fates(&turn, &settlement), [Fate::Bury, Fate::Keep]);
    assert_eq!(settlement.keep.job, None);
    assert_eq!(settlement.keep.error.as_deref(), Some("no JSON"));
}

proptest! {
    #[test]
    fn every_job_has_one_fate_and_nothing_is_lost(
        outcome in outcomes(),
        mode in 0usize..4,
        jobs in 1u64..6,
        done in 0usize..8,
        undecodable in proptest::collection::vec(0usize..6, 0..3),
        retry_count in -1i32..30,
        crashes in 0u32..7,
    ) {
        let queue = Queue::new("q", Mode::ALL[mode]);
        let turn = Turn { retry_count, crashes, ..turn(jobs) };
        let undecodable: BTreeSet<JobId> =
            undecodable.into_iter().filter_map(|i| turn.jobs.get(i)).map(|job| job.id).collect();
        let verdict = Verdict {
            done,
            undecodable: undecodable.iter().map(|id| (*id, "no JSON".into())).collect(),
            ..outcome.clone().into()
        };
        let settlement = settle(&turn, &queue, verdict);
        let named: BTreeSet<JobId> = settlement.exceptions.iter().map(|(id, _)| *id).collect();
        prop_assert_eq!(named.len(), settlement.exceptions.len(), "no job is named twice");
        prop_assert!(named.iter().all(|id| turn.jobs.iter().any(|job| job.id == *id)));
        let fates = fates(&turn, &settlement);
        prop_assert!(!fates.contains(&Fate::Drop), "nothing is dropped unless the queue says so");
        for (job, fate) in turn.jobs.iter().zip(&fates) {
            prop_assert_eq!(undecodable.contains(&job.id), *fate == Fate::Bury
                && undecodable.contains(&job.id));
        }
        let kept = fates.iter().filter(|fate| **fate == Fate::Keep).count();
        prop_assert!(outcome != Outcome::Done || kept == 0);
        prop_assert!(kept == 0 || settlement.keep.retry_count >= -1);
    }

    #[test]
    fn the_same_failure_is_decided_the_same_way(retry_count in -1i32..30, mode in 0usize..4) {
        let queue = Queue::new("q", Mode::ALL[mode]);
        let turn = Turn { retry_count, ..turn(2) };
        prop_assert_eq!(settle(&turn, &queue, failure()), settle(&turn, &queue, failure()));
    }
}

#[test]
fn a_definition_that_contradicts_itself_names_the_field() {
    let wrong = [
        ("merge", Queue::fifo("q").merge(crate::Merge::None)),
        ("due", Queue::exclusive("q").due(crate::DueRule::Earliest)),
        ("take", Queue::accumulate("q").take(2)),
        ("take", Queue::fifo("q").take(0)),
        ("batch_size", Queue::fifo("q").batch_size(0)),
        ("max_crashes", Queue::fifo("q").max_crashes(0)),
        ("retain_completed", Queue::fifo("q").retain_completed(Duration::from_secs(1 << 40))),
        ("name", Queue::fifo("not plain")),
    ];
    for (field, queue) in wrong {
        assert_eq!(queue.validate().unwrap_err().field(), Some(field));
    }
    let text = serde_json::to_string(&Queue::accumulate("q").timeout(WAIT)).unwrap();
    let read: Queue = serde_json::from_str(&text).unwrap();
    assert_eq!(read, Queue::accumulate("q").timeout(WAIT));
}
