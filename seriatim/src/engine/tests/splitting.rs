//! The queues that a node prefers.

use std::sync::Arc;
use std::time::Duration;

use super::rig::{Log, Rig, Running, START, engine, pass, secs};
use crate::contract::{Command, Heartbeat, Trouble, TroubleKind};
use crate::engine::*;
use crate::store::{NodeId, NodeInfo};
use crate::*;

const QUEUES: [&str; 6] = ["a", "b", "c", "d", "e", "f"];

/// A node that works on all queues, one call at a time, and logs which node did what.
fn node(rig: &Rig, log: &Log, name: &'static str, splitter: Splitter) -> EngineBuilder {
    let builder = engine(rig).node_name(name).concurrency(1).splitter(splitter);
    QUEUES.iter().fold(builder, |builder, queue| {
        let log = log.clone();
        builder.worker(*queue, move |batch: Batch<u32>| {
            log.add(format!("{name} {}", batch.queue()));
            async {
                pass(std::time::Duration::from_millis(20)).await;
            }
        })
    })
}

async fn fill(rig: &Rig, jobs: u32) {
    for i in 0..jobs {
        for queue in QUEUES {
            rig.push(Job::new(queue, &i).unwrap()).await;
        }
    }
}

#[tokio::test(start_paused = true)]
async fn l9_a_node_leaves_what_others_prefer_to_them_while_it_has_enough_to_do() {
    let (rig, log) = (Rig::new(), Log::default());
    let half = |first: bool| {
        let prefers = move |_: &FleetView<'_>, queue: &str| (queue < "d") == first;
        Splitter::Custom(Arc::new(prefers))
    };
    let nodes = [("one", half(true)), ("two", half(false))]
        .map(|(name, splitter)| Running::start(node(&rig, &log, name, splitter)));
    fill(&rig, 50).await;
    log.reaches(200).await;
    let lines = log.lines();
    for (queues, name) in [(&QUEUES[..3], "two"), (&QUEUES[3..], "one")] {
        let foreign =
            |line: &&String| queues.iter().any(|queue| **line == format!("{name} {queue}"));
        let count = lines.iter().filter(foreign).count();
        assert!(count <= 20, "{count} calls of node {name} in queues that the other prefers");
    }
    for node in nodes {
        node.stop().await;
    }
}

#[test]
fn l9_by_node_each_queue_is_one_node_s_and_moves_only_when_that_one_leaves() {
    let nodes: Vec<NodeId> = (0..5).map(|i| NodeId(format!("node-{i}").into())).collect();
    let owners = |nodes: &[NodeId], queue: &str| -> Vec<NodeId> {
        let prefers =
            |node: &&NodeId| Splitter::ByNode.prefers(&FleetView::of(node, nodes, &[]), queue);
        nodes.iter().filter(prefers).cloned().collect()
    };
    let mut moved = 0;
    for queue in (0..200).map(|i| format!("queue-{i}")) {
        let before = owners(&nodes, &queue);
        let after = owners(&nodes[1..], &queue);
        assert_eq!((before.len(), after.len()), (1, 1));
        assert!(before == after || before[0] == nodes[0], "{queue} moved without need");
        moved += u32::from(before != after);
    }
    assert!((20..60).contains(&moved), "the node that left had {moved} of 200");
}

#[test]
fn l9_by_node_no_queue_is_left_to_a_node_that_does_not_work_on_it() {
    let info = |name: &str, queues: &[&str], concurrency: u32| {
        let info = NodeInfo::new(name.into(), Duration::from_secs(60));
        let queues = queues.iter().map(ToString::to_string).collect();
        NodeInfo { queues, concurrency, ..info }
    };
    let names: Vec<String> = (0..50).map(|i| format!("queue-{i}")).collect();
    let queues: Vec<&str> = names.iter().map(String::as_str).collect();
    // One that works on other queues, one that serves the API, and a remote worker.
    let others = [info("a", &["other"], 10), info("b", &[], 10), info("c", &queues, 0)];
    let infos = [&[info("works", &queues, 10)], &others[..]].concat();
    let nodes: Vec<NodeId> = infos.iter().map(|info| info.id.clone()).collect();
    let fleet = FleetView::of(&nodes[0], &nodes, &infos);
    let left = queues.iter().find(|queue| !Splitter::ByNode.prefers(&fleet, queue));
    assert_eq!(left, None);
}

#[tokio::test(start_paused = true)]
async fn l9_a_splitter_of_ones_own_sees_the_names_of_the_living_nodes() {
    let (rig, log, seen) = (Rig::new(), Log::default(), Log::default());
    let written = seen.clone();
    let look = move |fleet: &FleetView<'_>, _: &str| {
        let own = fleet.infos.iter().find(|info| info.id == *fleet.node);
        written.add(own.map_or("none", |own| &*own.name));
        true
    };
    let running = Running::start(node(&rig, &log, "one", Splitter::Custom(Arc::new(look))));
    seen.reaches(1).await;
    assert_eq!(seen.lines()[0], "one");
    running.stop().await;
}

