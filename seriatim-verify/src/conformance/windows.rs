//! Queues with a window: for how long a key collects jobs.

use std::collections::BTreeSet;
use std::time::Duration;

use seriatim::store::*;
use seriatim::{ErrorKind, Job, Mode, Outcome, Queue, Timestamp, Window};

use super::bench::{Bench, WAIT, job, refused, tag, tags};
use super::case::{Case, listed};

const QUIET: Duration = Duration::from_secs(8);
const MAX_WAIT: Duration = Duration::from_secs(60);
const SECOND: Duration = Duration::from_secs(1);

pub(super) fn cases() -> Vec<Case> {
    let mut all = listed![
        a_key_is_due_when_it_was_quiet,
        a_key_waits_no_longer_than_the_window_allows,
        a_window_with_enough_jobs_is_due_at_once,
        a_window_with_enough_bytes_is_due_at_once,
        a_job_that_fills_a_window_by_itself_is_due_at_once,
        equal_payloads_count_once_and_put_the_key_off,
        a_retry_is_neither_put_off_nor_hastened,
        pushes_during_a_turn_open_the_next_window,
        a_window_that_filled_during_a_turn_is_due_at_its_end,
        pushes_at_any_rate_move_a_key_nine_times_in_a_quiet_time,
    ];
    all.extend(listed![
        a_push_with_its_own_time_is_quiet_until_then,
        a_key_that_is_due_is_put_off_no_more,
        a_due_job_that_is_rescheduled_collects_as_long_as_its_window_allows,
        a_job_that_is_rescheduled_during_a_turn_ends_the_next_window_at_the_latest,
        jobs_that_are_cancelled_no_longer_fill_a_window,
        a_key_may_be_emptied_and_collects_anew,
        a_window_may_be_changed_while_keys_collect,
        a_window_may_be_added_and_removed_while_keys_wait,
        a_key_with_one_job_that_had_no_window_is_not_put_off,
        a_released_turn_is_due_at_once,
        a_requeued_job_makes_a_key_due_that_collects,
        nothing_that_is_pushed_to_a_window_is_lost,
        a_contradicting_window_is_refused,
    ]);
    all
}

fn window() -> Window {
    Window::new(QUIET, MAX_WAIT)
}

async fn declare(bench: &mut Bench, window: Window) {
    bench.declare(Queue::accumulate("q").window(window)).await;
}

/// When the only key is due, and until when pushes may put it off.
async fn collects(bench: &mut Bench) -> (Timestamp, Option<Timestamp>) {
    let page = bench.store.lanes(LaneQuery::new("q")).await.unwrap();
    let lane = &page.rows[0];
    assert_eq!(page.rows.len(), 1);
    (lane.due.unwrap(), lane.collects_until)
}

async fn a_key_is_due_when_it_was_quiet(mut bench: Bench) {
    declare(&mut bench, window()).await;
    let first = bench.now;
    for (place, name) in ["a", "b", "c"].into_iter().enumerate() {
        bench.push(job(name)).await;
        let due = bench.now + QUIET;
        assert_eq!(bench.nothing().await, Some(due), "after push {place}");
        assert_eq!(collects(&mut bench).await, (due, Some(first + MAX_WAIT)));
        bench.pass(QUIET / 2);
    }
    bench.pass(QUIET / 2);
    let turn = bench.one().await;
    assert_eq!(tags(&turn), ["a", "b", "c"]);
    bench.done(&turn).await;
    assert_eq!(bench.stats().await.lanes, 0);
}

async fn a_key_waits_no_longer_than_the_window_allows(mut bench: Bench) {
    declare(&mut bench, window()).await;
    let latest = bench.now + MAX_WAIT;
    let mut pushed = 0;
    while bench.now < latest {
        bench.push(job(&pushed.to_string())).await;
        pushed += 1;
        bench.nothing().await;
        bench.pass(SECOND * 4);
    }
    assert_eq!(collects(&mut bench).await.0, latest);
    assert_eq!(bench.one().await.jobs.len(), pushed);
}

