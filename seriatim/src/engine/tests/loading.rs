//! How many lanes are claimed ahead.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use super::rig::{Log, Rig, Running, engine, pass, secs};
use crate::contract::{Producer, Push};
use crate::*;

#[tokio::test(start_paused = true)]
async fn short_jobs_are_claimed_far_ahead_and_slow_ones_are_not() {
    for (length, asked, least) in [(0, 100, 500), (1_000, 20, 0)] {
        let (rig, log) = (Rig::new(), Log::default());
        for i in 0..asked * 40 {
            rig.push(Job::new("mail", &i).unwrap()).await;
        }
        let written = log.clone();
        let running = Running::start(engine(&rig).worker("mail", move |_: Batch<u32>| {
            let log = written.clone();
            async move {
                if length > 0 {
                    pass(Duration::from_millis(length)).await;
                }
                log.add("");
            }
        }));
        log.reaches(asked as usize).await;
        let most = rig.faults.lanes_asked.load(Ordering::SeqCst);
        if least > 0 {
            log.reaches(asked as usize * 40).await;
            let most = rig.faults.lanes_asked.load(Ordering::SeqCst);
            assert!((least..=1_000).contains(&most), "short jobs: {most} at once");
        } else {
            assert!(most <= 8, "slow jobs: {most} at once");
        }
        running.stop().await;
    }
}

#[tokio::test(start_paused = true)]
async fn claims_side_by_side_are_no_more_than_asked_for_and_the_most_urgent_comes_first() {
    let (rig, log) = (Rig::new(), Log::default());
    for priority in [3, 9, 1, 7, 5] {
        rig.push(Job::new("mail", &priority).unwrap().priority(priority)).await;
    }
    rig.faults.claim_split.store(2, Ordering::SeqCst);
    let written = log.clone();
    let worker = move |batch: Batch<u16>| {
        written.add(batch.payloads().map(u16::to_string).collect::<String>());
        async move {
            pass(secs(1)).await;
        }
    };
    let running = Running::start(engine(&rig).concurrency(5).worker("mail", worker));
    log.reaches(5).await;
    assert_eq!(log.lines(), ["1", "3", "5", "7", "9"]);
    assert_eq!(rig.faults.lanes_asked.load(Ordering::SeqCst), 3);
    running.stop().await;
}

#[tokio::test(start_paused = true)]
async fn slots_wait_neither_for_claims_nor_for_settles_under_way() {
    const JOBS: u64 = 2_000;
    let (rig, log) = (Rig::new(), Log::default());
    for i in 0..JOBS {
        rig.push(Job::new("mail", &i).unwrap()).await;
    }
    rig.faults.claim_split.store(100, Ordering::SeqCst);
    rig.faults.answered_after.store(20, Ordering::SeqCst);
    let written = log.clone();
    let running = Running::start(engine(&rig).worker("mail", move |_: Batch<u64>| {
        let log = written.clone();
        async move {
            pass(Duration::from_millis(10)).await;
            log.add("");
        }
    }));
    // Until the engine knows how long a call takes, it claims few lanes ahead.
    log.reaches(100).await;
    let began = tokio::time::Instant::now();
    log.reaches(JOBS as usize).await;
    let (took, least) = (began.elapsed(), Duration::from_millis((JOBS - 100) * 10 / 4));
    assert!(took < least.mul_f64(1.05), "{took:?}, at least {least:?}");
    running.stop().await;
}

/// A call that has the connection goes on only while its answer is waited for, as with drivers.
#[tokio::test(start_paused = true)]
async fn claims_under_way_do_not_keep_the_only_connection_from_the_engine() {
    let names = ["a", "b", "c"];
    // Queues that a push has created later are looked up too.
    for are_new in [false, true] {
        let (rig, log) = (Rig::new(), Log::default());
        rig.faults.single.store(true, Ordering::SeqCst);
        rig.faults.claim_split.store(1, Ordering::SeqCst);
        rig.faults.answered_after.store(10, Ordering::SeqCst);
        let builder = names.iter().fold(engine(&rig).concurrency(30), |builder, name| {
            builder.with(Worker::new(*name, log.adds::<u32>("done")).concurrency(1))
        });
        let push = async || {
            let of_each = |i: u32| names.map(|name| Job::new(name, &i).unwrap());
            let jobs = (0..5).flat_map(of_each).collect();
            Producer::push(&rig, Push { now: None, jobs }).await.unwrap();
        };
        if !are_new {
            push().await;
        }
        let running = Running::start(builder);
        pass(secs(1)).await;
        if are_new {
            push().await;
        }
        log.reaches(15).await;
        running.stop().await;
    }
}

#[tokio::test(start_paused = true)]
async fn n6_a_worker_s_own_limit_holds() {
    let (rig, log) = (Rig::new(), Log::default());
    for i in 0..10 {
        rig.push(Job::new("video", &i).unwrap()).await;
    }
    let written = log.clone();
    let worker = Worker::new("video", move |_: Batch<u32>| {
        let log = written.clone();
        async move {
            log.add("start");
            pass(secs(1)).await;
        }
    });
    let running = Running::start(engine(&rig).with(worker.concurrency(2)));
    pass(Duration::from_millis(500)).await;
    assert_eq!(log.len(), 2);
    pass(secs(1)).await;
    assert_eq!(log.len(), 4);
    running.stop().await;
}

