//! Batches: sets of jobs whose end makes one more job.

use std::time::Duration;

use futures_util::future::join_all;
use seriatim::limits::BATCH_KEPT;
use seriatim::store::*;
use seriatim::{ErrorKind, Exhaustion, Job, JobId, Mode, Outcome, Queue};

use super::bench::*;
use super::case::{Case, listed};

pub(super) fn cases() -> Vec<Case> {
    let mut all = listed![if has_them;
        a_batch_ends_with_its_last_job_and_calls_back_with_the_counts,
        a_batch_without_jobs_ends_when_it_is_sealed,
        a_batch_that_is_not_sealed_does_not_end,
        a_sealed_batch_takes_jobs_until_its_last_one_has_ended,
        a_job_that_will_be_tried_again_has_not_ended,
        whatever_takes_a_waiting_job_away_ends_it_as_cancelled,
        whatever_gives_a_job_up_ends_it_as_dead,
        a_flagged_job_ends_as_cancelled_unless_it_is_done,
        a_push_that_makes_no_job_adds_none,
        jobs_are_equal_only_within_their_batch,
        equal_jobs_that_merge_after_a_failure_are_one,
        a_requeued_job_counts_again_until_the_batch_ends,
        nothing_changes_a_batch_after_its_end,
        an_ended_batch_is_kept_for_its_time,
        a_dead_job_of_a_forgotten_batch_joins_no_other_batch_of_its_id,
        a_callback_equals_no_job_of_its_batch,
        a_callback_has_no_idempotency_key,
        opening_a_batch_again_changes_nothing,
        a_job_of_no_known_batch_is_refused_with_its_place,
        a_callback_that_no_queue_takes_is_refused_when_the_batch_is_opened,
        a_callback_that_cannot_be_pushed_fails_no_settle,
        a_callback_to_a_throttled_key_is_not_pushed_and_the_batch_says_so,
        callbacks_do_not_merge,
        the_jobs_of_large_settles_are_counted_each,
        jobs_of_several_batches_and_of_none_end_together,
        jobs_that_the_queue_keeps_are_counted_too,
        jobs_of_a_batch_join_a_series,
        of_many_settles_at_once_one_ends_the_batch,
    ];
    all.extend(listed![batches_are_listed_latest_first_in_pages]);
    all
}

/// Whether the store has batches; one that has none says so.
async fn has_them(bench: &mut Bench) -> bool {
    if bench.store.capabilities().batches {
        return true;
    }
    let jobs = vec![loose("a"), loose("b").batch("b")];
    refused(bench.try_push(jobs).await, ErrorKind::Invalid, "jobs[1].batch");
    assert!(bench.store.queues().await.unwrap().is_empty(), "nothing was written");
    let opened = open(bench, "b").await;
    assert_eq!(opened.unwrap_err().kind(), ErrorKind::Unsupported);
    false
}

fn name(mode: Mode) -> &'static str {
    match mode {
        Mode::Parallel => "parallel",
        Mode::Accumulate => "accumulate",
        Mode::Fifo => "fifo",
        Mode::Exclusive => "exclusive",
    }
}

fn callback() -> Job {
    Job::new("after", "all in").unwrap()
}

async fn open(bench: &Bench, id: &str) -> seriatim::Result<BatchView> {
    open_with(bench, id, callback()).await
}

async fn open_with(bench: &Bench, id: &str, callback: Job) -> seriatim::Result<BatchView> {
    let request = OpenBatch { now: Some(bench.now), id: id.into(), callback };
    bench.store.open_batch(request).await
}

async fn seal(bench: &Bench, id: &str) -> BatchView {
    let request = SealBatch { now: Some(bench.now), id: id.into() };
    bench.store.seal_batch(request).await.unwrap()
}

async fn shown(bench: &Bench, id: &str) -> BatchView {
    bench.store.batch(id.into()).await.unwrap().unwrap()
}

/// (pending, done, dead, cancelled).
type Counts = (u64, u64, u64, u64);

fn counts(batch: &BatchView) -> Counts {
    (batch.pending, batch.done, batch.dead, batch.cancelled)
}

