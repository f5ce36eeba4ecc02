//! Heartbeats, lost leases, and claims that other nodes left behind.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use super::rig::{Log, Rig, Running, START, engine, pass, secs};
use crate::contract::JobState;
use crate::engine::Observer;
use crate::machine::PRETENDED;
use crate::store::{NodeId, Turn};
use crate::*;

/// A handler that logs when it starts and when it is asked to stop, and then returns an error.
fn until_stopped(rig: &Rig, log: &Log) -> EngineBuilder {
    let log = log.clone();
    engine(rig).worker("mail", move |batch: Batch<u32>, context: Context| {
        let log = log.clone();
        async move {
            log.add(format!("start {}", batch.lanes()[0].attempt()));
            context.cancelled().await;
            log.add("told");
            Err::<(), Failure>("asked to stop".into())
        }
    })
}

#[tokio::test(start_paused = true)]
async fn handlers_end_before_their_lease_does_when_heartbeats_fail() {
    // The node's lease, and a shorter one of the queue: a quarter of each is left.
    for (own, goes_on, then) in [(None, 20, 4), (Some(secs(16)), 11, 2)] {
        let (rig, log) = (Rig::new(), Log::default());
        rig.push(Job::new("mail", &1).unwrap()).await;
        let queue = Queue { lease: own, ..Queue::parallel("mail") };
        let running = Running::start(until_stopped(&rig, &log).queue(queue));
        log.reaches(1).await;
        rig.faults.no_beats.store(true, Ordering::SeqCst);
        pass(secs(goes_on)).await;
        assert_eq!(log.len(), 1, "{own:?}");
        pass(secs(then)).await;
        assert_eq!(log.lines()[1], "told", "{own:?}");
        running.stop().await;
    }
}

/// A handler that reports progress once, and logs when it starts and when it is asked to stop.
fn reporting(rig: &Rig, log: &Log) -> EngineBuilder {
    let log = log.clone();
    engine(rig).worker("mail", move |batch: Batch<u32>, context: Context| {
        let log = log.clone();
        async move {
            log.add("start");
            context.progress(&batch.lanes()[0], &7)?;
            context.cancelled().await;
            log.add("told");
            Ok::<_, Failure>(())
        }
    })
}

#[tokio::test(start_paused = true)]
async fn a_heartbeat_that_gets_no_answer_costs_neither_the_lease_nor_a_report() {
    let (rig, log) = (Rig::new(), Log::default());
    let id = rig.push(Job::new("mail", &1).unwrap()).await;
    let running = Running::start(reporting(&rig, &log));
    log.reaches(1).await;
    rig.faults.hung_beats.store(1, Ordering::SeqCst);
    pass(secs(60)).await;
    assert_eq!(log.lines(), ["start"], "it is not asked to stop");
    let view = rig.job(id).await.unwrap().unwrap();
    assert_eq!(view.progress.as_deref(), Some("7"));
    running.kill();
}

/// Before a first report is sent, the store is asked what earlier turns left.
#[tokio::test(start_paused = true)]
async fn heartbeats_go_out_while_the_store_does_not_say_what_was_reported_before() {
    let (rig, log) = (Rig::new(), Log::default());
    rig.faults.forgetful.store(true, Ordering::SeqCst);
    let id = rig.push(Job::new("mail", &1).unwrap()).await;
    let running = Running::start(reporting(&rig, &log));
    log.reaches(1).await;
    pass(secs(60)).await;
    assert_eq!(log.lines(), ["start"], "it is not asked to stop");
    rig.faults.forgetful.store(false, Ordering::SeqCst);
    pass(secs(10)).await;
    let view = rig.job(id).await.unwrap().unwrap();
    assert_eq!(view.progress.as_deref(), Some("7"));
    running.kill();
}

/// The node's own heartbeats come every five seconds.
#[tokio::test(start_paused = true)]
async fn three_heartbeats_fit_into_the_lease_of_a_queue_that_others_declared() {
    let (rig, log) = (Rig::new(), Log::default());
    rig.store_declared(Queue::parallel("mail").lease(secs(3))).await;
    rig.push(Job::new("mail", &1).unwrap()).await;
    let running = Running::start(until_stopped(&rig, &log));
    pass(secs(20)).await;
    assert_eq!(log.lines(), ["start 1"], "it is not asked to stop");
    running.kill();
}

