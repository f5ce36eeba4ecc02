//! Jobs with a past: they failed or died elsewhere.

use std::time::Duration;

use seriatim::limits::{ATTEMPTS_MAX, ERROR_BYTES_MAX};
use seriatim::store::PushStatus::{Duplicate, Merged, Queued};
use seriatim::store::{
    IdempotencyScope, JobState, Past, PushStatus, Pushed, Selected, Selection, Sweep,
};
use seriatim::{ErrorKind, Job, JobId, Mode, Outcome, Queue, Timestamp};

use super::bench::*;
use super::case::{Case, listed};

const MINUTE: Duration = Duration::from_secs(60);
const MODES: [Mode; 4] = [Mode::Parallel, Mode::Exclusive, Mode::Fifo, Mode::Accumulate];

pub(super) fn cases() -> Vec<Case> {
    listed![
        failures_of_a_past_count_on,
        a_job_with_a_past_waits_until_it_is_due,
        in_accumulate_the_job_that_opens_a_lane_brings_its_failures,
        a_job_that_died_elsewhere_is_in_the_morgue_and_comes_back_by_a_requeue,
        a_job_that_died_elsewhere_leaves_its_lane_and_those_that_equal_it_alone,
        a_job_that_died_elsewhere_is_not_throttled_and_may_be_of_another_node,
        the_same_batch_again_makes_no_second_job_and_no_second_death,
        a_job_that_died_elsewhere_long_ago_is_swept_like_any_other,
        a_large_payload_of_a_job_that_died_elsewhere_comes_back_whole,
        a_job_that_died_elsewhere_makes_its_queue_and_must_fit_it,
        a_past_that_cannot_be_is_refused_and_nothing_is_pushed,
    ]
}

/// A job of the mode's queue `q`.
fn of(mode: Mode, tag: &str) -> Job {
    if mode.is_keyed() { job(tag) } else { loose(tag) }
}

fn failed(failures: u32) -> Past {
    Past { failures, error: Some("boom".into()), ..Past::default() }
}

fn died(at: Timestamp) -> Past {
    Past { dead_at: Some(at), ..failed(3) }
}

fn told(pushed: &[Pushed]) -> Vec<(PushStatus, JobId)> {
    pushed.iter().map(|pushed| (pushed.status, pushed.job_id)).collect()
}

async fn requeue(bench: &Bench, which: Selection) -> u64 {
    let request = Selected { now: Some(bench.now), queue: "q".into(), which };
    bench.store.requeue(request).await.unwrap().count
}

async fn failures_of_a_past_count_on(mut bench: Bench) {
    for mode in MODES {
        bench.declare(Queue::new("q", mode).max_retries(3)).await;
        let (made, tried) = (bench.now - MINUTE * 9, bench.now - MINUTE);
        let past = Past { created_at: Some(made), started_at: Some(tried), ..failed(2) };
        let pushed = bench.push(of(mode, "a").past(past)).await;
        assert_eq!(pushed.status, Queued);
        let view = bench.job(pushed.job_id).await;
        assert_eq!((view.attempt, view.retry_count, view.crashes), (2, 1, 0), "{mode}");
        assert_eq!((view.error.as_deref(), view.state), (Some("boom"), JobState::Queued), "{mode}");
        assert_eq!((view.created_at, view.started_at), (made, Some(tried)), "{mode}");
        assert_eq!(view.id, pushed.job_id);
        let turn = bench.one().await;
        assert_eq!((turn.retry_count, turn.crashes), (1, 0), "{mode}");
        assert_eq!(turn.jobs[0].attempt, 3, "{mode}");
        bench.fail(&turn).await;
        bench.nothing().await;
        bench.pass(WAIT);
        let turn = bench.one().await;
        assert_eq!((turn.retry_count, turn.jobs[0].attempt), (2, 4), "{mode}: the last try");
        bench.fail(&turn).await;
        let view = bench.job(pushed.job_id).await;
        assert_eq!((view.state, view.attempt), (JobState::Dead, 4), "{mode}");
        assert_eq!((view.created_at, view.started_at), (made, Some(tried)), "{mode}");
        assert_eq!(view.error.as_deref(), Some("it failed"), "{mode}");
        bench.forget(pushed.job_id).await;
        // One that is done leaves as little as any other.
        bench.push(of(mode, "b").past(failed(1))).await;
        let turn = bench.one().await;
        bench.done(&turn).await;
        let stats = bench.stats().await;
        assert_eq!((stats.jobs, stats.lanes, stats.dead), (0, 0, 0), "{mode}");
        bench.delete_queue(100).await;
    }
}

