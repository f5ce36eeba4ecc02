//! Lanes that go on from turn to turn.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use super::rig::{ANSWERED_AFTER, Faults, Log, Rig, Running, engine, pass, secs};
use crate::*;

/// An engine that logs key and number of each job of the queue `orders`, and takes `busy` for each.
fn logging(rig: &Rig, log: &Log, busy: Duration) -> EngineBuilder {
    let log = log.clone();
    engine(rig).queue(Queue::fifo("orders")).worker("orders", move |batch: Batch<u32>| {
        let lane = &batch.lanes()[0];
        log.add(format!("{} {}", lane.key(), lane.payloads()[0]));
        async move { pass(busy).await }
    })
}

async fn push(rig: &Rig, key: &str, jobs: u32) {
    for n in 0..jobs {
        rig.push(Job::new("orders", &n).unwrap().key(key)).await;
    }
}

fn in_order(key: &str, jobs: u32) -> Vec<String> {
    (0..jobs).map(|n| format!("{key} {n}")).collect()
}

#[tokio::test(start_paused = true)]
async fn the_jobs_of_one_key_run_in_order_with_few_claims() {
    let (rig, log) = (Rig::new(), Log::default());
    rig.store_declared(Queue::fifo("orders")).await;
    push(&rig, "a", 1_000).await;
    let running = Running::start(logging(&rig, &log, Duration::ZERO));
    log.reaches(1_000).await;
    assert_eq!(running.stop().await.processed, 1_000);
    assert_eq!(log.lines(), in_order("a", 1_000));
    let claims = rig.faults.claims.load(Ordering::SeqCst);
    assert!(claims < 100, "{claims} claims for 1,000 turns");
}

#[tokio::test(start_paused = true)]
async fn a_lane_that_goes_on_lets_others_in_after_a_tenth_of_a_second() {
    let (rig, log) = (Rig::new(), Log::default());
    rig.store_declared(Queue::fifo("orders")).await;
    push(&rig, "a", 1).await;
    pass(secs(1)).await;
    push(&rig, "b", 1).await;
    pass(secs(1)).await;
    push(&rig, "a", 1_000).await;
    let builder = logging(&rig, &log, Duration::from_millis(10)).concurrency(1);
    let running = Running::start(builder.prefetch_max(0));
    log.reaches(40).await;
    let before = log.lines().iter().position(|line| line == "b 0");
    assert!(before.is_some_and(|before| before <= 12), "b ran after {before:?} jobs of a");
    running.kill();
}

#[tokio::test(start_paused = true)]
async fn a_lane_goes_on_for_a_second_while_no_other_is_ready() {
    let (rig, log) = (Rig::new(), Log::default());
    rig.store_declared(Queue::fifo("orders")).await;
    push(&rig, "a", 300).await;
    let running = Running::start(logging(&rig, &log, Duration::from_millis(10)));
    log.reaches(1).await;
    let before = rig.faults.claims.load(Ordering::SeqCst);
    log.reaches(300).await;
    let claims = rig.faults.claims.load(Ordering::SeqCst) - before;
    assert!(claims <= 10, "{claims} claims in 3 s");
    assert_eq!(running.stop().await.done, 300);
    assert_eq!(log.lines(), in_order("a", 300));
}

/// This fault of settles, up to three times, holds up a lane only until the engine has found it.
async fn holds_up_a_lane_until_it_is_found(fault: impl Fn(&Faults) -> &AtomicUsize) {
    for times in 1..4 {
        let (rig, log) = (Rig::new(), Log::default());
        rig.store_declared(Queue::fifo("orders")).await;
        push(&rig, "a", 20).await;
        fault(&rig.faults).store(times, Ordering::SeqCst);
        let running = Running::start(logging(&rig, &log, Duration::ZERO));
        log.reaches(20).await;
        pass(secs(3)).await;
        let summary = running.stop().await;
        assert_eq!((summary.unsettled, summary.rescued), (0, 0));
        assert_eq!(log.lines(), in_order("a", 20), "{times} times");
    }
}

#[tokio::test(start_paused = true)]
async fn a_lost_answer_of_a_settle_holds_up_the_lane_only_until_it_is_found() {
    holds_up_a_lane_until_it_is_found(|faults| &faults.lost_settles).await;
}

/// The others of the batch are answered, so the call does not fail.
#[tokio::test(start_paused = true)]
async fn a_part_of_the_store_that_does_not_answer_a_settle_holds_up_its_lanes_only_until_they_are_found()
 {
    holds_up_a_lane_until_it_is_found(|faults| &faults.unanswered_settles).await;
}

#[tokio::test(start_paused = true)]
async fn an_engine_that_stops_leaves_no_lane_claimed() {
    for after in 1..12 {
        let (rig, log) = (Rig::new(), Log::default());
        rig.store_declared(Queue::fifo("orders")).await;
        push(&rig, "a", 100).await;
        push(&rig, "b", 100).await;
        let running = Running::start(logging(&rig, &log, Duration::from_millis(1)));
        log.reaches(after).await;
        let summary = running.stop().await;
        assert_eq!(summary.unsettled, 0);
        assert_eq!(rig.stats(None).await.unwrap()[0].claimed, 0, "stopped after {after} jobs");
        assert_eq!(summary.processed as usize, log.len());
    }
}

#[tokio::test(start_paused = true)]
async fn an_engine_that_stops_while_an_answer_is_lost_leaves_no_lane_claimed() {
    for (settles, claims) in [(1, 0), (2, 0), (0, 1)] {
        let (rig, log) = (Rig::new(), Log::default());
        rig.store_declared(Queue::fifo("orders")).await;
        push(&rig, "a", 20).await;
        rig.faults.lost_settles.store(settles, Ordering::SeqCst);
        rig.faults.lost_claims.store(claims, Ordering::SeqCst);
        let running = Running::start(logging(&rig, &log, Duration::from_millis(1)));
        pass(ANSWERED_AFTER / 2).await;
        assert_eq!(running.stop().await.unsettled, 0);
        let claimed = rig.stats(None).await.unwrap()[0].claimed;
        assert_eq!(claimed, 0, "{settles} settles and {claims} claims were lost");
    }
}

#[tokio::test(start_paused = true)]
async fn a_quiet_node_goes_on_with_nothing() {
    let (rig, log) = (Rig::new(), Log::default());
    rig.store_declared(Queue::fifo("orders")).await;
    push(&rig, "a", 100).await;
    let engine = logging(&rig, &log, Duration::from_millis(10)).build().unwrap();
    let handle = engine.handle();
    let (stop, stopped) = tokio::sync::oneshot::channel::<()>();
    let running = tokio::spawn(engine.run_until(stopped));
    log.reaches(3).await;
    handle.quiet(true);
    pass(secs(5)).await;
    assert!(log.len() <= 4, "{:?}", log.lines());
    stop.send(()).unwrap();
    running.await.unwrap().unwrap();
}
