//! Claims of nodes on the same machine whose process is gone.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use tokio::time::Instant;

use super::rig::{Log, Rig, Running, engine, secs};
use crate::contract::{DeclareDead, Heartbeat, NodeInfo, Origin};
use crate::engine::*;
use crate::*;

/// The process of a node that was killed.
fn killed() -> Origin {
    let mut child = std::process::Command::new("sleep").arg("60").spawn().unwrap();
    let pid = child.id();
    let started = ProcessStat::of(&pid.to_string()).unwrap().started;
    child.kill().unwrap();
    child.wait().unwrap();
    Origin { pid, started, ..Origin::of_this_process().unwrap() }
}

/// A store with a node that claimed a job and reported this origin.
async fn held_by(origin: Option<Origin>) -> Rig {
    let rig = Rig::new();
    rig.push(Job::new("mail", &1).unwrap()).await;
    assert_eq!(rig.claim_as("predecessor", "mail", secs(30)).await.len(), 1);
    let node = NodeInfo { origin, ..NodeInfo::new("predecessor".into(), secs(30)) };
    rig.heartbeat(Heartbeat { now: None, node, beats: Vec::new() }).await.unwrap();
    rig
}

/// The number of seconds after which the job runs again.
async fn runs_after(rig: &Rig, builder: EngineBuilder) -> u64 {
    let (log, started) = (Log::default(), Instant::now());
    let written = log.clone();
    let worker = move |batch: Batch<u32>| {
        written.add(format!("crashes {}", batch.lanes()[0].turn().crashes));
        async {}
    };
    let running = Running::start(builder.worker("mail", worker));
    log.reaches(1).await;
    let seconds = started.elapsed().as_secs();
    assert_eq!(log.lines(), ["crashes 1"]);
    running.stop().await;
    assert_eq!(rig.stats(None).await.unwrap()[0].jobs, 0);
    seconds
}

#[tokio::test(start_paused = true)]
async fn l8_the_successor_of_a_killed_process_goes_on_at_once() {
    let rig = held_by(Some(killed())).await;
    assert_eq!(runs_after(&rig, engine(&rig)).await, 0);
}

#[tokio::test(start_paused = true)]
async fn a_node_that_may_live_keeps_what_it_holds_until_its_lease_has_run_out() {
    let elsewhere = |place: &str| Origin { place: place.to_owned(), ..killed() };
    // A process on another host or in another container.
    let rig = held_by(Some(elsewhere("another boot"))).await;
    assert!(runs_after(&rig, engine(&rig)).await >= 30);
    // The same, seen from there.
    let rig = held_by(Some(killed())).await;
    assert!(runs_after(&rig, engine(&rig).origin(elsewhere("another boot"))).await >= 30);
    // This process, and an unknown one.
    for origin in [Origin::of_this_process(), None] {
        let rig = held_by(origin).await;
        assert!(runs_after(&rig, engine(&rig)).await >= 30);
    }
    // Takeover is switched off.
    let rig = held_by(Some(killed())).await;
    assert!(runs_after(&rig, engine(&rig).takeover(false)).await >= 30);
}

#[tokio::test(start_paused = true)]
async fn what_a_node_elsewhere_held_is_taken_over_within_a_second_after_its_lease_has_run_out() {
    for _ in 0..10 {
        let rig = Rig::new();
        rig.push(Job::new("mail", &1).unwrap()).await;
        assert_eq!(rig.claim_as("elsewhere", "mail", secs(60)).await.len(), 1);
        let builder = engine(&rig).lease(secs(60)).heartbeat(secs(10));
        assert_eq!(runs_after(&rig, builder).await, 60);
    }
}

#[tokio::test(start_paused = true)]
async fn what_may_have_left_programs_behind_is_cleared_up_first_or_waited_for() {
    let origin = Origin { programs: true, ..killed() };
    let rig = held_by(Some(origin.clone())).await;
    assert!(runs_after(&rig, engine(&rig)).await >= 30, "this engine knows of no programs");
    let rig = held_by(Some(origin.clone())).await;
    let refuses = engine(&rig).before_takeover(|_| async { Err("one does not end".into()) });
    assert!(runs_after(&rig, refuses).await >= 30);
    let rig = held_by(Some(origin.clone())).await;
    let cleared = Arc::new(AtomicBool::new(false));
    let (noted, store) = (cleared.clone(), rig.shared());
    let clears = engine(&rig).before_takeover(move |seen| {
        let (noted, store, expected) = (noted.clone(), store.clone(), origin.clone());
        async move {
            assert_eq!(seen, expected);
            let nodes = store.nodes().await?;
            let before = nodes.iter().find(|view| &*view.info.id.0 == "predecessor");
            assert!(before.is_some_and(|view| !view.dead), "it is declared dead afterwards");
            noted.store(true, Ordering::SeqCst);
            Ok(())
        }
    });
    assert_eq!(runs_after(&rig, clears).await, 0);
    assert!(cleared.load(Ordering::SeqCst));
}

#[tokio::test(start_paused = true)]
async fn what_a_node_left_behind_is_cleared_up_once_also_if_another_machine_declared_it_dead() {
    let origin = Origin { programs: true, ..killed() };
    let rig = held_by(Some(origin.clone())).await;
    let heartbeat_at = rig.nodes().await.unwrap()[0].heartbeat_at;
    let declared = DeclareDead { now: None, node: "predecessor".into(), heartbeat_at };
    assert!(rig.declare_dead(declared).await.unwrap());
    let log = Log::default();
    let cleared = log.clone();
    let successor = engine(&rig).worker("other", |_: Batch<u32>| async {});
    let running = Running::start(successor.before_takeover(move |seen| {
        cleared.add(seen.mark());
        async { Ok(()) }
    }));
    log.reaches(1).await;
    super::rig::pass(secs(120)).await;
    running.stop().await;
    assert_eq!(log.lines(), [origin.mark()]);
}

#[tokio::test(start_paused = true)]
async fn a_process_that_is_killed_later_is_noticed_by_its_neighbour() {
    let mut child = std::process::Command::new("sleep").arg("60").spawn().unwrap();
    let pid = child.id();
    let started = ProcessStat::of(&pid.to_string()).unwrap().started;
    let origin = Origin { pid, started, ..Origin::of_this_process().unwrap() };
    let rig = held_by(Some(origin)).await;
    let neighbour = Running::start(engine(&rig).worker("other", |_: Batch<u32>| async {}));
    super::rig::pass(secs(4)).await;
    child.kill().unwrap();
    child.wait().unwrap();
    super::rig::pass(secs(10)).await;
    let nodes = rig.nodes().await.unwrap();
    assert!(nodes.iter().any(|view| view.dead && &*view.info.id.0 == "predecessor"), "{nodes:?}");
    neighbour.stop().await;
}
