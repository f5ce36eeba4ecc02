//! The engine from start to stop.

use std::future::Future;
use std::pin::{Pin, pin};
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use tokio::task::JoinSet;
use tokio::time::{Instant, timeout, timeout_at};

use crate::contract::SharedStore;
use crate::engine::builder::EngineBuilder;
use crate::engine::call::slot;
use crate::engine::claim::fetch;
use crate::engine::claim::reconcile::take_back;
use crate::engine::core::Core;
use crate::engine::handle::Handle;
use crate::engine::hooks::OnStart;
use crate::engine::limits::{FLUSH_MAX, SETTLERS};
use crate::engine::outage::Pauses;
use crate::engine::settle::settler;
use crate::engine::shield::shielded_future;
use crate::engine::summary::Summary;
use crate::engine::upkeep::beats::Beats;
use crate::engine::upkeep::definitions::Definitions;
use crate::engine::upkeep::heartbeat::Pulser;
use crate::engine::upkeep::{declaring, guard, inbox, maintenance, repeat};
use crate::handler::control::Stop;
use crate::lock::lock;
use crate::machine;
use crate::model::{Error, ErrorKind, Queue, Result};

/// Runs handlers for the jobs of its queues.
///
/// ```
/// # use seriatim::{Batch, Client, Context, Engine, Job, Queue, store::Memory};
/// # use std::sync::Arc;
/// # #[tokio::main(flavor = "current_thread")] async fn main() -> seriatim::Result<()> {
/// let store: seriatim::SharedStore = Arc::new(Memory::new());
/// let (done, all_done) = tokio::sync::oneshot::channel();
/// let done = std::sync::Mutex::new(Some(done));
/// Client::new(store.clone()).push(Job::new("orders", "paid")?.key("order-42")).await?;
/// let summary = Engine::builder(store)
///     .queue(Queue::accumulate("orders").batch_size(10))
///     .worker("orders", move |batch: Batch<String>| {
///         let (key, paid) = (batch.lanes()[0].key().to_owned(), batch.lanes()[0].payloads().to_vec());
///         if let Some(done) = done.lock().unwrap().take() { let _ = done.send((key, paid)); }
///         async {}
///     })
///     .run_until(async { assert_eq!(all_done.await.unwrap().1, ["paid"]) })
///     .await?;
/// assert_eq!(summary.done, 1);
/// # Ok(()) }
/// ```
pub struct Engine {
    core: Arc<Core>,
    on_start: Vec<Box<OnStart>>,
}

impl Engine {
    /// An engine on `store`.
    pub fn builder(store: SharedStore) -> EngineBuilder {
        EngineBuilder::new(store)
    }

    pub(in crate::engine) fn new(mut core: Core, queues: Vec<Queue>) -> Self {
        let on_start = std::mem::take(&mut core.hooks.on_start);
        core.definitions = Definitions::new(queues);
        Self { core: Arc::new(core), on_start }
    }

    /// Warnings about queue names that look mistyped, for a store that declares none of them.
    #[cfg(test)]
    pub(in crate::engine) fn slips(&self) -> Vec<String> {
        self.core.slips(&[])
    }

    /// A handle to control the engine while it runs.
    pub fn handle(&self) -> Handle {
        Handle::new(self.core.clone())
    }

    /// Works until `stop` is ready (or an operator stops the node). If the store is unavailable, the engine waits for
    /// it, at the start too. Any other refusal at the start is an error, as is a queue that was declared in another
    /// mode and has jobs. A queue that only a push created is converted, if necessary later; until then the engine
    /// claims nothing from it and works on the other queues.
    ///
    /// Then it stops, in this order: no new claims; lanes that wait for a slot are returned uncounted; running calls and
    /// periodic workers may finish within `shutdown_timeout`; the remaining calls are asked to stop, dropped after
    /// `cancel_grace`, and their lanes returned uncounted; ended turns are settled; the heartbeat ends last. If the
    /// future is dropped, everything stops immediately, and claims last until their leases expire.
    pub async fn run_until(self, stop: impl Future + Send) -> Result<Summary> {
        let stop = pin!(async { drop(stop.await) });
        self.run(stop).await
    }

