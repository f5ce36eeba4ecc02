//! The heartbeat: once for all that the node holds.

use std::collections::{BTreeMap, HashSet};
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use tokio::time::{Instant, timeout};

use crate::contract::{Beat, Command, Heartbeat, NodeInfo, Pulse, SharedStore, Store};
use crate::engine::core::Core;
use crate::engine::limits::{GOODBYE_MAX, LOAD_EVERY, PROGRESS_EVERY};
use crate::engine::outage::Pauses;
use crate::handler::control::Stop;
use crate::model::clock::Timestamp;
use crate::model::error::Result;
use crate::model::id::{LaneId, NodeId};

/// What the node tells of itself with every beat.
pub(in crate::engine) struct Pulser {
    core: Arc<Core>,
    /// The connection for heartbeats alone, once it is open.
    line: Option<SharedStore>,
    /// Whether it beats on that.
    apart: bool,
    info: NodeInfo,
    /// Progress whose heartbeat failed: it goes with the next.
    untold: Vec<Beat>,
    /// What a person has told this node, as of the last beat.
    command: Option<Command>,
    /// What the last beat told.
    told: Load,
    /// When turns that run for long were last named.
    named: Instant,
}

/// What a node has to do.
#[derive(Default)]
struct Load {
    busy: u32,
    prefetched: BTreeMap<String, u32>,
}

impl Load {
    fn of(core: &Core) -> Self {
        let (busy, waiting) = core.dispatch.load();
        let mut prefetched = BTreeMap::new();
        for (source, turns) in core.sources.iter().zip(waiting).filter(|(_, turns)| *turns > 0) {
            *prefetched.entry(source.name.to_string()).or_default() += turns as u32;
        }
        Self { busy: busy as u32, prefetched }
    }

    /// Whether people would see another picture: something instead of nothing, or a change by a
    /// quarter.
    fn differs(&self, other: &Self, concurrency: usize) -> bool {
        let differs = |a: u32, b: u32, all: u32| {
            (a == 0) != (b == 0) || a.abs_diff(b).saturating_mul(4) >= all.max(1)
        };
        let turns = |load: &Self, queue: &String| load.prefetched.get(queue).copied().unwrap_or(0);
        let differs_in = |queue| {
            let (here, there) = (turns(self, queue), turns(other, queue));
            here != there && differs(here, there, here.max(there))
        };
        self.busy != other.busy && differs(self.busy, other.busy, concurrency as u32)
            || self.prefetched.keys().chain(other.prefetched.keys()).any(differs_in)
    }
}

impl Pulser {
    pub(in crate::engine) fn new(core: Arc<Core>, started_at: Timestamp) -> Self {
        let settings = &core.settings;
        let info = NodeInfo {
            id: core.node(),
            name: settings.node_name.clone(),
            host: host(),
            pid: std::process::id(),
            version: env!("CARGO_PKG_VERSION").to_owned(),
            queues: core.sources.iter().map(|source| source.name.to_string()).collect(),
            concurrency: settings.concurrency as u32,
            busy: 0,
            prefetched: BTreeMap::new(),
            started_at,
            lease: settings.lease,
            troubles: Vec::new(),
            origin: core.hooks.origin.clone(),
        };
        let (told, named) = (Load::default(), Instant::now());
        let untold = Vec::new();
        Self { core, line: None, apart: false, info, untold, command: None, told, named }
    }

    /// The last beat, of a node that holds nothing any more: the others need not wait for its lease
    /// to see that it has gone.
    pub(in crate::engine) async fn goodbye(mut self) {
        self.info.lease = Duration::ZERO;
        let store = self.core.store.clone();
        match timeout(GOODBYE_MAX, self.send(&*store, self.core.node(), Vec::new())).await {
            Ok(Ok(_)) => {}
            // It is seen as gone when its lease has passed.
            Ok(Err(error)) => tracing::debug!(%error, "could not say goodbye"),
            Err(_) => tracing::debug!("the store did not take the goodbye in time"),
        }
    }

    /// Beats until the engine ends; from a thread of its own, if there is a connection for that.
    pub(in crate::engine) async fn run(mut self) {
        self.apart = true;
        let mut pauses = Pauses::default();
        let mut wait = self.core.settings.heartbeat;
        loop {
            self.rest(wait).await;
            wait = match self.beat().await {
                Ok(()) => {
                    self.core.outage.succeeded();
                    pauses.reset();
                    self.core.settings.heartbeat
                }
                Err(error) => {
                    self.core.outage.failed("the heartbeat", &error);
                    pauses.next().min(self.core.settings.heartbeat)
                }
            };
        }
    }

    /// Until the next beat: sooner when a handler has progress to tell, the node has got more or less
    /// to do, something has begun or ceased to be wrong, or the store has forgotten us.
    async fn rest(&self, length: Duration) {
        let core = &self.core;
        let now = Instant::now();
        let (until, load_from) = (now + length, now + LOAD_EVERY);
        loop {
            let step = until.saturating_duration_since(Instant::now()).min(PROGRESS_EVERY);
            tokio::select! {
                biased;
                () = tokio::time::sleep(step) => {}
                () = core.gone.notified() => return,
                () = core.env.hurry.notified() => {}
            }
            let news = core.running.has_progress() || core.troubles.changed();
            if Instant::now() >= until || news {
                return;
            }
            let looks = Instant::now() >= load_from;
            if looks && Load::of(core).differs(&self.told, core.settings.concurrency) {
                return;
            }
        }
    }

