//! Settling turns.

use std::time::Duration;

use seriatim::store::{Claim, ClaimSelection, JobState, LaneQuery, Lease, Settle, Settled};
use seriatim::{
    Backoff, ErrorKind, Exhaustion, Job, Mode, Outcome, Queue,
    store::{Settlement, Token, Turn, Verdict},
};

use super::bench::*;
use super::case::{Case, listed};

pub(super) fn cases() -> Vec<Case> {
    listed![
        a_done_turn_is_gone,
        a_stale_settle_is_refused,
        a_token_settles_only_the_lanes_of_its_claim,
        a_repeated_settle_is_stale,
        a_turn_named_twice_refuses_the_whole_settle,
        the_old_turn_of_a_lane_hides_the_new_one_in_no_settle,
        a_settle_of_an_unknown_lane_is_stale,
        a_batch_of_settles_is_answered_one_by_one,
        a_batch_over_queues_of_all_modes_is_counted_and_kept_exactly,
        l6_a_failed_turn_waits_for_its_retry,
        accumulate_keeps_a_failed_lane_waiting_while_newcomers_gather,
        l4_a_failed_payload_and_an_equal_newcomer_are_handed_over_once,
        a_failed_payload_finds_its_equal_among_very_many,
        fifo_does_not_let_later_jobs_overtake_a_retry,
        exclusive_lets_others_pass_a_retry,
        retries_end_in_the_morgue,
        l7_accumulate_buries_the_lowest_score_and_restarts_the_rest,
        a_queue_may_hold_what_is_exhausted,
        a_queue_may_drop_what_is_exhausted,
        a_job_may_override_the_number_of_retries,
        attempts_bound_failures_and_crashes_together,
        a_snooze_is_not_counted,
        a_release_leaves_everything_as_it_was,
        what_was_only_released_has_never_started,
        what_ends_cancelled_with_a_released_turn_has_started,
        a_released_lane_keeps_its_due_time,
        an_explicit_bury_takes_the_turn_in_accumulate,
        an_explicit_bury_takes_the_head_in_fifo,
        a_cancel_ends_the_turn,
        fifo_closes_the_first_jobs_and_fails_the_next,
        after_a_failure_fifo_takes_one_at_a_time,
        what_cannot_be_decoded_is_buried_and_the_rest_is_done,
        what_has_expired_is_cancelled_and_the_rest_is_done,
        newcomers_of_a_done_turn_are_due_as_they_were_pushed,
        every_payload_is_somewhere_after_any_outcome,
        a_settle_touches_its_own_lane_only,
    ]
}

async fn a_done_turn_is_gone(mut bench: Bench) {
    for mode in Mode::ALL {
        let mut queue = Queue::new(mode.as_str(), mode);
        queue.retain_completed = Some(std::time::Duration::ZERO);
        bench.declare(queue).await;
        let job = Job::new(mode.as_str(), &1).unwrap();
        let id = bench.push(if mode.is_keyed() { job.key("k") } else { job }).await.job_id;
        let request = bench.claim_request(mode.as_str(), 1);
        let turn = bench.claimed(request.clone()).await.turns.remove(0);
        assert_eq!(bench.state(id).await, Some(JobState::Running), "{mode}");
        bench.done(&turn).await;
        assert_eq!(bench.state(id).await, None, "{mode}");
        assert_eq!(bench.claimed(request).await, seriatim::store::Claimed::default(), "{mode}");
    }
}

async fn a_stale_settle_is_refused(mut bench: Bench) {
    bench.queue(Mode::Accumulate).await;
    bench.push(job("a")).await;
    let turn = bench.one().await;
    for wrong in [turn.token.0 - 1, turn.token.0 + 1, 1] {
        let settlement = Settlement::done(turn.lane, Token(wrong));
        assert_eq!(bench.settle(vec![settlement]).await, [Settled::Stale]);
    }
    assert_eq!(bench.stats().await.claimed, 1);
    bench.done(&turn).await;
}