/// Seals a batch none of whose jobs is left: it ends with these counts, and calls back with them.
async fn ends_with(bench: &mut Bench, id: &str, expected: Counts) {
    let batch = seal(bench, id).await;
    assert_eq!((counts(&batch), batch.ended_at), (expected, Some(bench.now)), "{batch:?}");
    calls_back(bench, &batch).await;
}

/// The callback of an ended batch, and no other, waits in its queue.
async fn calls_back(bench: &mut Bench, batch: &BatchView) {
    let turns = bench.claimed(bench.claim_request("after", 10)).await.turns;
    assert_eq!(turns.len(), 1, "one callback: {turns:?}");
    let job = &turns[0].jobs[0];
    assert_eq!(Some(job.id), batch.callback);
    let ended = job.ended_batch().unwrap();
    assert_eq!(
        (&*ended.id, ended.done, ended.dead, ended.cancelled),
        (&*batch.id, batch.done, batch.dead, batch.cancelled)
    );
    bench.done(&turns[0]).await;
}

async fn claim_all(bench: &mut Bench, queue: &str) -> Vec<Turn> {
    bench.claimed(bench.claim_request(queue, 100)).await.turns
}

async fn a_batch_ends_with_its_last_job_and_calls_back_with_the_counts(mut bench: Bench) {
    let mut ids = Vec::new();
    for mode in Mode::ALL {
        bench.declare(Queue::new(name(mode), mode).max_retries(0)).await;
    }
    let opened = open(&bench, "b").await.unwrap();
    assert_eq!((&*opened.id, opened.opened_at, opened.sealed), ("b", bench.now, false));
    for mode in Mode::ALL {
        for tag in ["done", "dead", "cancelled"] {
            let job = Job::new(name(mode), tag).unwrap().batch("b");
            let job = if mode.is_keyed() { job.key(tag) } else { job };
            ids.push(bench.push(job).await.job_id);
        }
    }
    assert_eq!(counts(&seal(&bench, "b").await), (12, 0, 0, 0));
    for id in ids.iter().skip(2).step_by(3) {
        assert_eq!(bench.cancel(*id).await, Cancelled::Now);
    }
    assert_eq!(counts(&shown(&bench, "b").await), (8, 0, 0, 4));
    for mode in Mode::ALL {
        for turn in claim_all(&mut bench, name(mode)).await {
            assert!(shown(&bench, "b").await.ended_at.is_none());
            assert_eq!(turn.jobs[0].batch(), Some("b"));
            let outcome = match turn.jobs[0].payload.as_bytes() {
                b"\"done\"" => Outcome::Done,
                _ => failure(),
            };
            assert!(bench.end(&turn, outcome).await.is_ok());
        }
    }
    let batch = shown(&bench, "b").await;
    assert_eq!((counts(&batch), batch.ended_at), ((0, 4, 4, 4), Some(bench.now)));
    calls_back(&mut bench, &batch).await;
    assert_eq!(seal(&bench, "b").await, batch, "sealing it again changes nothing");
    assert!(claim_all(&mut bench, "after").await.is_empty());
}

async fn a_batch_without_jobs_ends_when_it_is_sealed(mut bench: Bench) {
    open(&bench, "b").await.unwrap();
    ends_with(&mut bench, "b", (0, 0, 0, 0)).await;
    let request = SealBatch { now: None, id: "other".into() };
    refused(bench.store.seal_batch(request).await, ErrorKind::NotFound, "batch");
    assert_eq!(bench.store.batch("other".into()).await.unwrap(), None);
}

async fn a_batch_that_is_not_sealed_does_not_end(mut bench: Bench) {
    bench.queue(Mode::Parallel).await;
    open(&bench, "b").await.unwrap();
    for _ in 0..2 {
        bench.push(loose("a").batch("b")).await;
        let turn = bench.one().await;
        bench.done(&turn).await;
        assert!(shown(&bench, "b").await.ended_at.is_none());
    }
    ends_with(&mut bench, "b", (0, 2, 0, 0)).await;
}

