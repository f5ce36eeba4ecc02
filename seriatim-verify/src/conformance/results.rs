//! What done jobs leave for those who wait for them.

use std::time::Duration;

use seriatim::limits::{PAGE_BYTES_MAX, RESULT_BYTES_MAX};
use seriatim::store::{JobQuery, JobState, PushStatus, Settle, Settlement, Sweep, Turn, Verdict};
use seriatim::{ErrorKind, Job, Mode, Outcome, Queue};

use super::bench::*;
use super::case::{Case, listed};

pub(super) fn cases() -> Vec<Case> {
    listed![
        a_result_is_kept_with_its_job,
        a_result_takes_the_place_of_an_earlier_error,
        the_jobs_of_a_turn_share_its_result,
        merged_jobs_share_a_result,
        a_repeated_idempotency_key_finds_the_result,
        results_in_a_batch_stay_with_their_turns,
        only_jobs_that_are_done_get_a_result,
        a_result_of_a_turn_that_failed_is_not_kept,
        the_lane_of_a_result_gets_its_next_turn,
        a_result_ends_with_the_retention_of_its_job,
        a_queue_that_keeps_no_finished_jobs_keeps_no_results,
        a_result_that_is_too_long_is_refused,
        a_page_of_jobs_with_long_results_is_bounded_in_bytes,
    ]
}

const RESULT: &str = r#"{"total":12.50,"note":"é \u0000"}"#;

async fn a_page_of_jobs_with_long_results_is_bounded_in_bytes(mut bench: Bench) {
    bench.declare(Queue::parallel("q").retain_completed(WAIT)).await;
    let count = 2 * PAGE_BYTES_MAX / RESULT_BYTES_MAX;
    let result = format!("{:?}", "x".repeat(RESULT_BYTES_MAX - 2));
    for _ in 0..count {
        bench.push(loose("")).await;
        let turn = bench.claim(1).await.remove(0);
        bench.end(&turn, done(&result)).await;
    }
    for task in [None, Some("t".to_owned())] {
        let (mut seen, mut after) = (0, None);
        loop {
            let all = JobQuery::new("q", JobState::Succeeded);
            let query = JobQuery { after, task: task.clone(), rows_max: 1_000, ..all };
            let page = bench.store.jobs(query).await.unwrap();
            assert!(page.rows.len() * RESULT_BYTES_MAX <= PAGE_BYTES_MAX, "{}", page.rows.len());
            seen += page.rows.len();
            after = page.next;
            if after.is_none() {
                break;
            }
        }
        assert_eq!(seen, if task.is_none() { count } else { 0 });
    }
}

fn done(result: &str) -> Verdict {
    Verdict { result: Some(result.into()), ..Outcome::Done.into() }
}

/// Declares the queue `q`, which keeps finished jobs.
async fn keeping(bench: &mut Bench, mode: Mode) {
    bench.declare(Queue::new("q", mode).retain_completed(WAIT)).await;
}

async fn a_result_is_kept_with_its_job(mut bench: Bench) {
    for mode in Mode::ALL {
        let name = mode.as_str();
        bench.declare(Queue::new(name, mode).retain_completed(WAIT)).await;
        let job = Job::new(name, &1).unwrap();
        let id = bench.push(if mode.is_keyed() { job.key("k") } else { job }).await.job_id;
        let request = bench.claim_request(name, 1);
        let turn = bench.claimed(request).await.turns.remove(0);
        assert_eq!(bench.job(id).await.result, None);
        assert!(bench.end(&turn, done(RESULT)).await.is_ok(), "{mode}");
        let kept = bench.job(id).await;
        assert_eq!((kept.state, kept.attempt), (JobState::Succeeded, 1), "{mode}");
        assert_eq!((kept.result.as_deref(), kept.error), (Some(RESULT), None), "{mode}");
        let listed = bench.store.jobs(JobQuery::new(name, JobState::Succeeded)).await.unwrap();
        assert_eq!(listed.rows[0].result.as_deref(), Some(RESULT), "{mode}");
    }
}

async fn a_result_takes_the_place_of_an_earlier_error(mut bench: Bench) {
    for mode in [Mode::Fifo, Mode::Accumulate] {
        let name = mode.as_str();
        bench.declare(Queue::new(name, mode).retain_completed(WAIT)).await;
        let id = bench.push(Job::new(name, &1).unwrap().key("k")).await.job_id;
        let request = bench.claim_request(name, 1);
        let turn = bench.claimed(request).await.turns.remove(0);
        bench.fail(&turn).await;
        bench.pass(WAIT);
        let request = bench.claim_request(name, 1);
        let turn = bench.claimed(request).await.turns.remove(0);
        assert_eq!(bench.job(id).await.error.as_deref(), Some("it failed"));
        bench.end(&turn, done("7")).await;
        let kept = bench.job(id).await;
        assert_eq!((kept.result.as_deref(), kept.error), (Some("7"), None), "{mode}");
    }
}

