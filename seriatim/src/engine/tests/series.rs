//! Short jobs of a key, which are claimed together and handed over one after the other.

use std::sync::atomic::Ordering;
use std::time::Duration;

use super::rig::{Log, Rig, Running, START, engine, pass, secs};
use crate::contract::{JobState, LaneQuery};
use crate::model::Turn;
use crate::*;

/// More calls than an engine needs to see that they are short.
const MANY: u32 = 200;

/// An engine that logs the number of each job of the queue `orders`, and then does `work`.
fn logging<F>(
    rig: &Rig,
    log: &Log,
    work: impl Fn(u32, Context) -> F + Send + Sync + 'static,
) -> EngineBuilder
where
    F: Future<Output = Result<(), Failure>> + Send + 'static,
{
    let log = log.clone();
    engine(rig).worker("orders", move |batch: Batch<u32>, context: Context| {
        let lane = &batch.lanes()[0];
        assert_eq!((batch.lanes().len(), lane.payloads().len()), (1, 1), "a call has one job");
        log.add(lane.payloads()[0].to_string());
        work(lane.payloads()[0], context)
    })
}

/// A rig with this many jobs of one key.
async fn rig_with(jobs: u32) -> (Rig, Log) {
    let rig = Rig::new();
    rig.store_declared(Queue::fifo("orders")).await;
    for n in 0..jobs {
        rig.push(job(n)).await;
    }
    (rig, Log::default())
}

fn job(n: u32) -> Job {
    Job::new("orders", &n).unwrap().key("a")
}

fn numbers(numbers: impl IntoIterator<Item = u32>) -> Vec<String> {
    numbers.into_iter().map(|n| n.to_string()).collect()
}

#[tokio::test(start_paused = true)]
async fn short_jobs_are_handed_over_in_order_with_few_settles() {
    let (rig, log) = rig_with(2_000).await;
    let running = Running::start(logging(&rig, &log, |_, _| async { Ok(()) }));
    log.reaches(2_000).await;
    let summary = running.stop().await;
    assert_eq!(log.lines(), numbers(0..2_000));
    assert_eq!((summary.calls, summary.processed, summary.failed), (2_000, 2_000, 0));
    assert_eq!(rig.stats(None).await.unwrap()[0].jobs, 0);
    let settles = rig.faults.settles.load(Ordering::SeqCst);
    assert!(settles < 200, "{settles} settles");
}

#[tokio::test(start_paused = true)]
async fn a_handler_may_name_each_lane_done() {
    let (rig, log) = rig_with(2_000).await;
    let seen = log.clone();
    let builder = engine(&rig).worker("orders", move |batch: Batch<u32>| {
        let lane = &batch.lanes()[0];
        seen.add(lane.payloads()[0].to_string());
        let mut outcomes = Outcomes::new();
        outcomes.set(lane.id(), Outcome::Done);
        async move { outcomes }
    });
    let running = Running::start(builder);
    log.reaches(2_000).await;
    assert_eq!(running.stop().await.processed, 2_000);
    assert_eq!(log.lines(), numbers(0..2_000));
    let settles = rig.faults.settles.load(Ordering::SeqCst);
    assert!(settles < 200, "{settles} settles");
}

#[tokio::test(start_paused = true)]
async fn a_turn_is_handed_over_as_it_was_claimed_whatever_the_queue_says_since() {
    let (rig, _) = rig_with(1).await;
    let claimed = rig.claim_as("node", "orders", secs(60)).await.remove(0);
    let turn = |jobs| Turn { jobs: vec![claimed.jobs[0].clone(); jobs], ..claimed.clone() };
    let queue = Queue::fifo("orders");
    assert!(queue.hands_over_in_parts(&turn(2)) && !queue.hands_over_in_parts(&turn(1)));
    let kept = queue.clone().retain_completed(secs(1)).batch_size(10);
    assert!(!kept.hands_over_singly() && kept.hands_over_in_parts(&turn(2)));
    assert!(!queue.take(2).hands_over_in_parts(&turn(2)));
    assert!(!Queue::accumulate("orders").hands_over_in_parts(&turn(2)));
}

#[tokio::test(start_paused = true)]
async fn a_definition_that_changes_under_a_running_engine_loses_and_repeats_no_job() {
    const STEP: usize = 500;
    let (rig, log) = rig_with(5 * STEP as u32).await;
    let seen = log.clone();
    let builder = engine(&rig).worker("orders", move |batch: Batch<u32>| {
        let numbers = batch.lanes()[0].payloads().to_vec();
        assert!(numbers.len() <= 3, "a call of {} jobs", numbers.len());
        numbers.iter().for_each(|n| seen.add(n.to_string()));
        std::future::ready(())
    });
    let running = Running::start(builder);
    let queue = Queue::fifo("orders");
    let kept = queue.clone().retain_completed(secs(3_600));
    let definitions =
        [queue.clone().take(3).batch_size(3), kept, queue.clone().max_crashes(1), queue];
    for (step, definition) in (1..).zip(definitions) {
        log.reaches(step * STEP).await;
        rig.store_declared(definition).await;
    }
    log.reaches(5 * STEP).await;
    running.stop().await;
    assert_eq!(log.lines(), numbers(0..5 * STEP as u32));
    assert_eq!(rig.stats(None).await.unwrap()[0].waiting(), 0);
}

