//! Queues with a throttle: pushes to a key within its period make no job.

use std::time::Duration;

use futures_util::future::join_all;
use seriatim::store::PushStatus::{Duplicate, Merged, Queued, Throttled};
use seriatim::store::{IdempotencyScope, Push, PushStatus, Pushed, Sweep};
use seriatim::{ErrorKind, Job, JobId, Mode, Queue, Timestamp, Window};

use super::bench::*;
use super::case::{Case, listed};

const PERIOD: Duration = Duration::from_secs(10);
const SECOND: Duration = Duration::from_secs(1);

pub(super) fn cases() -> Vec<Case> {
    listed![
        pushes_to_a_key_within_its_period_change_nothing,
        the_period_counts_from_the_job_that_was_taken_and_not_from_merged_ones,
        a_key_is_throttled_no_longer_than_its_period_even_while_the_job_waits,
        a_key_is_throttled_after_its_job_has_ended,
        keys_are_throttled_apart_in_a_batch_too,
        an_idempotency_key_is_looked_up_before_the_throttle_and_kept_with_it,
        a_payload_that_merges_throttles_its_key_from_then_on,
        a_throttled_push_does_not_move_a_window,
        a_throttle_may_be_changed_added_and_removed,
        of_many_who_push_a_throttled_key_one_makes_the_job,
        a_throttled_push_to_a_lane_of_another_node_is_refused,
        a_throttle_without_keys_or_time_is_refused,
        a_queue_may_refuse_what_it_throttles_and_tell_when_it_may_come_again,
        the_other_jobs_of_a_batch_with_refused_ones_are_pushed,
        a_refused_push_leaves_no_idempotency_key,
        a_refused_push_leaves_no_idempotency_key_of_the_store,
        a_queue_may_begin_to_refuse_what_it_throttles_and_stop_it,
    ]
}

fn told(pushed: Pushed) -> (PushStatus, JobId) {
    (pushed.status, pushed.job_id)
}

fn in_queue(queue: &str, mut job: Job) -> Job {
    queue.clone_into(&mut job.queue);
    job
}

fn of_key(key: &str, tag: &str) -> Job {
    job(tag).key(key)
}

async fn pushes_to_a_key_within_its_period_change_nothing(mut bench: Bench) {
    for mode in [Mode::Exclusive, Mode::Fifo, Mode::Accumulate] {
        bench.declare(Queue::new(mode.as_str(), mode).throttle(PERIOD)).await;
        let job = |tag: &str| in_queue(mode.as_str(), job(tag));
        let first = bench.push(job("a")).await;
        assert_eq!(first.status, Queued);
        bench.pass(SECOND);
        for tag in ["a", "b"] {
            let again = bench.push(job(tag).priority(1).score(-1.0)).await;
            assert_eq!(told(again), (Merged, first.job_id), "{mode} {tag}");
            assert_eq!(again.again_at, Some(bench.now - SECOND + PERIOD), "{mode} {tag}");
        }
        let view = bench.job(first.job_id).await;
        assert_ne!((view.priority, view.score), (1, -1.0), "{mode}");
        let stats = bench.store.stats(Some(bench.now)).await.unwrap();
        let stats = stats.iter().find(|stats| &*stats.queue == mode.as_str()).unwrap();
        assert_eq!((stats.jobs, stats.lanes), (1, 1), "{mode}");
        bench.pass(PERIOD);
    }
}

async fn the_period_counts_from_the_job_that_was_taken_and_not_from_merged_ones(mut bench: Bench) {
    bench.declare(Queue::fifo("q").throttle(PERIOD)).await;
    let first = bench.push(job("a")).await;
    bench.pass(PERIOD - SECOND);
    assert_eq!(told(bench.push(job("b")).await), (Merged, first.job_id));
    bench.pass(SECOND);
    let second = bench.push(job("c")).await;
    assert_eq!(second.status, Queued);
    bench.pass(PERIOD - SECOND);
    assert_eq!(told(bench.push(job("d")).await), (Merged, second.job_id));
    let turn = bench.one().await;
    assert_eq!(tags(&turn), ["a"]);
    bench.done(&turn).await;
    assert_eq!(tags(&bench.one().await), ["c"]);
}

async fn a_key_is_throttled_no_longer_than_its_period_even_while_the_job_waits(mut bench: Bench) {
    bench.declare(Queue::exclusive("q").throttle(PERIOD)).await;
    let mut last = bench.push(job("a")).await;
    for tag in ["b", "c"] {
        bench.pass(PERIOD);
        bench.store.sweep(Sweep { now: Some(bench.now), rows_max: 10 }).await.unwrap();
        let next = bench.push(job(tag)).await;
        assert_eq!(next.status, Queued);
        assert_ne!(next.job_id, last.job_id);
        last = next;
    }
    assert_eq!(bench.stats().await.jobs, 3);
}

