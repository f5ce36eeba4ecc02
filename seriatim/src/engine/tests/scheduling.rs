//! The order of several queues.

use std::time::Duration;

use super::rig::{Log, Rig, Running, engine, pass, secs};
use crate::contract::Declare;
use crate::engine::Scheduler;
use crate::*;

/// Runs `jobs` jobs of each queue on one slot; returns the queues in the order of the calls.
async fn calls(scheduler: Scheduler, queues: &[Queue], jobs: u32) -> Vec<String> {
    calls_of(scheduler, queues, jobs, |worker| worker).await
}

/// The same, by workers that are changed first.
async fn calls_of(
    scheduler: Scheduler,
    queues: &[Queue],
    jobs: u32,
    change: fn(Worker) -> Worker,
) -> Vec<String> {
    let (rig, log) = (Rig::new(), Log::default());
    rig.declare(Declare { now: None, queues: queues.to_vec() }).await.unwrap();
    let mut builder = engine(&rig).concurrency(1).scheduler(scheduler);
    for queue in queues {
        for i in 0..jobs {
            rig.push(Job::new(&queue.name, &i).unwrap()).await;
        }
        let written = log.clone();
        let worker = Worker::new(queue.name.as_str(), move |batch: Batch<u32>| {
            written.add(batch.queue());
            async {
                pass(Duration::from_millis(1)).await;
            }
        });
        builder = builder.with(change(worker));
    }
    let running = Running::start(builder);
    log.reaches(jobs as usize * queues.len()).await;
    running.stop().await;
    log.lines()
}

#[tokio::test(start_paused = true)]
async fn s2_strict_order_serves_the_first_queue_first() {
    // Declared in an order that is not that of their names.
    let queues = [Queue::parallel("urgent"), Queue::parallel("mail")];
    let calls = calls(Scheduler::Strict, &queues, 100).await;
    assert!(calls[..100].iter().all(|queue| queue == "urgent"), "{calls:?}");
}

#[tokio::test(start_paused = true)]
async fn s2_weighted_order_serves_by_weight() {
    fastrand::seed(7);
    let mut heavy = Queue::parallel("heavy");
    heavy.weight = 3;
    let calls = calls(Scheduler::Weighted, &[Queue::parallel("light"), heavy], 600).await;
    let heavy = calls[..400].iter().filter(|queue| *queue == "heavy").count();
    assert!((270..330).contains(&heavy), "{heavy} of 400, and 300 are its share");
}

#[tokio::test(start_paused = true)]
async fn s2_e4_a_process_may_give_a_queue_another_weight() {
    fastrand::seed(7);
    let queues = ["light", "heavy"].map(Queue::parallel);
    let weigh = |worker: Worker| match &*worker.queue {
        "heavy" => worker.weight(3),
        _ => worker,
    };
    let calls = calls_of(Scheduler::Weighted, &queues, 600, weigh).await;
    let heavy = calls[..400].iter().filter(|queue| *queue == "heavy").count();
    assert!((270..330).contains(&heavy), "{heavy} of 400, and 300 are its share");
}

#[tokio::test(start_paused = true)]
async fn l10_seq_serves_one_queue_after_the_other() {
    let queues = [Queue::parallel("a"), Queue::parallel("b"), Queue::parallel("c")];
    let calls = calls(Scheduler::Seq, &queues, 60).await;
    for name in ["a", "b", "c"] {
        let early = calls[..90].iter().filter(|queue| *queue == name).count();
        assert!((20..=40).contains(&early), "{name}: {early} of the first 90");
    }
}

#[tokio::test(start_paused = true)]
async fn l10_lag_serves_the_queue_that_has_waited_longest() {
    let queues = [Queue::parallel("new"), Queue::parallel("old")];
    let (rig, log) = (Rig::new(), Log::default());
    rig.declare(Declare { now: None, queues: queues.to_vec() }).await.unwrap();
    for name in ["old", "new"] {
        for i in 0..4 {
            rig.push(Job::new(name, &i).unwrap()).await;
        }
        pass(secs(10)).await;
    }
    let mut builder = engine(&rig).concurrency(1);
    for name in ["new", "old"] {
        let written = log.clone();
        builder = builder.worker(name, move |batch: Batch<u32>| {
            written.add(batch.queue());
            async {}
        });
    }
    let running = Running::start(builder);
    log.reaches(8).await;
    running.stop().await;
    assert_eq!(log.lines()[..4], ["old"; 4]);
}

/// The saturated queue has waited longest, and the flood is claimed ahead.
#[tokio::test(start_paused = true)]
async fn a_queue_whose_own_limit_is_full_keeps_no_other_from_its_turn() {
    let (rig, log) = (Rig::new(), Log::default());
    for i in 0..5 {
        rig.push(Job::new("saturated", &i).unwrap()).await;
    }
    for i in 0..400 {
        rig.push(Job::new("flood", &i).unwrap()).await;
    }
    let slow = |_: Batch<u32>| async {
        pass(secs(60)).await;
    };
    let again = rig.clone();
    let flood = move |_: Batch<u32>| {
        let rig = again.clone();
        async move {
            pass(Duration::from_millis(1)).await;
            rig.push(Job::new("flood", &0).unwrap()).await;
        }
    };
    let builder = engine(&rig)
        .with(Worker::new("saturated", slow).concurrency(1))
        .worker("flood", flood)
        .worker("rare", log.adds::<u32>("rare"));
    let running = Running::start(builder);
    pass(secs(2)).await;
    rig.push(Job::new("rare", &0).unwrap()).await;
    let ran = tokio::time::timeout(secs(2), log.reaches(1)).await;
    assert!(ran.is_ok(), "its turn never came");
    running.kill();
}