async fn a_job_with_a_past_waits_until_it_is_due(mut bench: Bench) {
    for mode in MODES {
        bench.declare(Queue::new("q", mode)).await;
        let due = bench.now + MINUTE;
        let pushed = bench.push(of(mode, "a").run_at(due).past(failed(1))).await;
        assert_eq!(bench.nothing().await, Some(due), "{mode}");
        assert_eq!(bench.job(pushed.job_id).await.run_at, due, "{mode}");
        bench.pass(MINUTE);
        let turn = bench.one().await;
        assert_eq!((turn.retry_count, turn.error.as_deref()), (0, Some("boom")), "{mode}");
        bench.done(&turn).await;
        bench.delete_queue(100).await;
    }
}

async fn in_accumulate_the_job_that_opens_a_lane_brings_its_failures(mut bench: Bench) {
    bench.queue(Mode::Accumulate).await;
    bench.push_all(vec![job("a").past(failed(2)), job("b").past(failed(9)), job("c")]).await;
    let turn = bench.one().await;
    assert_eq!((tags(&turn).len(), turn.retry_count), (3, 1));
    assert_eq!(turn.error.as_deref(), Some("boom"));
    // What comes while it runs changes nothing, nor does what comes to a lane that waits.
    bench.push(job("d").past(failed(7))).await;
    bench.done(&turn).await;
    bench.push(job("e").past(failed(8))).await;
    let turn = bench.one().await;
    assert_eq!((tags(&turn).len(), turn.retry_count, turn.error.as_deref()), (2, -1, None));
    let attempts: Vec<u32> = turn.jobs.iter().map(|job| job.attempt).collect();
    assert_eq!(attempts, [8, 9], "their own attempts are kept");
    bench.done(&turn).await;
    // One that merges changes nothing but what any push changes.
    let first = bench.push(job("f").score(5.0)).await;
    let again = bench.push(job("f").score(2.0).past(failed(4))).await;
    assert_eq!(told(&[again]), [(Merged, first.job_id)]);
    let view = bench.job(first.job_id).await;
    assert_eq!((view.score, view.attempt, view.retry_count, view.error), (2.0, 0, -1, None));
}

async fn a_job_that_died_elsewhere_is_in_the_morgue_and_comes_back_by_a_requeue(mut bench: Bench) {
    for mode in MODES {
        bench.declare(Queue::new("q", mode)).await;
        let (made, tried, at) =
            (bench.now - MINUTE * 9, bench.now - MINUTE * 8, bench.now - MINUTE);
        let past = Past { created_at: Some(made), started_at: Some(tried), ..died(at) };
        let dead = bench.push(of(mode, "a").score(7.0).task("t").past(past)).await;
        assert_eq!(dead.status, Queued);
        bench.nothing().await;
        let stats = bench.stats().await;
        assert_eq!((stats.dead, stats.jobs, stats.lanes), (1, 0, 0), "{mode}");
        assert_eq!((stats.processed, stats.failed), (0, 0), "{mode}: it did not fail here");
        let view = bench.job(dead.job_id).await;
        assert_eq!((view.state, view.finished_at), (JobState::Dead, Some(at)), "{mode}");
        assert_eq!((view.attempt, view.retry_count), (3, 2), "{mode}");
        assert_eq!((view.error.as_deref(), view.score), (Some("boom"), 7.0), "{mode}");
        assert_eq!((view.created_at, view.started_at), (made, Some(tried)), "{mode}");
        assert_eq!(view.key.as_deref(), mode.is_keyed().then_some("k"), "{mode}");
        assert_eq!(view.lane, None, "{mode}");
        assert_eq!(bench.dead().await, [view], "{mode}");
        let which = match mode.is_keyed() {
            true => Selection::Keys(vec!["k".into()]),
            false => Selection::Jobs(vec![dead.job_id]),
        };
        assert_eq!(requeue(&bench, which).await, 1, "{mode}");
        let turn = bench.one().await;
        assert_eq!((turn.retry_count, turn.error.as_deref()), (-1, None), "{mode}");
        assert_eq!((turn.jobs[0].id, turn.jobs[0].attempt), (dead.job_id, 4), "{mode}");
        assert_eq!((turn.jobs[0].score, turn.jobs[0].task.as_deref()), (7.0, Some("t")), "{mode}");
        bench.done(&turn).await;
        let stats = bench.stats().await;
        assert_eq!((stats.dead, stats.jobs, stats.processed), (0, 0, 1), "{mode}");
        bench.delete_queue(100).await;
    }
}