async fn a_token_settles_only_the_lanes_of_its_claim(mut bench: Bench) {
    for mode in Mode::ALL {
        bench.queue(mode).await;
        let job = |tag| if mode.is_keyed() { loose(tag).key(tag) } else { loose(tag) };
        bench.push_all(["a", "b", "c"].map(job).to_vec()).await;
        let (one, other) = (bench.claim(1).await.remove(0), bench.claim(1).await.remove(0));
        let lanes = bench.store.lanes(LaneQuery::new("q")).await.unwrap().rows;
        let waiting = lanes.iter().find(|lane| lane.token.is_none()).unwrap().lane;
        let wrong = vec![
            Settlement::done(one.lane, other.token),
            Settlement::done(other.lane, Token(0)),
            Settlement::done(waiting, one.token),
        ];
        let settled = bench.settle(wrong).await;
        assert!(settled.iter().all(|settled| *settled == Settled::Stale), "{mode}: {settled:?}");
        let last = bench.one().await;
        for turn in [&one, &other, &last] {
            bench.done(turn).await;
        }
    }
}

async fn a_repeated_settle_is_stale(mut bench: Bench) {
    bench.queue(Mode::Fifo).await;
    bench.push_all(vec![job("a"), job("b")]).await;
    let turn = bench.one().await;
    bench.done(&turn).await;
    assert_eq!(bench.end(&turn, Outcome::Done).await, Settled::Stale);
    assert_eq!(bench.end(&turn, failure()).await, Settled::Stale);
    let next = bench.one().await;
    assert_eq!(bench.end(&turn, Outcome::Done).await, Settled::Stale, "also while the next runs");
    assert_eq!(tags(&next), ["b"]);
    bench.done(&next).await;
}

async fn a_turn_named_twice_refuses_the_whole_settle(mut bench: Bench) {
    bench.queue(Mode::Fifo).await;
    bench.push_all(vec![job("a"), loose("b").key("other")]).await;
    let turns = bench.claim(2).await;
    let done = |turn: &Turn| Settlement::done(turn.lane, turn.token);
    let twice = Settle {
        now: Some(bench.now),
        ..Settle::now(vec![done(&turns[0]), done(&turns[1]), done(&turns[0])])
    };
    refused(bench.store.settle(twice).await, ErrorKind::Invalid, "turns[2]");
    assert_eq!(bench.stats().await.claimed, 2, "nothing has ended");
}

/// The same node may hold a lane again before it has settled what it lost.
async fn the_old_turn_of_a_lane_hides_the_new_one_in_no_settle(mut bench: Bench) {
    for mode in Mode::ALL {
        for (old_first, fails) in [(true, true), (true, false), (false, true), (false, false)] {
            let name = format!("{mode}-{old_first}-{fails}");
            bench.declare(Queue::new(&name, mode)).await;
            let job = Job::new(&name, &1).unwrap();
            bench.push(if mode.is_keyed() { job.key("k") } else { job }).await;
            let request = bench.claim_request(&name, 1);
            let old = bench.claimed(request).await.turns.remove(0);
            bench.release(ClaimSelection::Queue(name.as_str().into())).await;
            let me = bench.node.clone();
            bench.pass(Duration::from_micros(1));
            let new = bench.rescue(&me).await.remove(0);
            let outcome = if fails { failure() } else { Outcome::Done };
            let both = vec![Settlement::done(old.lane, old.token), bench.planned(&new, outcome)];
            let both = if old_first { both } else { both.into_iter().rev().collect() };
            let settled = bench.settle(both).await;
            assert!(settled[usize::from(old_first)].is_ok(), "{name}: {settled:?}");
            assert_eq!(settled[usize::from(!old_first)], Settled::Stale, "{name}");
        }
    }
}

async fn a_settle_of_an_unknown_lane_is_stale(mut bench: Bench) {
    bench.queue(Mode::Fifo).await;
    bench.push(job("a")).await;
    let turn = bench.one().await;
    let lane = seriatim::store::LaneId { number: turn.lane.number + 999, ..turn.lane };
    let unknown = vec![Settlement::done(lane, turn.token)];
    assert_eq!(bench.settle(unknown).await, [Settled::Stale]);
    assert_eq!(bench.settle(Vec::new()).await, []);
}