async fn the_jobs_of_a_turn_share_its_result(mut bench: Bench) {
    keeping(&mut bench, Mode::Accumulate).await;
    let pushed = bench.push_all(["a", "b", "c"].map(job).to_vec()).await;
    let turn = bench.one().await;
    let late = bench.push(job("d")).await.job_id;
    bench.end(&turn, done(RESULT)).await;
    for job in pushed {
        assert_eq!(bench.job(job.job_id).await.result.as_deref(), Some(RESULT));
    }
    assert_eq!(bench.job(late).await.result, None, "it was not in the turn");
}

async fn merged_jobs_share_a_result(mut bench: Bench) {
    keeping(&mut bench, Mode::Accumulate).await;
    let first = bench.push(job("a")).await;
    let merged = bench.push(job("a")).await;
    assert_eq!((merged.status, merged.job_id), (PushStatus::Merged, first.job_id));
    let turn = bench.one().await;
    // Equal to one that is under way: another job until the failure unites them.
    let equal = bench.push(job("a")).await.job_id;
    assert_ne!(equal, first.job_id);
    bench.fail(&turn).await;
    bench.pass(WAIT);
    let turn = bench.one().await;
    assert_eq!(turn.jobs.len(), 1);
    bench.end(&turn, done(RESULT)).await;
    for id in [first.job_id, equal] {
        assert_eq!(bench.job(id).await.result.as_deref(), Some(RESULT));
    }
}

async fn a_repeated_idempotency_key_finds_the_result(mut bench: Bench) {
    keeping(&mut bench, Mode::Fifo).await;
    bench.push(job("a").idempotency_key("i")).await;
    let turn = bench.one().await;
    bench.end(&turn, done(RESULT)).await;
    let again = bench.push(job("b").idempotency_key("i")).await;
    assert_eq!(again.status, PushStatus::Duplicate);
    assert_eq!(bench.job(again.job_id).await.result.as_deref(), Some(RESULT));
    bench.nothing().await;
}

async fn results_in_a_batch_stay_with_their_turns(mut bench: Bench) {
    for mode in [Mode::Parallel, Mode::Fifo] {
        let name = mode.as_str();
        bench.declare(Queue::new(name, mode).retain_completed(WAIT)).await;
        let job = |i: usize| {
            let job = Job::new(name, &i).unwrap();
            if mode.is_keyed() { job.key(i.to_string()) } else { job }
        };
        bench.push_all((0..6).map(job).collect()).await;
        let turns = bench.claimed(bench.claim_request(name, 6)).await.turns;
        assert_eq!(turns.len(), 6, "{mode}");
        let verdict = |place: usize| match place % 3 {
            0 => done(&place.to_string()),
            1 => Outcome::Done.into(),
            _ => failure().into(),
        };
        let ends = turns.iter().enumerate();
        let ends = ends.map(|(place, turn)| bench.planned(turn, verdict(place))).collect();
        assert!(bench.settle(ends).await.iter().all(seriatim::store::Settled::is_ok), "{mode}");
        for (place, turn) in turns.iter().enumerate() {
            let wanted = (place % 3 == 0).then(|| place.to_string());
            let kept = bench.job(turn.jobs[0].id).await;
            assert_eq!(kept.result.as_deref(), wanted.as_deref(), "{mode} {place}");
            assert_eq!(kept.error.is_some(), place % 3 == 2, "{mode} {place}");
        }
    }
}

async fn only_jobs_that_are_done_get_a_result(mut bench: Bench) {
    keeping(&mut bench, Mode::Accumulate).await;
    let soon = bench.now + WAIT / 2;
    let jobs = vec![
        job("a").score(1.0),
        job("unreadable").score(2.0),
        job("late").score(3.0).expires_at(soon),
        job("flagged").score(4.0),
    ];
    let ids = bench.push_all(jobs).await.into_iter().map(|job| job.job_id).collect::<Vec<_>>();
    let turn = bench.one().await;
    bench.cancel(ids[3]).await;
    let verdict = Verdict {
        undecodable: vec![(ids[1], "no JSON".into())],
        expired: vec![ids[2]],
        ..done(RESULT)
    };
    bench.end(&turn, verdict).await;
    let mut ends = Vec::new();
    for id in ids {
        let job = bench.job(id).await;
        ends.push((job.state, job.error, job.result));
    }
    let result = || Some(arc(RESULT));
    assert_eq!(
        ends,
        [
            (JobState::Succeeded, None, result()),
            (JobState::Dead, Some(arc("no JSON")), None),
            (JobState::Canceled, Some(arc("expired")), None),
            (JobState::Succeeded, None, result()),
        ]
    );
}

