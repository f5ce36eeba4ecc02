//! Which queues a wake-up makes an engine ask for.

use std::sync::atomic::Ordering;
use std::time::Duration;

use super::rig::{Log, Rig, Running, engine, pass, secs};
use crate::contract::{Declare, Producer, Push};
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
async fn a_push_among_five_hundred_engines_reaches_those_of_its_queue_and_each_asks_once() {
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