#[tokio::test(start_paused = true)]
async fn l9_what_nobody_prefers_is_worked_on_all_the_same() {
    let (rig, log) = (Rig::new(), Log::default());
    let only_a = Splitter::Custom(Arc::new(|_: &FleetView<'_>, queue: &str| queue == "a"));
    let running = Running::start(node(&rig, &log, "one", only_a));
    fill(&rig, 10).await;
    log.reaches(60).await;
    running.stop().await;
    let first = log.lines().iter().take(10).filter(|line| *line == "one a").count();
    assert!(first >= 8, "{:?}", log.lines());
}

/// A node with one slot on queues that never run empty: each call pushes the next job.
async fn endless(rig: &Rig, log: &Log, queues: &[&'static str], splitter: Splitter) -> Running {
    let mut builder = engine(rig).concurrency(1).scheduler(Scheduler::Seq).splitter(splitter);
    for queue in queues {
        for i in 0..20 {
            rig.push(Job::new(*queue, &i).unwrap()).await;
        }
        let (rig, log) = (rig.clone(), log.clone());
        builder = builder.worker(*queue, move |batch: Batch<u32>| {
            let (rig, queue) = (rig.clone(), batch.queue().to_owned());
            log.add(&*queue);
            async move {
                pass(Duration::from_millis(20)).await;
                rig.push(Job::new(queue, &0).unwrap()).await;
            }
        });
    }
    Running::start(builder)
}

#[tokio::test(start_paused = true)]
async fn what_nobody_prefers_is_worked_on_beside_work_that_never_ends() {
    let (rig, log) = (Rig::new(), Log::default());
    let only_a = Splitter::Custom(Arc::new(|_: &FleetView<'_>, queue: &str| queue == "a"));
    let running = endless(&rig, &log, &["a", "b"], only_a).await;
    pass(secs(60)).await;
    let (lines, count) = (log.len(), log.lines().iter().filter(|line| *line == "b").count());
    assert!(count >= 4, "{count} calls of the queue that nobody prefers");
    assert!(count * 10 < lines, "{count} of {lines} calls: others may prefer it");
    running.kill();
}

#[tokio::test(start_paused = true)]
async fn by_node_no_queue_is_left_to_a_node_that_takes_no_work() {
    let trouble = |queue: &str| Trouble {
        kind: TroubleKind::WorkerCannotStart,
        queue: Some(queue.to_owned()),
        about: queue.to_owned(),
        text: "no such file".to_owned(),
        times: 1,
        since: START,
        last_at: START,
    };
    for is_quiet in [true, false] {
        let (rig, log) = (Rig::new(), Log::default());
        for name in ["x", "y", "z"] {
            let node = NodeInfo {
                queues: QUEUES.map(str::to_owned).to_vec(),
                concurrency: 10,
                troubles: if is_quiet { Vec::new() } else { QUEUES.map(trouble).to_vec() },
                ..NodeInfo::new(name.into(), secs(60))
            };
            rig.heartbeat(Heartbeat { now: None, node, beats: Vec::new() }).await.unwrap();
            if is_quiet {
                rig.command_node(name.into(), Command::Quiet).await.unwrap();
            }
        }
        let running = endless(&rig, &log, &QUEUES, Splitter::ByNode).await;
        // Less than it leaves lanes to others.
        pass(secs(8)).await;
        let lines = log.lines();
        let left: Vec<_> =
            QUEUES.iter().filter(|queue| !lines.iter().any(|line| line == *queue)).collect();
        assert!(left.is_empty(), "{left:?} were left, quiet: {is_quiet}");
        running.kill();
    }
}

#[tokio::test(start_paused = true)]
async fn a_reserved_slot_of_a_queue_that_others_prefer_does_not_stop_the_node() {
    let (rig, log) = (Rig::new(), Log::default());
    let only_a = Splitter::Custom(Arc::new(|_: &FleetView<'_>, queue: &str| queue == "a"));
    let builder = engine(&rig).concurrency(1).splitter(only_a);
    let builder = ["a", "b"].iter().fold(builder, |builder, queue| {
        let log = log.clone();
        builder.worker(*queue, move |batch: Batch<u32>| {
            let queue = batch.queue().to_owned();
            log.add(queue.clone());
            async move {
                pass(Duration::from_secs(if queue == "b" { 5 } else { 1 })).await;
            }
        })
    });
    let running = Running::start(builder);
    pass(Duration::from_millis(500)).await;
    rig.push(Job::new("b", &0).unwrap()).await;
    log.reaches(1).await;
    pass(Duration::from_secs(2)).await;
    rig.push(Job::new("b", &1).unwrap()).await;
    for i in 0..20 {
        rig.push(Job::new("a", &i).unwrap()).await;
    }
    pass(Duration::from_secs(60)).await;
    assert!(log.len() >= 10, "{:?}", log.lines());
    running.kill();
}
