//! The state that the tasks of an engine share.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use tokio::sync::Notify;
use tokio::time::Instant;

use crate::contract::{
    Claim, Lease, NodeView, PeriodicView, Pushed, QueueView, SharedStore, Store, Wakeups,
};
use crate::engine::call::flags::Flags;
use crate::engine::call::running::Running;
use crate::engine::claim::dispatch::Dispatch;
use crate::engine::claim::held::Held;
use crate::engine::claim::scheduler::Scheduler;
use crate::engine::claim::source::Source;
use crate::engine::claim::splitter::{FleetView, Splitter};
use crate::engine::hooks::Hooks;
use crate::engine::lease::LeaseClock;
use crate::engine::limits::{CERTAIN_WAIT, HEARTBEAT_MIN};
use crate::engine::outage::Outage;
use crate::engine::phase::Phases;
use crate::engine::settle::ended::Ended;
use crate::engine::settle::settles::Settles;
use crate::engine::shield::shielded;
use crate::engine::store_clock::StoreClock;
use crate::engine::summary::Counters;
use crate::engine::upkeep::definitions::Definitions;
use crate::engine::upkeep::losses::Losses;
use crate::engine::upkeep::periodic::{Account, Periodic};
use crate::engine::upkeep::troubles::Troubles;
use crate::handler::call::Call;
use crate::handler::env::CallEnv;
use crate::handler::exhausted::Exhausted;
use crate::lock::lock;
use crate::model::{Job, NodeId, Outcome, Queue, Result, Timestamp, Turn};
use crate::observe::{self, Observer};

/// The settings of an engine, fixed at its start.
#[derive(Clone, Debug)]
pub(in crate::engine) struct Settings {
    pub(in crate::engine) node_name: Arc<str>,
    pub(in crate::engine) groups: Vec<Arc<str>>,
    pub(in crate::engine) concurrency: usize,
    pub(in crate::engine) lease: Duration,
    pub(in crate::engine) heartbeat: Duration,
    pub(in crate::engine) prefetch_max: usize,
    pub(in crate::engine) poll_interval: Duration,
    pub(in crate::engine) shutdown_timeout: Duration,
    pub(in crate::engine) cancel_grace: Duration,
    pub(in crate::engine) rescue_interval: Duration,
    pub(in crate::engine) scheduler: Scheduler,
}

impl Settings {
    /// How long to wait for one of these wake-ups before asking the store anyway.
    pub(in crate::engine) fn patience(&self, wakeups: &Wakeups) -> Duration {
        let certain = if wakeups.are_certain() { CERTAIN_WAIT } else { Duration::ZERO };
        self.poll_interval.max(certain)
    }
}

pub(in crate::engine) struct Core {
    pub(in crate::engine) store: SharedStore,
    pub(in crate::engine) definitions: Definitions,
    pub(in crate::engine) settings: Settings,
    pub(in crate::engine) sources: Vec<Source>,
    pub(in crate::engine) observer: Option<Arc<dyn Observer>>,
    pub(in crate::engine) hooks: Hooks,
    pub(in crate::engine) env: Arc<CallEnv>,
    pub(in crate::engine) periodic: Vec<(Periodic, Account)>,
    /// Why this process cannot continue, if a worker or task failed fatally.
    pub(in crate::engine) fatal: Mutex<Option<String>>,
    pub(in crate::engine) dispatch: Dispatch,
    pub(in crate::engine) held: Held,
    pub(in crate::engine) running: Running,
    pub(in crate::engine) flags: Flags,
    pub(in crate::engine) settles: Settles,
    pub(in crate::engine) lease: LeaseClock,
    pub(in crate::engine) outage: Outage,
    pub(in crate::engine) phases: Arc<Phases>,
    pub(in crate::engine) counters: Counters,
    pub(in crate::engine) troubles: Troubles,
    pub(in crate::engine) losses: Losses,
    /// For each source, whether this node prefers it.
    preferred: Mutex<Vec<bool>>,
    /// The node was asked to take no more work.
    pub(in crate::engine) quiet: AtomicBool,
    /// A heartbeat was sent: the other nodes may see this one.
    pub(in crate::engine) is_known: AtomicBool,
    /// Notified when the engine must stop.
    pub(in crate::engine) stop_requested: Notify,
    /// Notified when the store no longer knows this node.
    pub(in crate::engine) gone: Notify,
    /// Notified after a heartbeat under a new id.
    pub(in crate::engine) renamed: Notify,
    /// A rescue, or a settle with lanes that go on, may have taken effect although its answer was lost.
    pub(in crate::engine) claims_unanswered: AtomicBool,
    /// Locked for reading by rescues and by settles with lanes that go on; for writing, while the store's list of
    /// lanes held by this node is compared with the node's own list.
    pub(in crate::engine) claiming: tokio::sync::RwLock<()>,
    node: Mutex<NodeId>,
    /// The ticket of the last claim or rescue.
    ticket: AtomicU64,
    pub(in crate::engine) clock: StoreClock,
}

