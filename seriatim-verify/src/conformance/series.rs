//! Turns of several jobs that their holder hands over one after the other.

use std::time::Duration;

use seriatim::store::*;
use seriatim::{Job, Mode, Outcome, Queue, Rate};

use super::bench::*;
use super::case::{Case, listed};

pub(super) fn cases() -> Vec<Case> {
    listed![
        a_turn_takes_as_many_new_jobs_of_its_key_as_the_claim_allows,
        a_turn_is_as_the_queue_says_unless_the_claim_asks_for_more,
        a_series_ends_before_a_job_that_it_may_not_hand_over,
        a_series_ends_at_its_bytes,
        a_claim_with_its_own_lease_takes_a_series_too,
        jobs_with_options_of_their_own_are_claimed_alone,
        jobs_that_are_unique_or_described_are_handed_over_with_others,
        where_finished_jobs_are_kept_a_turn_is_one_job,
        jobs_that_were_not_started_go_back_as_they_were,
        a_failure_counts_for_the_job_that_was_started,
        a_failure_ends_what_is_done_and_leaves_what_was_not_started_as_it_is,
        a_job_that_was_cancelled_behind_a_failure_ends_cancelled,
        a_failed_job_that_was_cancelled_leaves_no_failure_to_those_behind_it,
        what_was_claimed_before_a_crash_is_claimed_one_by_one,
        a_lane_goes_on_with_a_series,
        jobs_pushed_meanwhile_wait_for_the_next_turn,
        a_cancelled_job_of_a_series_ends_cancelled_and_the_others_go_back,
        limits_count_each_job_of_a_key,
    ]
}

/// Claims the lane with up to `series_max` jobs.
async fn series(bench: &mut Bench, series_max: u32) -> Turn {
    let request = Claim { series_max, ..bench.claim_request("q", 1) };
    bench.claimed(request).await.turns.remove(0)
}

/// Claims the lane with all these jobs. `None` where the store hands out no series: there the first is claimed alone.
async fn series_of(bench: &mut Bench, jobs: &[&str]) -> Option<Turn> {
    let turn = series(bench, jobs.len() as u32).await;
    assert_eq!(tags(&turn), first(bench, jobs));
    (turn.jobs.len() > 1).then_some(turn)
}