async fn a_sealed_batch_takes_jobs_until_its_last_one_has_ended(mut bench: Bench) {
    bench.queue(Mode::Parallel).await;
    open(&bench, "b").await.unwrap();
    bench.push(loose("first").batch("b")).await;
    seal(&bench, "b").await;
    for tag in ["second", "third"] {
        let turn = bench.one().await;
        bench.push(loose(tag).batch("b")).await;
        bench.done(&turn).await;
    }
    let turn = bench.one().await;
    bench.done(&turn).await;
    let batch = shown(&bench, "b").await;
    assert_eq!(counts(&batch), (0, 3, 0, 0));
    calls_back(&mut bench, &batch).await;
    let late = bench.try_push(vec![loose("x"), loose("late").batch("b")]).await;
    refused(late, ErrorKind::Conflict, "jobs[1].batch");
    assert_eq!(bench.stats().await.jobs, 0, "all or none");
}

async fn a_job_that_will_be_tried_again_has_not_ended(mut bench: Bench) {
    bench.declare(Queue::exclusive("q").max_retries(5).exhausted(Exhaustion::Hold)).await;
    open(&bench, "b").await.unwrap();
    bench.push(job("a").batch("b")).await;
    seal(&bench, "b").await;
    let snooze = Outcome::Snooze { length: WAIT };
    let crash = Outcome::Crash { error: "it crashed".into() };
    for outcome in [failure(), Outcome::Release, snooze, crash] {
        let turn = bench.one().await;
        assert!(bench.end(&turn, outcome).await.is_ok());
        assert_eq!(counts(&shown(&bench, "b").await), (1, 0, 0, 0));
        bench.pass(WAIT);
    }
    let turn = bench.one().await;
    bench.done(&turn).await;
    let batch = shown(&bench, "b").await;
    assert_eq!((counts(&batch), batch.ended_at), ((0, 1, 0, 0), Some(bench.now)));
}

async fn whatever_takes_a_waiting_job_away_ends_it_as_cancelled(mut bench: Bench) {
    for mode in Mode::ALL {
        open(&bench, name(mode)).await.unwrap();
        bench.queue(mode).await;
        let of = |tag: &str| {
            let job = loose(tag).batch(name(mode));
            if mode.is_keyed() { job.key("k") } else { job }
        };
        let expires = of("expires").expires_at(bench.now + Duration::from_secs(1));
        let jobs = ["amended", "acted on", "deleted", "deleted too"].map(of).to_vec();
        let mut ids = Vec::new();
        for job in [vec![expires], jobs].concat() {
            ids.push(bench.push(job).await.job_id);
        }
        let sweep = Sweep { now: Some(bench.now + Duration::from_secs(2)), rows_max: 10 };
        assert_eq!(bench.store.sweep(sweep).await.unwrap().expired, [ids[0]]);
        let amend = Amend { now: Some(bench.now), job: ids[1], change: Change::Delete };
        bench.store.amend(amend).await.unwrap();
        assert_eq!(counts(&shown(&bench, name(mode)).await), (3, 0, 0, 2), "{mode:?}");
        let lane = bench.job(ids[2]).await.lane.unwrap();
        bench.act(LaneSelection::Lanes(vec![lane]), LaneAction::Delete).await;
        let left = if mode.is_keyed() { 0 } else { 2 };
        assert_eq!(counts(&shown(&bench, name(mode)).await), (left, 0, 0, 5 - left));
        bench.push(of("another")).await;
        seal(&bench, name(mode)).await;
        bench.delete_queue(1).await;
        let batch = shown(&bench, name(mode)).await;
        assert_eq!(counts(&batch), (0, 0, 0, 6), "{mode:?}");
        calls_back(&mut bench, &batch).await;
    }
}