async fn a_key_is_throttled_after_its_job_has_ended(mut bench: Bench) {
    bench.declare(Queue::fifo("q").throttle(PERIOD)).await;
    let first = bench.push(job("a")).await;
    let turn = bench.one().await;
    assert_eq!(told(bench.push(job("b")).await), (Merged, first.job_id), "while it runs");
    bench.done(&turn).await;
    bench.store.sweep(Sweep { now: Some(bench.now), rows_max: 10 }).await.unwrap();
    assert_eq!(told(bench.push(job("b")).await), (Merged, first.job_id));
    let stats = bench.stats().await;
    assert_eq!((stats.jobs, stats.lanes), (0, 0), "no empty lane is left");
    bench.nothing().await;
    bench.pass(PERIOD);
    bench.store.sweep(Sweep { now: Some(bench.now), rows_max: 10 }).await.unwrap();
    assert_eq!(bench.push(job("b")).await.status, Queued);
    assert_eq!(tags(&bench.one().await), ["b"]);
}

async fn keys_are_throttled_apart_in_a_batch_too(mut bench: Bench) {
    bench.declare(Queue::exclusive("q").throttle(PERIOD)).await;
    bench.declare(Queue::exclusive("free")).await;
    let free = |tag: &str| in_queue("free", of_key("a", tag));
    let jobs = vec![
        of_key("a", "1"),
        of_key("b", "2"),
        free("3"),
        of_key("a", "4"),
        free("5"),
        of_key("b", "6"),
        of_key("c", "7"),
    ];
    let pushed = bench.push_all(jobs).await;
    let statuses: Vec<PushStatus> = pushed.iter().map(|pushed| pushed.status).collect();
    assert_eq!(statuses, [Queued, Queued, Queued, Merged, Queued, Merged, Queued]);
    assert_eq!(pushed[3].job_id, pushed[0].job_id);
    assert_eq!(pushed[5].job_id, pushed[1].job_id);
    assert_eq!(bench.stats().await.jobs, 3);
}

async fn an_idempotency_key_is_looked_up_before_the_throttle_and_kept_with_it(mut bench: Bench) {
    bench.declare(Queue::fifo("q").throttle(PERIOD)).await;
    let named = |tag: &str, name: &str| job(tag).idempotency_key(name);
    let first = bench.push(named("a", "i")).await;
    assert_eq!(told(bench.push(named("a", "i")).await), (Duplicate, first.job_id));
    assert_eq!(told(bench.push(named("b", "j")).await), (Merged, first.job_id));
    assert_eq!(told(bench.push(job("c")).await), (Merged, first.job_id));
    bench.pass(PERIOD);
    // The answer may have been lost: a repeated push is not a new job.
    assert_eq!(told(bench.push(named("b", "j")).await), (Duplicate, first.job_id));
    assert_eq!(told(bench.push(named("a", "i")).await), (Duplicate, first.job_id));
    let second = bench.push(named("d", "l")).await;
    assert_eq!(second.status, Queued);
    assert_eq!(told(bench.push(job("e")).await), (Merged, second.job_id));
}

async fn a_payload_that_merges_throttles_its_key_from_then_on(mut bench: Bench) {
    bench.declare(Queue::accumulate("q").throttle(PERIOD)).await;
    let first = bench.push(job("a")).await;
    bench.pass(PERIOD);
    let merged = bench.push(job("a")).await;
    assert_eq!(merged, Pushed::new(first.job_id, Merged), "it was taken");
    let until = bench.now + PERIOD;
    bench.pass(SECOND);
    let throttled = bench.push(job("b")).await;
    assert_eq!((told(throttled), throttled.again_at), ((Merged, first.job_id), Some(until)));
    assert_eq!(bench.stats().await.jobs, 1);
}

async fn a_throttled_push_does_not_move_a_window(mut bench: Bench) {
    let window = Window::new(PERIOD, 2 * PERIOD);
    bench.declare(Queue::accumulate("q").window(window).throttle(PERIOD)).await;
    bench.push(job("a")).await;
    let due = bench.now + PERIOD;
    bench.pass(PERIOD - SECOND);
    assert_eq!(bench.push(job("b")).await.status, Merged);
    assert_eq!(bench.nothing().await, Some(due));
    bench.pass(SECOND);
    assert_eq!(tags(&bench.one().await), ["a"]);
}