#[tokio::test(start_paused = true)]
async fn a_failure_is_that_of_its_job_and_the_others_wait_for_its_retry() {
    let (rig, log) = rig_with(MANY + 40).await;
    let failing = move |n, context: Context| async move {
        let turn = &context.turns()[0];
        assert_eq!(
            (turn.retry_count >= 0, turn.attempt()),
            match n {
                MANY if turn.retry_count >= 0 => (true, 2),
                _ => (false, 1),
            }
        );
        if n == MANY && turn.retry_count < 0 { Err("it failed".into()) } else { Ok(()) }
    };
    let running = Running::start(logging(&rig, &log, failing));
    log.reaches(MANY as usize + 41).await;
    let summary = running.stop().await;
    assert_eq!(log.lines(), numbers((0..=MANY).chain(MANY..MANY + 40)));
    assert_eq!((summary.failed, summary.processed), (1, u64::from(MANY) + 40));
}

#[tokio::test(start_paused = true)]
async fn jobs_that_become_slow_are_claimed_one_at_a_time_again() {
    let (rig, log) = rig_with(MANY + 40).await;
    let slow = |n, _| async move {
        if n >= MANY {
            pass(secs(10)).await;
        }
        Ok(())
    };
    let running = Running::start(logging(&rig, &log, slow));
    log.reaches(MANY as usize + 3).await;
    let lane = rig.lanes(LaneQuery::new("orders")).await.unwrap().rows.remove(0);
    let turn = rig.turn(lane.lane, lane.token.unwrap()).await.unwrap().unwrap();
    assert_eq!(turn.jobs.len(), 1, "what waits is not claimed");
    assert_eq!(lane.jobs, 40 - 2, "what is done is settled");
    running.kill();
}

#[tokio::test(start_paused = true)]
async fn a_node_that_stops_returns_what_it_has_not_started() {
    let (rig, log) = rig_with(MANY + 40).await;
    let slow = |n, _| async move {
        if n == MANY {
            pass(Duration::from_millis(2)).await;
        }
        Ok(())
    };
    let running = Running::start(logging(&rig, &log, slow));
    log.reaches(MANY as usize + 1).await;
    let summary = running.stop().await;
    assert_eq!((summary.processed, summary.unsettled), (u64::from(MANY) + 1, 0));
    let stats = &rig.stats(None).await.unwrap()[0];
    assert_eq!((stats.jobs, stats.claimed), (39, 0));
    let (rig, log) = (rig.clone(), Log::default());
    let first_tries = |_, context: Context| async move {
        assert_eq!(context.turns()[0].attempt(), 1, "it was never started");
        Ok(())
    };
    let running = Running::start(logging(&rig, &log, first_tries));
    log.reaches(39).await;
    running.stop().await;
    assert_eq!(log.lines(), numbers(MANY + 1..MANY + 40));
}

#[tokio::test(start_paused = true)]
async fn jobs_that_have_expired_or_cannot_be_read_are_left_out() {
    let rig = Rig::new();
    rig.store_declared(Queue::fifo("orders")).await;
    let mut left_out = Vec::new();
    for n in 0..MANY + 40 {
        let soon = START + secs(1);
        left_out.push(match n {
            210 => rig.push(job(n).expires_at(soon)).await,
            220 => rig.push(Job::new("orders", "no number").unwrap().key("a")).await,
            _ => {
                rig.push(job(n)).await;
                continue;
            }
        });
    }
    pass(secs(2)).await;
    let log = Log::default();
    let running = Running::start(logging(&rig, &log, |_, _| async { Ok(()) }));
    log.reaches(MANY as usize + 38).await;
    running.stop().await;
    assert_eq!(log.lines(), numbers((0..MANY + 40).filter(|n| ![210, 220].contains(n))));
    assert_eq!(rig.state(left_out[1]).await, Some(JobState::Dead));
    assert_eq!(rig.stats(None).await.unwrap()[0].jobs, 0);
}

#[tokio::test(start_paused = true)]
async fn what_a_handler_reports_is_not_taken_for_that_of_the_next_job() {
    let (rig, log) = rig_with(MANY + 40).await;
    let reporting = |n, context: Context| async move {
        if n == MANY {
            let lane = context.turns()[0].lane;
            let mut steps = context.steps_of(lane).await?;
            steps.run("only", async || Ok::<_, Failure>(n)).await?;
        }
        if n == MANY + 1 {
            let mut steps = context.steps_of(context.turns()[0].lane).await?;
            let mine: u32 = steps.run("only", async || Ok::<_, Failure>(n)).await?;
            assert_eq!(mine, n, "it is its own step");
        }
        Ok(())
    };
    let running = Running::start(logging(&rig, &log, reporting));
    log.reaches(MANY as usize + 40).await;
    assert_eq!(running.stop().await.failed, 0);
}

#[tokio::test(start_paused = true)]
async fn progress_that_no_heartbeat_has_taken_ends_no_turn() {
    let (rig, log) = rig_with(2_000).await;
    let reporting = |n, context: Context| async move {
        context.progress_of(context.turns()[0].lane, &n)?;
        Ok(())
    };
    let running = Running::start(logging(&rig, &log, reporting));
    log.reaches(2_000).await;
    assert_eq!(running.stop().await.processed, 2_000);
    assert_eq!(log.lines(), numbers(0..2_000));
    let settles = rig.faults.settles.load(Ordering::SeqCst);
    assert!(settles < 200, "{settles} settles");
}