async fn a_batch_of_settles_is_answered_one_by_one(mut bench: Bench) {
    bench.queue(Mode::Parallel).await;
    bench.push_all(["a", "b", "c", "d"].map(loose).to_vec()).await;
    let turns = bench.claim(10).await;
    let batch = vec![
        bench.planned(&turns[2], Outcome::Done),
        Settlement::done(turns[0].lane, Token(1)),
        bench.planned(&turns[1], failure()),
        bench.planned(&turns[3], Outcome::Done),
    ];
    let oks: Vec<bool> = bench.settle(batch).await.iter().map(Settled::is_ok).collect();
    assert_eq!(oks, [true, false, true, true]);
    let stats = bench.stats().await;
    assert_eq!((stats.jobs, stats.claimed, stats.retrying), (2, 1, 1));
    assert_eq!((stats.processed, stats.failed), (2, 1));
}

async fn l6_a_failed_turn_waits_for_its_retry(mut bench: Bench) {
    for mode in Mode::ALL {
        bench.declare(Queue::new(mode.as_str(), mode)).await;
        let job = Job::new(mode.as_str(), &1).unwrap();
        let id = bench.push(if mode.is_keyed() { job.key("k") } else { job }).await.job_id;
        for attempt in 1..=3 {
            let request = bench.claim_request(mode.as_str(), 1);
            let turn = bench.claimed(request.clone()).await.turns.remove(0);
            assert_eq!((turn.retry_count, turn.attempt()), (attempt - 2, attempt as u32), "{mode}");
            assert_eq!(turn.error.as_deref(), (attempt > 1).then_some("it failed"), "{mode}");
            bench.fail(&turn).await;
            let waiting = bench.claimed(bench.claim_request(mode.as_str(), 1)).await;
            assert_eq!(
                (waiting.turns.len(), waiting.next_due),
                (0, Some(bench.now + WAIT)),
                "{mode}"
            );
            let view = bench.job(id).await;
            assert_eq!((view.state, view.attempt), (JobState::Queued, attempt as u32), "{mode}");
            assert_eq!((view.retry_count, view.error.as_deref()), (attempt - 1, Some("it failed")));
            bench.pass(WAIT);
        }
    }
}

async fn accumulate_keeps_a_failed_lane_waiting_while_newcomers_gather(mut bench: Bench) {
    bench.queue(Mode::Accumulate).await;
    bench.push_all(vec![job("v1").score(1.0), job("v2").score(2.0)]).await;
    let turn = bench.one().await;
    bench.push_all(vec![job("v2").score(3.0), job("v3").score(4.0)]).await;
    bench.fail(&turn).await;
    bench.push(job("v0").score(0.0)).await;
    assert_eq!(bench.nothing().await, Some(bench.now + WAIT), "the failure's due wins");
    bench.pass(WAIT);
    let turn = bench.one().await;
    let scores: Vec<f64> = turn.jobs.iter().map(|job| job.score).collect();
    assert_eq!(tags(&turn), ["v0", "v1", "v2", "v3"]);
    assert_eq!(scores, [0.0, 1.0, 2.0, 4.0]);
    assert_eq!(turn.retry_count, 0);
    let attempts: Vec<u32> = turn.jobs.iter().map(|job| job.attempt).collect();
    assert_eq!(attempts, [1, 2, 2, 1]);
}

async fn l4_a_failed_payload_and_an_equal_newcomer_are_handed_over_once(mut bench: Bench) {
    let queue = Queue::accumulate("q").retain_completed(WAIT * 100);
    bench.declare(queue).await;
    let older = bench.push(job("v1").score(5.0)).await.job_id;
    let turn = bench.one().await;
    let newer = bench.push(job("v1").score(3.0).priority(9)).await.job_id;
    bench.fail(&turn).await;
    bench.pass(WAIT);
    let turn = bench.one().await;
    assert_eq!((turn.jobs.len(), turn.jobs[0].id), (1, older), "under the older id");
    assert_eq!((turn.jobs[0].score, turn.jobs[0].priority), (3.0, 9));
    assert_eq!(bench.state(newer).await, Some(JobState::Running), "the newer id stays known");
    assert_eq!(bench.job(newer).await.id, newer);
    bench.done(&turn).await;
    assert_eq!(bench.state(older).await, Some(JobState::Succeeded));
    assert_eq!(bench.state(newer).await, Some(JobState::Succeeded), "and shares the outcome");
}

