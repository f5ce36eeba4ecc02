//! Cron entries and periodic workers.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use super::rig::{Log, Rig, Running, START, engine, pass, secs};
use crate::contract::{
    PeriodicState, Pushed, pause_schedule, resume_schedule, run_schedule, schedule,
};
use crate::engine::*;
use crate::machine::PRETENDED;
use crate::*;

const HOUR: Duration = Duration::from_secs(3_600);

fn every_ten_minutes() -> Cron {
    Cron::new("tick", "*/10 * * * *", Job::new("ticks", &0).unwrap()).unwrap()
}

/// A node that logs the ticks that it handles.
fn node(rig: &Rig, log: &Log, cron: Cron) -> EngineBuilder {
    let log = log.clone();
    engine(rig).cron(cron).worker("ticks", move |batch: Batch<u32>| {
        let tick = batch.lanes()[0].turn().jobs[0].run_at;
        log.add(format!("{}", tick.since(START).as_secs()));
        async {}
    })
}

#[tokio::test(start_paused = true)]
async fn a_tick_is_run_once_in_the_whole_fleet() {
    let (rig, log) = (Rig::new(), Log::default());
    let nodes = [0; 3].map(|_| Running::start(node(&rig, &log, every_ten_minutes())));
    pass(HOUR + secs(5)).await;
    for node in nodes {
        node.stop().await;
    }
    // The tests begin at a multiple of ten minutes.
    let ticks: Vec<String> = (1..=6).map(|i| (i * 600).to_string()).collect();
    assert_eq!(log.lines(), ticks);
}

/// The keys of the jobs that the engine pushed.
#[derive(Default)]
struct Heard(Log);

impl Observer for Heard {
    fn push_answered(&self, _: Timestamp, jobs: &[Job], answer: Result<&[Pushed], &Error>) {
        let pushed = answer.unwrap();
        jobs.iter()
            .zip(pushed)
            .for_each(|(job, one)| self.0.add(format!("{} {}", job.queue, one.job_id)));
    }
}

#[tokio::test(start_paused = true)]
async fn an_observer_hears_of_the_pushes_of_the_engine_itself() {
    let (rig, heard) = (Rig::new(), Arc::new(Heard::default()));
    let node = node(&rig, &Log::default(), every_ten_minutes()).observer(heard.clone());
    let running = Running::start(node);
    pass(secs(605)).await;
    running.stop().await;
    let lines = heard.0.lines();
    assert_eq!(lines.len(), 1);
    assert!(lines[0].starts_with("ticks "), "{lines:?}");
}

#[tokio::test(start_paused = true)]
async fn ticks_that_nobody_was_there_for_are_skipped_or_caught_up_with() {
    // Of the last hundred ticks, six have run.
    for (missed, expected) in [(Missed::Skip, 0), (Missed::Latest, 1), (Missed::All, 94)] {
        let (rig, log) = (Rig::new(), Log::default());
        let cron = every_ten_minutes().missed(missed);
        let before = Running::start(node(&rig, &log, cron.clone().missed(Missed::Skip)));
        pass(HOUR + secs(5)).await;
        before.stop().await;
        assert_eq!(log.len(), 6);
        pass(HOUR * 3).await;
        let after = Running::start(node(&rig, &log, cron));
        pass(secs(60)).await;
        after.stop().await;
        assert_eq!(log.len() - 6, expected, "{missed:?}: {:?}", log.lines());
    }
}

