//! Lanes that may be what ends the processes.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use tokio::sync::Notify;
use tokio::time::Instant;

use super::rig::{Log, Rig, Running, engine, pass, secs};
use crate::contract::{JobState, Settle};
use crate::model::crash;
use crate::*;

/// Pushes jobs that run for so long.
async fn push(rig: &Rig, queue: &Queue, names: &[&str], length: Duration) {
    for name in names {
        rig.push(Job::new(&queue.name, &(*name, length)).unwrap()).await;
    }
}

/// The processes that hold all lanes of the queue die, one after the other.
async fn crashes(rig: &Rig, queue: &Queue, times: u32) {
    for number in 0..times {
        let turns = rig.claim_as(&format!("dead {number}"), &queue.name, secs(60)).await;
        let turns = turns.iter().map(|turn| crash(turn, queue, "it died")).collect();
        assert!(rig.settle(Settle::now(turns)).await.unwrap().iter().all(|one| one.is_ok()));
    }
}

/// An engine that logs when a job of these queues begins and ends, in seconds from now.
fn logging(rig: &Rig, log: &Log, queues: &[&Queue]) -> EngineBuilder {
    let begin = Instant::now();
    queues.iter().fold(engine(rig).concurrency(16), |builder, queue| {
        let log = log.clone();
        builder.worker(queue.name.as_str(), move |batch: Batch<(String, Duration)>| {
            let (name, length) = batch.lanes()[0].payloads()[0].clone();
            let log = log.clone();
            async move {
                log.add(format!("{name} begins {}", begin.elapsed().as_secs()));
                pass(length).await;
                log.add(format!("{name} ends {}", begin.elapsed().as_secs()));
            }
        })
    })
}

/// Most jobs whose names start so that ran at one time.
fn most_at_once(lines: &[String], start: &str) -> i32 {
    let (mut now, mut most) = (0, 0);
    for line in lines.iter().filter(|line| line.starts_with(start)) {
        now += if line.contains(" begins ") { 1 } else { -1 };
        most = most.max(now);
    }
    most
}

fn second(lines: &[String], what: &str) -> Option<u64> {
    let line = lines.iter().find_map(|line| line.strip_prefix(what))?;
    line.trim().parse().ok()
}

#[tokio::test(start_paused = true)]
async fn lanes_with_two_crashes_run_one_at_a_time_beside_all_others() {
    let (rig, log) = (Rig::new(), Log::default());
    let queues = [Queue::parallel("mail"), Queue::parallel("orders")];
    for queue in &queues {
        rig.store_declared(queue.clone()).await;
        push(&rig, queue, &["two", "two", "two"], secs(1)).await;
        crashes(&rig, queue, 1).await;
        push(&rig, queue, &["one", "one"], secs(1)).await;
        crashes(&rig, queue, 1).await;
        push(&rig, queue, &["none", "none", "none"], secs(1)).await;
    }
    let settles = rig.faults.settles.load(Ordering::SeqCst);
    let claims = rig.faults.claims.load(Ordering::SeqCst);
    let running = Running::start(logging(&rig, &log, &[&queues[0], &queues[1]]));
    log.reaches(32).await;
    assert_eq!(running.stop().await.done, 16);
    let lines = log.lines();
    assert_eq!(most_at_once(&lines, "two"), 1, "{lines:?}");
    assert_eq!(most_at_once(&lines, "none"), 6, "{lines:?}");
    assert!(most_at_once(&lines, "one") >= 2, "{lines:?}");
    // Two claims may bring suspects that go back; afterwards they come one by one.
    let settles = rig.faults.settles.load(Ordering::SeqCst) - settles;
    assert!(settles <= 16 + 2, "{settles} settles");
    let claims = rig.faults.claims.load(Ordering::SeqCst) - claims;
    assert!(claims <= 200, "{claims} claims in six seconds");
}