async fn a_failed_payload_finds_its_equal_among_very_many(mut bench: Bench) {
    bench.declare(Queue::accumulate("q")).await;
    let older = bench.push(job("v1").score(5.0)).await.job_id;
    let turn = bench.one().await;
    // More than a store reads of a lane to settle one turn.
    let others = (0..200).map(|number| job(&format!("other {number}")).score(9.0));
    bench.push_all(others.chain([job("v1").score(3.0)]).collect()).await;
    bench.fail(&turn).await;
    // One more while the key waits for its retry.
    assert_eq!(bench.push(job("v1").score(2.0).priority(9)).await.job_id, older);
    bench.pass(WAIT);
    let turn = bench.one().await;
    assert_eq!((turn.jobs.len(), turn.jobs[0].id), (201, older));
    assert_eq!((turn.jobs[0].score, turn.jobs[0].priority), (2.0, 9));
}

async fn fifo_does_not_let_later_jobs_overtake_a_retry(mut bench: Bench) {
    bench.queue(Mode::Fifo).await;
    bench.push_all(vec![job("a"), job("b")]).await;
    let turn = bench.one().await;
    bench.push(job("c")).await;
    bench.fail(&turn).await;
    assert_eq!(bench.nothing().await, Some(bench.now + WAIT));
    bench.pass(WAIT);
    let turn = bench.one().await;
    assert_eq!((tags(&turn), turn.retry_count), (vec!["a".to_owned()], 0));
    bench.done(&turn).await;
    let turn = bench.one().await;
    assert_eq!((tags(&turn), turn.retry_count), (vec!["b".to_owned()], -1));
}

async fn exclusive_lets_others_pass_a_retry(mut bench: Bench) {
    bench.queue(Mode::Exclusive).await;
    bench.push_all(vec![job("a"), job("b")]).await;
    let turn = bench.one().await;
    bench.fail(&turn).await;
    let turn = bench.one().await;
    assert_eq!((tags(&turn), turn.retry_count), (vec!["b".to_owned()], -1));
    bench.done(&turn).await;
    bench.pass(WAIT);
    let turn = bench.one().await;
    assert_eq!((tags(&turn), turn.retry_count), (vec!["a".to_owned()], 0));
}

async fn retries_end_in_the_morgue(mut bench: Bench) {
    for mode in Mode::ALL {
        bench.declare(Queue::new(mode.as_str(), mode).max_retries(2)).await;
        let job = Job::new(mode.as_str(), &1).unwrap();
        let id = bench.push(if mode.is_keyed() { job.key("k") } else { job }).await.job_id;
        for _ in 0..3 {
            let request = bench.claim_request(mode.as_str(), 1);
            let turn = bench.claimed(request).await.turns.remove(0);
            bench.fail(&turn).await;
            bench.pass(WAIT);
        }
        let dead = bench.job(id).await;
        assert_eq!((dead.state, dead.attempt), (JobState::Dead, 3), "{mode}");
        let retries = if mode == Mode::Accumulate { -1 } else { 2 };
        assert_eq!(
            (dead.retry_count, dead.crashes),
            (retries, 0),
            "{mode}: the last failure counts"
        );
        assert_eq!(dead.error.as_deref(), Some("it failed"), "{mode}");
        let request = bench.claim_request(mode.as_str(), 1);
        assert_eq!(bench.claimed(request).await, seriatim::store::Claimed::default(), "{mode}");
    }
}

async fn l7_accumulate_buries_the_lowest_score_and_restarts_the_rest(mut bench: Bench) {
    bench.declare(Queue::accumulate("q").max_retries(0)).await;
    let jobs = vec![job("v1").score(1.0), job("v2").score(2.0)];
    let first = bench.push_all(jobs).await[0].job_id;
    let turn = bench.one().await;
    bench.push(job("v3").score(0.5)).await;
    bench.fail(&turn).await;
    assert_eq!(bench.state(first).await, Some(JobState::Dead));
    let turn = bench.one().await;
    assert_eq!((tags(&turn), turn.retry_count), (vec!["v3".to_owned(), "v2".to_owned()], -1));
}

