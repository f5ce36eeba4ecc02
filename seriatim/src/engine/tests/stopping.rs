//! Stopping an engine.

use std::sync::atomic::Ordering;
use std::time::Duration;

use super::rig::{Log, Rig, Running, engine, pass, secs};
use crate::contract::{Command, JobState, NodeState, Store};
use crate::engine::*;
use crate::*;

fn sleeping(rig: &Rig, log: &Log, length: Duration) -> EngineBuilder {
    let log = log.clone();
    engine(rig).worker("mail", move |_: Batch<u32>| {
        let log = log.clone();
        async move {
            log.add("start");
            pass(length).await;
            log.add("end");
        }
    })
}

#[tokio::test(start_paused = true)]
async fn l18_a_stopping_engine_lets_calls_finish_and_takes_no_more() {
    let (rig, log) = (Rig::new(), Log::default());
    for i in 0..10 {
        rig.push(Job::new("mail", &i).unwrap()).await;
    }
    let running = Running::start(sleeping(&rig, &log, secs(10)));
    log.reaches(4).await;
    let summary = running.stop().await;
    assert_eq!((summary.calls, summary.done, summary.unsettled), (4, 4, 0));
    assert_eq!(log.len(), 8);
    let stats = rig.stats(None).await.unwrap();
    assert_eq!((stats[0].jobs, stats[0].claimed), (6, 0));
}

#[tokio::test(start_paused = true)]
async fn s8_a_call_that_will_not_end_is_dropped_and_its_lane_goes_back_uncounted() {
    let (rig, log) = (Rig::new(), Log::default());
    let id = rig.push(Job::new("mail", &1).unwrap()).await;
    let running = Running::start(sleeping(&rig, &log, secs(100_000)).shutdown_timeout(secs(20)));
    log.reaches(1).await;
    let summary = running.stop().await;
    assert_eq!((summary.put_off, summary.failed), (1, 0));
    let view = rig.job(id).await.unwrap().unwrap();
    assert_eq!((view.state, view.retry_count), (JobState::Queued, -1));
    assert_eq!(log.lines(), ["start"]);
}

#[tokio::test(start_paused = true)]
async fn s9_a_node_told_to_be_quiet_takes_no_more_and_one_told_to_stop_stops() {
    let (rig, log) = (Rig::new(), Log::default());
    let engine =
        tokio::spawn(sleeping(&rig, &log, secs(1)).run_until(std::future::pending::<()>()));
    pass(secs(1)).await;
    let node = rig.nodes().await.unwrap()[0].info.id.clone();
    rig.command_node(node.clone(), Command::Quiet).await.unwrap();
    pass(secs(6)).await;
    rig.push(Job::new("mail", &1).unwrap()).await;
    pass(secs(6)).await;
    assert_eq!(log.len(), 0);
    rig.command_node(node.clone(), Command::Resume).await.unwrap();
    log.reaches(2).await;
    rig.command_node(node.clone(), Command::Stop).await.unwrap();
    assert_eq!(engine.await.unwrap().unwrap().calls, 1);
}

#[tokio::test(start_paused = true)]
async fn a_node_that_its_own_program_makes_quiet_returns_what_waits_for_a_slot() {
    let (rig, log) = (Rig::new(), Log::default());
    rig.store_declared(Queue::parallel("mail").batch_size(2)).await;
    for task in ["a", "b"] {
        rig.push(Job::new("mail", &1).unwrap().task(task)).await;
    }
    let engine = sleeping(&rig, &log, secs(60)).concurrency(1).build().unwrap();
    let handle = engine.handle();
    let running = tokio::spawn(engine.run_until(std::future::pending::<()>()));
    log.reaches(1).await;
    let claimed = async || rig.stats(None).await.unwrap()[0].claimed;
    assert_eq!(claimed().await, 2, "one runs, one waits for the slot");
    handle.quiet(true);
    pass(secs(1)).await;
    assert_eq!(claimed().await, 1);
    running.abort();
}

#[tokio::test(start_paused = true)]
async fn an_engine_that_waits_for_its_store_at_the_start_stops_when_its_handle_says_so() {
    let (rig, log) = (Rig::new(), Log::default());
    rig.faults.down.store(true, Ordering::SeqCst);
    let engine = sleeping(&rig, &log, secs(1)).build().unwrap();
    let handle = engine.handle();
    let engine = tokio::spawn(engine.run_until(std::future::pending::<()>()));
    pass(secs(1)).await;
    handle.stop();
    let summary = tokio::time::timeout(secs(60), engine).await.expect("it stops");
    assert_eq!(summary.unwrap().unwrap().calls, 0);
}

#[tokio::test(start_paused = true)]
async fn an_engine_whose_queue_contradicts_the_store_refuses_to_start() {
    let (rig, log) = (Rig::new(), Log::default());
    rig.store_declared(Queue::fifo("mail")).await;
    rig.push(Job::new("mail", &1).unwrap().key("a")).await;
    let builder = sleeping(&rig, &log, secs(1)).queue(Queue::accumulate("mail"));
    let error = builder.run_until(std::future::pending::<()>()).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Conflict);
}

#[tokio::test(start_paused = true)]
async fn l15_settings_that_contradict_each_other_are_refused() {
    let (rig, log) = (Rig::new(), Log::default());
    let refused = |builder: EngineBuilder| {
        let error = builder.build().err().expect("it should be refused");
        error.field().unwrap_or_default().to_owned()
    };
    let base = || sleeping(&rig, &log, secs(1));
    assert_eq!(refused(base().heartbeat(secs(5)).lease(secs(14))), "lease");
    assert_eq!(refused(base().concurrency(0)), "concurrency");
    assert_eq!(refused(base().rescue_interval(Duration::ZERO)), "rescue_interval");
    assert_eq!(refused(base().node_name("remote:w")), "node_name");
    assert_eq!(refused(base().worker("mail", |_: Batch<u32>, _| async {})), "workers");
}