async fn a_window_with_enough_jobs_is_due_at_once(mut bench: Bench) {
    declare(&mut bench, window().max_jobs(3)).await;
    bench.push(job("a")).await;
    bench.push(job("b")).await;
    bench.nothing().await;
    bench.push(job("c")).await;
    bench.push(job("d")).await;
    assert_eq!(bench.one().await.jobs.len(), 4);
    let jobs = (0..5).map(|i| job(&i.to_string()).key("other")).collect();
    bench.push_all(jobs).await;
    assert_eq!(bench.one().await.jobs.len(), 5, "all of one push");
}

async fn a_window_with_enough_bytes_is_due_at_once(mut bench: Bench) {
    let large = "x".repeat(70_000);
    declare(&mut bench, window().max_bytes(100_000)).await;
    bench.push(job(&large)).await;
    bench.push(job("a")).await;
    bench.nothing().await;
    bench.push(job("b").score(1.0)).await;
    bench.nothing().await;
    bench.push(job(&"y".repeat(30_000))).await;
    assert_eq!(bench.one().await.jobs.len(), 4);
}

async fn a_job_that_fills_a_window_by_itself_is_due_at_once(mut bench: Bench) {
    declare(&mut bench, window().max_bytes(100)).await;
    let large = "x".repeat(100);
    bench.push_all(vec![job(&large), job("a"), job("b").key("other")]).await;
    let turn = bench.one().await;
    assert_eq!(tags(&turn), [large, "a".to_owned()]);
    bench.pass(QUIET);
    assert_eq!(tags(&bench.one().await), ["b"]);
}

async fn equal_payloads_count_once_and_put_the_key_off(mut bench: Bench) {
    declare(&mut bench, window().max_jobs(3)).await;
    let first = bench.push(job("a")).await;
    bench.push(job("b")).await;
    for _ in 0..3 {
        bench.pass(QUIET / 2);
        let again = bench.push(job("a")).await;
        assert_eq!((again.status, again.job_id), (PushStatus::Merged, first.job_id));
        assert_eq!(bench.nothing().await, Some(bench.now + QUIET));
    }
}

async fn a_retry_is_neither_put_off_nor_hastened(mut bench: Bench) {
    declare(&mut bench, window().max_jobs(2)).await;
    bench.push(job("a")).await;
    bench.pass(QUIET);
    let turn = bench.one().await;
    bench.push(job("b")).await;
    bench.fail(&turn).await;
    let retry = bench.now + WAIT;
    assert_eq!(bench.nothing().await, Some(retry));
    bench.pass(WAIT / 2);
    bench.push_all(vec![job("c"), job("d")]).await;
    assert_eq!(bench.nothing().await, Some(retry), "full, and still a retry");
    bench.pass(WAIT / 2);
    assert_eq!(bench.one().await.jobs.len(), 4);
}

async fn pushes_during_a_turn_open_the_next_window(mut bench: Bench) {
    declare(&mut bench, window()).await;
    bench.push(job("a")).await;
    bench.pass(QUIET);
    let turn = bench.one().await;
    bench.pass(SECOND);
    bench.push(job("b")).await;
    let latest = bench.now + MAX_WAIT;
    bench.pass(SECOND);
    bench.push(job("c")).await;
    bench.done(&turn).await;
    assert_eq!(collects(&mut bench).await, (bench.now + QUIET, Some(latest)), "its end is a push");
    bench.pass(QUIET / 2);
    bench.push(job("d")).await;
    assert_eq!(bench.nothing().await, Some(bench.now + QUIET));
    bench.pass(QUIET);
    let turn = bench.one().await;
    assert_eq!(tags(&turn), ["b", "c", "d"]);
    bench.push(job("e")).await;
    let latest = bench.now + MAX_WAIT;
    bench.pass(MAX_WAIT - SECOND);
    bench.beat().await;
    bench.done(&turn).await;
    assert_eq!(bench.nothing().await, Some(latest), "a long turn is no reason to wait longer");
    bench.pass(SECOND);
    assert_eq!(tags(&bench.one().await), ["e"]);
}