#[tokio::test(start_paused = true)]
async fn a_suspect_that_runs_for_long_keeps_only_other_suspects_waiting() {
    let (rig, log) = (Rig::new(), Log::default());
    let (mail, orders) = (Queue::parallel("mail"), Queue::parallel("orders"));
    push(&rig, &mail, &["long"], secs(600)).await;
    crashes(&rig, &mail, 2).await;
    pass(secs(1)).await;
    push(&rig, &orders, &["other"], secs(1)).await;
    crashes(&rig, &orders, 1).await;
    push(&rig, &orders, &["one"], secs(1)).await;
    crashes(&rig, &orders, 1).await;
    let settles = rig.faults.settles.load(Ordering::SeqCst);
    let running = Running::start(logging(&rig, &log, &[&mail, &orders]));
    log.reaches(6).await;
    let lines = log.lines();
    assert_eq!(second(&lines, "long begins"), Some(0));
    let beside = second(&lines, "one begins");
    assert!(beside.is_some_and(|second| (10..=20).contains(&second)), "{lines:?}");
    assert_eq!(second(&lines, "other begins"), Some(600), "{lines:?}");
    // Each look at what may run beside it returns the other one.
    let settles = rig.faults.settles.load(Ordering::SeqCst) - settles;
    assert!((20..=65).contains(&settles), "{settles} settles in ten minutes");
    running.stop().await;
}

#[tokio::test(start_paused = true)]
async fn a_lane_that_the_next_crash_would_bury_is_a_suspect() {
    let (rig, log) = (Rig::new(), Log::default());
    let queue = Queue::parallel("mail").max_crashes(2);
    rig.store_declared(queue.clone()).await;
    push(&rig, &queue, &["one", "one", "one"], secs(1)).await;
    crashes(&rig, &queue, 1).await;
    let running = Running::start(logging(&rig, &log, &[&queue]));
    log.reaches(6).await;
    running.stop().await;
    assert_eq!(most_at_once(&log.lines(), "one"), 1, "{:?}", log.lines());
}

#[tokio::test(start_paused = true)]
async fn a_suspect_whose_outcome_the_store_refuses_keeps_no_others_waiting() {
    let (rig, log) = (Rig::new(), Log::default());
    let queue = Queue::parallel("mail");
    let refused = rig.push(Job::new("mail", &("refused", secs(1))).unwrap()).await;
    push(&rig, &queue, &["two"], secs(1)).await;
    crashes(&rig, &queue, 2).await;
    rig.faults.refuses_to_settle(refused, ErrorKind::Internal);
    let running = Running::start(logging(&rig, &log, &[&queue]));
    log.reaches(4).await;
    assert_eq!(second(&log.lines(), "two begins"), Some(1), "{:?}", log.lines());
    rig.faults.settles_all();
    running.stop().await;
}

#[tokio::test(start_paused = true)]
async fn c10_of_nine_jobs_that_die_together_only_the_poison_is_buried() {
    let (rig, done, killed) = (Rig::new(), Log::default(), Arc::new(Notify::new()));
    let mut poison = None;
    for number in 0..9 {
        let id = rig.push(Job::new("mail", &number).unwrap()).await;
        poison = if number == 4 { Some(id) } else { poison };
    }
    let mut deaths = 0;
    loop {
        let (log, kills) = (done.clone(), killed.clone());
        let worker = move |batch: Batch<u32>| {
            let (log, kills, number) = (log.clone(), kills.clone(), batch.lanes()[0].payloads()[0]);
            async move {
                if number == 4 {
                    kills.notify_one();
                    std::future::pending::<()>().await;
                }
                pass(secs(1)).await;
                log.add(number.to_string());
            }
        };
        let running = Running::start(engine(&rig).concurrency(16).worker("mail", worker));
        if tokio::time::timeout(secs(300), killed.notified()).await.is_err() {
            running.stop().await;
            break;
        }
        running.kill();
        deaths += 1;
    }
    let mut lines = done.lines();
    lines.sort();
    assert_eq!(lines, ["0", "1", "2", "3", "5", "6", "7", "8"]);
    assert_eq!(deaths, 5);
    assert_eq!(rig.state(poison.unwrap()).await, Some(JobState::Dead));
}