async fn a_queue_may_hold_what_is_exhausted(mut bench: Bench) {
    for mode in Mode::ALL {
        let queue = Queue::new(mode.as_str(), mode).max_retries(0).exhausted(Exhaustion::Hold);
        bench.declare(queue).await;
        let push = || {
            let job = Job::new(mode.as_str(), &fastrand::u64(..)).unwrap();
            if mode.is_keyed() { job.key("k") } else { job }
        };
        let id = bench.push(push()).await.job_id;
        let request = bench.claim_request(mode.as_str(), 1);
        let turn = bench.claimed(request.clone()).await.turns.remove(0);
        bench.fail(&turn).await;
        bench.pass(WAIT * 1_000);
        bench.beat().await;
        assert_eq!(bench.state(id).await, Some(JobState::Queued), "{mode}");
        if mode.is_keyed() {
            bench.push(push()).await;
        }
        let claimed = bench.claimed(request).await;
        assert_eq!(claimed, seriatim::store::Claimed::default(), "{mode}: it waits for a person");
    }
}

async fn a_queue_may_drop_what_is_exhausted(mut bench: Bench) {
    bench.declare(Queue::fifo("q").max_retries(0).exhausted(Exhaustion::Drop)).await;
    let id = bench.push_all(vec![job("a"), job("b")]).await[0].job_id;
    let turn = bench.one().await;
    bench.fail(&turn).await;
    assert_eq!(bench.state(id).await, None);
    assert_eq!(tags(&bench.one().await), ["b"]);
}

async fn a_job_may_override_the_number_of_retries(mut bench: Bench) {
    bench.queue(Mode::Parallel).await;
    let id = bench.push(loose("a").max_retries(0)).await.job_id;
    let turn = bench.one().await;
    assert_eq!(turn.jobs[0].options.as_ref().and_then(|o| o.max_retries), Some(0));
    bench.fail(&turn).await;
    assert_eq!(bench.state(id).await, Some(JobState::Dead));
}

async fn attempts_bound_failures_and_crashes_together(mut bench: Bench) {
    bench.queue(Mode::Exclusive).await;
    let mut job = job("a");
    job.options.max_attempts = Some(3);
    job.options.backoff = Some(Backoff::Constant { base: WAIT });
    let id = bench.push(job).await.job_id;
    let turn = bench.one().await;
    bench.fail(&turn).await;
    bench.pass(WAIT);
    let turn = bench.one().await;
    bench.end(&turn, Outcome::Crash { error: "killed".into() }).await;
    assert_eq!(bench.state(id).await, Some(JobState::Queued));
    let turn = bench.one().await;
    assert_eq!((turn.retry_count, turn.crashes, turn.attempt()), (0, 1, 3));
    bench.end(&turn, Outcome::Crash { error: "killed".into() }).await;
    let dead = bench.job(id).await;
    assert_eq!((dead.state, dead.retry_count, dead.crashes), (JobState::Dead, 0, 2));
}

async fn a_snooze_is_not_counted(mut bench: Bench) {
    for mode in Mode::ALL {
        bench.declare(Queue::new(mode.as_str(), mode)).await;
        let job = Job::new(mode.as_str(), &1).unwrap();
        bench.push(if mode.is_keyed() { job.key("k") } else { job }).await;
        let request = bench.claim_request(mode.as_str(), 1);
        let turn = bench.claimed(request).await.turns.remove(0);
        bench.end(&turn, Outcome::Snooze { length: WAIT }).await;
        let claimed = bench.claimed(bench.claim_request(mode.as_str(), 1)).await;
        assert_eq!((claimed.turns.len(), claimed.next_due), (0, Some(bench.now + WAIT)), "{mode}");
        bench.pass(WAIT);
        let request = bench.claim_request(mode.as_str(), 1);
        let turn = bench.claimed(request).await.turns.remove(0);
        assert_eq!((turn.retry_count, turn.crashes, turn.attempt()), (-1, 0, 1), "{mode}");
    }
}