async fn a_window_that_filled_during_a_turn_is_due_at_its_end(mut bench: Bench) {
    declare(&mut bench, window().max_jobs(2)).await;
    bench.push(job("a")).await;
    bench.pass(QUIET);
    let turn = bench.one().await;
    bench.push_all(vec![job("b"), job("c")]).await;
    bench.nothing().await;
    bench.done(&turn).await;
    assert_eq!(tags(&bench.one().await), ["b", "c"]);
}

async fn pushes_at_any_rate_move_a_key_nine_times_in_a_quiet_time(mut bench: Bench) {
    declare(&mut bench, window()).await;
    for pushes in [4, 9, 100] {
        let (mut moves, mut last) = (0, None);
        for i in 0..pushes {
            bench.push(job(&i.to_string())).await;
            let due = collects(&mut bench).await.0;
            assert!(due + QUIET / 8 >= bench.now + QUIET, "{i}: quiet for seven eighths at least");
            moves += usize::from(last != Some(due));
            last = Some(due);
            bench.pass(QUIET / pushes);
        }
        assert!((2..=9).contains(&moves), "{moves} moves by {pushes} pushes in a quiet time");
        bench.pass(MAX_WAIT);
        let turn = bench.one().await;
        assert_eq!(turn.jobs.len(), pushes as usize);
        bench.done(&turn).await;
    }
}

async fn a_push_with_its_own_time_is_quiet_until_then(mut bench: Bench) {
    declare(&mut bench, window()).await;
    bench.push(job("a")).await;
    bench.push(job("b").run_in(QUIET * 3)).await;
    let due = bench.now + QUIET * 3;
    assert_eq!(bench.nothing().await, Some(due));
    bench.push(job("c").run_in(Duration::ZERO)).await;
    bench.push(job("d").run_at(bench.now - WAIT)).await;
    assert_eq!(bench.nothing().await, Some(due), "no push makes it sooner");
    bench.push(job("e").run_in(MAX_WAIT * 2)).await;
    assert_eq!(bench.nothing().await, Some(bench.now + MAX_WAIT), "but for the longest wait");
    bench.pass(MAX_WAIT);
    assert_eq!(bench.one().await.jobs.len(), 5);
    let due = bench.now + MAX_WAIT * 2;
    bench.push(job("f").key("later").run_at(due)).await;
    bench.pass(SECOND);
    bench.push(job("g").key("later")).await;
    assert_eq!(bench.nothing().await, Some(due), "the first one may wait for its time");
    bench.push(job("h").key("now").run_in(Duration::ZERO)).await;
    assert_eq!(tags(&bench.one().await), ["h"]);
}

async fn a_key_that_is_due_is_put_off_no_more(mut bench: Bench) {
    declare(&mut bench, window().max_jobs(2)).await;
    bench.push(job("a")).await;
    bench.pass(QUIET);
    bench.push(job("b")).await;
    assert_eq!(bench.one().await.jobs.len(), 2);
    bench.push(job("c").key("other")).await;
    bench.act(LaneSelection::Key("other".into()), LaneAction::RunNow).await;
    bench.push(job("d").key("other")).await;
    assert_eq!(tags(&bench.one().await), ["c", "d"]);
}

async fn a_due_job_that_is_rescheduled_collects_as_long_as_its_window_allows(mut bench: Bench) {
    declare(&mut bench, window()).await;
    let latest = bench.now + MAX_WAIT;
    let first = bench.push(job("a").run_in(Duration::ZERO)).await;
    let change = Change::RunAt(bench.now + QUIET);
    let later = Amend { now: Some(bench.now), job: first.job_id, change };
    bench.store.amend(later).await.unwrap();
    assert_eq!(collects(&mut bench).await, (bench.now + QUIET, Some(latest)));
    bench.pass(QUIET / 2);
    bench.push(job("b")).await;
    assert_eq!(collects(&mut bench).await, (bench.now + QUIET, Some(latest)));
    bench.pass(QUIET);
    assert_eq!(tags(&bench.one().await), ["a", "b"]);
}