#[tokio::test(start_paused = true)]
async fn what_may_take_for_ever_breaks_no_engine() {
    let (rig, log) = (Rig::new(), Log::default());
    rig.push(Job::new("mail", &1).unwrap()).await;
    let written = log.clone();
    let worker = Worker::new("mail", move |_: Batch<u32>| {
        written.add("start");
        pass(secs(10))
    });
    let seldom = Periodic::new("seldom", Duration::MAX, |_: Tick| async { Ok(()) });
    let builder = engine(&rig)
        .with(worker.timeout(Duration::MAX))
        .periodic(seldom.once_in_fleet())
        .rescue_interval(Duration::MAX)
        .shutdown_timeout(Duration::MAX)
        .cancel_grace(Duration::MAX);
    let running = Running::start(builder);
    log.reaches(1).await;
    assert_eq!(running.stop().await.done, 1);
}

#[tokio::test(start_paused = true)]
async fn queues_that_contradict_themselves_are_refused_before_anything_starts() {
    let rig = Rig::new();
    let refused = |builder: EngineBuilder| builder.build().err().unwrap().to_string();
    let queue = |queue| refused(engine(&rig).queue(queue));
    assert_eq!(
        queue(Queue::parallel("a").batch_size(0)),
        "queues.a.batch_size: must be 1 to 10000, not 0"
    );
    assert!(queue(Queue::exclusive("a").take(2)).starts_with("queues.a.take: "));
    assert!(queue(Queue::fifo("not a name")).starts_with("queues.not a name.name: "));
    let twice = engine(&rig).queue(Queue::fifo("a")).queue(Queue::exclusive("a"));
    assert_eq!(refused(twice), "queues.a: is declared twice, and not the same way");
}

#[tokio::test(start_paused = true)]
async fn n9_a_node_that_has_stopped_is_seen_as_gone_at_once() {
    let (rig, log) = (Rig::new(), Log::default());
    rig.push(Job::new("mail", &1).unwrap()).await;
    let worker = log.adds::<u32>("");
    let stays = Running::start(engine(&rig).node_name("stays"));
    let running = Running::start(engine(&rig).node_name("goes").worker("mail", worker));
    log.reaches(1).await;
    running.stop().await;
    pass(secs(10)).await;
    let nodes = rig.nodes().await.unwrap();
    let now = rig.now().await.unwrap();
    let named = |name: &str| nodes.iter().find(|node| &*node.info.name == name).unwrap();
    let states = ["goes", "stays"].map(|name| named(name).state(now));
    assert_eq!(states, [NodeState::Stopped, NodeState::Alive], "{nodes:?}");
    stays.stop().await;
}

/// The clock is asked for before the first heartbeat and after it.
#[tokio::test(start_paused = true)]
async fn a_node_that_is_stopped_after_its_first_heartbeat_is_seen_as_gone_at_once() {
    let rig = Rig::new();
    rig.faults.clock_after.store(5_000, Ordering::SeqCst);
    let running = Running::start(engine(&rig));
    pass(secs(7)).await;
    running.stop().await;
    rig.faults.clock_after.store(0, Ordering::SeqCst);
    let (nodes, now) = (rig.nodes().await.unwrap(), rig.now().await.unwrap());
    let states: Vec<_> = nodes.iter().map(|node| node.state(now)).collect();
    assert_eq!(states, [NodeState::Stopped]);
}

#[tokio::test(start_paused = true)]
async fn an_engine_whose_store_hangs_at_the_start_can_be_stopped() {
    let rig = Rig::new();
    rig.faults.hangs.store(true, Ordering::SeqCst);
    let running = Running::start(engine(&rig));
    pass(secs(1)).await;
    let stopped = tokio::time::timeout(secs(1), running.stop()).await;
    assert_eq!(stopped.unwrap(), Summary::default());
}

#[tokio::test(start_paused = true)]
async fn what_a_claim_brings_that_is_not_answered_in_time_goes_back() {
    let (rig, log) = (Rig::new(), Log::default());
    let id = rig.push(Job::new("mail", &1).unwrap()).await;
    rig.faults.answered_after.store(5_000, Ordering::SeqCst);
    let running = Running::start(sleeping(&rig, &log, secs(1)).shutdown_timeout(secs(1)));
    while rig.state(id).await != Some(JobState::Running) {
        tokio::task::yield_now().await;
    }
    running.stop().await;
    assert_eq!((rig.state(id).await, log.len()), (Some(JobState::Queued), 0));
}

#[tokio::test(start_paused = true)]
async fn periodic_workers_and_calls_have_the_same_time_to_end() {
    let (rig, log) = (Rig::new(), Log::default());
    rig.push(Job::new("mail", &1).unwrap()).await;
    let forever = Periodic::new("forever", secs(1), |_| std::future::pending());
    let engine = sleeping(&rig, &log, secs(100_000)).periodic(forever);
    let running = Running::start(engine.shutdown_timeout(secs(20)).cancel_grace(secs(5)));
    log.reaches(1).await;
    let began = tokio::time::Instant::now();
    running.stop().await;
    assert!(began.elapsed() < secs(20 + 10), "{:?}", began.elapsed());
}