async fn a_release_leaves_everything_as_it_was(mut bench: Bench) {
    for mode in Mode::ALL {
        bench.declare(Queue::new(mode.as_str(), mode)).await;
        let job = Job::new(mode.as_str(), &1).unwrap();
        bench.push(if mode.is_keyed() { job.key("k") } else { job }).await;
        let request = bench.claim_request(mode.as_str(), 1);
        let turn = bench.claimed(request.clone()).await.turns.remove(0);
        bench.fail(&turn).await;
        bench.pass(WAIT);
        let request = bench.claim_request(mode.as_str(), 1);
        let before = bench.claimed(request.clone()).await.turns.remove(0);
        bench.end(&before, Outcome::Release).await;
        let after = bench.claimed(request).await.turns.remove(0);
        assert!(after.token > before.token);
        assert_eq!(Turn { token: before.token, ..after }, before, "{mode}");
    }
}

async fn what_was_only_released_has_never_started(mut bench: Bench) {
    for mode in Mode::ALL {
        let name = mode.as_str();
        bench.declare(Queue::new(name, mode).retain_completed(WAIT)).await;
        let push = |n: u32| {
            let job = Job::new(name, &n).unwrap();
            if mode.is_keyed() { job.key("k") } else { job }
        };
        let pushed = bench.push_all(vec![push(1), push(2)]).await;
        let request = bench.claim_request(name, 9);
        let turns = bench.claimed(request).await.turns;
        assert!(!turns.is_empty(), "{mode}");
        for turn in turns {
            assert!(bench.end(&turn, Outcome::Release).await.is_ok(), "{mode}");
        }
        for pushed in &pushed {
            let job = bench.job(pushed.job_id).await;
            assert_eq!(
                (job.state, job.attempt, job.started_at),
                (JobState::Queued, 0, None),
                "{mode}"
            );
        }
        bench.pass(WAIT / 2);
        let request = bench.claim_request(name, 1);
        let turn = bench.claimed(request).await.turns.remove(0);
        bench.done(&turn).await;
        let first = bench.job(pushed[0].job_id).await;
        assert_eq!((first.attempt, first.started_at), (1, Some(turn.claimed_at)), "{mode}");
    }
}

async fn what_ends_cancelled_with_a_released_turn_has_started(mut bench: Bench) {
    bench.declare(Queue::accumulate("q").retain_completed(WAIT)).await;
    let id = bench.push(job("a")).await.job_id;
    let turn = bench.one().await;
    bench.cancel(id).await;
    assert!(bench.end(&turn, Outcome::Release).await.is_ok());
    let ended = bench.job(id).await;
    assert_eq!((ended.state, ended.attempt), (JobState::Canceled, 1));
    assert_eq!(ended.started_at, Some(turn.claimed_at));
}

async fn a_released_lane_keeps_its_due_time(mut bench: Bench) {
    bench.queue(Mode::Accumulate).await;
    bench.push(job("a").run_at(bench.now - WAIT)).await;
    let turn = bench.one().await;
    bench.push(job("b").run_in(WAIT)).await;
    bench.end(&turn, Outcome::Release).await;
    assert_eq!(tags(&bench.one().await), ["a", "b"]);
}

async fn an_explicit_bury_takes_the_turn_in_accumulate(mut bench: Bench) {
    bench.queue(Mode::Accumulate).await;
    let pushed = bench.push_all(vec![job("a").score(1.0), job("b").score(2.0)]).await;
    let turn = bench.one().await;
    bench.push(job("c")).await;
    bench.end(&turn, Outcome::Bury { error: "hopeless".into() }).await;
    for pushed in pushed {
        let dead = bench.job(pushed.job_id).await;
        assert_eq!((dead.state, dead.error.as_deref()), (JobState::Dead, Some("hopeless")));
    }
    assert_eq!(tags(&bench.one().await), ["c"]);
}

async fn an_explicit_bury_takes_the_head_in_fifo(mut bench: Bench) {
    bench.declare(Queue::fifo("q").take(3)).await;
    bench.push_all(["a", "b", "c"].map(job).to_vec()).await;
    let turn = bench.one().await;
    let verdict = Verdict { done: 1, ..Outcome::Bury { error: "hopeless".into() }.into() };
    bench.end(&turn, verdict).await;
    assert_eq!(bench.state(turn.jobs[1].id).await, Some(JobState::Dead));
    let turn = bench.one().await;
    assert_eq!((tags(&turn), turn.retry_count), (vec!["c".to_owned()], -1));
}

