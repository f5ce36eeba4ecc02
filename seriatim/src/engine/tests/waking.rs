//! Which queues a wake-up makes an engine ask for.

use std::sync::atomic::Ordering;
use std::time::Duration;

use tokio::time::Instant;

use super::rig::{Log, Rig, Running, START, engine, pass, secs};
use crate::contract::{Declare, Producer, Push, Wrapper};
use crate::engine::Scheduler;
use crate::machine::PRETENDED;
use crate::*;

const QUEUES: usize = 1_000;

#[tokio::test(start_paused = true)]
async fn a_push_to_one_queue_of_a_thousand_asks_for_that_queue_alone() {
    let (rig, log) = (Rig::new(), Log::default());
    let queues = (0..QUEUES).map(|i| Queue::parallel(format!("q{i}"))).collect();
    rig.declare(Declare { now: None, queues }).await.unwrap();
    let mut builder = engine(&rig).poll_interval(secs(600));
    for i in 0..QUEUES {
        let written = log.clone();
        builder = builder.worker(format!("q{i}"), move |batch: Batch<u32>| {
            written.add(batch.queue());
            async {}
        });
    }
    let running = Running::start(builder);
    pass(Duration::from_millis(100)).await;
    let asked = || {
        let faults = &rig.faults;
        (faults.claims.load(Ordering::SeqCst), faults.dues.load(Ordering::SeqCst))
    };
    let (claims, dues) = asked();
    rig.push(Job::new("q500", &1).unwrap()).await;
    log.reaches(1).await;
    pass(secs(1)).await;
    assert_eq!(log.lines(), ["q500"]);
    let (claims_now, dues_now) = asked();
    assert!(claims_now - claims <= 2, "{} claims", claims_now - claims);
    assert_eq!(dues_now - dues, 0, "queues were asked for");

    // A wake-up for several queues asks once for these.
    let jobs = [7, 8, 9].map(|i| Job::new(format!("q{i}"), &1).unwrap()).to_vec();
    Producer::push(&rig, Push { now: None, jobs }).await.unwrap();
    log.reaches(4).await;
    pass(secs(1)).await;
    let (claims_now, dues_now) = asked();
    assert!(claims_now - claims <= 8, "{} claims", claims_now - claims);
    assert!(dues_now - dues <= 6, "{} queues were asked for", dues_now - dues);
    running.stop().await;
}

#[tokio::test(start_paused = true)]
async fn an_idle_engine_asks_for_all_its_queues_in_one_call_whatever_its_scheduler() {
    for scheduler in [Scheduler::Lag, Scheduler::Seq, Scheduler::Weighted, Scheduler::Strict] {
        let rig = Rig::new();
        let names: Vec<String> = (0..QUEUES).map(|i| format!("q{i}")).collect();
        let queues = names.iter().map(Queue::parallel).collect();
        rig.declare(Declare { now: None, queues }).await.unwrap();
        let builder = engine(&rig).scheduler(scheduler).poll_interval(secs(1));
        let builder = names
            .iter()
            .fold(builder, |builder, name| builder.worker(&**name, |_: Batch<u32>| async {}));
        let running = Running::start(builder);
        pass(Duration::from_millis(100)).await;
        let asked = || {
            [&rig.faults.claims, &rig.faults.due_calls].map(|count| count.load(Ordering::SeqCst))
        };
        let before = asked();
        pass(secs(10)).await;
        let [claims, calls] = asked();
        assert_eq!(claims - before[0], 0, "{scheduler:?}");
        assert!(calls - before[1] <= 11, "{scheduler:?}: {} calls", calls - before[1]);
        running.stop().await;
    }
}

/// Claims, queues that were asked for, and settles.
fn requests(rig: &Rig) -> [usize; 3] {
    let faults = &rig.faults;
    [&faults.claims, &faults.dues, &faults.settles].map(|count| count.load(Ordering::SeqCst))
}

/// What the engines of a rig ask for from this push on, until they are at rest.
async fn cost(rig: &Rig, log: &Log, jobs: Vec<Job>) -> [usize; 3] {
    let (before, done) = (requests(rig), log.len() + jobs.len());
    Producer::push(rig, Push { now: None, jobs }).await.unwrap();
    log.reaches(done).await;
    pass(secs(1)).await;
    let after = requests(rig);
    std::array::from_fn(|i| after[i] - before[i])
}