    /// Not generic, so that the engine is compiled once and not for each caller.
    async fn run(self, mut stop: Pin<&mut (dyn Future<Output = ()> + Send)>) -> Result<Summary> {
        let core = self.core;
        let fatal = |error: &Error| core.hooks.fatal(&error.to_string());
        run_on_start(&core, self.on_start).await.inspect_err(fatal)?;
        let started = tokio::select! {
            biased;
            // A store that hangs must not keep the process from ending.
            () = &mut stop => None,
            () = core.stop_requested.notified() => None,
            started = start(&core) => Some(started),
        };
        if !matches!(started, Some(Ok(_))) {
            deregister(&core).await;
        }
        let Some(upkeep) = started.transpose().inspect_err(fatal)? else {
            return Ok(core.counters.summary(0));
        };
        let mut periodic = JoinSet::new();
        for place in 0..core.periodic.len() {
            spawn(&mut periodic, &core, "periodic", repeat::run(core.clone(), place));
        }
        let mut settlers = JoinSet::new();
        let several = core.store.capabilities().claim_split.is_some();
        for _ in 0..if several { SETTLERS } else { 1 } {
            spawn(&mut settlers, &core, "settle", settler::run(core.clone()));
        }
        let mut slots = JoinSet::new();
        for _ in 0..core.settings.concurrency {
            spawn(&mut slots, &core, "slot", slot::run(core.clone()));
        }
        let mut fetcher = JoinSet::new();
        spawn(&mut fetcher, &core, "fetch", fetch::run(core.clone()));
        tokio::select! {
            biased;
            () = &mut stop => {}
            () = core.stop_requested.notified() => tracing::info!("stopping as requested"),
        }
        let runs_end = async {
            if timeout(core.settings.shutdown_timeout, join_all(&mut periodic)).await.is_err() {
                tracing::warn!("periodic workers did not end in time: they are dropped");
                periodic.abort_all();
            }
        };
        tokio::join!(drain(&core, &mut fetcher, &mut slots), runs_end);
        core.settles.close();
        let flushed = Instant::now() + FLUSH_MAX;
        let _ = timeout_at(flushed, join_all(&mut settlers)).await;
        if timeout_at(flushed, take_back(&core)).await.is_err() {
            tracing::warn!(
                "stopped after a lost answer that the store could not be asked about: what it claimed stands until its lease \
                 expires"
            );
        }
        upkeep.end().await;
        core.hooks.turn_log.log_left_out(true);
        let unsettled = core.held.count();
        if unsettled == 0 {
            deregister(&core).await;
        } else {
            tracing::warn!(
                lanes = unsettled,
                "stopped before the store accepted all outcomes: these lanes run again when their leases expire"
            );
        }
        if let Some(why) = lock(&core.fatal).take() {
            return Err(Error::new(ErrorKind::Fatal, why));
        }
        Ok(core.counters.summary(unsettled))
    }
}

/// Keeps the node alive and maintains the store, until it is dropped.
struct Upkeep {
    _tasks: JoinSet<()>,
    beats: Option<Beats>,
}

impl Upkeep {
    async fn end(self) {
        if let Some(beats) = self.beats {
            beats.end().await;
        }
    }
}

/// Tells the other nodes that this one has gone, if they may have seen it.
async fn deregister(core: &Arc<Core>) {
    if !core.is_known.load(Ordering::Relaxed) {
        return;
    }
    let deregistering = Pulser::new(core.clone(), core.store_now()).deregister();
    if let Err(text) = shielded_future(deregistering).await {
        tracing::error!("deregistering panicked: {text}");
    }
}

async fn run_on_start(core: &Core, hooks: Vec<Box<OnStart>>) -> Result<()> {
    let fatal = |text: String| Error::new(ErrorKind::Fatal, text);
    for hook in hooks {
        let started = shielded_future(async { hook().await }).await;
        started.map_err(|text| fatal(format!("on_start panicked: {text}")))?.map_err(
            |failure| fatal(format!("on_start failed: {}", core.hooks.text_of(&failure))),
        )?;
    }
    Ok(())
}