async fn whatever_gives_a_job_up_ends_it_as_dead(mut bench: Bench) {
    for (mode, exhausted) in [
        (Mode::Parallel, Exhaustion::Bury),
        (Mode::Exclusive, Exhaustion::Drop),
        (Mode::Accumulate, Exhaustion::Bury),
    ] {
        let id = name(mode);
        bench
            .declare(Queue::new("q", mode).max_retries(1).max_crashes(1).exhausted(exhausted))
            .await;
        open(&bench, id).await.unwrap();
        let of = |tag: &str| {
            let job = loose(tag).batch(id);
            if mode.is_keyed() { job.key(tag) } else { job }
        };
        for tag in ["fails", "crashes", "is buried", "by an operator"] {
            bench.push(of(tag)).await;
        }
        for turn in bench.claim(10).await {
            let outcome = match &*tags(&turn)[0] {
                "crashes" => Outcome::Crash { error: "crashed".into() },
                "is buried" => Outcome::Bury { error: "no".into() },
                _ => failure(),
            };
            assert!(bench.end(&turn, outcome).await.is_ok());
        }
        assert_eq!(counts(&shown(&bench, id).await), (2, 0, 2, 0), "{mode:?}");
        bench.pass(WAIT);
        let turns = bench.claim(10).await;
        let fails = turns.iter().find(|turn| tags(turn) == ["fails"]).unwrap();
        bench.fail(fails).await;
        for turn in turns.iter().filter(|turn| tags(turn) != ["fails"]) {
            assert!(bench.end(turn, Outcome::Release).await.is_ok());
        }
        bench.act(LaneSelection::Failed, LaneAction::Bury).await;
        ends_with(&mut bench, id, (0, 0, 4, 0)).await;
        bench.delete_queue(100).await;
    }
}

async fn a_flagged_job_ends_as_cancelled_unless_it_is_done(mut bench: Bench) {
    bench.queue(Mode::Parallel).await;
    open(&bench, "b").await.unwrap();
    for tag in ["done", "fails"] {
        let id = bench.push(loose(tag).batch("b")).await.job_id;
        let turn = bench.one().await;
        assert_eq!(bench.cancel(id).await, Cancelled::Flagged);
        assert_eq!(counts(&shown(&bench, "b").await).0, 1);
        let outcome = if tag == "done" { Outcome::Done } else { failure() };
        assert!(bench.end(&turn, outcome).await.is_ok());
    }
    ends_with(&mut bench, "b", (0, 1, 0, 1)).await;
}

async fn a_push_that_makes_no_job_adds_none(mut bench: Bench) {
    bench.queue(Mode::Accumulate).await;
    bench.declare(Queue::exclusive("calm").throttle(Duration::from_secs(60))).await;
    open(&bench, "b").await.unwrap();
    let calm = |tag: &str| Job::new("calm", tag).unwrap().key("k").batch("b");
    let named = |tag: &str| job(tag).key("n").batch("b").idempotency_key("i");
    let jobs = vec![
        job("a").batch("b"),
        job("a").batch("b"),
        calm("a"),
        calm("b"),
        named("a"),
        named("b"),
    ];
    let pushed = bench.push_all(jobs).await;
    let queued = |pushed: &&Pushed| pushed.status == PushStatus::Queued;
    assert_eq!(pushed.iter().filter(queued).count(), 3);
    assert_eq!(counts(&shown(&bench, "b").await), (3, 0, 0, 0));
    for queue in ["q", "calm"] {
        for turn in claim_all(&mut bench, queue).await {
            bench.done(&turn).await;
        }
    }
    ends_with(&mut bench, "b", (0, 3, 0, 0)).await;
    let again = bench.push(named("a")).await;
    assert_eq!(again.status, PushStatus::Duplicate, "a repeat needs no open batch");
}

async fn jobs_are_equal_only_within_their_batch(mut bench: Bench) {
    bench.queue(Mode::Accumulate).await;
    open(&bench, "b").await.unwrap();
    open(&bench, "c").await.unwrap();
    for job in [job("a"), job("a").batch("b"), job("a").batch("c")] {
        assert_eq!(bench.push(job.clone()).await.status, PushStatus::Queued);
        assert_eq!(bench.push(job).await.status, PushStatus::Merged);
    }
    let turn = bench.one().await;
    assert_eq!(tags(&turn), ["a", "a", "a"]);
    bench.done(&turn).await;
    ends_with(&mut bench, "b", (0, 1, 0, 0)).await;
    ends_with(&mut bench, "c", (0, 1, 0, 0)).await;
}

