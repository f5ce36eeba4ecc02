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