/// Registers the node and starts its upkeep.
async fn start(core: &Arc<Core>) -> Result<Upkeep> {
    let (began, mut pauses) = (Instant::now(), Pauses::default());
    let pulser = loop {
        match register(core).await {
            Ok(pulser) => break pulser,
            Err(error) if error.kind() == ErrorKind::Unavailable => {
                core.outage.failed("the start", &error);
                tokio::time::sleep(pauses.next()).await;
            }
            Err(error) => return Err(error),
        }
    };
    core.outage.succeeded();
    if began.elapsed() >= core.settings.lease {
        core.lease.returned();
    }
    let mut tasks = JoinSet::new();
    let beats = if pulser.has_line() {
        Some(Beats::start(core, pulser)?)
    } else {
        spawn(&mut tasks, core, "heartbeat", pulser.run());
        spawn(&mut tasks, core, "guard", guard::run(core.clone()));
        None
    };
    spawn(&mut tasks, core, "definitions", declaring::run(core.clone()));
    spawn(&mut tasks, core, "maintenance", maintenance::run(core.clone()));
    if core.store.capabilities().inbox {
        spawn(&mut tasks, core, "inbox", inbox::run(core.clone()));
    }
    #[cfg(feature = "cron")]
    if !core.hooks.crons.is_empty() {
        spawn(&mut tasks, core, "cron notes", crate::engine::upkeep::cron::note(core.clone()));
    }
    #[cfg(feature = "cron")]
    for cron in &core.hooks.crons {
        spawn(
            &mut tasks,
            core,
            "cron",
            crate::engine::upkeep::cron::run(core.clone(), cron.clone()),
        );
    }
    Ok(Upkeep { _tasks: tasks, beats })
}

/// Declares the queues and registers the node. May be repeated after a failure.
async fn register(core: &Arc<Core>) -> Result<Pulser> {
    core.declare().await?;
    let queues = core.read_definitions().await?;
    #[cfg(feature = "cron")]
    crate::engine::upkeep::cron::check(core, &queues)?;
    core.warn_of_slips(&queues);
    core.read_clock().await?;
    let mut pulser = Pulser::new(core.clone(), core.store_now());
    pulser.beat().await?;
    core.split().await?;
    Ok(pulser)
}

/// Starts one of the engine's tasks. All tasks start here, so that a simulation can stop them together. A task that
/// panics, or ends before the engine does, stops the engine.
fn spawn(
    tasks: &mut JoinSet<()>,
    core: &Arc<Core>,
    name: &'static str,
    task: impl Future<Output = ()> + Send + 'static,
) {
    let task = machine::task(task);
    let core = core.clone();
    tasks.spawn(async move {
        match shielded_future(task).await {
            Ok(()) if core.phases.is_draining() => {}
            Ok(()) => core.broken(name, "has ended"),
            Err(text) => core.broken(name, &format!("panicked: {text}")),
        }
    });
}

/// Ends the fetcher and the slots; see [`Engine::run_until`] for the order.
async fn drain(core: &Core, fetcher: &mut JoinSet<()>, slots: &mut JoinSet<()>) {
    let settings = &core.settings;
    let end = Instant::now() + settings.shutdown_timeout;
    core.phases.drain();
    core.env.draining.store(true, Ordering::Relaxed);
    core.release_waiting();
    // Waits for a claim in flight; otherwise its lanes would stay claimed until the lease expires.
    if timeout_at(end, fetcher.join_next()).await.is_err() {
        fetcher.shutdown().await;
        // What it brings is returned once all turns are settled.
        core.claims_unanswered.store(true, Ordering::Release);
    }
    core.release_waiting();
    core.dispatch.close();
    if timeout_at(end, join_all(slots)).await.is_ok() {
        return;
    }
    let calls = core.running.close(Stop::Stopping);
    tracing::warn!(calls, "these calls did not finish in time: they are asked to stop");
    let patience = settings.cancel_grace + Duration::from_millis(500);
    if timeout(patience, join_all(slots)).await.is_err() {
        tracing::error!(
            "a handler blocks its thread and cannot be ended: its claims stand until their leases expire"
        );
        slots.abort_all();
    }
}

async fn join_all(tasks: &mut JoinSet<()>) {
    while tasks.join_next().await.is_some() {}
}