impl Core {
    pub(in crate::engine) fn new(
        store: SharedStore,
        settings: Settings,
        sources: Vec<Source>,
        observer: Option<Arc<dyn Observer>>,
        mut hooks: Hooks,
    ) -> Self {
        let periodic = std::mem::take(&mut hooks.periodic);
        let periodic = periodic.into_iter().map(|one| (one, Account::default())).collect();
        let env = Arc::new(CallEnv::new(store.clone(), hooks.codec.take()));
        let limits = sources.iter().map(Source::concurrency);
        let dispatch =
            Dispatch::new(limits, settings.scheduler, settings.concurrency, settings.prefetch_max);
        let node = NodeId::unique(&settings.node_name);
        let preferred = Mutex::new(vec![true; sources.len()]);
        Self {
            store,
            definitions: Definitions::default(),
            preferred,
            settings,
            sources,
            observer,
            hooks,
            env,
            periodic,
            fatal: Mutex::default(),
            dispatch,
            held: Held::default(),
            running: Running::default(),
            flags: Flags::default(),
            settles: Settles::default(),
            lease: LeaseClock::new(),
            outage: Outage::default(),
            phases: Arc::new(Phases::new()),
            counters: Counters::default(),
            troubles: Troubles::default(),
            losses: Losses::default(),
            quiet: AtomicBool::new(false),
            is_known: AtomicBool::new(false),
            stop_requested: Notify::new(),
            gone: Notify::new(),
            renamed: Notify::new(),
            claims_unanswered: AtomicBool::new(false),
            claiming: tokio::sync::RwLock::new(()),
            node: Mutex::new(node),
            ticket: AtomicU64::new(0),
            clock: StoreClock::new(),
        }
    }

    /// The id under which this node claims now.
    pub(in crate::engine) fn node(&self) -> NodeId {
        lock(&self.node).clone()
    }

    /// Takes a new id; returns the old one.
    pub(in crate::engine) fn rename(&self, name: NodeId) -> NodeId {
        std::mem::replace(&mut *lock(&self.node), name)
    }

    /// The ticket for the next claim or rescue.
    pub(in crate::engine) fn next_ticket(&self) -> u64 {
        self.ticket.fetch_add(1, Ordering::Relaxed) + 1
    }

    /// The ticket of the last claim or rescue.
    pub(in crate::engine) fn last_ticket(&self) -> u64 {
        self.ticket.load(Ordering::Relaxed)
    }

    /// Reads the store's clock.
    pub(in crate::engine) async fn read_clock(&self) -> Result<()> {
        self.read_clock_of(&*self.store).await
    }

    /// The same through another connection.
    pub(in crate::engine) async fn read_clock_of(&self, store: &dyn Store) -> Result<()> {
        let asked = Instant::now();
        let time = store.now().await?;
        if self.clock.read(time, asked) {
            // Lanes may be due sooner than the fetcher waits for.
            self.dispatch.room.notify_one();
        }
        Ok(())
    }

