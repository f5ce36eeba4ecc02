//! Administrative actions during a run: all kinds, at any time.

use std::sync::Arc;

use seriatim::store::{
    Act, Amend, Cancel, Change, Command, Declare, LaneAction, LaneSelection, Selected, Selection,
    Store,
};
use seriatim::{ErrorKind, JobId, Result};
use tokio::time::sleep;

use super::wire::Wire;
use super::world::World;

/// A node with this command takes no more jobs until it is restarted.
pub(super) const QUIET: &str = "command to be quiet";

/// Acts until the calm phase.
pub(super) async fn run(world: Arc<World>) {
    let Some(every) = world.scene.people_every else { return };
    let store = Wire::of_people(world.clone()).store();
    loop {
        sleep(world.about(every)).await;
        if world.is_calm() {
            return;
        }
        let answer = act(&world, &*store).await;
        match answer.as_ref().map_err(|error| error.kind()) {
            Ok(()) | Err(ErrorKind::Unavailable | ErrorKind::NotFound) => {}
            Err(kind) => {
                world.alarm.raise(format!("error: an administrative action failed: {kind:?}"));
            }
        }
    }
}

async fn act(world: &World, store: &dyn Store) -> Result<()> {
    world.inject("action of a person");
    let queue = world.roll(|rng| rng.choice(&world.scene.queues).map(|queue| queue.name.clone()));
    let queue = queue.unwrap_or_default();
    match world.roll(|rng| rng.u8(0..17)) {
        0..4 => {
            let jobs = some_jobs(world, 3);
            world.note(|| format!("an administrator cancels {jobs:?}"));
            store.cancel(Cancel { now: None, jobs }).await.map(drop)
        }
        4..8 => on_lanes(world, store, &queue).await,
        8..10 => {
            let which = selection(world);
            world.note(|| format!("an administrator requeues {which:?} of {queue}"));
            store.requeue(Selected { now: None, queue: queue.into(), which }).await.map(drop)
        }
        10 => {
            let which = selection(world);
            world.note(|| format!("an administrator deletes dead {which:?} of {queue}"));
            store.delete_dead(Selected { now: None, queue: queue.into(), which }).await.map(drop)
        }
        11 | 12 => amend(world, store).await,
        13 | 14 => {
            let paused = world.roll(|rng| rng.bool());
            world.note(|| format!("an administrator pauses {queue}: {paused}"));
            store.pause_queue(queue.into(), paused).await
        }
        15 => limit(world, store, &queue).await,
        _ => command(world, store).await,
    }
}

/// Changes how many turns of a queue may run. A rate stays: the checker knows no time from which another one holds.
async fn limit(world: &World, store: &dyn Store, queue: &str) -> Result<()> {
    let known = world.scene.queues.iter().find(|known| known.name == queue);
    let Some(mut queue) = known.cloned() else { return Ok(()) };
    queue.limit.running = world.roll(|rng| rng.bool().then(|| rng.u32(1..5)));
    world.note(|| format!("an administrator sets the limit of {}: {:?}", queue.name, queue.limit));
    world.declared(&queue);
    store.declare(Declare { now: None, queues: vec![queue] }).await
}

async fn on_lanes(world: &World, store: &dyn Store, queue: &str) -> Result<()> {
    let lanes = match world.roll(|rng| rng.u8(0..3)) {
        0 => LaneSelection::All,
        1 => LaneSelection::Failed,
        _ => LaneSelection::Key(format!("k{}", world.roll(|rng| rng.u32(0..world.scene.keys)))),
    };
    let action = match world.roll(|rng| rng.u8(0..10)) {
        0 | 1 => LaneAction::Pause,
        2..5 => LaneAction::Resume,
        5 | 6 => LaneAction::RunNow,
        7 => LaneAction::Bury,
        8 => LaneAction::DeleteFailed,
        _ => LaneAction::Delete,
    };
    world.note(|| format!("an administrator does {action:?} to {lanes:?} of {queue}"));
    store.act(Act { now: None, queue: queue.into(), lanes, action }).await.map(drop)
}

async fn amend(world: &World, store: &dyn Store) -> Result<()> {
    let Some(job) = some_jobs(world, 1).first().copied() else { return Ok(()) };
    let change = match world.roll(|rng| rng.u8(0..4)) {
        0 => Change::Delete,
        1 => Change::Node(None),
        _ => Change::RunAt(
            world.store_now()
                + std::time::Duration::from_millis(world.roll(|rng| rng.u64(0..20_000))),
        ),
    };
    world.note(|| format!("an administrator amends {job}: {change:?}"));
    store.amend(Amend { now: None, job, change }).await
}

async fn command(world: &World, store: &dyn Store) -> Result<()> {
    let nodes = store.nodes().await?;
    let living: Vec<_> = nodes.into_iter().filter(|node| !node.dead).collect();
    let Some(node) = world.roll(|rng| rng.choice(&living).cloned()) else { return Ok(()) };
    let (command, name) = match world.roll(|rng| rng.u8(0..5)) {
        0 | 1 => (Command::Quiet, QUIET),
        2 | 3 => (Command::Stop, "command to stop"),
        _ => (Command::Resume, "command to resume"),
    };
    world.inject(name);
    world.note(|| format!("an administrator commands {}: {command:?}", node.info.id));
    store.command_node(node.info.id.clone(), command).await
}

fn some_jobs(world: &World, most: usize) -> Vec<JobId> {
    let jobs = world.tape().jobs();
    let count = world.roll(|rng| rng.usize(1..=most));
    (0..count).filter_map(|_| world.roll(|rng| rng.choice(&jobs).copied())).collect()
}

fn selection(world: &World) -> Selection {
    match world.roll(|rng| rng.u8(0..3)) {
        0 => Selection::All,
        1 => Selection::Jobs(some_jobs(world, 4)),
        _ => Selection::Keys(vec![format!("k{}", world.roll(|rng| rng.u32(0..world.scene.keys)))]),
    }
}

/// Resumes everything stopped by administrators: paused queues and lanes, held lanes.
pub(super) async fn release(world: &World) -> Result<()> {
    for queue in &world.scene.queues {
        let name = queue.name.as_str();
        match world.store.pause_queue(name.into(), false).await {
            Err(error) if error.kind() == ErrorKind::NotFound => continue,
            answer => answer?,
        }
        let (lanes, action) = (LaneSelection::All, LaneAction::Resume);
        world.store.act(Act { now: None, queue: name.into(), lanes, action }).await?;
    }
    Ok(())
}