async fn a_job_that_died_elsewhere_leaves_its_lane_and_those_that_equal_it_alone(mut bench: Bench) {
    for mode in [Mode::Exclusive, Mode::Fifo, Mode::Accumulate] {
        bench.declare(Queue::new("q", mode)).await;
        let waits = bench.push(job("a").run_in(MINUTE)).await;
        let dead = bench.push(job("a").past(died(bench.now))).await;
        assert_eq!(dead.status, Queued, "{mode}");
        assert_ne!(dead.job_id, waits.job_id, "{mode}");
        assert_eq!(bench.nothing().await, Some(bench.now + MINUTE), "{mode}: not due sooner");
        bench.pass(MINUTE);
        let turn = bench.one().await;
        assert_eq!((turn.jobs.len(), turn.retry_count), (1, -1), "{mode}");
        // Beside one that runs.
        let second = bench.push(job("b").past(died(bench.now))).await;
        bench.done(&turn).await;
        let stats = bench.stats().await;
        assert_eq!((stats.dead, stats.jobs, stats.lanes), (2, 0, 0), "{mode}");
        let dead_ids: Vec<JobId> = bench.dead().await.iter().map(|job| job.id).collect();
        assert_eq!(dead_ids.len(), 2);
        assert!(dead_ids.contains(&dead.job_id) && dead_ids.contains(&second.job_id));
        // A requeue joins what waits, as that of any dead job.
        let other = bench.push(job("a")).await;
        assert_eq!(requeue(&bench, Selection::Jobs(vec![dead.job_id])).await, 1);
        let jobs = if mode == Mode::Accumulate { 1 } else { 2 };
        assert_eq!(bench.stats().await.jobs, jobs, "{mode}");
        assert_eq!(bench.state(other.job_id).await, Some(JobState::Queued), "{mode}");
        bench.delete_queue(100).await;
    }
}

async fn a_job_that_died_elsewhere_is_not_throttled_and_may_be_of_another_node(mut bench: Bench) {
    bench.declare(Queue::fifo("q").throttle(MINUTE)).await;
    let waits = bench.push(job("a")).await;
    let dead = bench.push(job("b").node("n").past(died(bench.now))).await;
    assert_eq!(dead.status, Queued);
    assert_eq!(bench.state(dead.job_id).await, Some(JobState::Dead));
    let again = bench.push(job("c")).await;
    assert_eq!(told(&[again]), [(Merged, waits.job_id)], "nor does it throttle others");
    let other = bench.push(job("d").key("other").past(died(bench.now))).await;
    assert_eq!(other.status, Queued);
    assert_eq!(bench.push(job("e").key("other")).await.status, Queued);
    // Nor does it bind its key.
    let dead = loose("c").key("third").past(died(bench.now));
    assert!(bench.try_push(vec![dead, loose("d").key("third").node("n")]).await.is_ok());
}

async fn the_same_batch_again_makes_no_second_job_and_no_second_death(mut bench: Bench) {
    for mode in MODES {
        let queue = Queue::new("q", mode).idempotency_ttl(MINUTE);
        bench.declare(queue).await;
        let at = bench.now;
        let mut jobs = vec![
            of(mode, "a").idempotency_key("1").past(died(at)),
            of(mode, "b").idempotency_key("2").past(failed(2)),
            of(mode, "a").idempotency_key("1").past(died(at)),
            of(mode, "c").idempotency_key("3"),
        ];
        if bench.store.capabilities().store_scope {
            let job = of(mode, "d").idempotency_key("4").past(died(at));
            jobs.push(job.idempotency_scope(IdempotencyScope::Store));
        }
        let first = bench.push_all(jobs.clone()).await;
        assert_eq!(first[2].status, Duplicate, "{mode}");
        assert_eq!(first[2].job_id, first[0].job_id, "{mode}");
        let ids: Vec<JobId> = first.iter().map(|pushed| pushed.job_id).collect();
        let before = bench.stats().await;
        assert_eq!((before.dead, before.jobs), (jobs.len() as u64 - 3, 2), "{mode}");
        // Also after its time, as it is still stored; and where a dead job has come back.
        for step in 0..3 {
            let again = bench.push_all(jobs.clone()).await;
            let wanted: Vec<_> = ids.iter().map(|id| (Duplicate, *id)).collect();
            assert_eq!(told(&again), wanted, "{mode} {step}");
            if step == 0 {
                assert_eq!(bench.stats().await, before, "{mode}");
                bench.pass(MINUTE * 2);
                bench.store.sweep(Sweep { now: Some(bench.now), rows_max: 100 }).await.unwrap();
            } else {
                bench.requeue_all().await;
            }
        }
        assert_eq!(bench.stats().await.dead, 0, "{mode}");
        bench.delete_queue(100).await;
    }
}