#[tokio::test(start_paused = true)]
async fn a_call_goes_on_under_its_lease_when_that_of_the_queue_is_lengthened() {
    let (rig, log) = (Rig::new(), Log::default());
    rig.store_declared(Queue::parallel("mail").lease(secs(3))).await;
    rig.push(Job::new("mail", &1).unwrap()).await;
    let running = Running::start(until_stopped(&rig, &log));
    log.reaches(1).await;
    rig.store_declared(Queue::parallel("mail").lease(secs(25))).await;
    pass(secs(60)).await;
    assert_eq!(log.lines(), ["start 1"], "it is not asked to stop");
    running.kill();
}

/// The machine sleeps for longer than the queue's lease, and not for as long as the node's.
#[tokio::test(start_paused = true)]
async fn no_call_begins_under_a_lease_of_its_queue_that_has_ended() {
    const ASLEEP: u64 = 20;
    /// So many that the engine claims ahead.
    const SHORT: u32 = 200;
    let (rig, log) = (Rig::new(), Log::default());
    for i in 0..SHORT + 2 {
        rig.push(Job::new("mail", &i).unwrap()).await;
    }
    let written = log.clone();
    let worker = move |batch: Batch<u32>| {
        let lane = &batch.lanes()[0];
        let is_short = lane.payloads()[0] < SHORT;
        if !is_short {
            written.add(lane.turn().claimed_at.since(START).as_secs().to_string());
        }
        pass(Duration::from_millis(if is_short { 0 } else { 1_500 }))
    };
    let builder = engine(&rig).concurrency(1).queue(Queue::parallel("mail").lease(secs(16)));
    let running = Running::start(builder.worker("mail", worker));
    log.reaches(1).await;
    pass(secs(1)).await;
    assert_eq!(rig.stats(None).await.unwrap()[0].claimed, 2, "one runs, one waits for the slot");
    PRETENDED.set(secs(ASLEEP));
    log.reaches(2).await;
    let second: u64 = log.lines()[1].parse().unwrap();
    assert!(second > ASLEEP, "the call began under a claim of second {second}");
    running.kill();
}

/// If the clock is set, or the machine was suspended.
#[tokio::test(start_paused = true)]
async fn after_a_jump_of_the_store_s_clock_a_node_that_lives_keeps_its_claims() {
    let (rig, log) = (Rig::new(), Log::default());
    rig.push(Job::new("mail", &1).unwrap()).await;
    assert_eq!(rig.claim_as("other", "mail", secs(30)).await.len(), 1);
    let worker = log.adds::<u32>("taken over");
    let running = Running::start(engine(&rig).lease(secs(60)).worker("mail", worker));
    pass(secs(1)).await;
    PRETENDED.set(secs(3_600));
    pass(secs(20)).await;
    let node = store::NodeInfo::new("other".into(), secs(30));
    rig.heartbeat(store::Heartbeat { now: None, node, beats: Vec::new() }).await.unwrap();
    pass(secs(25)).await;
    assert!(log.lines().is_empty(), "its heartbeat came within its lease");
    // It is silent from now on.
    log.reaches(1).await;
    running.stop().await;
}

/// The other node is silent too while the store is away, and its heartbeat comes a little later.
#[tokio::test(start_paused = true)]
async fn after_an_outage_longer_than_a_lease_a_node_that_lives_keeps_its_claims() {
    let (rig, log) = (Rig::new(), Log::default());
    let id = rig.push(Job::new("mail", &1).unwrap()).await;
    assert_eq!(rig.claim_as("other", "mail", secs(30)).await.len(), 1);
    let worker = log.adds::<u32>("taken over");
    let running = Running::start(engine(&rig).rescue_interval(secs(2)).worker("mail", worker));
    pass(secs(1)).await;
    rig.faults.down.store(true, Ordering::SeqCst);
    pass(secs(40)).await;
    rig.faults.down.store(false, Ordering::SeqCst);
    pass(secs(4)).await;
    let node = store::NodeInfo::new("other".into(), secs(30));
    rig.heartbeat(store::Heartbeat { now: None, node, beats: Vec::new() }).await.unwrap();
    pass(secs(25)).await;
    assert_eq!((log.len(), rig.state(id).await), (0, Some(JobState::Running)));
    // It is silent from now on.
    log.reaches(1).await;
    running.stop().await;
}

