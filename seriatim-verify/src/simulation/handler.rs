//! The handlers of a run: every kind of behaviour.

use std::panic::resume_unwind;
use std::sync::Arc;
use std::time::Duration;

use serde::Deserialize;
use seriatim::{
    Batch, Context, Failure, Lane, Outcome, Outcomes, Worker,
    engine::Unstartable,
    store::{LaneId, Token, Verdict},
};
use tokio::time::sleep;

use super::gate::Gate;
use super::scene::HandlerPlan;
use super::world::World;

/// A payload that can be decoded.
#[derive(Debug, Deserialize)]
struct Work {
    #[serde(rename = "n")]
    _n: u64,
}

/// The behaviour of one call.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Conduct {
    Quick,
    Short,
    Long,
    Fail,
    Panic,
    /// Runs for very long and ignores cancellation.
    Hang,
    /// Runs until it is cancelled.
    Heed,
    ByLane,
    PutOff,
    GiveUp,
    Unstartable,
}

/// The turns of a call; records their end, also when dropped.
struct Turns {
    world: Arc<World>,
    turns: Vec<(LaneId, Token)>,
}

impl Drop for Turns {
    fn drop(&mut self) {
        for (lane, token) in &self.turns {
            self.world.ended(*lane, *token);
        }
    }
}

/// A worker of a queue.
pub(super) fn worker(world: &Arc<World>, queue: &str) -> Worker {
    let world = world.clone();
    Worker::new(queue, move |batch: Batch<Work>, context: Context| {
        handle(world.clone(), batch, context)
    })
}

async fn handle(
    world: Arc<World>,
    batch: Batch<Work>,
    context: Context,
) -> Result<Outcomes, Failure> {
    let _turns = begin(&world, &batch);
    let conduct = conduct(&world, &context);
    let pause_ms = world.roll(|rng| rng.u64(1..800));
    let longest = world.scene.nodes[0].lease.mul_f64(1.5).as_millis() as u64;
    match conduct {
        Conduct::Quick => Ok(Outcomes::new()),
        Conduct::Short => {
            sleep(Duration::from_millis(pause_ms)).await;
            Ok(Outcomes::new())
        }
        Conduct::Long => {
            let length_ms = world.roll(|rng| rng.u64(1_000..longest.max(1_001)));
            for lane in batch.lanes() {
                let _ = context.progress(lane, &length_ms);
            }
            sleep(Duration::from_millis(length_ms)).await;
            Ok(Outcomes::new())
        }
        Conduct::Fail => {
            sleep(Duration::from_millis(pause_ms / 4)).await;
            Err("it failed".into())
        }
        // Not `panic!`: the panic hook would report it as a defect.
        Conduct::Panic => resume_unwind(Box::new("it panicked")),
        Conduct::Hang => {
            sleep(Duration::from_millis(3 * longest)).await;
            Ok(Outcomes::new())
        }
        Conduct::Heed => {
            let _ = tokio::time::timeout(Duration::from_millis(longest), context.cancelled()).await;
            if pause_ms.is_multiple_of(2) {
                Ok(Outcomes::new())
            } else {
                Err("asked to stop".into())
            }
        }
        Conduct::ByLane => {
            sleep(Duration::from_millis(pause_ms / 2)).await;
            let mut outcomes = Outcomes::new();
            for lane in batch.lanes() {
                outcomes.set(lane.id(), verdict(&world, lane));
            }
            Ok(outcomes)
        }
        Conduct::PutOff => {
            Ok(Outcome::Snooze { length: Duration::from_millis(pause_ms * 4) }.into())
        }
        Conduct::GiveUp if pause_ms.is_multiple_of(2) => {
            Ok(Outcome::Bury { error: "no use".into() }.into())
        }
        Conduct::GiveUp => Ok(Outcome::Cancel { reason: "not wanted".into() }.into()),
        Conduct::Unstartable => Err(Box::new(Unstartable("no such program".to_owned()))),
    }
}

fn begin(world: &Arc<World>, batch: &Batch<Work>) -> Turns {
    let actor = Gate::current().map_or_else(String::new, |gate| gate.actor.clone());
    let mut turns = Vec::new();
    for lane in batch.lanes() {
        world.began(&actor, lane.turn());
        turns.push((lane.id(), lane.token()));
    }
    Turns { world: world.clone(), turns }
}

fn conduct(world: &World, context: &Context) -> Conduct {
    if world.is_calm() {
        return if world.roll(|rng| rng.bool()) { Conduct::Quick } else { Conduct::Short };
    }
    let plan: HandlerPlan = world.scene.handlers;
    let weights = [
        (Conduct::Quick, plan.quick),
        (Conduct::Short, plan.short),
        (Conduct::Long, plan.long),
        (Conduct::Fail, plan.fail),
        (Conduct::Panic, plan.panic),
        (Conduct::Hang, plan.hang),
        (Conduct::Heed, plan.heed),
        (Conduct::ByLane, plan.by_lane),
        (Conduct::PutOff, plan.put_off),
        (Conduct::GiveUp, plan.give_up),
        (Conduct::Unstartable, plan.unstartable),
    ];
    let total: u32 = weights.iter().map(|(_, weight)| weight).sum();
    let mut left = world.roll(|rng| rng.u32(0..total.max(1)));
    let picked = weights.iter().find(|(_, weight)| {
        let is_it = left < *weight;
        left = left.saturating_sub(*weight);
        is_it
    });
    let conduct = picked.map_or(Conduct::Quick, |(conduct, _)| *conduct);
    world.note(|| format!("a handler will be {conduct:?}, token {}", context.turns()[0].token));
    conduct
}

fn verdict(world: &World, lane: &Lane<Work>) -> Verdict {
    let length = Duration::from_millis(world.roll(|rng| rng.u64(0..3_000)));
    let outcome = match world.roll(|rng| rng.u8(0..8)) {
        0..3 => Outcome::Done,
        3 | 4 => Outcome::Retry { error: "this lane failed".into(), retry_in: None },
        5 => Outcome::Retry { error: "soon".into(), retry_in: Some(length) },
        6 => Outcome::Snooze { length },
        _ => Outcome::Bury { error: "rotten".into() },
    };
    let done = world.roll(|rng| rng.usize(0..=lane.payloads().len()));
    if world.roll(|rng| rng.bool()) {
        return outcome.into();
    }
    Verdict { done, ..outcome.into() }
}