async fn a_cancel_ends_the_turn(mut bench: Bench) {
    bench.declare(Queue::accumulate("q").retain_completed(WAIT)).await;
    let id = bench.push(job("a")).await.job_id;
    let turn = bench.one().await;
    bench.end(&turn, Outcome::Cancel { reason: "not needed".into() }).await;
    let job = bench.job(id).await;
    assert_eq!((job.state, job.error.as_deref()), (JobState::Canceled, Some("not needed")));
    assert_eq!(bench.nothing().await, None);
}

async fn a_batch_over_queues_of_all_modes_is_counted_and_kept_exactly(mut bench: Bench) {
    for lease in [Lease::Own { ttl: LEASE }, Lease::Node { ttl: LEASE }] {
        let (mut turns, mut kept) = (Vec::new(), Vec::new());
        for mode in Mode::ALL {
            let name = format!("{}-{}", mode.as_str(), kept.len());
            // Only the jobs without order are kept.
            let retained = if mode == Mode::Parallel { WAIT * 100 } else { Duration::ZERO };
            bench.declare(Queue::new(name.as_str(), mode).retain_completed(retained)).await;
            let job = Job::new(name.as_str(), &1).unwrap();
            let job = if mode.is_keyed() { job.key("k") } else { job };
            let id = bench.push(job).await.job_id;
            kept.push((id, mode == Mode::Parallel));
            let request = Claim { lease, ..bench.claim_request(&name, 1) };
            turns.extend(bench.claimed(request).await.turns);
        }
        let settlements = turns.iter().map(|turn| bench.planned(turn, Outcome::Done)).collect();
        assert!(bench.settle(settlements).await.iter().all(Settled::is_ok), "{lease:?}");
        for (id, kept) in kept {
            assert_eq!(bench.state(id).await.is_some(), kept, "{lease:?}");
        }
        for stats in bench.store.stats(Some(bench.now)).await.unwrap() {
            let numbers = (stats.lanes, stats.jobs, stats.claimed);
            assert_eq!(numbers, (0, 0, 0), "{lease:?}, {}", stats.queue);
        }
    }
}

async fn fifo_closes_the_first_jobs_and_fails_the_next(mut bench: Bench) {
    bench.declare(Queue::fifo("q").take(4).retain_completed(WAIT * 10)).await;
    bench.push_all(["a", "b", "c", "d"].map(job).to_vec()).await;
    let turn = bench.one().await;
    bench.end(&turn, Verdict { done: 2, ..failure().into() }).await;
    let mut states = Vec::new();
    for job in &turn.jobs {
        states.push(bench.state(job.id).await.unwrap());
    }
    use JobState::{Queued, Succeeded};
    assert_eq!(states, [Succeeded, Succeeded, Queued, Queued]);
    assert_eq!(bench.job(turn.jobs[2].id).await.retry_count, 0);
    assert_eq!(bench.job(turn.jobs[3].id).await.retry_count, -1);
    assert_eq!(bench.nothing().await, Some(bench.now + WAIT));
}

async fn after_a_failure_fifo_takes_one_at_a_time(mut bench: Bench) {
    bench.declare(Queue::fifo("q").take(4)).await;
    bench.push_all(["a", "b", "c"].map(job).to_vec()).await;
    let turn = bench.one().await;
    bench.fail(&turn).await;
    bench.pass(WAIT);
    let turn = bench.one().await;
    assert_eq!((tags(&turn), turn.retry_count), (vec!["a".to_owned()], 0));
    bench.done(&turn).await;
    assert_eq!(tags(&bench.one().await), ["b", "c"]);
}