/// Its lease seems to have ended before its first heartbeat.
#[tokio::test(start_paused = true)]
async fn an_engine_that_was_built_long_ago_takes_over_at_once_what_a_dead_node_held() {
    let (rig, log) = (Rig::new(), Log::default());
    rig.push(Job::new("mail", &1).unwrap()).await;
    assert_eq!(rig.claim_as("dead", "mail", secs(10)).await.len(), 1);
    let builder = engine(&rig).rescue_interval(secs(2));
    let engine = builder.worker("mail", log.adds::<u32>("taken over")).build().unwrap();
    pass(secs(100)).await;
    let running = tokio::spawn(engine.run_until(std::future::pending::<()>()));
    let taken = tokio::time::timeout(secs(10), log.reaches(1)).await;
    assert!(taken.is_ok(), "it waits for a lease");
    running.abort();
}

#[tokio::test(start_paused = true)]
async fn a_node_declared_dead_ends_what_it_runs_and_goes_on_under_a_new_id() {
    let (rig, log) = (Rig::new(), Log::default());
    let id = rig.push(Job::new("mail", &1).unwrap()).await;
    let running = Running::start(until_stopped(&rig, &log));
    log.reaches(1).await;
    rig.faults.no_beats.store(true, Ordering::SeqCst);
    let other = NodeId::from("other");
    let info = store::NodeInfo::new(other.clone(), secs(1_000));
    let beat = store::Heartbeat { now: None, node: info, beats: Vec::new() };
    rig.faults.no_beats.store(false, Ordering::SeqCst);
    rig.heartbeat(beat).await.unwrap();
    let far = super::rig::START + secs(100);
    let rescue =
        store::Rescue { now: Some(far), node: other, lease: secs(1_000), lanes_max: 10, ticket: 0 };
    let taken = rig.rescue(rescue).await.unwrap();
    assert_eq!(taken.len(), 1);
    log.reaches(2).await;
    let next = rig.push(Job::new("mail", &2).unwrap()).await;
    log.reaches(3).await;
    assert_eq!(log.lines()[1..3], ["told", "start 1"]);
    let summary = running.stop().await;
    assert_eq!(summary.stale, 1);
    assert_eq!(rig.state(id).await, Some(JobState::Running));
    assert_eq!(rig.state(next).await, Some(JobState::Queued));
}

/// A slot that becomes free before the node has its new id must not take what was claimed under the old one.
#[tokio::test(start_paused = true)]
async fn a_node_declared_dead_starts_nothing_that_it_had_claimed_before() {
    let (rig, log) = (Rig::new(), Log::default());
    rig.store_declared(Queue::parallel("mail").batch_size(2)).await;
    for task in ["a", "b"] {
        rig.push(Job::new("mail", &1).unwrap().task(task)).await;
    }
    let builder = until_stopped(&rig, &log).concurrency(1).heartbeat(secs(1));
    let running = Running::start(builder);
    log.reaches(1).await;
    assert_eq!(rig.stats(None).await.unwrap()[0].claimed, 2, "one runs, one waits for the slot");
    let (far, info) =
        (Some(super::rig::START + secs(100)), store::NodeInfo::new("other".into(), secs(1_000)));
    rig.heartbeat(store::Heartbeat { now: far, node: info, beats: Vec::new() }).await.unwrap();
    rig.faults.failed_names.store(1, Ordering::SeqCst);
    let (node, lease) = ("other".into(), secs(1_000));
    let rescue = store::Rescue { now: far, node, lease, lanes_max: 10, ticket: 0 };
    assert_eq!(rig.rescue(rescue).await.unwrap().len(), 2);
    pass(secs(20)).await;
    assert_eq!(log.lines(), ["start 1", "told"]);
    running.kill();
}

#[tokio::test(start_paused = true)]
async fn a_quiet_node_that_goes_on_under_a_new_id_stays_quiet_until_it_may_work_again() {
    let (rig, log) = (Rig::new(), Log::default());
    let running = Running::start(until_stopped(&rig, &log));
    pass(secs(1)).await;
    let alive = || async {
        let nodes = rig.nodes().await.unwrap().into_iter();
        let mut ids = nodes.filter(|node| !node.dead && &*node.info.id.0 != "other");
        ids.next().unwrap().info.id
    };
    let first = alive().await;
    rig.command_node(first.clone(), store::Command::Quiet).await.unwrap();
    pass(secs(10)).await;
    let (far, info) =
        (Some(super::rig::START + secs(100)), store::NodeInfo::new("other".into(), secs(1_000)));
    rig.heartbeat(store::Heartbeat { now: far, node: info, beats: Vec::new() }).await.unwrap();
    let (node, lease) = ("other".into(), secs(1_000));
    rig.rescue(store::Rescue { now: far, node, lease, lanes_max: 10, ticket: 0 }).await.unwrap();
    pass(secs(20)).await;
    rig.push(Job::new("mail", &1).unwrap()).await;
    pass(secs(20)).await;
    let second = alive().await;
    assert_ne!(second, first);
    assert_eq!(log.len(), 0, "it is quiet still");
    rig.command_node(second.clone(), store::Command::Resume).await.unwrap();
    log.reaches(1).await;
    running.kill();
}