#[tokio::test(start_paused = true)]
async fn s5_a_push_among_five_hundred_engines_reaches_those_of_its_queue_and_each_asks_once() {
    const ENGINES: usize = 500;
    let (rig, log) = (Rig::new(), Log::default());
    let queues = vec![Queue::parallel("orders"), Queue::parallel("mail")];
    rig.declare(Declare { now: None, queues }).await.unwrap();
    let start = |queue: &'static str| {
        let written = log.clone();
        // No poll and no heartbeat falls into the measured times.
        let builder =
            engine(&rig).poll_interval(secs(3_600)).lease(secs(3_600)).heartbeat(secs(1_200));
        Running::start(builder.worker(queue, move |_: Batch<u32>| {
            written.add(queue);
            async {}
        }))
    };
    let mut running: Vec<Running> = (0..ENGINES).map(|_| start("orders")).collect();
    running.push(start("mail"));
    pass(secs(5)).await;
    let job = |queue: &str| Job::new(queue, &1).unwrap();

    let [claims, dues, settles] = cost(&rig, &log, vec![job("mail")]).await;
    assert!(claims <= 2 && dues == 0, "{claims} claims, {dues} looks: the others sleep");
    assert_eq!(settles, 1);

    // Each engine asks once, and once more after each call that had jobs.
    for jobs in [1, 100, 2_000] {
        let [claims, dues, settles] = cost(&rig, &log, vec![job("orders"); jobs]).await;
        assert!(claims <= ENGINES + settles && dues == 0, "{jobs}: {claims} claims, {dues} looks");
        assert!(settles <= jobs.min(ENGINES), "{settles} settles of {jobs} jobs");
    }
    for engine in running {
        engine.stop().await;
    }
}

#[tokio::test(start_paused = true)]
async fn an_idle_engine_with_one_queue_asks_whether_it_is_due_instead_of_claiming() {
    let rig = Rig::new();
    let running = Running::start(engine(&rig).worker("orders", |_: Batch<u32>| async {}));
    pass(secs(2)).await;
    let before = requests(&rig);
    pass(secs(60)).await;
    let [claims, dues, _] = requests(&rig);
    assert_eq!(claims - before[0], 0);
    assert!((1..=61).contains(&(dues - before[1])), "{} looks", dues - before[1]);
    running.stop().await;
}

/// What it looks at and finds not due, nobody else can take either.
#[tokio::test(start_paused = true)]
async fn an_engine_without_room_passes_a_wake_up_on_and_one_that_finds_nothing_due_does_not() {
    let (rig, log) = (Rig::new(), Log::default());
    let queues = vec![Queue::parallel("orders"), Queue::parallel("mail")];
    rig.declare(Declare { now: None, queues }).await.unwrap();
    let handler = |log: Log| {
        move |_: Batch<u32>| {
            log.add("begins");
            pass(secs(600))
        }
    };
    let builder = engine(&rig).concurrency(1).poll_interval(secs(3_600));
    let builder =
        builder.worker("orders", handler(log.clone())).worker("mail", handler(log.clone()));
    let running = Running::start(builder);
    pass(secs(1)).await;
    let passed_on = || rig.faults.passed_on.load(Ordering::SeqCst);

    let later = |queue: &str| Job::new(queue, &1).unwrap().run_at(START + secs(3_000));
    let jobs = vec![later("orders"), later("mail")];
    Producer::push(&rig, Push { now: None, jobs }).await.unwrap();
    pass(secs(1)).await;
    assert_eq!(passed_on(), 0);

    rig.push(Job::new("orders", &1).unwrap()).await;
    log.reaches(1).await;
    pass(secs(1)).await;
    let before = passed_on();
    rig.push(Job::new("mail", &1).unwrap()).await;
    pass(secs(1)).await;
    assert_eq!((passed_on() - before, log.len()), (1, 1));
    running.kill();
}

#[tokio::test(start_paused = true)]
async fn an_engine_that_is_woken_as_it_stops_passes_the_wake_up_on() {
    let rig = Rig::new();
    rig.declare(Declare { now: None, queues: vec![Queue::parallel("orders")] }).await.unwrap();
    let builder = engine(&rig).poll_interval(secs(3_600));
    let running = Running::start(builder.worker("orders", |_: Batch<u32>| async {}));
    pass(secs(1)).await;
    let before = requests(&rig);
    // The push rings after the engine was asked to stop, and before its fetcher has ended.
    let jobs = vec![Job::new("orders", &1).unwrap()];
    let (_, pushed) = tokio::join!(running.stop(), rig.inner().push(Push { now: None, jobs }));
    pushed.unwrap();
    assert_eq!(requests(&rig)[0], before[0], "it claims nothing more");
    assert_eq!(rig.faults.passed_on.load(Ordering::SeqCst), 1);
}

