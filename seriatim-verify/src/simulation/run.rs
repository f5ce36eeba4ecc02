//! One run, from its seed to its verdict.

use std::sync::Arc;
use std::time::Duration;

use fastrand::Rng;
use seriatim::SharedStore;
use seriatim::store::{Declare, LaneQuery, Memory, QueueStats};
use tokio::task::JoinSet;
use tokio::time::{Instant, sleep};

use super::batches::{self, CALLBACKS};
use super::clock::{Simulated, StoreClock};
use super::node::Node;
use super::scene::Scene;
use super::world::World;
use super::{Mode, Options, Outcome, chaos, people, producer};
use crate::checker::{Judgement, Report, check};

/// Limit for processing all jobs after the last fault.
const DRAIN_MAX: Duration = Duration::from_secs(600);
/// How long idle engines are watched.
const IDLE: Duration = Duration::from_secs(30);
/// Most calls per second of an idle engine, besides those for each of its queues.
const IDLE_CALLS_MAX: f64 = 8.0;

/// Runs a seed.
///
/// # Panics
///
/// If no runtime can be started.
#[must_use]
pub fn run(seed: u64, options: &Options) -> Outcome {
    // The library uses the thread's generator: for backoff, jitter, ids of nodes.
    fastrand::seed(seed);
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_time()
        .start_paused(true)
        .build()
        .expect("a runtime can be started");
    let outcome = runtime.block_on(simulate(seed, options));
    drop(runtime);
    outcome
}

async fn simulate(seed: u64, options: &Options) -> Outcome {
    let _clock = Simulated::from_now();
    let mut rng = Rng::with_seed(seed);
    // A separate generator: see `World::lateness`.
    let mut late = Rng::with_seed(!seed);
    let scene = Scene::of(&mut rng, &mut late, options.mode);
    let clock = Arc::new(StoreClock::start());
    let shown = clock.clone();
    let store: SharedStore = Arc::new(Memory::with_clock(move || shown.now()));
    let store = options.fault.map_or(store.clone(), |fault| fault.of(store));
    let world = World::new(scene, (store, clock), rng, *options);
    world.note(|| format!("{:#?}", world.scene).replace('\n', "\n# "));
    let mut stage = Stage::set(&world).await;
    let failure = tokio::select! {
        biased;
        reason = world.alarm.raised() => Some(reason),
        failure = stage.play(options.mode) => failure,
    };
    drop(stage.cast);
    world.forget_late();
    world.finals().await;
    let is_drained = options.mode == Mode::Liveness && failure.is_none();
    let miscounted = batches::judge(&world, is_drained).await;
    let report = check(&world.tape().history);
    let trace = world.tape().trace().to_vec();
    Outcome {
        seed,
        mode: options.mode,
        failure: failure
            .or_else(|| verdict(&report))
            .or_else(|| world.exceeded_rate())
            .or(miscounted),
        report,
        injected: world.injected(),
        simulated: world.elapsed(),
        calls: stage.nodes.iter().map(|node| node.wire.calls()).sum(),
        trace,
    }
}

/// The first violation in a report.
fn verdict(report: &Report) -> Option<String> {
    let judged = Judgement::ALL.iter().filter_map(|judgement| {
        let verdict = report.verdicts.get(judgement)?;
        let first = verdict.examples.first().cloned().or(verdict.not_judged.clone())?;
        Some(format!("{}: {first}", judgement.noun()))
    });
    judged.reduce(|all, one| format!("{all}; {one}"))
}

/// The participants of a run.
struct Stage {
    world: Arc<World>,
    nodes: Vec<Arc<Node>>,
    cast: JoinSet<()>,
}

impl Stage {
    async fn set(world: &Arc<World>) -> Self {
        let queues = world.scene.queues.clone();
        queues.iter().for_each(|queue| world.declared(queue));
        if let Err(error) = world.store.declare(Declare { now: None, queues }).await {
            world.alarm.raise(format!("error: the queues cannot be declared: {error}"));
        }
        let count = world.scene.nodes.len();
        let nodes: Vec<_> = (0..count).map(|number| Node::new(world, number)).collect();
        let mut cast = JoinSet::new();
        for node in &nodes {
            cast.spawn(node.clone().live());
        }
        for number in 0..world.scene.producers {
            cast.spawn(producer::run(world.clone(), number));
        }
        cast.spawn(people::run(world.clone()));
        cast.spawn(chaos::run(world.clone(), nodes.clone()));
        Self { world: world.clone(), nodes, cast }
    }

