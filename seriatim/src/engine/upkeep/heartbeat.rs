//! The heartbeat: one for all claims of the node.

use std::collections::{BTreeMap, HashSet};
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use tokio::time::{Instant, timeout};

use crate::contract::{Beat, Command, Heartbeat, NodeInfo, Pulse, SharedStore, Store};
use crate::engine::claim::source::Source;
use crate::engine::core::Core;
use crate::engine::lease::Sent;
use crate::engine::limits::{
    BEAT_TIME_MIN, BEATS_MISSED_MAX, DEREGISTER_MAX, HEARTBEAT_MIN, LOAD_EVERY, PROGRESS_EVERY,
    RECALLED_AT_ONCE,
};
use crate::engine::outage::Pauses;
use crate::handler::control::Stop;
use crate::model::{Error, ErrorKind, LaneId, NodeId, Result, Timestamp, Token, Turn, TurnReport};

/// Sends the node's heartbeats.
pub(in crate::engine) struct Pulser {
    core: Arc<Core>,
    /// The separate connection for heartbeats, once it is open.
    line: Option<SharedStore>,
    /// Whether heartbeats use it.
    apart: bool,
    info: NodeInfo,
    /// Progress whose heartbeat failed; the next one repeats it.
    unsent: Vec<Beat>,
    /// The operator's command, as of the last heartbeat.
    command: Option<Command>,
    /// The load that the last heartbeat reported.
    reported: Load,
    /// When long-running turns were last named.
    named: Instant,
    /// The server may have lost claims: the next heartbeat names all running turns.
    names_all: bool,
    /// How many heartbeats in a row were given up.
    misses: u32,
    /// The id under which it will go on: it was declared dead, and the store may not know this one yet.
    next_id: Option<NodeId>,
}