async fn a_job_that_is_rescheduled_during_a_turn_ends_the_next_window_at_the_latest(
    mut bench: Bench,
) {
    declare(&mut bench, window()).await;
    bench.push(job("a")).await;
    bench.pass(QUIET);
    let turn = bench.one().await;
    let second = bench.push(job("b")).await;
    let change = Change::RunAt(bench.now + SECOND);
    let sooner = Amend { now: Some(bench.now), job: second.job_id, change };
    bench.store.amend(sooner).await.unwrap();
    bench.done(&turn).await;
    assert_eq!(bench.nothing().await, Some(bench.now + SECOND));
    bench.pass(SECOND);
    assert_eq!(tags(&bench.one().await), ["b"]);
}

async fn jobs_that_are_cancelled_no_longer_fill_a_window(mut bench: Bench) {
    declare(&mut bench, window().max_jobs(3)).await;
    let first = bench.push(job("a")).await;
    let second = bench.push(job("b")).await;
    bench.cancel(first.job_id).await;
    bench.forget(second.job_id).await;
    bench.push(job("c")).await;
    let third = bench.push(job("d")).await;
    bench.nothing().await;
    bench.cancel(third.job_id).await;
    assert_eq!(bench.nothing().await, Some(bench.now + QUIET));
    bench.push_all(vec![job("e"), job("f")]).await;
    assert_eq!(tags(&bench.one().await), ["c", "e", "f"]);
}

async fn a_key_may_be_emptied_and_collects_anew(mut bench: Bench) {
    declare(&mut bench, window()).await;
    bench.push_all(vec![job("a"), job("b")]).await;
    bench.act(LaneSelection::Key("k".into()), LaneAction::Delete).await;
    assert_eq!(bench.stats().await.lanes, 0);
    bench.pass(MAX_WAIT);
    bench.push(job("c")).await;
    let (due, latest) = (bench.now + QUIET, bench.now + MAX_WAIT);
    assert_eq!(collects(&mut bench).await, (due, Some(latest)));
    bench.pass(QUIET);
    assert_eq!(tags(&bench.one().await), ["c"]);
}

async fn a_window_may_be_changed_while_keys_collect(mut bench: Bench) {
    declare(&mut bench, window()).await;
    let latest = bench.now + MAX_WAIT;
    bench.push(job("a")).await;
    bench.push(job("b")).await;
    declare(&mut bench, Window::new(QUIET * 2, MAX_WAIT * 2).max_jobs(4)).await;
    assert_eq!(bench.nothing().await, Some(bench.now + QUIET), "as it was pushed");
    bench.push(job("c")).await;
    assert_eq!(collects(&mut bench).await, (bench.now + QUIET * 2, Some(latest)));
    bench.push(job("d")).await;
    assert_eq!(bench.one().await.jobs.len(), 4);
}

async fn a_window_may_be_added_and_removed_while_keys_wait(mut bench: Bench) {
    bench.queue(Mode::Accumulate).await;
    let due = bench.now + WAIT;
    bench.push_all(vec![job("a").run_at(due), job("b")]).await;
    declare(&mut bench, window()).await;
    bench.push(job("c")).await;
    assert_eq!(bench.nothing().await, Some(due), "it has no window that a push could move");
    bench.pass(WAIT);
    let turn = bench.one().await;
    bench.push(job("d")).await;
    bench.done(&turn).await;
    assert_eq!(bench.nothing().await, Some(bench.now + QUIET));
    let due = bench.now + QUIET;
    bench.queue(Mode::Accumulate).await;
    bench.pass(SECOND);
    bench.push(job("e")).await;
    assert_eq!(collects(&mut bench).await, (due, None));
    bench.pass(QUIET);
    let turn = bench.one().await;
    bench.push(job("f")).await;
    bench.done(&turn).await;
    assert_eq!(tags(&bench.one().await), ["f"], "without a window it is due when it is pushed");
}

