//! A node: started, killed, stopped, paused, and restarted with the same name.

use std::sync::atomic::Ordering;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use seriatim::{
    Engine, EngineBuilder, Result,
    engine::{Observer, Summary},
};
use tokio::sync::oneshot;
use tokio::task::AbortHandle;
use tokio::time::{sleep, timeout};

use super::gate::Gate;
use super::handler;
use super::scene::NodePlan;
use super::wire::Wire;
use super::world::World;
use crate::lock::lock;

/// How long an engine may take to stop beyond its configured wait: it flushes for 5 s.
const STOP_SLACK: Duration = Duration::from_secs(7);

/// A node of a run.
pub(super) struct Node {
    pub(super) world: Arc<World>,
    pub(super) plan: NodePlan,
    pub(super) number: usize,
    pub(super) wire: Arc<Wire>,
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    starts: u32,
    skew_us: i64,
    running: Option<Running>,
    /// Whether it must not be restarted.
    over: bool,
}

/// One start of a node.
struct Running {
    gate: Arc<Gate>,
    stop: Option<oneshot::Sender<()>>,
    engine: AbortHandle,
}

struct Idle;
impl Observer for Idle {}

impl Node {
    pub(super) fn new(world: &Arc<World>, number: usize) -> Arc<Self> {
        let plan = world.scene.nodes[number].clone();
        let wire = Wire::new(world.clone(), Some(number));
        let state = Mutex::default();
        Arc::new(Self { world: world.clone(), plan, number, wire, state })
    }

    fn builder(&self) -> EngineBuilder {
        let plan = &self.plan;
        let store = self.wire.store();
        let store = self.world.mutant.map_or(store.clone(), |mutant| mutant.of(store));
        let mut builder = Engine::builder(store)
            .node_name(plan.name.as_str())
            .concurrency(plan.concurrency)
            .lease(plan.lease)
            // All nodes run in this process, so the end of the process does not show that one node is gone.
            .takeover(false)
            .heartbeat(plan.heartbeat)
            .poll_interval(plan.poll_interval)
            .prefetch_max(plan.prefetch_max)
            .shutdown_timeout(plan.shutdown_timeout)
            .cancel_grace(plan.cancel_grace)
            .scheduler(plan.scheduler);
        if let Some(group) = &plan.group {
            builder = builder.consumer_group(group.as_str());
        }
        if plan.observed {
            builder = builder.observer(Arc::new(Idle));
        }
        for queue in &self.world.scene.queues {
            builder = builder.queue(queue.clone());
        }
        for queue in self.world.scene.queues.iter().take(plan.queues) {
            let worker = handler::worker(&self.world, &queue.name);
            builder = builder.with(match plan.limit {
                Some(calls) => worker.concurrency(calls),
                None => worker,
            });
        }
        builder
    }

    /// Restarts it until the run is over.
    pub(super) async fn live(self: Arc<Self>) {
        while let Some((engine, gate)) = self.start() {
            let ended = engine.await;
            let ended = match ended {
                Ok(ended) => self.judge(&gate, ended),
                Err(error) if error.is_cancelled() => "was killed".to_owned(),
                Err(_) => "panicked".to_owned(),
            };
            self.world.note(|| format!("{} {ended}", gate.actor));
            lock(&self.state).running = None;
            let pause = Duration::from_millis(self.world.roll(|rng| rng.u64(0..8_000)));
            sleep(if self.world.is_calm() { Duration::from_millis(100) } else { pause }).await;
        }
    }

    fn start(&self) -> Option<(tokio::task::JoinHandle<Result<Summary>>, Arc<Gate>)> {
        let mut state = lock(&self.state);
        if state.over {
            return None;
        }
        state.starts += 1;
        let actor = format!("n{}.{}", self.number, state.starts);
        self.world.note(|| format!("{actor} starts"));
        let gate = Gate::new(actor, self.world.alarm.clone(), state.skew_us);
        let (stop, stopped) = oneshot::channel::<()>();
        let builder = self.builder();
        // Dropping the sender kills the node, instead of stopping it.
        let stopped = async move {
            if stopped.await.is_err() {
                std::future::pending::<()>().await;
            }
        };
        // Built behind the gate, because the builder reads the gate's clock.
        let engine = tokio::spawn(gate.guard(async move { builder.run_until(stopped).await }));
        let running =
            Running { gate: gate.clone(), stop: Some(stop), engine: engine.abort_handle() };
        state.running = Some(running);
        Some((engine, gate))
    }

    /// Checks the result of an engine that ended by itself or was stopped.
    fn judge(&self, gate: &Gate, ended: Result<Summary>) -> String {
        match ended {
            Ok(summary) if lock(&self.state).over && summary.unsettled > 0 => {
                let actor = &gate.actor;
                self.world.alarm.raise(format!("unsettled: {actor} stopped with {summary:?}"));
                "stopped".to_owned()
            }
            Ok(summary) => format!("stopped: {summary:?}"),
            Err(error) if error.is_transient() => format!("did not start: {error}"),
            Err(error) => {
                self.world.alarm.raise(format!("error: {} ended with {error}", gate.actor));
                "failed".to_owned()
            }
        }
    }

    /// Kills it without deregistration.
    pub(super) fn kill(&self) {
        if let Some(running) = &lock(&self.state).running {
            running.gate.open();
            running.engine.abort();
        }
    }

    /// Whether it is running and has not been stopped.
    pub(super) fn is_up(&self) -> bool {
        lock(&self.state).running.as_ref().is_some_and(|running| running.stop.is_some())
    }

    /// Stops it, and checks that it stops in time and leaves no claims.
    pub(super) async fn stop(&self, for_good: bool) {
        let (gate, stop) = {
            let mut state = lock(&self.state);
            state.over |= for_good;
            let Some(running) = &mut state.running else { return };
            let stop = running.stop.take();
            (running.gate.clone(), stop)
        };
        gate.open();
        let Some(stop) = stop else { return };
        let _ = stop.send(());
        let plan = &self.plan;
        let patience = plan.shutdown_timeout + plan.cancel_grace + STOP_SLACK;
        if timeout(patience, gate.emptied()).await.is_err() {
            let (actor, tasks) = (&gate.actor, gate.tasks());
            self.world.alarm.raise(format!(
                "stop: {tasks} tasks of {actor} still run {patience:?} after the request to stop"
            ));
        }
    }

    /// Pauses all its tasks for a while.
    pub(super) async fn pause(&self, length: Duration) {
        let Some(gate) = self.gate() else { return };
        gate.shut();
        sleep(length).await;
        gate.open();
    }

    pub(super) fn open(&self) {
        if let Some(gate) = self.gate() {
            gate.open();
        }
    }

    pub(super) fn turn_clock(&self, skew_us: i64) {
        lock(&self.state).skew_us = skew_us;
        if let Some(gate) = self.gate() {
            gate.skew_us.store(skew_us, Ordering::SeqCst);
        }
    }

    fn gate(&self) -> Option<Arc<Gate>> {
        lock(&self.state).running.as_ref().map(|running| running.gate.clone())
    }
}