    /// Plays the run. Returns the violation, if any.
    async fn play(&mut self, mode: Mode) -> Option<String> {
        sleep(self.world.scene.length).await;
        if mode == Mode::Safety {
            for node in &self.nodes {
                node.kill();
            }
            return None;
        }
        self.world.become_calm();
        self.nodes.iter().for_each(|node| node.open());
        if self.world.injected().contains_key(people::QUIET) {
            for node in self.nodes.clone() {
                self.cast.spawn(async move { node.stop(false).await });
            }
        }
        if let Err(left) = self.drain().await {
            return Some(left);
        }
        if let Some(busy) = self.idle().await {
            return Some(busy);
        }
        self.stop().await
    }

    /// Waits until no job waits or runs.
    async fn drain(&self) -> Result<(), String> {
        let began = Instant::now();
        while began.elapsed() < DRAIN_MAX {
            let released = people::release(&self.world).await;
            released.map_err(|error| format!("error: nothing can be released: {error}"))?;
            sleep(Duration::from_secs(2)).await;
            let stats = self.world.store.stats(None).await;
            let has_none = |queue: &QueueStats| queue.lanes == 0 || &*queue.queue == CALLBACKS;
            let is_empty = stats.is_ok_and(|stats| stats.iter().all(has_none));
            // A producer active when the calm phase began may be about to push again.
            if is_empty && began.elapsed() > Duration::from_secs(60) {
                let elapsed = began.elapsed();
                self.world.note(|| format!("all jobs are processed after {elapsed:?}"));
                return Ok(());
            }
        }
        Err(format!(
            "stuck: after {DRAIN_MAX:?} without faults there is left: {}",
            self.left().await
        ))
    }

    async fn left(&self) -> String {
        let mut left = Vec::new();
        for queue in &self.world.scene.queues {
            let query = LaneQuery { rows_max: 3, ..LaneQuery::new(queue.name.as_str()) };
            let page = self.world.store.lanes(query).await.unwrap_or_default();
            left.extend(page.rows.into_iter().map(|lane| {
                let (state, node, due) = (lane.state, lane.node, lane.due);
                format!(
                    "lane {} of {}: {state:?}, node {node:?}, due {due:?}",
                    lane.lane, queue.name
                )
            }));
        }
        left.join("; ")
    }

    /// Checks that engines without jobs do not keep the store busy.
    async fn idle(&self) -> Option<String> {
        let calls = || self.nodes.iter().map(|node| node.wire.calls()).collect::<Vec<_>>();
        let before = calls();
        sleep(IDLE).await;
        for ((node, before), after) in self.nodes.iter().zip(before).zip(calls()) {
            let plan = &node.plan;
            let looks = 1.0 / plan.poll_interval.as_secs_f64() + 3.0 / plan.heartbeat.as_secs_f64();
            let claims = if self.world.scene.claim_split.is_some() { 2.0 } else { 1.0 };
            let most = claims * ((plan.queues + 1) as f64 * looks + IDLE_CALLS_MAX);
            let rate = (after - before) as f64 / IDLE.as_secs_f64();
            if rate > most {
                let number = node.number;
                return Some(format!("busy: idle n{number} makes {rate:.0} calls a second"));
            }
        }
        None
    }

    /// Checks that all engines stop in time and leave no claims.
    async fn stop(&self) -> Option<String> {
        for node in &self.nodes {
            node.stop(true).await;
        }
        let stats = match self.world.store.stats(None).await {
            Ok(stats) => stats,
            Err(error) => return Some(format!("error: nothing tells what is held: {error}")),
        };
        let running: u64 = stats.iter().map(|queue| queue.claimed).sum();
        (running > 0)
            .then(|| format!("held: {running} lanes are held after all nodes have stopped"))
    }
}