    /// The store's clock, estimated without asking it.
    pub(in crate::engine) fn store_now(&self) -> Timestamp {
        self.clock.now()
    }

    /// Whether this node may claim lanes of a source now.
    pub(in crate::engine) fn takes_from(&self, source: usize) -> bool {
        let source = &self.sources[source];
        !self.quiet.load(Ordering::Relaxed)
            && source.paused_until().is_none()
            && source.stands()
            // If heartbeats fail, lanes claimed now could not be started.
            && self.lease.stands(self.ttl_of(source))
    }

    /// A claim of no lanes of a source yet.
    pub(in crate::engine) fn claim_of(&self, source: usize, node: NodeId) -> Claim {
        let source = &self.sources[source];
        let lease = Lease::Node { ttl: self.ttl_of(source) };
        Claim {
            node_name: Some(self.settings.node_name.clone()),
            groups: self.settings.groups.clone(),
            declared: source.is_declared(),
            ticket: self.next_ticket(),
            series_max: self.series_max(source),
            ..Claim::new(source.name.clone(), node, 0, lease)
        }
    }

    /// How many jobs of a key a claim asks for, to be handed over one after the other.
    pub(in crate::engine) fn series_max(&self, source: &Source) -> u32 {
        if self.store.capabilities().series { source.series_max() } else { 1 }
    }

    /// The time until the store's clock shows `time`.
    pub(in crate::engine) fn until(&self, time: Timestamp) -> Duration {
        time.since(self.store_now())
    }

    /// How long a claim of this queue lasts without a heartbeat.
    pub(in crate::engine) fn ttl(&self, queue: &Queue) -> Duration {
        queue.lease.unwrap_or(self.settings.lease)
    }

    fn ttl_of(&self, source: &Source) -> Duration {
        source.definition().map_or(self.settings.lease, |queue| self.ttl(&queue))
    }

    /// The leases of this node's claims: its own, and those of queues, also former ones.
    pub(in crate::engine) fn ttls(&self) -> impl Iterator<Item = Duration> {
        let own = self.sources.iter().filter_map(Source::shortest_lease);
        own.chain([self.settings.lease])
    }

    /// The shortest of them.
    pub(in crate::engine) fn shortest_lease(&self) -> Duration {
        self.ttls().fold(self.settings.lease, Duration::min)
    }

    /// The time between two heartbeats: three fit into each lease, also into that of a queue that others declared.
    pub(in crate::engine) fn heartbeat(&self) -> Duration {
        let thirds = self.ttls().map(|ttl| (ttl / 3).max(HEARTBEAT_MIN));
        thirds.fold(self.settings.heartbeat, Duration::min)
    }

    /// Whether a lease has ended since the last heartbeat.
    pub(in crate::engine) fn has_lapsed(&self) -> bool {
        self.ttls().any(|ttl| !self.lease.stands(ttl))
    }

    /// Whether nodes that live may seem to be dead, because less than a lease ago the store's clock has jumped, or the
    /// store came back from an outage longer than that. This node's own heartbeat comes first.
    pub(in crate::engine) fn may_misjudge(&self) -> bool {
        let lease = self.settings.lease;
        !self.lease.stands(lease)
            || self.lease.has_returned_within(lease)
            || self.clock.has_jumped_within(lease)
    }

    /// Reads the definitions of the queues; updates this node's sources and returns all.
    pub(in crate::engine) async fn read_definitions(&self) -> Result<Vec<QueueView>> {
        let views = self.store.queues().await?;
        self.look_for_lost(&views);
        self.env.hear_of_exhausted(self.hooks.exhausted || Exhausted::is_wanted(&views));
        for source in &self.sources {
            let Some(view) = views.iter().find(|view| view.queue.name == *source.name) else {
                continue;
            };
            if source.is_declared() && !view.declared {
                continue;
            }
            if source.definition().as_deref() != Some(&view.queue) {
                source.define(view.queue.clone());
            }
        }
        Ok(views)
    }