async fn a_result_of_a_turn_that_failed_is_not_kept(mut bench: Bench) {
    keeping(&mut bench, Mode::Fifo).await;
    let id = bench.push(job("a")).await.job_id;
    let turn = bench.one().await;
    bench.end(&turn, Verdict { result: Some("1".into()), ..failure().into() }).await;
    assert_eq!(bench.job(id).await.result, None);
    bench.pass(WAIT);
    let turn = bench.one().await;
    bench.done(&turn).await;
    let job = bench.job(id).await;
    assert_eq!((job.state, job.result), (JobState::Succeeded, None));
    // An error that looks like a result is an error.
    let id = bench.push(job_with("b", "k2")).await.job_id;
    let turn = bench.one().await;
    let error = "seriatim-result:1".into();
    bench.end(&turn, Outcome::Bury { error }).await;
    let dead = bench.job(id).await;
    assert_eq!((dead.error.as_deref(), dead.result), (Some("1"), None));
}

fn job_with(tag: &str, key: &str) -> Job {
    loose(tag).key(key)
}

async fn the_lane_of_a_result_gets_its_next_turn(mut bench: Bench) {
    keeping(&mut bench, Mode::Fifo).await;
    bench.push_all(["a", "b"].map(job).to_vec()).await;
    for tag in ["a", "b"] {
        let turn = bench.one().await;
        assert_eq!(tags(&turn), [tag]);
        bench.end(&turn, done("1")).await;
    }
    let stats = bench.stats().await;
    assert_eq!((stats.lanes, stats.jobs, stats.claimed, stats.processed), (0, 0, 0, 2));
}

async fn a_result_ends_with_the_retention_of_its_job(mut bench: Bench) {
    keeping(&mut bench, Mode::Fifo).await;
    let id = bench.push(job("a")).await.job_id;
    let turn = bench.one().await;
    bench.end(&turn, done(RESULT)).await;
    bench.pass(WAIT - Duration::from_secs(1));
    bench.store.sweep(Sweep { now: Some(bench.now), rows_max: 10 }).await.unwrap();
    assert_eq!(bench.job(id).await.result.as_deref(), Some(RESULT));
    bench.pass(Duration::from_secs(2));
    bench.store.sweep(Sweep { now: Some(bench.now), rows_max: 10 }).await.unwrap();
    assert_eq!(bench.find(id).await, None);
}

async fn a_queue_that_keeps_no_finished_jobs_keeps_no_results(mut bench: Bench) {
    bench.declare(Queue::fifo("q").retain_completed(Duration::ZERO)).await;
    let id = bench.push(job("a")).await.job_id;
    let turn = bench.one().await;
    assert_eq!(bench.planned(&turn, done(RESULT)).result, None, "the plan leaves it out");
    // Planned by a node that knows another definition.
    let end = Settlement { result: Some(RESULT.into()), ..Settlement::done(turn.lane, turn.token) };
    assert!(bench.settle(vec![end]).await[0].is_ok());
    assert_eq!(bench.find(id).await, None);
    assert_eq!(bench.stats().await.processed, 1);
}

async fn a_result_that_is_too_long_is_refused(mut bench: Bench) {
    keeping(&mut bench, Mode::Fifo).await;
    let id = bench.push(job("a")).await.job_id;
    let turn = bench.one().await;
    let longest = "7".repeat(RESULT_BYTES_MAX);
    let too_long = end_with(&turn, &format!("{longest}7"));
    let settle = Settle { now: Some(bench.now), ..Settle::now(vec![too_long]) };
    refused(bench.store.settle(settle).await, ErrorKind::Invalid, "turns[0].result");
    assert_eq!(bench.state(id).await, Some(JobState::Running), "nothing has ended");
    bench.settle(vec![end_with(&turn, &longest)]).await;
    assert_eq!(bench.job(id).await.result.as_deref(), Some(&*longest));
}

fn end_with(turn: &Turn, result: &str) -> Settlement {
    Settlement { result: Some(result.into()), ..Settlement::done(turn.lane, turn.token) }
}
