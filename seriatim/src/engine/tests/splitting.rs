//! The queues that a node prefers.

use std::sync::Arc;
use std::time::Duration;

use super::rig::{Log, Rig, Running, engine, pass};
use crate::engine::*;
use crate::store::NodeId;
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