    /// One heartbeat, and what it brings back.
    pub(in crate::engine) async fn beat(&mut self) -> Result<()> {
        self.untold.extend(self.core.running.take_progress());
        let sent = Instant::now();
        let store = self.store().await?;
        let beats = self.beats(sent);
        let pulse = self.send(&*store, self.info.id.clone(), beats.clone()).await?;
        self.untold.clear();
        self.core.running.progress_arrived();
        if !pulse.alive {
            return self.rename(&*store).await;
        }
        self.core.lease.beat(sent);
        self.heed(pulse, &beats);
        self.core.read_clock_of(&*store).await
    }

    /// What this beat says of turns: progress; and, once in each heartbeat, those that have run for longer than one.
    /// A person may have released their claims, and only who names a turn hears that it is lost.
    fn beats(&mut self, now: Instant) -> Vec<Beat> {
        let mut beats = self.untold.clone();
        let heartbeat = self.core.settings.heartbeat;
        if now.duration_since(self.named) >= heartbeat / 2 {
            self.named = now;
            let told: HashSet<LaneId> = beats.iter().map(|beat| beat.lane).collect();
            let long = self.core.running.longer_than(heartbeat);
            beats.extend(long.into_iter().filter(|beat| !told.contains(&beat.lane)));
        }
        beats
    }

    /// Whether heartbeats have a connection of their own, which any thread may open.
    pub(in crate::engine) fn has_line(&self) -> bool {
        self.core.store.heartbeat_line().is_some()
    }

    /// Where to beat.
    async fn store(&mut self) -> Result<SharedStore> {
        if !self.apart {
            return Ok(self.core.store.clone());
        }
        if let Some(line) = &self.line {
            return Ok(line.clone());
        }
        let line = match self.core.store.heartbeat_line() {
            Some(opening) => opening.await?,
            None => self.core.store.clone(),
        };
        Ok(self.line.insert(line).clone())
    }

    async fn send(&mut self, store: &dyn Store, id: NodeId, beats: Vec<Beat>) -> Result<Pulse> {
        self.told = Load::of(&self.core);
        let (busy, prefetched) = (self.told.busy, self.told.prefetched.clone());
        let (troubles, version) = self.core.troubles.at(self.core.store_now());
        let node = NodeInfo { id, busy, prefetched, troubles, ..self.info.clone() };
        let pulse = store.heartbeat(Heartbeat { now: None, node, beats }).await?;
        self.core.troubles.told(version);
        Ok(pulse)
    }

    fn heed(&mut self, pulse: Pulse, named: &[Beat]) {
        let core = &self.core;
        for notice in &pulse.cancel {
            core.running.flag(notice);
        }
        core.flags.replace(pulse.cancel);
        for lane in pulse.lost {
            // The lane may be claimed again by now, under another token.
            let Some(beat) = named.iter().find(|beat| beat.lane == lane) else { continue };
            // A call of one lane has nothing left to work for; one of several still has.
            core.running.stop(Stop::LeaseLost, |call| match &call.turns[..] {
                [turn] => (turn.lane, turn.token) == (lane, beat.token),
                _ => false,
            });
        }
        let before = std::mem::replace(&mut self.command, pulse.command);
        match pulse.command {
            // Only what a command made quiet is ended by its end: a program may want quiet itself.
            None | Some(Command::Resume) if before == Some(Command::Quiet) => {
                tracing::info!("told to take work again");
                core.take_work(true);
            }
            None | Some(Command::Resume) => {}
            Some(Command::Quiet) if core.quiet.swap(true, Ordering::Relaxed) => {}
            Some(Command::Quiet) => {
                tracing::info!("told to take no more work");
                core.release_waiting();
            }
            Some(Command::Stop) => core.told_to_stop.notify_one(),
        }
    }

    /// The others have declared this node dead: what it runs may run elsewhere already. All of it
    /// is told to end, and the node goes on under a new name.
    async fn rename(&mut self, store: &dyn Store) -> Result<()> {
        let core = self.core.clone();
        let told = core.running.stop(Stop::LeaseLost, |_| true);
        let id = NodeId::unique(&core.settings.node_name);
        let sent = Instant::now();
        // Until the store knows the new name the old one stands: the next beat tries again.
        self.send(store, id.clone(), Vec::new()).await?;
        if self.command == Some(Command::Quiet) {
            // It was said of the process, not of its name.
            store.command_node(id.clone(), Command::Quiet).await?;
        }
        self.info.id = id.clone();
        let before = core.rename(id);
        core.lease.beat(sent);
        // The fence refuses what was taken over; the rest goes back at once.
        core.release_waiting();
        tracing::warn!(%before, now = %self.info.id, running = told, "the other nodes had declared this one dead: it goes on under a new id");
        if let Some(observer) = &core.observer {
            observer.lost(&core.held.tokens());
        }
        core.renamed.notify_one();
        core.read_clock_of(store).await
    }
}

fn host() -> String {
    let read = |path| std::fs::read_to_string(path).ok();
    let name = read("/proc/sys/kernel/hostname").or_else(|| read("/etc/hostname"));
    name.or_else(|| std::env::var("HOSTNAME").ok()).unwrap_or_default().trim().to_owned()
}