async fn equal_jobs_that_merge_after_a_failure_are_one(mut bench: Bench) {
    bench.queue(Mode::Accumulate).await;
    open(&bench, "b").await.unwrap();
    bench.push(job("a").batch("b")).await;
    let turn = bench.one().await;
    bench.push_all(vec![job("a").batch("b"), job("a")]).await;
    assert_eq!(counts(&shown(&bench, "b").await), (2, 0, 0, 0));
    bench.fail(&turn).await;
    assert_eq!(counts(&shown(&bench, "b").await), (1, 0, 0, 0));
    bench.pass(WAIT);
    let turn = bench.one().await;
    assert_eq!(tags(&turn), ["a", "a"]);
    bench.done(&turn).await;
    ends_with(&mut bench, "b", (0, 1, 0, 0)).await;
}

/// Pushes a job of the batch, and buries it.
async fn bury_one(bench: &mut Bench, batch: &str) -> JobId {
    let id = bench.push(job("a").batch(batch)).await.job_id;
    let turn = bench.one().await;
    assert!(bench.end(&turn, Outcome::Bury { error: "no".into() }).await.is_ok());
    id
}

async fn a_requeued_job_counts_again_until_the_batch_ends(mut bench: Bench) {
    bench.queue(Mode::Accumulate).await;
    open(&bench, "b").await.unwrap();
    bury_one(&mut bench, "b").await;
    assert_eq!(counts(&shown(&bench, "b").await), (0, 0, 1, 0));
    bench.push(job("a").batch("b")).await;
    assert_eq!(bench.requeue_all().await, 1);
    assert_eq!(counts(&shown(&bench, "b").await), (1, 0, 0, 0), "it merged with its equal");
    seal(&bench, "b").await;
    let turn = bench.one().await;
    bench.done(&turn).await;
    let batch = shown(&bench, "b").await;
    assert_eq!(counts(&batch), (0, 1, 0, 0));
    calls_back(&mut bench, &batch).await;
}

async fn nothing_changes_a_batch_after_its_end(mut bench: Bench) {
    bench.queue(Mode::Exclusive).await;
    open(&bench, "b").await.unwrap();
    let dead = [bury_one(&mut bench, "b").await, bury_one(&mut bench, "b").await];
    ends_with(&mut bench, "b", (0, 0, 2, 0)).await;
    let batch = shown(&bench, "b").await;
    assert_eq!(bench.requeue_all().await, 2);
    let turn = bench.one().await;
    bench.done(&turn).await;
    bench.cancel(dead[1]).await;
    let turns = bench.claim(1).await;
    assert!(turns.is_empty() || bench.end(&turns[0], Outcome::Done).await.is_ok());
    assert_eq!(shown(&bench, "b").await, batch);
    assert!(claim_all(&mut bench, "after").await.is_empty(), "it calls back once");
}

async fn an_ended_batch_is_kept_for_its_time(mut bench: Bench) {
    open(&bench, "open").await.unwrap();
    open(&bench, "b").await.unwrap();
    ends_with(&mut bench, "b", (0, 0, 0, 0)).await;
    for (passed, is_known) in
        [(BATCH_KEPT - Duration::from_secs(1), true), (Duration::from_secs(1), false)]
    {
        bench.pass(passed);
        bench.store.sweep(Sweep { now: Some(bench.now), rows_max: 10 }).await.unwrap();
        assert_eq!(bench.store.batch("b".into()).await.unwrap().is_some(), is_known);
    }
    assert!(open(&bench, "b").await.unwrap().ended_at.is_none(), "its id is free");
    assert!(shown(&bench, "open").await.ended_at.is_none());
}

async fn a_dead_job_of_a_forgotten_batch_joins_no_other_batch_of_its_id(mut bench: Bench) {
    bench.queue(Mode::Exclusive).await;
    open(&bench, "b").await.unwrap();
    let dead = bury_one(&mut bench, "b").await;
    ends_with(&mut bench, "b", (0, 0, 1, 0)).await;
    bench.pass(BATCH_KEPT);
    bench.store.sweep(Sweep { now: Some(bench.now), rows_max: 10 }).await.unwrap();
    open(&bench, "b").await.unwrap();
    assert_eq!(bench.requeue_all().await, 1);
    assert!(bench.job(dead).await.options.is_none(), "it belongs to no batch");
    let turn = bench.one().await;
    bench.done(&turn).await;
    bury_one(&mut bench, "b").await;
    ends_with(&mut bench, "b", (0, 0, 1, 0)).await;
}