/// A node's load.
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

    fn is_zero(&self) -> bool {
        self.busy == 0 && self.prefetched.is_empty()
    }

    /// Whether the load changed noticeably: to or from zero, or by a quarter.
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
            groups: settings.groups.iter().map(ToString::to_string).collect(),
            concurrency: settings.concurrency as u32,
            busy: 0,
            prefetched: BTreeMap::new(),
            started_at,
            lease: settings.lease,
            periodic: Vec::new(),
            troubles: Vec::new(),
            origin: core.hooks.origin.clone(),
        };
        let (reported, named) = (Load::default(), Instant::now());
        let unsent = Vec::new();
        let (line, apart, command, names_all) = (None, false, None, false);
        let (misses, next_id) = (0, None);
        Self {
            core,
            line,
            apart,
            info,
            unsent,
            command,
            reported,
            named,
            names_all,
            misses,
            next_id,
        }
    }

    /// Deregisters the node, which holds no claim any more, so that the others need not wait for its lease to see
    /// that it has gone.
    pub(in crate::engine) async fn deregister(mut self) {
        self.info.lease = Duration::ZERO;
        let store = self.core.store.clone();
        match timeout(DEREGISTER_MAX, self.send(&*store, self.core.node(), Vec::new())).await {
            Ok(Ok(_)) => {}
            // The others see that it has gone when its lease expires.
            Ok(Err(error)) => tracing::debug!(%error, "could not deregister"),
            Err(_) => tracing::debug!("could not deregister in time"),
        }
    }

    /// Sends heartbeats until the engine ends, through the separate connection if there is one.
    pub(in crate::engine) async fn run(mut self) {
        self.apart = true;
        let mut pauses = Pauses::default();
        let mut wait = self.core.heartbeat();
        loop {
            self.rest(wait).await;
            wait = match self.beat_in_time().await {
                Ok(()) => {
                    self.core.outage.succeeded();
                    pauses.reset();
                    let usual = self.core.heartbeat();
                    if self.names_all { usual.min(HEARTBEAT_MIN) } else { usual }
                }
                Err(error) => {
                    self.core.outage.failed("the heartbeat", &error);
                    pauses.next().min(self.core.heartbeat())
                }
            };
        }
    }

    /// Waits until the next heartbeat. It is sent sooner if a handler reports progress, the node's load or troubles
    /// change, or the store no longer knows this node.
    async fn rest(&self, length: Duration) {
        let core = &self.core;
        let now = Instant::now();
        let (until, load_from) = (now + length, now + LOAD_EVERY);
        // Turns or troubles have begun; the load is compared a step later, so that short jobs do not each wake this thread.
        let mut stirred = false;
        loop {
            let left = until.saturating_duration_since(Instant::now());
            let is_idle = !stirred && self.is_idle();
            let step = if is_idle { left } else { left.min(PROGRESS_EVERY) };
            stirred = tokio::select! {
                biased;
                () = tokio::time::sleep(step) => false,
                () = core.gone.notified() => return,
                () = core.env.hurry.notified() => stirred,
                () = core.dispatch.stirred.notified(), if is_idle => true,
                () = core.troubles.news.notified(), if is_idle => true,
            };
            if stirred && is_idle {
                continue;
            }
            let news = core.running.has_progress() || core.troubles.changed();
            if Instant::now() >= until || news {
                return;
            }
            let looks = Instant::now() >= load_from;
            if looks && Load::of(core).differs(&self.reported, core.settings.concurrency) {
                return;
            }
        }
    }

    /// Whether nothing but new turns or troubles can hurry the next heartbeat.
    fn is_idle(&self) -> bool {
        self.reported.is_zero() && Load::of(&self.core).is_zero() && !self.core.troubles.changed()
    }

    /// A heartbeat that is given up while another one can still come before the shortest lease ends: it may hang for as
    /// long as a store waits for a server.
    async fn beat_in_time(&mut self) -> Result<()> {
        let most = self.time_max();
        let answer = timeout(most, self.beat()).await.unwrap_or_else(|_| {
            self.misses += 1;
            // It may be the connection that hangs.
            self.line = None;
            let most = crate::model::duration::format(most);
            let message = format!("the store has not answered a heartbeat within {most}");
            Err(Error::new(ErrorKind::Unavailable, message))
        });
        if answer.is_ok() {
            self.misses = 0;
        }
        answer
    }

    /// The longest time that a heartbeat may take: of a store that is slow rather than away, more and more, while that
    /// still serves the node's own lease.
    fn time_max(&self) -> Duration {
        let least = (self.core.shortest_lease() / 3).max(BEAT_TIME_MIN);
        let grown = least.saturating_mul(1 << self.misses.min(BEATS_MISSED_MAX));
        grown.min(self.core.settings.lease / 3).max(least)
    }

    /// Sends one heartbeat and carries out its answer. Whatever is left of it when it is dropped, the next one does.
    pub(in crate::engine) async fn beat(&mut self) -> Result<()> {
        if self.core.held.count() == 0 {
            self.core.sources.iter().for_each(Source::forget_former_leases);
        }
        let store = self.store().await?;
        // Without what earlier turns left a report waits, the heartbeat does not.
        let _ = timeout(self.time_max() / 4, self.recall(&*store)).await;
        let news = self.core.running.take_progress();
        // Of two reports in one heartbeat a store may keep the older one.
        let renewed: HashSet<LaneId> = news.iter().map(|beat| beat.lane).collect();
        self.unsent.retain(|beat| !renewed.contains(&beat.lane));
        self.unsent.extend(news);
        let sent = Sent::now();
        let (beats, names_long) = self.beats(sent.at);
        let pulse = self.send(&*store, self.info.id.clone(), beats.clone()).await?;
        self.unsent.clear();
        self.names_all = false;
        if names_long {
            self.named = sent.at;
        }
        self.core.running.progress_arrived();
        if !pulse.alive {
            return self.rename(&*store).await;
        }
        // Before it stands again: others may have taken over what had a shorter lease than the node's, and did not
        // declare the node dead for it.
        let has_lapsed = self.core.held.count() > 0 && self.core.has_lapsed();
        if has_lapsed {
            self.compare_claims("no heartbeat succeeded for longer than a lease");
        }
        self.renewed(sent);
        if pulse.moved {
            // After a lease, what is gone was probably taken over.
            if !has_lapsed {
                self.core.losses.moved();
            }
            self.compare_claims(
                "another server has taken over, or the server was restarted, and may have lost the last writes",
            );
        }
        self.heed(pulse, &beats);
        self.core.losses.tell(&self.core.troubles);
        self.core.read_clock_of(&*store).await
    }

    /// The heartbeat sent then was confirmed.
    fn renewed(&self, sent: Sent) {
        self.core.lease.beat(sent, self.core.settings.lease);
        if let Some(observer) = &self.core.observer {
            observer.renewed(&self.info.id, sent.time + self.core.shortest_lease());
        }
    }

    /// Reads what earlier turns left of lanes with a first report.
    async fn recall(&self, store: &dyn Store) {
        for (call, lane, job) in self.core.running.forgotten(RECALLED_AT_ONCE) {
            match store.job(job).await {
                Ok(job) => {
                    let kept = job.and_then(|job| job.progress);
                    call.control.recall(lane, TurnReport::read(kept.as_deref()));
                }
                Err(error) => {
                    return tracing::debug!(%error, "cannot read what earlier turns reported");
                }
            }
        }
    }

    /// The turns in this heartbeat: those with progress and, once per heartbeat interval, those that have run for
    /// longer than it. An operator may have released their claims, and only a heartbeat that names a turn learns that
    /// it is lost. Also whether it names those.
    fn beats(&self, now: Instant) -> (Vec<Beat>, bool) {
        let mut beats = self.unsent.clone();
        let heartbeat = self.core.heartbeat();
        let names_long = self.names_all || now.duration_since(self.named) >= heartbeat / 2;
        if names_long {
            let reported: HashSet<LaneId> = beats.iter().map(|beat| beat.lane).collect();
            let least = if self.names_all { Duration::ZERO } else { heartbeat };
            let long = self.core.running.longer_than(least);
            beats.extend(long.into_iter().filter(|beat| !reported.contains(&beat.lane)));
        }
        (beats, names_long)
    }

    /// Whether heartbeats have a separate connection, which any thread may open.
    pub(in crate::engine) fn has_line(&self) -> bool {
        self.core.store.heartbeat_line().is_some()
    }

    /// The connection for heartbeats.
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
        self.reported = Load::of(&self.core);
        let (busy, prefetched) = (self.reported.busy, self.reported.prefetched.clone());
        let (troubles, version) = self.core.troubles.at(self.core.store_now());
        let periodic = self.core.periodic_views();
        let node = NodeInfo { id, busy, prefetched, periodic, troubles, ..self.info.clone() };
        self.core.is_known.store(true, Ordering::Relaxed);
        let pulse = store.heartbeat(Heartbeat { now: None, node, beats }).await?;
        self.core.troubles.reported(version);
        Ok(pulse)
    }

    /// The store may have other claims of this node than the node: what is gone there must neither start nor go on here,
    /// and what the node does not know of must not stay claimed.
    fn compare_claims(&mut self, why: &str) {
        let core = &self.core;
        tracing::warn!("{why}: this node compares its claims with the store's");
        core.release_waiting();
        core.claims_unanswered.store(true, Ordering::Release);
        core.dispatch.room.notify_one();
        self.names_all = true;
    }

    fn heed(&mut self, pulse: Pulse, named: &[Beat]) {
        let core = &self.core;
        for notice in &pulse.cancel {
            core.running.flag(notice);
        }
        core.flags.replace(pulse.cancel);
        // A lane may be claimed again by now, under another token.
        let lost: HashSet<LaneId> = pulse.lost.into_iter().collect();
        let lost: HashSet<(LaneId, Token)> = (named.iter())
            .filter(|beat| lost.contains(&beat.lane))
            .map(|beat| (beat.lane, beat.token))
            .collect();
        if !lost.is_empty() {
            // A call of several lanes goes on for those that are left.
            let is_lost = |turn: &Turn| lost.contains(&(turn.lane, turn.token));
            let stopped = core.running.stop(Stop::LeaseLost, |call| call.turns.iter().all(is_lost));
            core.losses.gone(stopped);
        }
        let before = std::mem::replace(&mut self.command, pulse.command);
        match pulse.command {
            // Resumes only if a command made it quiet: the program may have made it quiet itself.
            None | Some(Command::Resume) if before == Some(Command::Quiet) => {
                tracing::info!("taking work again, as commanded");
                core.take_work(true);
            }
            None | Some(Command::Resume) => {}
            Some(Command::Quiet) if core.quiet.swap(true, Ordering::Relaxed) => {}
            Some(Command::Quiet) => {
                tracing::info!("taking no more work, as commanded");
                core.release_waiting();
            }
            Some(Command::Stop) => core.stop_requested.notify_one(),
        }
    }

    /// Reacts to being declared dead by other nodes: its jobs may run elsewhere already. Asks all its calls to stop,
    /// and continues under a new id.
    async fn rename(&mut self, store: &dyn Store) -> Result<()> {
        let core = self.core.clone();
        let running = core.running.stop(Stop::LeaseLost, |_| true);
        // The fence refuses outcomes of claims that were taken over; the other lanes are returned immediately. None may
        // start in a slot that becomes free while the store is asked.
        core.release_waiting();
        let unique = || NodeId::unique(&core.settings.node_name);
        let id = self.next_id.get_or_insert_with(unique).clone();
        let sent = Sent::now();
        // The old id stays until the store knows the new one; otherwise the next heartbeat tries again.
        self.send(store, id.clone(), Vec::new()).await?;
        if self.command == Some(Command::Quiet) {
            // The command was for the process, not for its id.
            store.command_node(id.clone(), Command::Quiet).await?;
        }
        // What started all the same, or was on its way.
        core.running.stop(Stop::LeaseLost, |_| true);
        self.next_id = None;
        self.info.id = id.clone();
        let before = core.rename(id);
        self.renewed(sent);
        core.release_waiting();
        tracing::warn!(%before, now = %self.info.id, running, "the other nodes had declared this one dead: it continues under a new id");
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