#[tokio::test(start_paused = true)]
async fn s1_a_slow_queue_does_not_keep_the_others_waiting_when_slots_are_free() {
    let (rig, log) = (Rig::new(), Log::default());
    for i in 0..2 {
        rig.push(Job::new("slow", &i).unwrap()).await;
    }
    for i in 0..50 {
        rig.push(Job::new("quick", &i).unwrap()).await;
    }
    let written = log.clone();
    let running = Running::start(
        engine(&rig)
            .worker("slow", |_: Batch<u32>| async {
                pass(secs(60)).await;
            })
            .worker("quick", move |_: Batch<u32>| {
                written.add("");
                async {}
            }),
    );
    pass(secs(2)).await;
    assert_eq!(log.len(), 50);
    assert_eq!(rig.stats(None).await.unwrap().iter().map(|s| s.claimed).sum::<u64>(), 2);
    running.kill();
}

#[tokio::test(start_paused = true)]
async fn l11_s1_so_many_calls_run_at_once_whatever_the_number_of_queues() {
    let rig = Rig::new();
    let running = Arc::new(AtomicUsize::new(0));
    let (most, log) = (Arc::new(AtomicUsize::new(0)), Log::default());
    let mut builder = engine(&rig).concurrency(4);
    for number in 0..40 {
        let queue = format!("queue-{number}");
        for i in 0..5 {
            rig.push(Job::new(&queue, &i).unwrap()).await;
        }
        let (running, most, log) = (running.clone(), most.clone(), log.clone());
        builder = builder.worker(queue, move |_: Batch<u32>| {
            let (running, most, log) = (running.clone(), most.clone(), log.clone());
            async move {
                most.fetch_max(running.fetch_add(1, Ordering::SeqCst) + 1, Ordering::SeqCst);
                pass(Duration::from_millis(10)).await;
                running.fetch_sub(1, Ordering::SeqCst);
                log.add("");
            }
        });
    }
    let engine = Running::start(builder);
    log.reaches(200).await;
    engine.stop().await;
    assert_eq!(most.load(Ordering::SeqCst), 4);
}

#[tokio::test(start_paused = true)]
async fn all_slots_run_however_many_lanes_they_hold() {
    // Calls for one lane each, and for a hundred.
    for (slots, batch) in [(4_100, 1), (41, 100)] {
        let (rig, log) = (Rig::new(), Log::default());
        rig.store_declared(Queue::parallel("mail").batch_size(batch)).await;
        for i in 0..4_100 {
            rig.push(Job::new("mail", &i).unwrap()).await;
        }
        let written = log.clone();
        let worker = move |batch: Batch<u32>| {
            batch.payloads().for_each(|_| written.add(""));
            pass(secs(60))
        };
        let running = Running::start(engine(&rig).concurrency(slots).worker("mail", worker));
        pass(secs(2)).await;
        assert_eq!(log.len(), 4_100, "{slots} slots");
        running.kill();
    }
}

#[tokio::test(start_paused = true)]
async fn a_slot_kept_free_for_a_queue_that_then_has_nothing_is_given_back() {
    let (rig, log) = (Rig::new(), Log::default());
    rig.push(Job::new("slow", &1).unwrap()).await;
    let handler = |log: Log| {
        move |batch: Batch<u32>| {
            let (log, queue) = (log.clone(), batch.queue().to_owned());
            async move {
                pass(secs(3)).await;
                log.add(queue);
            }
        }
    };
    let builder = engine(&rig).concurrency(1);
    let builder = builder.worker("slow", handler(log.clone()));
    let running = Running::start(builder.worker("quick", handler(log.clone())));
    pass(Duration::from_millis(1_500)).await;
    let second = rig.push(Job::new("slow", &2).unwrap()).await;
    pass(Duration::from_millis(500)).await;
    rig.cancel(store::Cancel { now: None, jobs: vec![second] }).await.unwrap();
    pass(secs(2)).await;
    rig.push(Job::new("quick", &3).unwrap()).await;
    log.reaches(2).await;
    assert_eq!(log.lines(), ["slow", "quick"]);
    running.stop().await;
}

#[tokio::test(start_paused = true)]
async fn a_node_tells_within_a_second_what_it_runs_and_what_it_only_holds() {
    const QUICK: usize = 400;
    let (rig, log, began) = (Rig::new(), Log::default(), tokio::time::Instant::now());
    for i in 0..QUICK * 5 {
        rig.push(Job::new("mail", &i).unwrap()).await;
    }
    let gate = Arc::new(tokio::sync::Semaphore::new(0));
    let (written, shut) = (log.clone(), gate.clone());
    let worker = move |_: Batch<u32>| {
        let (log, gate) = (written.clone(), shut.clone());
        async move {
            if log.len() >= QUICK {
                gate.acquire().await.unwrap().forget();
            }
            log.add("");
        }
    };
    let running = Running::start(engine(&rig).heartbeat(secs(10)).worker("mail", worker));
    log.reaches(QUICK).await;
    let seen = async || {
        let node = rig.nodes().await.unwrap().remove(0).info;
        let prefetched = node.prefetched.get("mail").copied().unwrap_or(0);
        let claimed = rig.stats(None).await.unwrap()[0].claimed;
        (node.busy, u64::from(prefetched), claimed)
    };
    pass(Duration::from_millis(1_500)).await;
    let (busy, prefetched, claimed) = seen().await;
    assert!(busy == 4 && prefetched > 0, "{busy} busy, {prefetched} prefetched");
    assert_eq!(claimed - prefetched, 4, "what is not prefetched runs");
    // Lanes that wait too long are returned.
    pass(secs(3)).await;
    assert_eq!(seen().await, (4, 0, 4));
    gate.add_permits(QUICK * 5);
    log.reaches(QUICK * 5).await;
    pass(Duration::from_millis(1_500)).await;
    assert_eq!(seen().await, (0, 0, 0));
    let (beats, seconds) = (rig.faults.beats.load(Ordering::SeqCst), began.elapsed().as_secs());
    assert!(beats as u64 <= seconds + 2, "{beats} heartbeats in {seconds} s");
    running.stop().await;
}