async fn a_callback_equals_no_job_of_its_batch(mut bench: Bench) {
    bench.queue(Mode::Accumulate).await;
    let equal = || Job::new("q", "equal").unwrap().key("k");
    open_with(&bench, "b", equal()).await.unwrap();
    bench.push(equal().batch("b")).await;
    let turn = bench.one().await;
    assert!(bench.end(&turn, Outcome::Bury { error: "no".into() }).await.is_ok());
    seal(&bench, "b").await;
    assert!(shown(&bench, "b").await.callback.is_some());
    assert_eq!(bench.requeue_all().await, 1);
    let turns = claim_all(&mut bench, "q").await;
    assert_eq!(turns.iter().map(|turn| turn.jobs.len()).sum::<usize>(), 2, "both are there");
}

async fn a_callback_has_no_idempotency_key(bench: Bench) {
    let opened = open_with(&bench, "b", callback().idempotency_key("once")).await;
    refused(opened, ErrorKind::Invalid, "callback.idempotency_key");
}

async fn opening_a_batch_again_changes_nothing(mut bench: Bench) {
    bench.queue(Mode::Parallel).await;
    open(&bench, "b").await.unwrap();
    bench.push(loose("a").batch("b")).await;
    let batch = seal(&bench, "b").await;
    bench.pass(WAIT);
    assert_eq!(open(&bench, "b").await.unwrap(), batch);
    let others = [
        Job::new("after", "another payload").unwrap(),
        Job::new("elsewhere", "all in").unwrap(),
        callback().task("t"),
    ];
    for other in others {
        refused(open_with(&bench, "b", other).await, ErrorKind::Conflict, "id");
    }
    assert_eq!(shown(&bench, "b").await, batch);
}

async fn batches_are_listed_latest_first_in_pages(mut bench: Bench) {
    let latest = BatchQuery { rows_max: 2, ..BatchQuery::default() };
    if !has_them(&mut bench).await {
        let listed = bench.store.batches(latest).await;
        assert_eq!(listed.unwrap_err().kind(), ErrorKind::Unsupported);
        return;
    }
    bench.queue(Mode::Parallel).await;
    // Those of one moment are in the order of their ids, which may have the colon of cursors.
    for ids in [["a", "b:1"], ["b:2", "c"]] {
        for id in ids {
            open(&bench, id).await.unwrap();
        }
        bench.pass(Duration::from_secs(1));
    }
    bench.push(loose("x").batch("c")).await;
    seal(&bench, "c").await;
    seal(&bench, "b:1").await;
    let mut pages = Vec::new();
    for is_live in [false, true] {
        let mut query = BatchQuery { is_live, ..latest.clone() };
        loop {
            let page = bench.store.batches(query.clone()).await.unwrap();
            for batch in &page.rows {
                assert_eq!(shown(&bench, &batch.id).await, *batch, "as it is shown alone");
            }
            pages.push(page.rows.iter().map(|batch| batch.id.to_string()).collect::<Vec<_>>());
            match page.next {
                Some(next) => query.after = Some(next),
                None => break,
            }
        }
    }
    assert_eq!(pages, [vec!["c", "b:2"], vec!["b:1", "a"], vec!["c", "b:2"], vec!["a"]]);
    let wrong = BatchQuery { after: Some("x".to_owned()), ..latest };
    refused(bench.store.batches(wrong).await, ErrorKind::Invalid, "after");
}

async fn a_job_of_no_known_batch_is_refused_with_its_place(mut bench: Bench) {
    bench.queue(Mode::Parallel).await;
    let pushed = bench.try_push(vec![loose("a"), loose("b").batch("b")]).await;
    refused(pushed, ErrorKind::NotFound, "jobs[1].batch");
    refused(bench.try_push(vec![loose("a").batch("")]).await, ErrorKind::Invalid, "jobs[0].batch");
    refused(open(&bench, "").await, ErrorKind::Invalid, "id");
    assert_eq!(bench.stats().await.jobs, 0);
}