async fn a_throttle_may_be_changed_added_and_removed(mut bench: Bench) {
    bench.declare(Queue::exclusive("q")).await;
    assert_eq!(bench.push(job("a")).await.status, Queued);
    bench.declare(Queue::exclusive("q").throttle(PERIOD)).await;
    let second = bench.push(job("b")).await;
    assert_eq!(second.status, Queued, "the one before it was not throttled");
    bench.declare(Queue::exclusive("q").throttle(SECOND)).await;
    assert_eq!(told(bench.push(job("c")).await), (Merged, second.job_id));
    let queue = bench.store.queues().await.unwrap().remove(0).queue;
    assert_eq!(queue.throttle, Some(SECOND));
    bench.declare(Queue::exclusive("q")).await;
    assert_eq!(bench.push(job("c")).await.status, Queued);
}

async fn of_many_who_push_a_throttled_key_one_makes_the_job(mut bench: Bench) {
    for round in 0..6 {
        let queue = Queue::exclusive("q").throttle(PERIOD);
        bench.declare(if round % 2 == 0 { queue } else { queue.refuse_throttled() }).await;
        let pushes = (0..12).map(|i| {
            let (one, two) = if i % 2 == 0 { ("a", "b") } else { ("b", "a") };
            let jobs = vec![of_key(one, "x"), of_key(two, "x")];
            let (store, now) = (bench.store.clone(), Some(bench.now));
            tokio::spawn(async move { store.push(Push { now, jobs }).await })
        });
        let mut ids = std::collections::BTreeSet::new();
        let mut queued = 0;
        for pushed in join_all(pushes.collect::<Vec<_>>()).await {
            let pushed = pushed.unwrap().expect("the push is taken");
            queued += pushed.iter().filter(|pushed| pushed.status == Queued).count();
            ids.extend(pushed.iter().map(|pushed| pushed.job_id));
        }
        assert_eq!((queued, ids.len()), (2, 2), "one job for each key");
        bench.pass(PERIOD);
    }
    assert_eq!(bench.stats().await.jobs, 12);
}

async fn a_throttled_push_to_a_lane_of_another_node_is_refused(mut bench: Bench) {
    bench.declare(Queue::fifo("q").throttle(PERIOD)).await;
    bench.push(job("a").node("one")).await;
    let refusal = bench.try_push(vec![job("b").node("two")]).await;
    assert_eq!(refusal.expect_err("its lane is bound").kind(), ErrorKind::Conflict);
}

async fn a_throttle_without_keys_or_time_is_refused(mut bench: Bench) {
    for queue in [Queue::parallel("q").throttle(PERIOD), Queue::fifo("q").throttle(Duration::ZERO)]
    {
        refused(bench.try_declare(queue).await, ErrorKind::Invalid, "queues[0].throttle");
    }
    let queue = Queue::fifo("q").refuse_throttled();
    refused(bench.try_declare(queue).await, ErrorKind::Invalid, "queues[0].throttled");
}

/// A queue that refuses what it throttles.
fn refusing(queue: Queue) -> Queue {
    queue.throttle(PERIOD).refuse_throttled()
}

fn answer(pushed: Pushed) -> (PushStatus, JobId, Option<Timestamp>) {
    (pushed.status, pushed.job_id, pushed.again_at)
}

async fn a_queue_may_refuse_what_it_throttles_and_tell_when_it_may_come_again(mut bench: Bench) {
    for mode in [Mode::Exclusive, Mode::Fifo, Mode::Accumulate] {
        bench.declare(refusing(Queue::new(mode.as_str(), mode))).await;
        let job = |tag: &str| in_queue(mode.as_str(), job(tag));
        let first = bench.push(job("a")).await;
        assert_eq!((first.status, first.again_at), (Queued, None), "{mode}");
        let until = bench.now + PERIOD;
        for (after, tag) in [(SECOND, "a"), (PERIOD - SECOND - Duration::from_micros(1), "b")] {
            bench.pass(after);
            let refused = bench.push(job(tag).priority(1).score(-1.0)).await;
            assert_eq!(answer(refused), (Throttled, first.job_id, Some(until)), "{mode} {tag}");
        }
        let stats = bench.store.stats(Some(bench.now)).await.unwrap();
        let stats = stats.iter().find(|stats| &*stats.queue == mode.as_str()).unwrap();
        assert_eq!((stats.jobs, stats.lanes), (1, 1), "{mode}");
        bench.now = until;
        // One of an equal payload merges, and throttles the key as a new job does.
        let next = bench.push(job("a")).await;
        let expected = if mode == Mode::Accumulate { Merged } else { Queued };
        assert_eq!((next.status, next.again_at), (expected, None), "{mode}");
        let until = bench.now + PERIOD;
        assert_eq!(
            answer(bench.push(job("c")).await),
            (Throttled, next.job_id, Some(until)),
            "{mode}"
        );
        let error = bench.push(job("c")).await.taken(Some("k")).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Conflict);
        assert!(
            error.message().starts_with("refused: key \"k\" may be pushed again at 20"),
            "{error}"
        );
    }
}