#[tokio::test(start_paused = true)]
async fn a_new_id_whose_first_heartbeat_fails_is_taken_in_the_end() {
    let (rig, log) = (Rig::new(), Log::default());
    let running = Running::start(until_stopped(&rig, &log));
    pass(secs(1)).await;
    let info = store::NodeInfo::new("other".into(), secs(1_000));
    let far = Some(super::rig::START + secs(100));
    rig.heartbeat(store::Heartbeat { now: far, node: info, beats: Vec::new() }).await.unwrap();
    let (node, lease) = ("other".into(), secs(1_000));
    rig.rescue(store::Rescue { now: far, node, lease, lanes_max: 10, ticket: 0 }).await.unwrap();
    rig.faults.failed_names.store(1, Ordering::SeqCst);
    pass(secs(30)).await;
    rig.push(Job::new("mail", &1).unwrap()).await;
    log.reaches(1).await;
    running.kill();
}

#[tokio::test(start_paused = true)]
async fn l8_what_a_dead_node_held_is_taken_over_as_a_crash() {
    let (rig, log) = (Rig::new(), Log::default());
    rig.push(Job::new("mail", &1).unwrap()).await;
    assert_eq!(rig.claim_as("dead", "mail", secs(10)).await.len(), 1);
    let written = log.clone();
    let running = Running::start(engine(&rig).worker("mail", move |batch: Batch<u32>| {
        let turn = batch.lanes()[0].turn();
        written.add(format!("crashes {} attempt {}", turn.crashes, turn.attempt()));
        async {}
    }));
    log.reaches(1).await;
    let summary = running.stop().await;
    assert_eq!(log.lines(), ["crashes 1 attempt 2"]);
    assert_eq!((summary.rescued, summary.failed, summary.done), (1, 0, 1));
}

/// What an observer hears of rescues, and of how long the node's claims stand.
#[derive(Default)]
struct Heard {
    rescues: Log,
    beats: Log,
}

impl Observer for Heard {
    fn rescued(&self, _: &Turn) {
        self.rescues.add("rescued");
    }
    fn renewed(&self, _: &NodeId, until: Timestamp) {
        let stands_for = until.since(Timestamp::of_this_machine());
        self.beats.add(if stands_for <= secs(3) { "short" } else { "long" });
    }
}

#[tokio::test(start_paused = true)]
async fn an_observer_hears_of_a_rescue_though_the_queues_cannot_be_read_then() {
    let (rig, heard) = (Rig::new(), Arc::new(Heard::default()));
    rig.push(Job::new("mail", &1).unwrap()).await;
    assert_eq!(rig.claim_as("dead", "mail", secs(10)).await.len(), 1);
    let running = Running::start(engine(&rig).observer(heard.clone()));
    pass(secs(1)).await;
    rig.faults.hung_queues.store(true, Ordering::SeqCst);
    heard.rescues.reaches(1).await;
    running.kill();
}

#[tokio::test(start_paused = true)]
async fn an_observer_hears_of_the_shortest_lease_of_a_node_s_claims() {
    let (rig, heard) = (Rig::new(), Arc::new(Heard::default()));
    rig.store_declared(Queue::parallel("mail").lease(secs(3))).await;
    let engine = engine(&rig).observer(heard.clone()).worker("mail", |_: Batch<u32>| async {});
    let running = Running::start(engine);
    pass(secs(10)).await;
    let beats = heard.beats.lines();
    assert!(beats.len() > 3 && beats.iter().all(|beat| beat == "short"), "{beats:?}");
    running.kill();
}

/// The sweeps begin after a minute.
#[tokio::test(start_paused = true)]
async fn what_a_dead_node_held_is_taken_over_while_a_sweep_has_no_end() {
    let (rig, log) = (Rig::new(), Log::default());
    rig.push(Job::new("mail", &1).unwrap()).await;
    rig.claim_as("gone", "mail", secs(90)).await;
    rig.faults.never_swept.store(true, Ordering::SeqCst);
    let running = Running::start(until_stopped(&rig, &log));
    pass(secs(120)).await;
    assert_eq!(log.lines(), ["start 2"]);
    running.kill();
}