async fn a_callback_that_no_queue_takes_is_refused_when_the_batch_is_opened(mut bench: Bench) {
    bench.declare(Queue::exclusive("keyed")).await;
    let jobs = [
        (Job::new("keyed", "no key").unwrap(), "callback.key"),
        (callback().run_in(WAIT), "callback.run_at"),
        (callback().batch("b"), "callback.batch"),
        (callback().past(Past { failures: 1, ..Past::default() }), "callback.past"),
        (callback().group("g"), "callback.group"),
        (callback().key(""), "callback.key"),
    ];
    for (job, field) in jobs {
        refused(open_with(&bench, "b", job).await, ErrorKind::Invalid, field);
    }
    assert_eq!(bench.store.batch("b".into()).await.unwrap(), None);
}

async fn a_callback_that_cannot_be_pushed_fails_no_settle(mut bench: Bench) {
    bench.queue(Mode::Exclusive).await;
    bench.declare(Queue::parallel("work")).await;
    open_with(&bench, "b", job("callback")).await.unwrap();
    for key in ["a", "b", "c"] {
        bench.push(job("a").key(key)).await;
    }
    bench.push(Job::new("work", "w").unwrap().batch("b")).await;
    seal(&bench, "b").await;
    let turns = claim_all(&mut bench, "work").await;
    assert!(bench.delete_step(1).await.unwrap().more, "its queue is being deleted");
    bench.done(&turns[0]).await;
    let batch = shown(&bench, "b").await;
    assert_eq!((counts(&batch), batch.callback), ((0, 1, 0, 0), None));
    assert!(batch.refused.unwrap().contains("being deleted"));
}

async fn a_callback_to_a_throttled_key_is_not_pushed_and_the_batch_says_so(mut bench: Bench) {
    bench.declare(Queue::fifo("q").throttle(Duration::from_secs(60))).await;
    for (id, expected) in [("a", None), ("b", Some("the key of the callback is throttled"))] {
        open_with(&bench, id, job("ended")).await.unwrap();
        let batch = seal(&bench, id).await;
        let refused = batch.refused.as_deref();
        assert_eq!(
            (batch.callback.is_some(), refused.is_some()),
            (expected.is_none(), expected.is_some())
        );
        assert!(
            refused.unwrap_or_default().starts_with(expected.unwrap_or_default()),
            "{refused:?}"
        );
    }
    assert_eq!(bench.claim(9).await.len(), 1);
}

async fn callbacks_do_not_merge(mut bench: Bench) {
    bench.queue(Mode::Accumulate).await;
    for id in ["b", "c"] {
        open_with(&bench, id, job("callback")).await.unwrap();
        assert!(seal(&bench, id).await.callback.is_some());
    }
    bench.push(job("callback")).await;
    let turn = bench.one().await;
    let of = turn.jobs.iter().map(|job| job.ended_batch().map(|batch| &*batch.id));
    assert_eq!(of.collect::<Vec<_>>(), [Some("b"), Some("c"), None]);
}

/// Pushes jobs, claims them all together and settles them together.
async fn drain(bench: &mut Bench, jobs: Vec<Job>) {
    let count = jobs.len();
    bench.push_all(jobs).await;
    let turns = bench.claim(count).await;
    let settlements = turns.iter().map(|turn| bench.planned(turn, Outcome::Done)).collect();
    assert!(bench.settle(settlements).await.iter().all(Settled::is_ok));
}

async fn the_jobs_of_large_settles_are_counted_each(mut bench: Bench) {
    for mode in Mode::ALL {
        bench.queue(mode).await;
        open(&bench, name(mode)).await.unwrap();
        let of = |place: usize| {
            let job = loose(&place.to_string()).batch(name(mode));
            if mode.is_keyed() { job.key((place / 2).to_string()) } else { job }
        };
        // Twice, so that keys with a second job end, too.
        drain(&mut bench, (0..40).map(of).collect()).await;
        let rest = bench.claim(40).await;
        let settlements = rest.iter().map(|turn| bench.planned(turn, Outcome::Done)).collect();
        bench.settle(settlements).await;
        ends_with(&mut bench, name(mode), (0, 40, 0, 0)).await;
        bench.delete_queue(100).await;
    }
}