async fn a_key_with_one_job_that_had_no_window_is_not_put_off(mut bench: Bench) {
    bench.queue(Mode::Accumulate).await;
    let due = bench.now + SECOND;
    bench.push(job("a").run_at(due)).await;
    declare(&mut bench, window()).await;
    assert_eq!(collects(&mut bench).await, (due, None));
    bench.push(job("b")).await;
    assert_eq!(collects(&mut bench).await, (due, None));
    // Another one, which has a window, is put off.
    bench.push(job("c").key("other")).await;
    bench.pass(SECOND + SECOND);
    bench.push(job("d").key("other")).await;
    assert_eq!(tags(&bench.one().await), ["a", "b"]);
    assert_eq!(bench.nothing().await, Some(bench.now + QUIET));
}

async fn a_released_turn_is_due_at_once(mut bench: Bench) {
    declare(&mut bench, window()).await;
    bench.push(job("a")).await;
    bench.pass(QUIET);
    let turn = bench.one().await;
    bench.push(job("b")).await;
    assert!(bench.end(&turn, Outcome::Release).await.is_ok());
    bench.push(job("c")).await;
    assert_eq!(tags(&bench.one().await), ["a", "b", "c"]);
}

async fn a_requeued_job_makes_a_key_due_that_collects(mut bench: Bench) {
    declare(&mut bench, window()).await;
    bench.push(job("a")).await;
    bench.pass(QUIET);
    let turn = bench.one().await;
    assert!(bench.end(&turn, Outcome::Bury { error: "hopeless".into() }).await.is_ok());
    bench.push(job("b")).await;
    bench.nothing().await;
    assert_eq!(bench.requeue_all().await, 1);
    assert_eq!(tags(&bench.one().await), ["a", "b"]);
}

/// Keys are pushed to, claimed and settled at random times, for longer than any window.
async fn nothing_that_is_pushed_to_a_window_is_lost(mut bench: Bench) {
    declare(&mut bench, window().max_jobs(12).max_bytes(600)).await;
    let mut rng = fastrand::Rng::with_seed(7);
    let (mut pushed, mut done) = (BTreeSet::new(), BTreeSet::new());
    let mut turns: Vec<Turn> = Vec::new();
    for step in 0..200 {
        bench.pass(Duration::from_millis(rng.u64(1..4_000)));
        bench.beat().await;
        let name = |i: usize| format!("{step} {i}");
        let jobs: Vec<Job> =
            (0..rng.usize(0..4)).map(|i| job(&name(i)).key(format!("k{}", rng.u8(0..3)))).collect();
        pushed.extend((0..jobs.len()).map(name));
        bench.push_all(jobs).await;
        turns.extend(bench.claim(2).await);
        if rng.bool() && !turns.is_empty() {
            let turn = turns.swap_remove(0);
            match rng.u8(0..4) {
                0 => bench.fail(&turn).await,
                _ => {
                    done.extend(turn.jobs.iter().map(|job| tag(&job.payload)));
                    bench.done(&turn).await;
                }
            }
        }
    }
    while bench.stats().await.lanes > 0 {
        for turn in std::mem::take(&mut turns) {
            done.extend(turn.jobs.iter().map(|job| tag(&job.payload)));
            bench.done(&turn).await;
        }
        bench.pass(MAX_WAIT);
        bench.beat().await;
        turns = bench.claim(10).await;
    }
    assert_eq!(done, pushed);
}

async fn a_contradicting_window_is_refused(mut bench: Bench) {
    let wrong = [
        (Queue::fifo("q").window(window()), "queues[0].window"),
        (Queue::accumulate("q").window(Window::new(MAX_WAIT, QUIET)), "queues[0].window"),
        (Queue::accumulate("q").window(Window::new(Duration::ZERO, QUIET)), "queues[0].window"),
        (Queue::accumulate("q").window(window().max_jobs(1)), "queues[0].window"),
        (Queue::accumulate("q").window(window().max_bytes(0)), "queues[0].window"),
        (Queue::accumulate("q").window(window()).due(seriatim::DueRule::Earliest), "queues[0].due"),
    ];
    for (queue, field) in wrong {
        refused(bench.try_declare(queue).await, ErrorKind::Invalid, field);
    }
}