#[tokio::test(start_paused = true)]
async fn a_killed_engine_s_jobs_run_elsewhere_and_its_prefetch_too() {
    let (rig, log) = (Rig::new(), Log::default());
    for i in 0..100 {
        rig.push(Job::new("mail", &i).unwrap()).await;
    }
    let first = Running::start(until_stopped(&rig, &log));
    log.reaches(4).await;
    first.kill();
    let done = Log::default();
    let written = done.clone();
    let second = Running::start(engine(&rig).worker("mail", move |batch: Batch<u32>| {
        written.add(batch.lanes()[0].payloads()[0].to_string());
        async {}
    }));
    done.reaches(100).await;
    pass(secs(1)).await;
    let summary = second.stop().await;
    assert_eq!((summary.done, summary.rescued), (100, 4));
}

#[tokio::test(start_paused = true)]
async fn a_lane_with_a_crash_behind_it_gets_its_turn_under_load() {
    let (rig, log) = (Rig::new(), Log::default());
    // Due again when it was taken over: only its priority puts it before the backlog.
    let crashed = rig.push(Job::new("mail", &0).unwrap().priority(1)).await;
    rig.claim_as("dead", "mail", secs(10)).await;
    pass(secs(60)).await;
    for i in 1..20_000 {
        rig.push(Job::new("mail", &i).unwrap()).await;
    }
    let written = log.clone();
    let running = Running::start(engine(&rig).worker("mail", move |batch: Batch<u32>| {
        let (log, number) = (written.clone(), batch.lanes()[0].payloads()[0]);
        async move {
            pass(Duration::from_millis(5)).await;
            if number == 0 {
                log.add("the crashed one");
            }
        }
    }));
    log.reaches(1).await;
    let stats = rig.stats(None).await.unwrap();
    assert!(stats[0].jobs > 1_000, "the backlog was gone before: {}", stats[0].jobs);
    assert_eq!(rig.state(crashed).await, None);
    running.kill();
}

/// What the new server does not know of, as it does not know of a claim that a person has released.
#[tokio::test(start_paused = true)]
async fn after_a_failover_the_next_heartbeat_tells_the_handlers_whose_claims_are_gone() {
    let (rig, log) = (Rig::new(), Log::default());
    let running = Running::start(until_stopped(&rig, &log).concurrency(1));
    // The heartbeats are 5 s apart. The next one comes too soon to name this call because it runs for long.
    pass(secs(12)).await;
    rig.push(Job::new("mail", &1).unwrap()).await;
    log.reaches(1).await;
    let lane = rig.lanes(store::LaneQuery::new("mail")).await.unwrap().rows.remove(0).lane;
    store::release_claims(&rig, store::ClaimSelection::Lane(lane)).await.unwrap();
    rig.faults.moved.store(true, Ordering::SeqCst);
    pass(secs(4)).await;
    assert_eq!(log.lines().get(1).map(String::as_str), Some("told"));
    let told = async || {
        let nodes = rig.nodes().await.unwrap();
        let troubles = nodes.into_iter().flat_map(|node| node.info.troubles);
        troubles.map(|trouble| trouble.text).collect::<Vec<_>>()
    };
    pass(secs(6)).await;
    let seen = told().await;
    assert!(seen.len() == 1 && seen[0].contains("without their claims: 1;"), "{seen:?}");
    // A restart that loses nothing changes neither count, and the trouble ends after its hour all the same.
    rig.faults.moved.store(true, Ordering::SeqCst);
    pass(secs(3_590)).await;
    assert_eq!(told().await, seen);
    pass(secs(20)).await;
    assert_eq!(told().await, Vec::<String>::new());
    running.kill();
}

#[tokio::test(start_paused = true)]
async fn a_handler_whose_claim_a_person_released_is_told_with_a_heartbeat() {
    let (rig, log) = (Rig::new(), Log::default());
    let id = rig.push(Job::new("mail", &1).unwrap()).await;
    let running = Running::start(until_stopped(&rig, &log).concurrency(1));
    log.reaches(1).await;
    let page = store::LaneQuery::new("mail");
    let lane = rig.lanes(page).await.unwrap().rows.remove(0).lane;
    let claims = store::ClaimSelection::Lane(lane);
    assert_eq!(store::release_claims(&rig, claims).await.unwrap(), 1);
    // Two heartbeats: the second one names the calls that have run for longer than one.
    pass(secs(11)).await;
    log.reaches(3).await;
    assert_eq!(log.lines()[1..3], ["told", "start 2"]);
    let summary = running.stop().await;
    assert_eq!(summary.stale, 1);
    assert_eq!(rig.state(id).await, Some(JobState::Queued));
}