async fn jobs_of_several_batches_and_of_none_end_together(mut bench: Bench) {
    for mode in [Mode::Parallel, Mode::Exclusive] {
        bench.queue(mode).await;
        let ids = [0, 1].map(|n| format!("{}{n}", name(mode)));
        for id in &ids {
            open(&bench, id).await.unwrap();
        }
        let of = |place: usize| {
            let job = loose(&place.to_string());
            let job = if mode.is_keyed() { job.key(place.to_string()) } else { job };
            let mut job = job;
            // It looks like a batch in the options.
            job.options.producer = (place % 4 == 1).then(|| "\"batch\":".into());
            match ids.get(place % 3) {
                Some(id) => job.batch(id),
                None => job,
            }
        };
        drain(&mut bench, (0..30).map(of).collect()).await;
        for id in &ids {
            ends_with(&mut bench, id, (0, 10, 0, 0)).await;
        }
        bench.delete_queue(100).await;
    }
}

async fn jobs_that_the_queue_keeps_are_counted_too(mut bench: Bench) {
    for mode in [Mode::Parallel, Mode::Exclusive, Mode::Accumulate] {
        bench.declare(Queue::new("q", mode).retain_completed(WAIT)).await;
        open(&bench, name(mode)).await.unwrap();
        let of = |place: usize| {
            let job = loose(&place.to_string()).batch(name(mode));
            if mode.is_keyed() { job.key(place.to_string()) } else { job }
        };
        drain(&mut bench, (0..10).map(of).collect()).await;
        bench.pass(WAIT * 2);
        bench.store.sweep(Sweep { now: Some(bench.now), rows_max: 100 }).await.unwrap();
        ends_with(&mut bench, name(mode), (0, 10, 0, 0)).await;
        bench.delete_queue(100).await;
    }
}

async fn jobs_of_a_batch_join_a_series(mut bench: Bench) {
    bench.queue(Mode::Fifo).await;
    open(&bench, "b").await.unwrap();
    bench.push_all(["a", "b", "c"].map(|tag| job(tag).batch("b")).to_vec()).await;
    let request = Claim { series_max: 3, ..bench.claim_request("q", 1) };
    let turn = bench.claimed(request).await.turns.remove(0);
    let most = if bench.store.capabilities().series { 3 } else { 1 };
    assert_eq!(turn.jobs.len(), most);
    let verdict = Verdict { done: most - 1, ..Outcome::Release.into() };
    assert!(bench.end(&turn, verdict).await.is_ok());
    assert_eq!(counts(&shown(&bench, "b").await), (4 - most as u64, most as u64 - 1, 0, 0));
    loop {
        let turns = bench.claim(1).await;
        let Some(turn) = turns.first() else { break };
        bench.done(turn).await;
    }
    ends_with(&mut bench, "b", (0, 3, 0, 0)).await;
}

async fn of_many_settles_at_once_one_ends_the_batch(mut bench: Bench) {
    bench.queue(Mode::Parallel).await;
    open(&bench, "b").await.unwrap();
    bench.push_all((0..60).map(|place| loose(&place.to_string()).batch("b")).collect()).await;
    seal(&bench, "b").await;
    let turns = bench.claim(60).await;
    let settles = turns.chunks(3).map(|turns| {
        let turns = turns.iter().map(|turn| bench.planned(turn, Outcome::Done)).collect();
        let request = Settle { now: Some(bench.now), turns, ..Settle::default() };
        bench.store.settle(request)
    });
    for settled in join_all(settles).await {
        assert!(settled.unwrap().iter().all(Settled::is_ok));
    }
    let batch = shown(&bench, "b").await;
    assert_eq!((counts(&batch), batch.ended_at), ((0, 60, 0, 0), Some(bench.now)));
    calls_back(&mut bench, &batch).await;
}