async fn a_job_that_died_elsewhere_long_ago_is_swept_like_any_other(mut bench: Bench) {
    bench.declare(Queue::fifo("q").retain_dead(MINUTE * 60).retain_dead_max(2)).await;
    let ago = |bench: &Bench, minutes: u32| died(bench.now - MINUTE * minutes);
    let tags = ["old", "third", "first", "second"];
    for (tag, minutes) in tags.into_iter().zip([61, 30, 10, 20]) {
        let job = job(tag).past(ago(&bench, minutes));
        bench.push(job).await;
    }
    assert_eq!(bench.stats().await.dead, 4);
    bench.store.sweep(Sweep { now: Some(bench.now), rows_max: 100 }).await.unwrap();
    let mut left: Vec<String> = bench.dead().await.iter().map(|job| tag(&job.payload)).collect();
    left.sort_unstable();
    assert_eq!(left, ["first", "second"]);
    assert_eq!(bench.stats().await.dead, 2);
}

async fn a_large_payload_of_a_job_that_died_elsewhere_comes_back_whole(mut bench: Bench) {
    for mode in MODES {
        bench.declare(Queue::new("q", mode)).await;
        let text = "long ".repeat(50_000);
        let dead = bench.push(of(mode, &text).past(died(bench.now))).await;
        let failed = bench.push(of(mode, &format!("{text}!")).past(failed(1))).await;
        assert_eq!(tag(&bench.job(dead.job_id).await.payload), text, "{mode}");
        bench.requeue_all().await;
        let mut seen = Vec::new();
        while seen.len() < 2 {
            let turns = bench.claim(10).await;
            assert!(!turns.is_empty(), "{mode}");
            for turn in turns {
                seen.extend(turn.jobs.iter().map(|job| (job.id, tag(&job.payload).len())));
                bench.done(&turn).await;
            }
        }
        seen.sort_unstable_by_key(|(_, length)| *length);
        assert_eq!(seen, [(dead.job_id, text.len()), (failed.job_id, text.len() + 1)], "{mode}");
        bench.delete_queue(100).await;
    }
}

async fn a_job_that_died_elsewhere_makes_its_queue_and_must_fit_it(mut bench: Bench) {
    let dead = bench.push(job("a").past(died(bench.now))).await;
    let view = bench.job(dead.job_id).await;
    assert_eq!((&*view.queue, view.state), ("q", JobState::Dead));
    let wrong = vec![job("b"), loose("c").past(died(bench.now))];
    refused(bench.try_push(wrong).await, ErrorKind::Invalid, "jobs[1].key");
    assert_eq!((bench.stats().await.jobs, bench.stats().await.dead), (0, 1));
    assert_eq!(bench.requeue_all().await, 1);
    let turn = bench.one().await;
    assert!(bench.end(&turn, Outcome::Bury { error: "again".into() }).await.is_ok());
    assert_eq!(bench.job(dead.job_id).await.error.as_deref(), Some("again"));
}

async fn a_past_that_cannot_be_is_refused_and_nothing_is_pushed(mut bench: Bench) {
    bench.queue(Mode::Fifo).await;
    let text = |error: &str| Past { error: Some(error.into()), ..failed(1) };
    let time = |at: Timestamp| Some(at);
    let late = Timestamp::from_micros(Timestamp::MAX.as_micros() + 1);
    let early = Timestamp::from_micros(-1);
    for (past, field) in [
        (failed(ATTEMPTS_MAX + 1), "failures"),
        (text(&"x".repeat(ERROR_BYTES_MAX + 1)), "error"),
        (text("a\0b"), "error"),
        (Past { created_at: time(early), ..failed(1) }, "created_at"),
        (Past { started_at: time(late), ..failed(1) }, "started_at"),
        (Past { dead_at: time(late), ..failed(1) }, "dead_at"),
    ] {
        let jobs = vec![job("a"), job("b").past(past)];
        let field = format!("jobs[1].past.{field}");
        refused(bench.try_push(jobs).await, ErrorKind::Invalid, &field);
    }
    assert_eq!((bench.stats().await.jobs, bench.stats().await.dead), (0, 0));
    let longest = text(&"x".repeat(ERROR_BYTES_MAX));
    let pushed = bench.push(job("a").past(Past { failures: ATTEMPTS_MAX, ..longest })).await;
    let view = bench.job(pushed.job_id).await;
    assert_eq!(view.attempt, ATTEMPTS_MAX);
    assert_eq!(view.error.map(|error| error.len()), Some(ERROR_BYTES_MAX));
}