#[tokio::test(start_paused = true)]
async fn a_paused_entry_pushes_nothing_on_any_node_and_then_treats_its_ticks_as_missed() {
    for (missed, expected) in [(Missed::Skip, 0), (Missed::Latest, 1), (Missed::All, 3)] {
        let (rig, log) = (Rig::new(), Log::default());
        let start = || Running::start(node(&rig, &log, every_ten_minutes().missed(missed)));
        let store = &*rig.shared();
        let first = start();
        pass(secs(605)).await;
        let before = log.len();
        pause_schedule(store, "tick", "ops", Some("deploy")).await.unwrap();
        // Also on a node that starts meanwhile, and looks for missed ticks.
        let second = start();
        pass(secs(1_800)).await;
        assert_eq!(log.len(), before, "{missed:?}");
        resume_schedule(store, "tick").await.unwrap();
        pass(secs(90)).await;
        assert_eq!(log.len() - before, expected, "{missed:?}: {:?}", log.lines());
        pass(secs(600)).await;
        assert_eq!(log.len() - before, expected + 1, "{missed:?}: {:?}", log.lines());
        let known = schedule(store, "tick").await.unwrap();
        assert_eq!((known.definitions.len(), known.definitions[0].nodes.len()), (1, 2));
        assert_eq!(known.last.unwrap().at.since(START).as_secs(), 3_000);
        for node in [first, second] {
            node.stop().await;
        }
    }
}

#[tokio::test(start_paused = true)]
async fn a_tick_that_the_store_refuses_is_noted_with_the_reason() {
    let (rig, log) = (Rig::new(), Log::default());
    rig.store_declared(Queue::parallel("ticks")).await;
    let keyed = Job::new("ticks", &0).unwrap().key("k");
    let cron = Cron::new("tick", "*/10 * * * *", keyed).unwrap();
    let running = Running::start(node(&rig, &log, cron));
    pass(secs(605)).await;
    running.stop().await;
    let last = schedule(&*rig.shared(), "tick").await.unwrap().last.unwrap();
    assert!(last.job.is_none() && last.error.unwrap().contains("key"), "{:?}", log.lines());
}

#[tokio::test(start_paused = true)]
async fn a_tick_whose_key_is_throttled_is_skipped_and_noted_with_the_time_if_the_queue_refuses_it()
{
    let (rig, log) = (Rig::new(), Log::default());
    let store = &*rig.shared();
    rig.store_declared(Queue::fifo("ticks").throttle(secs(900)).refuse_throttled()).await;
    let keyed = Job::new("ticks", &0).unwrap().key("k");
    let cron = Cron::new("tick", "*/10 * * * *", keyed).unwrap();
    let running = Running::start(node(&rig, &log, cron));
    pass(secs(1_205)).await;
    let last = schedule(store, "tick").await.unwrap().last.unwrap();
    let error = last.error.unwrap();
    assert!(last.job.is_none() && error.contains("key \"k\" may be pushed again at 20"), "{error}");
    let refused = run_schedule(store, "tick", "ops").await.unwrap_err();
    assert_eq!(refused.kind(), ErrorKind::Conflict);
    assert!(error.ends_with(refused.message()), "{error}: {refused}");
    pass(secs(600)).await;
    running.stop().await;
    assert_eq!(log.lines(), ["600", "1800"]);
}

/// A laptop that sleeps: its monotonic clock stops, and the store's goes on.
#[tokio::test(start_paused = true)]
async fn ticks_while_the_machine_was_suspended_count_as_missed() {
    // The last tick is on time; `Latest` also pushes those before the start and before the machine woke.
    for (missed, expected) in [(Missed::Skip, 1), (Missed::Latest, 3)] {
        let (rig, log) = (Rig::new(), Log::default());
        PRETENDED.set(Duration::ZERO);
        let running = Running::start(node(&rig, &log, every_ten_minutes().missed(missed)));
        pass(secs(5)).await;
        PRETENDED.set(HOUR * 8);
        pass(secs(60)).await;
        pass(secs(600)).await;
        running.stop().await;
        assert_eq!(log.len(), expected, "{missed:?}: {:?}", log.lines());
    }
}

/// A queue that forgets its idempotency keys after `length`.
fn forgetful(length: Duration) -> Queue {
    Queue { idempotency_ttl: length, ..Queue::parallel("ticks") }
}