    /// Returns turns that never started: uncounted.
    pub(in crate::engine) fn release(&self, source: usize, turns: Vec<Turn>) {
        if turns.is_empty() {
            return;
        }
        let queue = self.sources[source].definition_for(turns.first());
        self.release_call(&Arc::new(Call::unstarted(self.env.clone(), queue, turns)));
    }

    /// The same for the turns of a call.
    pub(in crate::engine) fn release_call(&self, call: &Arc<Call>) {
        let ended = (0..call.turns.len()).map(|place| {
            let unstarted = Outcome::Release.into();
            let settlement = call.plan(place, &call.queue, unstarted, &|_| Duration::ZERO);
            Ended::new(settlement, call, place, self.observer.is_some())
        });
        self.settles.add(ended);
    }

    /// Pushes jobs of the engine's own, and tells the observer.
    pub(in crate::engine) async fn push(&self, jobs: Vec<Job>) -> Result<Vec<Pushed>> {
        observe::push(&*self.store, self.observer.as_ref(), jobs).await
    }

    /// Stops the engine because one of its tasks ended, which it cannot work without.
    pub(in crate::engine) fn broken(&self, task: &str, how: &str) {
        self.fatal(&format!("the engine's task {task:?} {how}"));
    }

    /// The periodic workers as they are now.
    pub(in crate::engine) fn periodic_views(&self) -> Vec<PeriodicView> {
        self.periodic.iter().map(|(periodic, account)| account.view(periodic)).collect()
    }

    /// Stops the engine because this process cannot continue.
    pub(in crate::engine) fn fatal(&self, why: &str) {
        tracing::error!("fatal: {why}; stopping");
        if lock(&self.fatal).replace(why.to_owned()).is_none() {
            self.hooks.fatal(why);
        }
        self.stop_requested.notify_one();
    }

    /// Whether this node prefers a source.
    pub(in crate::engine) fn prefers(&self, source: usize) -> bool {
        lock(&self.preferred).get(source).copied().unwrap_or(true)
    }

    /// Reads the nodes that take work, and updates which sources this node prefers.
    pub(in crate::engine) async fn split(&self) -> Result<()> {
        if matches!(self.hooks.splitter, Splitter::All) {
            return Ok(());
        }
        let (node, now) = (self.node(), self.store_now());
        let views = self.store.nodes().await?;
        // A node with a command is quiet or stops.
        let works = |view: &NodeView| {
            !view.dead && view.command.is_none() && view.heartbeat_at + view.info.lease >= now
        };
        let infos: Vec<_> = views.into_iter().filter(works).map(|view| view.info).collect();
        let ids = infos.iter().map(|info| info.id.clone());
        let mut nodes: Vec<NodeId> = ids.chain([node.clone()]).collect();
        nodes.sort();
        nodes.dedup();
        let fleet = FleetView::of(&node, &nodes, &infos);
        let prefers = |source: &Source| {
            let prefers = shielded(|| self.hooks.splitter.prefers(&fleet, &source.name));
            prefers.unwrap_or_else(|text| {
                tracing::error!(queue = &*source.name, "the splitter panicked: {text}");
                true
            })
        };
        let preferred = self.sources.iter().map(prefers).collect();
        *lock(&self.preferred) = preferred;
        Ok(())
    }

    /// Starts or stops taking new work; what waits for a slot then is for others.
    pub(in crate::engine) fn take_work(&self, takes: bool) {
        self.quiet.store(!takes, Ordering::Relaxed);
        if !takes {
            self.release_waiting();
        }
        self.dispatch.room.notify_one();
    }

    /// Returns all turns that wait for a slot.
    pub(in crate::engine) fn release_waiting(&self) {
        for (source, turns) in self.dispatch.take_all() {
            self.release(source, turns);
        }
    }
}