/// What a turn has where the store hands out series, or one job where it does not.
fn first<'t>(bench: &Bench, tags: &'t [&'t str]) -> &'t [&'t str] {
    if bench.store.capabilities().series { tags } else { &tags[..1] }
}

async fn push(bench: &mut Bench, tags: &[&str]) {
    bench.push_all(tags.iter().map(|tag| job(tag)).collect()).await;
}

async fn a_turn_takes_as_many_new_jobs_of_its_key_as_the_claim_allows(mut bench: Bench) {
    bench.queue(Mode::Fifo).await;
    push(&mut bench, &["a", "b", "c", "d", "e"]).await;
    bench.push(job("0").score(-1.0)).await;
    let turn = series(&mut bench, 3).await;
    assert_eq!(tags(&turn), first(&bench, &["0", "a", "b"]));
    assert!(turn.jobs.iter().all(|job| job.attempt == 1));
    bench.done(&turn).await;
    let mut rest = Vec::new();
    while rest.last().is_none_or(|tag| tag != "e") {
        let turn = series(&mut bench, 9).await;
        rest.extend(tags(&turn));
        bench.done(&turn).await;
    }
    assert_eq!(rest, &["a", "b", "c", "d", "e"][turn.jobs.len() - 1..]);
    assert_eq!(bench.stats().await.jobs, 0);
}

async fn a_turn_is_as_the_queue_says_unless_the_claim_asks_for_more(mut bench: Bench) {
    bench.declare(Queue::fifo("q").take(2)).await;
    push(&mut bench, &["a", "b", "c", "d"]).await;
    let turn = bench.one().await;
    assert_eq!(tags(&turn), ["a", "b"]);
    bench.done(&turn).await;
    let turn = series(&mut bench, 1).await;
    assert_eq!(tags(&turn), ["c", "d"], "a claim asks for no less");
}

async fn a_series_ends_before_a_job_that_it_may_not_hand_over(mut bench: Bench) {
    bench.queue(Mode::Fifo).await;
    for by_task in [true, false] {
        let later = bench.now + Duration::from_secs(5);
        let other = job("other");
        let other = if by_task { other.task("t") } else { other.run_at(later) };
        push(&mut bench, &["a", "b"]).await;
        bench.push_all(vec![other, job("c")]).await;
        let turn = series(&mut bench, 9).await;
        assert_eq!(tags(&turn), first(&bench, &["a", "b"]), "by task: {by_task}");
        bench.done(&turn).await;
        bench.pass(Duration::from_secs(5));
        while bench.stats().await.jobs > 0 {
            let turn = series(&mut bench, 1).await;
            bench.done(&turn).await;
        }
    }
}

async fn a_series_ends_at_its_bytes(mut bench: Bench) {
    bench.queue(Mode::Fifo).await;
    let large = |tag: &str| {
        let payload = serde_json::json!({ "tag": tag, "fill": "x".repeat(100_000) });
        Job::new("q", &payload).unwrap().key("k")
    };
    bench.push_all(["a", "b", "c", "d"].map(large).into()).await;
    let turn = series(&mut bench, 9).await;
    assert_eq!(tags(&turn), first(&bench, &["a", "b"]));
}

async fn a_claim_with_its_own_lease_takes_a_series_too(mut bench: Bench) {
    bench.queue(Mode::Fifo).await;
    push(&mut bench, &["a", "b", "c"]).await;
    bench.push_all(["d", "e"].map(|tag| job(tag).key("other")).into()).await;
    let lease = Lease::Own { ttl: LEASE };
    let request = Claim { series_max: 9, lease, ..bench.claim_request("q", 2) };
    let turns = bench.claimed(request).await.turns;
    assert_eq!(
        turns.iter().map(tags).collect::<Vec<_>>(),
        [first(&bench, &["a", "b", "c"]), first(&bench, &["d", "e"])]
    );
    let verdict = Verdict { done: 1, ..Outcome::Release.into() };
    assert!(bench.end(&turns[0], verdict).await.is_ok());
    bench.pass(LEASE + Duration::from_micros(1));
    bench.beat().await;
    let rescued = bench.rescue(&bench.node.clone()).await;
    assert_eq!(rescued.iter().map(|turn| turn.lane).collect::<Vec<_>>(), [turns[1].lane]);
    assert_eq!(rescued[0].jobs.len(), turns[1].jobs.len());
    assert_eq!(tags(&series(&mut bench, 1).await), ["b"]);
}

async fn jobs_that_were_not_started_go_back_as_they_were(mut bench: Bench) {
    bench.queue(Mode::Fifo).await;
    push(&mut bench, &["a", "b", "c", "d"]).await;
    let turn = series(&mut bench, 9).await;
    let verdict = Verdict { done: 1, ..Outcome::Release.into() };
    assert!(bench.end(&turn, verdict).await.is_ok());
    assert_eq!(bench.stats().await.jobs, 3);
    for job in &turn.jobs[1..] {
        assert_eq!(bench.job(job.id).await.started_at, None);
    }
    let turn = series(&mut bench, 9).await;
    assert_eq!(tags(&turn), first(&bench, &["b", "c", "d"]));
    assert!(turn.jobs.iter().all(|job| job.attempt == 1), "{turn:?}");
    let verdict = Verdict { done: turn.jobs.len() - 1, ..failure().into() };
    assert!(bench.end(&turn, verdict).await.is_ok());
    bench.nothing().await;
    bench.pass(WAIT);
    let again = bench.one().await;
    assert_eq!(tags(&again), [tags(&turn).last().unwrap().as_str()]);
    assert_eq!((again.retry_count, again.attempt()), (0, 2));
}

async fn a_failure_counts_for_the_job_that_was_started(mut bench: Bench) {
    bench.queue(Mode::Fifo).await;
    push(&mut bench, &["a", "b", "c", "d"]).await;
    let Some(turn) = series_of(&mut bench, &["a", "b", "c", "d"]).await else { return };
    let settlement = second_failed(&bench, &turn);
    assert!(bench.settle(vec![settlement]).await[0].is_ok());
    bench.pass(WAIT);
    let failed = series(&mut bench, 4).await;
    assert_eq!((tags(&failed), failed.attempt()), (vec!["b".to_owned()], 2));
    bench.done(&failed).await;
    let rest = series(&mut bench, 4).await;
    assert_eq!(tags(&rest), ["c", "d"]);
    assert!(rest.jobs.iter().all(|job| job.attempt == 1), "{rest:?}");
    assert_eq!(bench.job(rest.jobs[1].id).await.started_at, Some(bench.now));
}

/// The settlement of a turn whose second job has failed, after which none was started.
fn second_failed(bench: &Bench, turn: &Turn) -> Settlement {
    let mut settlement = bench.planned(turn, Verdict { done: 1, ..failure().into() });
    settlement.keep.others_unstarted = true;
    settlement
}

async fn a_failure_ends_what_is_done_and_leaves_what_was_not_started_as_it_is(mut bench: Bench) {
    bench.queue(Mode::Fifo).await;
    let large = |tag: &str| {
        let payload = serde_json::json!({ "tag": tag, "fill": "x".repeat(5_000) });
        Job::new("q", &payload).unwrap().key("k").idempotency_key(tag)
    };
    let pushed = bench.push_all(["a", "b", "c", "d", "e"].map(large).into()).await;
    let Some(turn) = series_of(&mut bench, &["a", "b", "c", "d"]).await else { return };
    bench.push(job("0").score(-1.0)).await;
    let settlement = second_failed(&bench, &turn);
    assert_eq!(bench.settle(vec![settlement]).await, [Settled::ok(Vec::new())]);
    let stats = bench.stats().await;
    assert_eq!((stats.jobs, stats.processed, stats.failed), (5, 1, 1));
    let waiting = bench.job(pushed[2].job_id).await;
    assert_eq!((waiting.attempt, waiting.started_at, waiting.token), (0, None, None));
    let first = series(&mut bench, 4).await;
    assert_eq!(tags(&first), ["0"], "the failed one waits for its retry");
    bench.done(&first).await;
    bench.nothing().await;
    bench.pass(WAIT);
    let failed = series(&mut bench, 4).await;
    assert_eq!((tags(&failed), failed.attempt(), failed.retry_count), (vec!["b".into()], 2, 0));
    bench.done(&failed).await;
    let rest = series(&mut bench, 4).await;
    assert_eq!(tags(&rest), ["c", "d", "e"]);
    assert!(rest.jobs.iter().all(|job| job.attempt == 1 && job.payload.as_bytes().len() > 5_000));
    bench.done(&rest).await;
    let stats = bench.stats().await;
    assert_eq!((stats.jobs, stats.lanes, stats.processed, stats.failed), (0, 0, 6, 1));
}

async fn a_job_that_was_cancelled_behind_a_failure_ends_cancelled(mut bench: Bench) {
    bench.queue(Mode::Fifo).await;
    push(&mut bench, &["a", "b", "c", "d"]).await;
    let Some(turn) = series_of(&mut bench, &["a", "b", "c", "d"]).await else { return };
    let third = turn.jobs[2].id;
    assert_eq!(bench.cancel(third).await, Cancelled::Flagged);
    let settlement = second_failed(&bench, &turn);
    assert_eq!(bench.settle(vec![settlement]).await, [Settled::ok(vec![third])]);
    bench.pass(WAIT);
    let mut rest = Vec::new();
    while bench.stats().await.jobs > 0 {
        let turn = series(&mut bench, 4).await;
        rest.extend(tags(&turn));
        bench.done(&turn).await;
    }
    assert_eq!(rest, ["b", "d"]);
}

async fn a_failed_job_that_was_cancelled_leaves_no_failure_to_those_behind_it(mut bench: Bench) {
    bench.queue(Mode::Fifo).await;
    push(&mut bench, &["a", "b", "c"]).await;
    let turn = series(&mut bench, 9).await;
    let first = turn.jobs[0].id;
    assert_eq!(bench.cancel(first).await, Cancelled::Flagged);
    let mut settlement = bench.planned(&turn, failure());
    settlement.keep.others_unstarted = true;
    assert_eq!(bench.settle(vec![settlement]).await, [Settled::ok(vec![first])]);
    let stats = bench.stats().await;
    assert_eq!((stats.jobs, stats.processed, stats.failed), (2, 0, 0));
    let next = bench.one().await;
    assert_eq!((tags(&next), next.attempt(), next.retry_count), (vec!["b".into()], 1, -1));
}

async fn what_was_claimed_before_a_crash_is_claimed_one_by_one(mut bench: Bench) {
    bench.queue(Mode::Fifo).await;
    push(&mut bench, &["a", "b", "c", "d"]).await;
    let turn = series(&mut bench, 3).await;
    let other = bench.other_node("node-2").await;
    bench.pass(LEASE * 2);
    bench.beat_as(other.clone(), Vec::new()).await;
    assert_eq!(bench.crash_all(&other).await, 1);
    bench.node = other;
    for tag in turn.jobs.iter().map(|job| tag(&job.payload)) {
        let alone = series(&mut bench, 9).await;
        assert_eq!((tags(&alone), alone.attempt()), (vec![tag], 2));
        bench.done(&alone).await;
    }
}

async fn a_lane_goes_on_with_a_series(mut bench: Bench) {
    bench.queue(Mode::Fifo).await;
    push(&mut bench, &["a", "b", "c", "d", "e"]).await;
    let turn = series(&mut bench, 2).await;
    let done = bench.planned(&turn, Outcome::Done);
    let claim = Claim { series_max: 2, ..bench.claim_request("q", 1) };
    let go_on = vec![GoOn { claim, places: vec![0] }];
    let settled = bench.settle_and_go_on(vec![done], go_on).await.remove(0);
    let Settled::Ok { next, .. } = settled else { panic!("{settled:?}") };
    let next = *next.unwrap();
    let expected = if bench.store.capabilities().series { vec!["c", "d"] } else { vec!["b"] };
    assert_eq!(tags(&next), expected);
    assert!(next.token > turn.token);
    bench.done(&next).await;
}

async fn jobs_pushed_meanwhile_wait_for_the_next_turn(mut bench: Bench) {
    bench.queue(Mode::Fifo).await;
    push(&mut bench, &["b", "c"]).await;
    let turn = series(&mut bench, 9).await;
    bench.push(job("a").score(-1.0)).await;
    push(&mut bench, &["d"]).await;
    bench.done(&turn).await;
    let turn = series(&mut bench, 9).await;
    assert_eq!(tags(&turn)[0], "a");
}

async fn a_cancelled_job_of_a_series_ends_cancelled_and_the_others_go_back(mut bench: Bench) {
    bench.queue(Mode::Fifo).await;
    push(&mut bench, &["a", "b", "c"]).await;
    let Some(turn) = series_of(&mut bench, &["a", "b", "c"]).await else { return };
    let second = turn.jobs[1].id;
    assert_eq!(bench.cancel(second).await, Cancelled::Flagged);
    let verdict = Verdict { done: 1, ..Outcome::Release.into() };
    let settled = bench.end(&turn, verdict).await;
    assert_eq!(settled, Settled::ok(vec![second]));
    assert_eq!(bench.state(second).await, None);
    assert_eq!(tags(&bench.one().await), ["c"]);
}

async fn limits_count_each_job_of_a_key(mut bench: Bench) {
    bench.declare(Queue::fifo("q").rate(Rate::per_second(1))).await;
    push(&mut bench, &["a", "b", "c"]).await;
    assert_eq!(tags(&series(&mut bench, 9).await), ["a"]);
}

async fn jobs_with_options_of_their_own_are_claimed_alone(mut bench: Bench) {
    bench.queue(Mode::Fifo).await;
    push(&mut bench, &["a"]).await;
    let own = |tag: &str| job(tag).max_retries(0);
    bench.push_all(vec![own("b"), own("c"), job("d"), job("e")]).await;
    let mut turns = Vec::new();
    while bench.stats().await.jobs > 0 {
        let turn = series(&mut bench, 9).await;
        turns.push(tags(&turn).join(" "));
        bench.done(&turn).await;
    }
    let expected: &[&str] = match bench.store.capabilities().series {
        true => &["a", "b", "c", "d e"],
        false => &["a", "b", "c", "d", "e"],
    };
    assert_eq!(turns, expected);
}

async fn jobs_that_are_unique_or_described_are_handed_over_with_others(mut bench: Bench) {
    bench.queue(Mode::Fifo).await;
    let mut described = job("c").idempotency_key("a \"quoted\" \\ name");
    described.options.partition_key = Some("seven".into());
    described.options.producer = Some("shop".into());
    described.options.consumer = Some("store".into());
    let mut traced = job("d");
    traced.options.traceparent =
        Some("00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01".into());
    let own = job("e").idempotency_key("e").max_retries(0);
    let unique = job("b").idempotency_key("b");
    bench.push_all(vec![job("a"), unique.clone(), described, traced, own, job("f")]).await;
    let turn = series(&mut bench, 9).await;
    assert_eq!(tags(&turn), first(&bench, &["a", "b", "c", "d"]));
    bench.done(&turn).await;
    while bench.stats().await.jobs > 0 {
        let turn = series(&mut bench, 9).await;
        bench.done(&turn).await;
    }
    let again = bench.push(unique).await;
    assert_eq!(bench.stats().await.jobs, 0, "{again:?}");
}

async fn where_finished_jobs_are_kept_a_turn_is_one_job(mut bench: Bench) {
    bench.declare(Queue::fifo("q").retain_completed(LEASE)).await;
    push(&mut bench, &["a", "b"]).await;
    assert_eq!(tags(&series(&mut bench, 9).await), ["a"]);
}