async fn the_other_jobs_of_a_batch_with_refused_ones_are_pushed(mut bench: Bench) {
    bench.declare(refusing(Queue::fifo("q"))).await;
    bench.declare(Queue::exclusive("merging").throttle(SECOND)).await;
    let merging = |tag: &str| in_queue("merging", of_key("a", tag));
    let first = bench.push(of_key("a", "1")).await;
    let until = bench.now + PERIOD;
    bench.pass(SECOND);
    let jobs = vec![
        of_key("a", "2"),
        of_key("b", "3"),
        merging("4"),
        of_key("a", "5"),
        merging("6"),
        of_key("b", "7"),
        of_key("c", "8"),
    ];
    let pushed = bench.push_all(jobs).await;
    let statuses: Vec<PushStatus> = pushed.iter().map(|pushed| pushed.status).collect();
    assert_eq!(statuses, [Throttled, Queued, Queued, Throttled, Merged, Throttled, Queued]);
    for place in [0, 3] {
        assert_eq!(answer(pushed[place]), (Throttled, first.job_id, Some(until)));
    }
    assert_eq!(answer(pushed[5]), (Throttled, pushed[1].job_id, Some(bench.now + PERIOD)));
    assert_eq!(answer(pushed[4]), (Merged, pushed[2].job_id, Some(bench.now + SECOND)));
    let stats = bench.stats().await;
    assert_eq!((stats.jobs, stats.lanes), (3, 3), "a, b and c");
    let mut handed = Vec::new();
    for turn in bench.claim(10).await {
        handed.extend(tags(&turn));
        bench.done(&turn).await;
    }
    handed.sort_unstable();
    assert_eq!(handed, ["1", "3", "8"]);
    assert_eq!(bench.push(of_key("b", "9")).await.status, Throttled, "its job has ended");
    let stats = bench.stats().await;
    assert_eq!((stats.jobs, stats.lanes), (0, 0), "no empty lane is left");
}

async fn a_refused_push_leaves_no_idempotency_key(mut bench: Bench) {
    bench.declare(refusing(Queue::fifo("q"))).await;
    let named = |tag: &str, name: &str| job(tag).idempotency_key(name);
    let first = bench.push(named("a", "i")).await;
    assert_eq!(told(bench.push(named("a", "i")).await), (Duplicate, first.job_id));
    for _ in 0..2 {
        let both = bench.push_all(vec![named("b", "j"), named("a", "i")]).await;
        assert_eq!([both[0].status, both[1].status], [Throttled, Duplicate]);
    }
    bench.pass(PERIOD);
    bench.store.sweep(Sweep { now: Some(bench.now), rows_max: 10 }).await.unwrap();
    let second = bench.push(named("b", "j")).await;
    assert_eq!(second.status, Queued, "it comes again as the answer said");
    assert_eq!(told(bench.push(named("b", "j")).await), (Duplicate, second.job_id));
    assert_eq!(bench.stats().await.jobs, 2);
}

async fn a_refused_push_leaves_no_idempotency_key_of_the_store(mut bench: Bench) {
    if !bench.store.capabilities().store_scope {
        return;
    }
    bench.declare(refusing(Queue::exclusive("q"))).await;
    let named = |key: &str, name: &str| {
        of_key(key, "x").idempotency_key(name).idempotency_scope(IdempotencyScope::Store)
    };
    bench.push(of_key("a", "first")).await;
    let jobs = vec![named("a", "i"), named("b", "i"), named("a", "i"), named("c", "i")];
    let pushed = bench.push_all(jobs).await;
    let statuses: Vec<PushStatus> = pushed.iter().map(|pushed| pushed.status).collect();
    assert_eq!(statuses, [Throttled, Queued, Duplicate, Duplicate]);
    assert_eq!([pushed[2].job_id, pushed[3].job_id], [pushed[1].job_id; 2]);
    assert_eq!(bench.push(named("a", "j")).await.status, Throttled);
    assert_eq!(bench.push(named("c", "j")).await.status, Queued);
}

async fn a_queue_may_begin_to_refuse_what_it_throttles_and_stop_it(mut bench: Bench) {
    bench.declare(Queue::exclusive("q").throttle(PERIOD)).await;
    let first = bench.push(job("a")).await;
    let until = bench.now + PERIOD;
    bench.declare(refusing(Queue::exclusive("q"))).await;
    assert_eq!(answer(bench.push(job("b")).await), (Throttled, first.job_id, Some(until)));
    bench.declare(Queue::exclusive("q").throttle(SECOND)).await;
    assert_eq!(answer(bench.push(job("b")).await), (Merged, first.job_id, Some(until)));
    bench.declare(Queue::exclusive("q")).await;
    assert_eq!(bench.push(job("b")).await.status, Queued);
}
