//! Faults besides those of single calls: outages, clocks, pauses, deaths, stops.

use std::sync::Arc;
use std::time::Duration;

use tokio::time::{Instant, sleep};

use super::node::Node;
use super::scene::Happening;
use super::world::{Outage, World};

/// Injects faults until the calm phase.
pub(super) async fn run(world: Arc<World>, nodes: Vec<Arc<Node>>) {
    if world.scene.events.is_empty() {
        return;
    }
    loop {
        sleep(world.about(world.scene.event_every)).await;
        if world.is_calm() {
            return;
        }
        let picked = world.roll(|rng| rng.choice(&world.scene.events).copied());
        let node = world.roll(|rng| rng.choice(&nodes).cloned());
        if let (Some(happening), Some(node)) = (picked, node) {
            happen(&world, &node, happening);
        }
    }
}

fn happen(world: &Arc<World>, node: &Arc<Node>, happening: Happening) {
    match happening {
        Happening::Outage => outage(world, None),
        Happening::Partition => outage(world, Some(node.number)),
        Happening::StoreClock => {
            let by_us = store_jump(world);
            world.inject("jump of the store's clock");
            world.note(|| format!("the store's clock jumps by {} s", by_us as f64 / 1e6));
            world.jump_store_clock(by_us);
        }
        Happening::NodeClock => {
            let skew_us = world.roll(|rng| rng.i64(-3_600_000_000..3_600_000_000));
            world.inject("jump of a machine's clock");
            world.note(|| format!("the clock of n{} is {skew_us} us wrong", node.number));
            node.turn_clock(skew_us);
        }
        Happening::Pause if node.is_up() => {
            let length = node.plan.lease.mul_f64(world.roll(|rng| rng.f64() * rng.f64() * 4.0));
            world.inject("pause of a node");
            world.note(|| format!("n{} pauses for {length:?}", node.number));
            let node = node.clone();
            tokio::spawn(async move { node.pause(length).await });
        }
        Happening::Kill => {
            world.inject("kill of a node");
            world.note(|| format!("n{} is killed", node.number));
            node.kill();
        }
        Happening::Stop if node.is_up() => {
            world.inject("stop of a node");
            world.note(|| format!("n{} is stopped", node.number));
            let node = node.clone();
            tokio::spawn(async move { node.stop(false).await });
        }
        Happening::Pause | Happening::Stop => {}
    }
}

fn outage(world: &World, node: Option<usize>) {
    let length = Duration::from_millis(world.roll(|rng| match rng.u8(0..4) {
        0 => rng.u64(1..500),
        1 | 2 => rng.u64(500..8_000),
        _ => rng.u64(8_000..45_000),
    }));
    let hangs = world.roll(|rng| rng.u8(0..3) == 0);
    world.inject(if node.is_some() { "partition of a node" } else { "outage of the store" });
    world.note(|| format!("the store is unreachable for {length:?}: node {node:?}, hangs {hangs}"));
    world.begin_outage(Outage { until: Instant::now() + length, node, hangs });
}

/// Forward by up to an hour, backward by up to 30 s; usually by little.
fn store_jump(world: &World) -> i64 {
    let lease = world.scene.nodes[0].lease.as_micros() as i64;
    world.roll(|rng| match rng.u8(0..10) {
        0..4 => rng.i64(0..2_000_000),
        4..6 => rng.i64(0..2 * lease),
        6 => rng.i64(0..3_600_000_000),
        7..9 => -rng.i64(0..2_000_000),
        _ => -rng.i64(0..30_000_000),
    })
}