/// An engine on a store that loses no wake-up. Its job is logged and lasts as many seconds as it says.
fn on_a_certain_store(rig: &Rig, log: &Log) -> Running {
    rig.faults.certain.store(true, Ordering::SeqCst);
    let mut builder = engine(rig);
    for queue in ["mail", "orders", "stock"] {
        let log = log.clone();
        builder = builder.queue(Queue::parallel(queue)).worker(queue, move |batch: Batch<u64>| {
            log.add(batch.queue());
            let lasts = secs(batch.lanes()[0].payloads()[0]);
            async move { pass(lasts).await }
        });
    }
    Running::start(builder)
}

#[tokio::test(start_paused = true)]
async fn an_idle_engine_asks_a_store_that_loses_no_wake_up_once_a_minute() {
    const MINUTES: usize = 60;
    let (rig, log) = (Rig::new(), Log::default());
    let running = on_a_certain_store(&rig, &log);
    pass(secs(1)).await;
    let before = requests(&rig);
    pass(secs(MINUTES as u64 * 60)).await;
    let [claims, dues, _] = requests(&rig);
    assert_eq!(claims - before[0], 0);
    assert!(dues - before[1] <= 3 * MINUTES, "{} queues were asked for", dues - before[1]);

    let pushed = Instant::now();
    rig.push(Job::new("mail", &0).unwrap()).await;
    log.reaches(1).await;
    assert!(pushed.elapsed() < Duration::from_millis(10), "{:?}", pushed.elapsed());
    rig.push(Job::new("orders", &0).unwrap().run_in(secs(45))).await;
    log.reaches(2).await;
    let late = pushed.elapsed().saturating_sub(secs(45));
    assert!(late < Duration::from_millis(10), "{late:?}");
    running.stop().await;
}

#[tokio::test(start_paused = true)]
async fn what_became_due_while_the_machine_was_suspended_waits_for_a_heartbeat_at_most() {
    let (rig, log) = (Rig::new(), Log::default());
    let running = on_a_certain_store(&rig, &log);
    pass(secs(1)).await;
    rig.push(Job::new("mail", &0).unwrap().run_in(secs(3_600))).await;
    pass(secs(1)).await;
    let resumed = Instant::now();
    PRETENDED.set(secs(4_000));
    log.reaches(1).await;
    assert!(resumed.elapsed() <= secs(6), "{:?}", resumed.elapsed());
    running.stop().await;
}

#[tokio::test(start_paused = true)]
async fn an_idle_node_reports_within_two_seconds_that_it_works_and_that_it_is_idle_again() {
    let (rig, log) = (Rig::new(), Log::default());
    let builder = engine(&rig).heartbeat(secs(10)).worker("mail", {
        let log = log.clone();
        move |batch: Batch<u64>| {
            log.add(batch.queue());
            let lasts = secs(batch.lanes()[0].payloads()[0]);
            async move { pass(lasts).await }
        }
    });
    let running = Running::start(builder);
    let busy = async || rig.nodes().await.unwrap()[0].info.busy;
    let beats = || rig.faults.beats.load(Ordering::SeqCst);
    pass(secs(10) + Duration::from_millis(100)).await;
    let before = beats();
    rig.push(Job::new("mail", &5).unwrap()).await;
    log.reaches(1).await;
    assert_eq!(busy().await, 0);
    pass(secs(2)).await;
    assert_eq!((busy().await, beats() - before), (1, 1));
    pass(secs(5)).await;
    assert_eq!((busy().await, beats() - before), (0, 2));
    pass(Duration::from_millis(9_500)).await;
    assert_eq!(beats() - before, 3, "then it says no more than that it lives");
    running.stop().await;
}

#[tokio::test(start_paused = true)]
async fn a_scheduled_job_starts_in_time_though_the_stores_clock_is_known_only_roughly() {
    let (rig, log, began) = (Rig::new(), Log::default(), Instant::now());
    // The node takes the middle of this for the time at which the clock was read.
    rig.faults.clock_after.store(20, Ordering::SeqCst);
    rig.push(Job::new("mail", &1).unwrap().run_at(START + secs(5))).await;
    let written = log.clone();
    let running = Running::start(engine(&rig).worker("mail", move |_: Batch<u32>| {
        written.add(began.elapsed().as_millis().to_string());
        async {}
    }));
    log.reaches(1).await;
    let started: u64 = log.lines()[0].parse().unwrap();
    assert!((5_000..5_030).contains(&started), "after {started} ms");
    running.stop().await;
}