#[tokio::test(start_paused = true)]
async fn a_tick_is_not_repeated_by_a_node_that_starts_after_its_queue_forgot_it() {
    for missed in [Missed::Latest, Missed::All] {
        let (rig, log) = (Rig::new(), Log::default());
        let node = |missed: Missed| {
            let cron = every_ten_minutes().missed(missed);
            Running::start(node(&rig, &log, cron).queue(forgetful(secs(900))))
        };
        let before = node(Missed::Skip);
        pass(HOUR + secs(5)).await;
        before.stop().await;
        // The key of the last tick is forgotten after a quarter of an hour; no key is forgotten sooner.
        for _ in 0..4 {
            pass(secs(299)).await;
            let after = node(missed);
            pass(secs(1)).await;
            after.stop().await;
        }
        let (mut ticks, before) = (log.lines(), log.len());
        ticks.dedup();
        assert_eq!(ticks.len(), before, "{missed:?}: {ticks:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_tick_that_is_pushed_so_late_that_its_queue_forgot_it_is_skipped() {
    let (rig, log) = (Rig::new(), Log::default());
    let start = || {
        let quick = node(&rig, &log, every_ten_minutes());
        Running::start(quick.queue(forgetful(secs(300))))
    };
    let nodes = [start(), start()];
    pass(secs(595)).await;
    rig.faults.down.store(true, Ordering::SeqCst);
    pass(secs(400)).await;
    rig.faults.down.store(false, Ordering::SeqCst);
    pass(secs(300)).await;
    for node in nodes {
        node.stop().await;
    }
    assert_eq!(log.lines(), ["1200"], "the first was too late, the second was in time");
}

#[tokio::test(start_paused = true)]
async fn an_engine_whose_cron_queue_forgets_at_once_refuses_to_start() {
    let (rig, log) = (Rig::new(), Log::default());
    rig.store_declared(forgetful(secs(10))).await;
    let engine = node(&rig, &log, every_ten_minutes());
    let error = engine.run_until(std::future::pending::<()>()).await.unwrap_err();
    assert_eq!((error.kind(), error.field()), (ErrorKind::Invalid, Some("idempotency_ttl")));
    assert!(error.to_string().contains("\"ticks\" is 10s"), "{error}");
}

#[tokio::test(start_paused = true)]
async fn a_tick_during_an_outage_is_pushed_after_it() {
    let (rig, log) = (Rig::new(), Log::default());
    let running = Running::start(node(&rig, &log, every_ten_minutes()));
    pass(secs(60)).await;
    rig.faults.down.store(true, Ordering::SeqCst);
    pass(secs(900)).await;
    rig.faults.down.store(false, Ordering::SeqCst);
    pass(secs(120)).await;
    running.stop().await;
    assert!(!log.lines().is_empty());
}

/// The first tick of the outage waits for the store. The others are missed, as for a node that did not run.
#[tokio::test(start_paused = true)]
async fn of_the_ticks_of_a_long_outage_one_is_pushed_and_the_others_are_caught_up_with() {
    let pushed = async |missed: Missed| {
        let (rig, log) = (Rig::new(), Log::default());
        let running = Running::start(node(&rig, &log, every_ten_minutes().missed(missed)));
        pass(secs(60)).await;
        let before = log.lines().len();
        rig.faults.down.store(true, Ordering::SeqCst);
        pass(secs(3 * 3_600)).await;
        rig.faults.down.store(false, Ordering::SeqCst);
        pass(secs(120)).await;
        running.stop().await;
        log.lines().len() - before
    };
    assert_eq!(pushed(Missed::Skip).await, 1);
    assert_eq!(pushed(Missed::Latest).await, 2);
    assert_eq!(pushed(Missed::All).await, 18);
}

#[tokio::test(start_paused = true)]
async fn n5_a_periodic_worker_runs_pauses_and_stops_with_its_engine() {
    let (rig, runs) = (Rig::new(), Arc::new(AtomicUsize::new(0)));
    let counted = runs.clone();
    let worker = Periodic::new("cleaner", secs(10), move |_: Tick| {
        let run = counted.fetch_add(1, Ordering::SeqCst);
        async move {
            pass(secs(5)).await;
            match run {
                0 => Err("no broom".into()),
                1 => panic!("no bucket"),
                _ => Ok(()),
            }
        }
    });
    let engine = engine(&rig).periodic(worker).build().unwrap();
    let handle = engine.handle();
    let (stop, stopped) = tokio::sync::oneshot::channel::<()>();
    let running = tokio::spawn(engine.run_until(stopped));
    pass(secs(2)).await;
    assert_eq!(handle.periodic()[0].state, PeriodicState::Work);
    pass(secs(5)).await;
    assert_eq!(handle.periodic()[0].state, PeriodicState::Idle);
    assert_eq!(handle.periodic()[0].error.as_deref(), Some("no broom"));
    pass(secs(40)).await;
    let view = handle.periodic()[0].clone();
    assert_eq!((view.runs, view.failures), (3, 2), "each run and its pause take 15 s: {view:?}");
    assert_eq!(view.error.as_deref(), Some("it panicked: no bucket"));
    stop.send(()).unwrap();
    running.await.unwrap().unwrap();
    let view = handle.periodic()[0].clone();
    assert_eq!((view.state, view.runs), (PeriodicState::Stop, 4), "the run under way may end");
}

/// A node that logs its name in each run of a worker of the fleet.
fn reporting(rig: &Rig, log: &Log, name: &'static str, pause: Duration) -> Running {
    let log = log.clone();
    let worker = Periodic::new("report", pause, move |_: Tick| {
        log.add(name);
        async { Ok(()) }
    });
    Running::start(engine(rig).periodic(worker.once_in_fleet()))
}

#[tokio::test(start_paused = true)]
async fn n1_a_periodic_worker_of_the_fleet_runs_on_one_node_and_moves_when_it_dies() {
    let (rig, log) = (Rig::new(), Log::default());
    let node = |name| reporting(&rig, &log, name, secs(10));
    let first = node("first");
    pass(secs(1)).await;
    let second = node("second");
    pass(secs(60)).await;
    assert!(log.lines().iter().all(|name| name == "first"), "{:?}", log.lines());
    first.kill();
    pass(secs(60)).await;
    assert_eq!(log.lines().last().map(String::as_str), Some("second"));
    second.stop().await;
}

#[tokio::test(start_paused = true)]
async fn a_periodic_worker_of_the_fleet_runs_elsewhere_after_its_pause_if_its_node_stops() {
    let (rig, log) = (Rig::new(), Log::default());
    let node = |name| reporting(&rig, &log, name, secs(600));
    let first = node("first");
    pass(secs(1)).await;
    let second = node("second");
    pass(secs(99)).await;
    first.stop().await;
    let again = node("again");
    pass(secs(495)).await;
    assert_eq!(log.lines(), ["first"], "no run before the pause has passed");
    pass(secs(10)).await;
    assert_eq!(log.lines(), ["first", "second"]);
    again.stop().await;
    second.stop().await;
}

#[tokio::test(start_paused = true)]
async fn a_run_of_a_worker_of_the_fleet_may_take_longer_than_a_lead_and_no_other_node_begins_one() {
    let (rig, log) = (Rig::new(), Log::default());
    let node = |name: &'static str| {
        let log = log.clone();
        let worker = Periodic::new("report", secs(2), move |_: Tick| {
            let log = log.clone();
            async move {
                log.add(format!("{name} begins"));
                pass(secs(500)).await;
                log.add(format!("{name} ends"));
                Ok(())
            }
        });
        Running::start(engine(&rig).periodic(worker.once_in_fleet()))
    };
    let (first, second) = (node("first"), node("second"));
    pass(secs(3_000)).await;
    let lines = log.lines();
    assert!(lines.len() > 8, "{lines:?}");
    let overlaps = lines.windows(2).any(|pair| pair.iter().all(|line| line.ends_with("begins")));
    assert!(!overlaps, "{lines:?}");
    first.kill();
    second.kill();
}

#[tokio::test(start_paused = true)]
async fn a_run_ends_when_its_node_may_not_lead_any_more() {
    let (rig, log) = (Rig::new(), Log::default());
    let run = log.clone();
    let worker = Periodic::new("report", secs(2), move |_: Tick| {
        let log = run.clone();
        async move {
            log.add("begins");
            pass(secs(5_000)).await;
            log.add("ends");
            Ok(())
        }
    });
    let running = Running::start(engine(&rig).periodic(worker.once_in_fleet()));
    pass(secs(5)).await;
    rig.faults.down.store(true, Ordering::SeqCst);
    pass(secs(300)).await;
    rig.faults.down.store(false, Ordering::SeqCst);
    pass(secs(100)).await;
    let lines = log.lines();
    // And again after the outage.
    assert!(lines.len() >= 2 && lines.iter().all(|line| line == "begins"), "{lines:?}");
    running.kill();
}

/// The stop comes while the first node asks who leads.
#[tokio::test(start_paused = true)]
async fn no_run_of_a_worker_of_the_fleet_begins_after_the_stop_and_another_node_may_begin_one() {
    let (rig, log) = (Rig::new(), Log::default());
    rig.faults.leads_after.store(1_000, Ordering::SeqCst);
    let first = reporting(&rig, &log, "first", secs(60));
    pass(Duration::from_millis(500)).await;
    first.stop().await;
    rig.faults.leads_after.store(0, Ordering::SeqCst);
    pass(secs(1)).await;
    let second = reporting(&rig, &log, "second", secs(60));
    pass(secs(5)).await;
    assert_eq!(log.lines(), ["second"]);
    second.kill();
}

/// The lead is asked for at second 10; the error comes at 25, and the lead ends at 30.
#[tokio::test(start_paused = true)]
async fn a_run_ends_with_its_lead_however_late_the_store_answers() {
    let rig = Rig::new();
    let worker = Periodic::new("report", secs(2), |_: Tick| async {
        pass(secs(5_000)).await;
        Ok(())
    });
    let engine = engine(&rig).periodic(worker.once_in_fleet()).build().unwrap();
    let handle = engine.handle();
    let running = tokio::spawn(engine.run_until(std::future::pending::<()>()));
    pass(secs(1)).await;
    assert_eq!(handle.periodic()[0].state, PeriodicState::Work);
    rig.faults.leads_fail_after.store(15_000, Ordering::SeqCst);
    pass(secs(28)).await;
    assert_eq!(handle.periodic()[0].failures, 0, "it leads still");
    pass(secs(2)).await;
    assert_eq!(handle.periodic()[0].failures, 1);
    running.abort();
}

#[tokio::test(start_paused = true)]
async fn two_entries_of_one_name_are_refused_before_anything_starts() {
    let hourly = Cron::new("tick", "0 * * * *", Job::new("others", &0).unwrap()).unwrap();
    let engine = engine(&Rig::new()).cron(every_ten_minutes()).cron(hourly);
    let refused = engine.build().err().unwrap();
    assert_eq!((refused.kind(), refused.field()), (ErrorKind::Invalid, Some("cron.tick")));
}

#[tokio::test(start_paused = true)]
async fn an_entry_whose_jobs_its_queue_does_not_take_is_refused_before_anything_starts() {
    let job = Job::new("a", &1).unwrap().key("k");
    let keyed = Cron::new("nightly", "0 3 * * *", job).unwrap();
    let engine = engine(&Rig::new()).queue(Queue::parallel("a")).cron(keyed);
    let refused = engine.build().err().unwrap().to_string();
    assert!(refused.starts_with("cron.nightly.key: must be absent"), "{refused}");
}