async fn what_cannot_be_decoded_is_buried_and_the_rest_is_done(mut bench: Bench) {
    bench.queue(Mode::Accumulate).await;
    let jobs = [("a", 1.0), ("bad", 2.0), ("c", 3.0)].map(|(tag, score)| job(tag).score(score));
    bench.push_all(jobs.to_vec()).await;
    let turn = bench.one().await;
    let verdict =
        Verdict { undecodable: vec![(turn.jobs[1].id, "no JSON".into())], ..Outcome::Done.into() };
    bench.end(&turn, verdict).await;
    assert_eq!(bench.nothing().await, None);
    let dead = bench.job(turn.jobs[1].id).await;
    assert_eq!((dead.state, dead.error.as_deref()), (JobState::Dead, Some("no JSON")));
    let stats = bench.stats().await;
    assert_eq!((stats.jobs, stats.processed, stats.failed), (0, 2, 1), "two of three are done");
}

async fn what_has_expired_is_cancelled_and_the_rest_is_done(mut bench: Bench) {
    bench.declare(Queue::accumulate("q").retain_completed(WAIT)).await;
    let soon = bench.now + WAIT / 2;
    bench.push_all(vec![job("a").expires_at(soon).score(1.0), job("b").score(2.0)]).await;
    let turn = bench.one().await;
    assert!(turn.jobs[0].has_expired(soon) && !turn.jobs[1].has_expired(soon));
    let verdict = Verdict { expired: vec![turn.jobs[0].id], ..Outcome::Done.into() };
    bench.end(&turn, verdict).await;
    let expired = bench.job(turn.jobs[0].id).await;
    assert_eq!((expired.state, expired.error.as_deref()), (JobState::Canceled, Some("expired")));
    assert_eq!(bench.state(turn.jobs[1].id).await, Some(JobState::Succeeded));
}

async fn newcomers_of_a_done_turn_are_due_as_they_were_pushed(mut bench: Bench) {
    bench.queue(Mode::Accumulate).await;
    bench.push(job("a")).await;
    let turn = bench.one().await;
    let due = bench.now + WAIT;
    bench.push(job("b").run_at(due)).await;
    bench.push(job("c")).await;
    bench.done(&turn).await;
    assert_eq!(bench.nothing().await, Some(due), "the first arrival sets it");
}

async fn every_payload_is_somewhere_after_any_outcome(mut bench: Bench) {
    bench.declare(Queue::accumulate("q").max_retries(1)).await;
    let outcomes = [
        failure(),
        Outcome::Release,
        Outcome::Crash { error: "it died".into() },
        Outcome::Snooze { length: WAIT },
        failure(),
        failure(),
    ];
    bench.push_all(vec![job("v1").score(1.0), job("v2").score(2.0)]).await;
    for (i, outcome) in outcomes.into_iter().enumerate() {
        let turn = bench.one().await;
        bench.push_all(vec![job("v1"), job(&format!("new {i}"))]).await;
        bench.end(&turn, outcome).await;
        bench.pass(WAIT);
    }
    let mut found: Vec<String> = bench.dead().await.iter().map(|job| tag(&job.payload)).collect();
    while let Some(turn) = bench.claim(1).await.pop() {
        found.extend(tags(&turn));
        bench.done(&turn).await;
    }
    found.sort();
    found.dedup();
    assert_eq!(found, ["new 0", "new 1", "new 2", "new 3", "new 4", "new 5", "v1", "v2"]);
}

async fn a_settle_touches_its_own_lane_only(mut bench: Bench) {
    bench.queue(Mode::Accumulate).await;
    let jobs = (0..50).flat_map(|k| {
        (0..3).map(move |i| loose(&format!("{i}")).key(format!("k{k}")).score(f64::from(i)))
    });
    bench.push_all(jobs.collect()).await;
    let turns = bench.claim(50).await;
    let (settled, others) = turns.split_at(25);
    let batch = settled.iter().map(|turn| bench.planned(turn, Outcome::Done)).collect();
    assert!(bench.settle(batch).await.iter().all(Settled::is_ok));
    let stats = bench.stats().await;
    assert_eq!((stats.lanes, stats.jobs, stats.claimed), (25, 75, 25));
    let batch = others.iter().map(|turn| bench.planned(turn, Outcome::Release)).collect();
    assert!(bench.settle(batch).await.iter().all(Settled::is_ok));
    let again = bench.claim(50).await;
    assert_eq!(again.len(), 25);
    assert!(again.iter().all(|turn| tags(turn) == ["0", "1", "2"]));
}
