//! A store that refuses single turns and queues, for lasting reasons.

use std::sync::atomic::Ordering;

use super::rig::{Log, Rig, Running, engine, pass, secs};
use crate::contract::{JobState, Trouble, TroubleKind};
use crate::engine::Exhausted;
use crate::*;

async fn troubles(rig: &Rig) -> Vec<Trouble> {
    rig.nodes().await.unwrap().pop().unwrap().info.troubles
}

fn logging(builder: EngineBuilder, queue: &'static str, log: &Log) -> EngineBuilder {
    let log = log.clone();
    builder.worker(queue, move |batch: Batch<u32>| {
        log.add(format!("{queue} {}", batch.lanes()[0].payloads()[0]));
        async {}
    })
}

#[tokio::test(start_paused = true)]
async fn a_turn_that_the_store_refuses_to_settle_is_put_aside_and_stops_nothing() {
    for kind in [ErrorKind::Internal, ErrorKind::Corrupt, ErrorKind::Invalid] {
        let (rig, log) = (Rig::new(), Log::default());
        let mut ids = Vec::new();
        for i in 0..40 {
            ids.push(rig.push(Job::new("mail", &i).unwrap()).await);
        }
        rig.faults.refuses_to_settle(ids[7], kind);
        let running = Running::start(logging(engine(&rig), "mail", &log));
        log.reaches(40).await;
        pass(secs(1)).await;
        for (place, id) in ids.iter().enumerate() {
            let expected = (place == 7).then_some(JobState::Running);
            assert_eq!(rig.state(*id).await, expected, "{kind:?}: job {place}");
        }
        let before = rig.faults.settles.load(Ordering::SeqCst);
        pass(secs(25)).await;
        let tries = rig.faults.settles.load(Ordering::SeqCst) - before;
        assert!(tries <= 1, "{kind:?}: it is not tried all the time, but {tries} times");
        let reported = troubles(&rig).await;
        let reported: Vec<_> =
            reported.iter().map(|one| (one.kind, one.queue.as_deref())).collect();
        assert_eq!(reported, [(TroubleKind::SettlesPutAside, Some("mail"))], "{kind:?}");
        for i in 0..5_000 {
            rig.push(Job::new("mail", &(100 + i)).unwrap()).await;
        }
        log.reaches(5_040).await;
        rig.faults.settles_all();
        pass(secs(65)).await;
        assert_eq!(rig.state(ids[7]).await, None, "{kind:?}: it is settled in the end");
        assert_eq!(troubles(&rig).await, [], "{kind:?}");
        let summary = running.stop().await;
        assert_eq!((summary.done, summary.unsettled), (5_040, 0), "{kind:?}");
        assert_eq!(log.len(), 5_040, "{kind:?}: nothing ran twice");
    }
}

#[tokio::test(start_paused = true)]
async fn a_turn_whose_lane_is_locked_is_settled_later_and_holds_up_no_other() {
    let (rig, log) = (Rig::new(), Log::default());
    let mut ids = Vec::new();
    for i in 0..40 {
        ids.push(rig.push(Job::new("mail", &i).unwrap()).await);
    }
    *rig.faults.busy.lock().unwrap() = Some(ids[7]);
    let running = Running::start(logging(engine(&rig), "mail", &log));
    log.reaches(40).await;
    pass(secs(3)).await;
    for (place, id) in ids.iter().enumerate() {
        let expected = (place == 7).then_some(JobState::Running);
        assert_eq!(rig.state(*id).await, expected, "job {place}");
    }
    let told = troubles(&rig).await;
    let told: Vec<_> = told.iter().map(|trouble| (trouble.kind, &*trouble.text)).collect();
    assert_eq!(told, [(TroubleKind::SettlesLocked, "an open transaction has locked its key")]);
    *rig.faults.busy.lock().unwrap() = None;
    pass(secs(1)).await;
    assert_eq!(rig.state(ids[7]).await, None, "it is settled once the lane is free");
    pass(secs(5)).await;
    assert_eq!(troubles(&rig).await, []);
    let summary = running.stop().await;
    assert_eq!((summary.done, summary.unsettled, log.len()), (40, 0, 40));
}

#[tokio::test(start_paused = true)]
async fn what_is_put_aside_is_tried_once_more_when_the_engine_stops() {
    let (rig, log) = (Rig::new(), Log::default());
    let id = rig.push(Job::new("mail", &1).unwrap()).await;
    rig.faults.refuses_to_settle(id, ErrorKind::Internal);
    let running = Running::start(logging(engine(&rig), "mail", &log));
    log.reaches(1).await;
    pass(secs(1)).await;
    rig.faults.settles_all();
    let summary = running.stop().await;
    assert_eq!((summary.done, summary.unsettled), (1, 0));
}

#[tokio::test(start_paused = true)]
async fn a_queue_of_which_the_store_refuses_claims_keeps_no_other_waiting() {
    let (rig, log) = (Rig::new(), Log::default());
    rig.faults.refuses_to_claim("bad", usize::MAX);
    let builder = logging(logging(engine(&rig), "bad", &log), "good", &log);
    let running = Running::start(builder);
    for i in 0..50 {
        rig.push(Job::new("bad", &i).unwrap()).await;
        rig.push(Job::new("good", &i).unwrap()).await;
    }
    let began = tokio::time::Instant::now();
    log.reaches(50).await;
    assert!(began.elapsed() < secs(1), "after {:?}", began.elapsed());
    pass(secs(6)).await;
    let reported = troubles(&rig).await;
    let reported: Vec<_> = reported.iter().map(|one| (one.kind, one.about.as_str())).collect();
    assert_eq!(reported, [(TroubleKind::ClaimsPutAside, "bad")]);
    let before = rig.faults.claims.load(Ordering::SeqCst);
    pass(secs(20)).await;
    let claims = rig.faults.claims.load(Ordering::SeqCst) - before;
    assert!(claims < 50, "it is not asked all the time, but {claims} times");
    rig.faults.claims_all();
    pass(secs(65)).await;
    assert_eq!(log.len(), 100);
    assert_eq!(troubles(&rig).await, []);
    running.stop().await;
}

#[tokio::test(start_paused = true)]
async fn lanes_that_can_be_claimed_by_smaller_claims_are() {
    let (rig, log) = (Rig::new(), Log::default());
    rig.faults.refuses_to_claim("bad", 3);
    for i in 0..50 {
        rig.push(Job::new("bad", &i).unwrap()).await;
    }
    let running = Running::start(logging(engine(&rig).concurrency(40), "bad", &log));
    let began = tokio::time::Instant::now();
    log.reaches(50).await;
    assert!(began.elapsed() < secs(20), "after {:?}", began.elapsed());
    assert_eq!(running.stop().await.done, 50);
}

/// The store claimed the lanes and then failed: they are looked for before anything else is claimed.
#[tokio::test(start_paused = true)]
async fn a_claim_that_fails_half_way_leaves_nothing_held() {
    let (rig, log) = (Rig::new(), Log::default());
    for i in 0..5 {
        rig.push(Job::new("mail", &i).unwrap()).await;
    }
    rig.faults.broken_claims.store(1, Ordering::SeqCst);
    let running = Running::start(logging(engine(&rig), "mail", &log));
    log.reaches(5).await;
    assert_eq!(running.stop().await.done, 5);
}

#[tokio::test(start_paused = true)]
async fn ticks_and_calls_of_the_exhausted_hook_wait_until_a_read_only_store_accepts_them() {
    let (rig, log) = (Rig::new(), Log::default());
    rig.push(Job::new("mail", &1).unwrap().max_retries(0)).await;
    rig.faults.read_only.store(true, Ordering::SeqCst);
    let (hook, tick) = (log.clone(), log.clone());
    let cron = Cron::new("tick", "* * * * *", Job::new("ticks", &0).unwrap()).unwrap();
    let builder = engine(&rig)
        .cron(cron)
        .on_retries_exhausted(move |_: Exhausted| {
            hook.add("hook");
            async { Ok(()) }
        })
        .worker("mail", |_: Batch<u32>| async { Err::<(), Failure>("no stamps".into()) })
        .worker("ticks", move |_: Batch<u32>| {
            tick.add("tick");
            async {}
        });
    let running = Running::start(builder);
    pass(secs(65)).await;
    assert_eq!(log.len(), 0, "a standby accepts nothing");
    rig.faults.read_only.store(false, Ordering::SeqCst);
    pass(secs(40)).await;
    running.stop().await;
    let mut lines = log.lines();
    lines.sort();
    assert_eq!(lines, ["hook", "tick"]);
}

#[tokio::test(start_paused = true)]
async fn a_call_of_the_exhausted_hook_that_the_store_does_not_take_holds_up_no_other_turn() {
    let (rig, log) = (Rig::new(), Log::default());
    let bad = rig.push(Job::new("bad", &1).unwrap().max_retries(0)).await;
    let mut good = Vec::new();
    for i in 0..40 {
        good.push(rig.push(Job::new("good", &i).unwrap()).await);
    }
    rig.faults.read_only.store(true, Ordering::SeqCst);
    let hook = log.clone();
    let builder = logging(engine(&rig), "good", &log)
        .on_retries_exhausted(move |_: Exhausted| {
            hook.add("hook");
            async { Ok(()) }
        })
        .worker("bad", |_: Batch<u32>| async { Err::<(), Failure>("no stamps".into()) });
    let running = Running::start(builder);
    log.reaches(40).await;
    pass(secs(2)).await;
    for id in good {
        assert_eq!(rig.state(id).await, None, "it is settled");
    }
    assert_eq!(rig.state(bad).await, Some(JobState::Running), "it waits for its hook");
    rig.faults.read_only.store(false, Ordering::SeqCst);
    log.reaches(41).await;
    assert_eq!(rig.state(bad).await, Some(JobState::Dead));
    assert_eq!(running.stop().await.unsettled, 0);
}

#[tokio::test(start_paused = true)]
async fn a_crashed_job_whose_hook_cannot_be_told_holds_up_no_other_that_is_taken_over() {
    let (rig, log) = (Rig::new(), Log::default());
    let mut frail = Queue::parallel("frail");
    frail.max_crashes = 1;
    rig.store_declared(frail).await;
    let bad = rig.push(Job::new("frail", &1).unwrap()).await;
    rig.push(Job::new("good", &1).unwrap()).await;
    for queue in ["frail", "good"] {
        assert_eq!(rig.claim_as("dead", queue, secs(10)).await.len(), 1);
    }
    rig.faults.read_only.store(true, Ordering::SeqCst);
    let hook = log.clone();
    let builder = logging(engine(&rig), "good", &log).on_retries_exhausted(move |_: Exhausted| {
        hook.add("hook");
        async { Ok(()) }
    });
    let running = Running::start(builder);
    log.reaches(1).await;
    assert_eq!(log.lines(), ["good 1"]);
    assert_eq!(rig.state(bad).await, Some(JobState::Running), "it waits for its hook");
    rig.faults.read_only.store(false, Ordering::SeqCst);
    log.reaches(2).await;
    assert_eq!(rig.state(bad).await, Some(JobState::Dead));
    running.stop().await;
}
