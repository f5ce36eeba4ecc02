//! What the tasks of an engine share.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use tokio::sync::Notify;
use tokio::time::Instant;

use super::call::Call;
use super::definitions::Definitions;
use super::extras::Extras;
use super::flags::Flags;
use super::held::Held;
use super::lease::LeaseClock;
use super::lock::lock;
use super::outage::Outage;
use super::periodic::{Account, Periodic};
use super::phase::Phases;
use super::pool::Pool;
use super::running::Running;
use super::scheduler::Scheduler;
use super::settle::{Ended, Settles};
use super::shield::shielded;
use super::source::Source;
use super::splitter::{Fleet, Splitter};
use super::summary::Counters;
use super::surroundings::Surroundings;
use super::troubles::Troubles;
use crate::contract::{NodeView, QueueView, SharedStore, Store};
use crate::model::clock::Timestamp;
use crate::model::error::Result;
use crate::model::id::NodeId;
use crate::model::queue::Queue;
use crate::model::settle::{Outcome, plan};
use crate::model::turn::Turn;
use crate::observe::Observer;

/// What an engine was told at its start.
#[derive(Clone, Debug)]
pub(super) struct Settings {
    pub(super) node_name: Arc<str>,
    pub(super) groups: Vec<Arc<str>>,
    pub(super) concurrency: usize,
    pub(super) lease: Duration,
    pub(super) heartbeat: Duration,
    pub(super) prefetch_max: usize,
    pub(super) poll_interval: Duration,
    pub(super) shutdown_timeout: Duration,
    pub(super) cancel_grace: Duration,
    pub(super) rescue_interval: Duration,
    pub(super) scheduler: Scheduler,
}

pub(super) struct Core {
    pub(super) store: SharedStore,
    pub(super) definitions: Definitions,
    pub(super) settings: Settings,
    pub(super) sources: Vec<Source>,
    pub(super) observer: Option<Arc<dyn Observer>>,
    pub(super) extras: Extras,
    pub(super) around: Arc<Surroundings>,
    pub(super) periodic: Vec<(Periodic, Account)>,
    /// Why this process cannot go on, if somebody said so.
    pub(super) fatal: Mutex<Option<String>>,
    pub(super) pool: Pool,
    pub(super) held: Held,
    pub(super) running: Running,
    pub(super) flags: Flags,
    pub(super) settles: Settles,
    pub(super) lease: LeaseClock,
    pub(super) outage: Outage,
    pub(super) phases: Phases,
    pub(super) counters: Counters,
    pub(super) troubles: Troubles,
    /// Which of the sources this node prefers.
    preferred: Mutex<Vec<bool>>,
    /// A person told the node to take no more work.
    pub(super) quiet: AtomicBool,
    /// Rung when a person told the node to stop.
    pub(super) told_to_stop: Notify,
    /// Rung when the store no longer knows this node.
    pub(super) gone: Notify,
    /// Rung after a heartbeat under a new name.
    pub(super) renamed: Notify,
    /// A rescue may have been carried out although its answer was lost.
    pub(super) rescue_unanswered: AtomicBool,
    /// Held by whoever claims for this node otherwise than through the fetcher, and by whoever
    /// compares what the store says that the node holds with its own account.
    pub(super) claiming: tokio::sync::Mutex<()>,
    node: Mutex<NodeId>,
    /// The ticket of the last claim or rescue.
    ticket: AtomicU64,
    /// A point of the store's clock, and when that was.
    store_time: Mutex<(Instant, Timestamp)>,
}

impl Core {
    pub(super) fn new(
        store: SharedStore,
        settings: Settings,
        sources: Vec<Source>,
        observer: Option<Arc<dyn Observer>>,
        mut extras: Extras,
    ) -> Self {
        let periodic = std::mem::take(&mut extras.periodic);
        let periodic = periodic.into_iter().map(|one| (one, Account::default())).collect();
        let around = Arc::new(Surroundings::new(store.clone(), extras.codec.take()));
        let limits = sources.iter().map(Source::concurrency);
        let pool =
            Pool::new(limits, settings.scheduler, settings.concurrency, settings.prefetch_max);
        let node = NodeId::unique(&settings.node_name);
        let preferred = Mutex::new(vec![true; sources.len()]);
        Self {
            store,
            definitions: Definitions::default(),
            preferred,
            settings,
            sources,
            observer,
            extras,
            around,
            periodic,
            fatal: Mutex::default(),
            pool,
            held: Held::default(),
            running: Running::default(),
            flags: Flags::default(),
            settles: Settles::default(),
            lease: LeaseClock::new(),
            outage: Outage::default(),
            phases: Phases::new(),
            counters: Counters::default(),
            troubles: Troubles::default(),
            quiet: AtomicBool::new(false),
            told_to_stop: Notify::new(),
            gone: Notify::new(),
            renamed: Notify::new(),
            rescue_unanswered: AtomicBool::new(false),
            claiming: tokio::sync::Mutex::new(()),
            node: Mutex::new(node),
            ticket: AtomicU64::new(0),
            store_time: Mutex::new((Instant::now(), Timestamp::of_this_machine())),
        }
    }

    /// The name under which this node claims now.
    pub(super) fn node(&self) -> NodeId {
        lock(&self.node).clone()
    }

    /// Takes a new name; answers the old one.
    pub(super) fn rename(&self, name: NodeId) -> NodeId {
        std::mem::replace(&mut *lock(&self.node), name)
    }

    /// A ticket for a claim or rescue that is about to be made.
    pub(super) fn next_ticket(&self) -> u64 {
        self.ticket.fetch_add(1, Ordering::Relaxed) + 1
    }

    /// That of the last one.
    pub(super) fn last_ticket(&self) -> u64 {
        self.ticket.load(Ordering::Relaxed)
    }

    /// Reads the store's clock.
    pub(super) async fn read_clock(&self) -> Result<()> {
        self.read_clock_of(&*self.store).await
    }

    /// The same on another connection.
    pub(super) async fn read_clock_of(&self, store: &dyn Store) -> Result<()> {
        let asked = Instant::now();
        let time = store.now().await?;
        let middle = asked + asked.elapsed() / 2;
        *lock(&self.store_time) = (middle, time);
        Ok(())
    }

    /// The store's clock, as far as one can tell without asking it.
    pub(super) fn store_now(&self) -> Timestamp {
        let (at, time) = *lock(&self.store_time);
        time + at.elapsed()
    }

    /// How long until the store's clock shows `time`.
    pub(super) fn until(&self, time: Timestamp) -> Duration {
        time.since(self.store_now())
    }

    /// How long a claim of this queue stands without a heartbeat.
    pub(super) fn ttl(&self, queue: &Queue) -> Duration {
        queue.lease.unwrap_or(self.settings.lease)
    }

    /// Reads the definitions of the queues, for this node's sources and for the caller.
    pub(super) async fn read_definitions(&self) -> Result<Vec<QueueView>> {
        let views = self.store.queues().await?;
        self.look_for_lost(&views);
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

    /// Sends turns back that never started: uncounted.
    pub(super) fn release(&self, source: usize, turns: Vec<Turn>) {
        if turns.is_empty() {
            return;
        }
        let queue = self.sources[source].definition_for(turns.first());
        self.release_call(&Arc::new(Call::unstarted(self.around.clone(), queue, turns)));
    }

    /// The same for turns that are a call already.
    pub(super) fn release_call(&self, call: &Arc<Call>) {
        let verdict = Outcome::Release.into();
        let ended = (0..call.turns.len()).map(|place| {
            let settlement = plan(&call.turns[place], &call.queue, &verdict, &|_| Duration::ZERO);
            Ended::new(settlement, call, place, self.keeps_witness())
        });
        self.settles.add(ended);
    }

    /// Whether somebody wants to know of the turns that are settled.
    pub(super) fn keeps_witness(&self) -> bool {
        self.observer.is_some() || self.extras.tells_exhausted
    }

    /// A task of the engine is no more, and without it nothing would be right.
    pub(super) fn broken(&self, task: &str, how: &str) {
        self.fatal(&format!("the engine's task {task:?} {how}"));
    }

    /// This process cannot go on: a worker said so, or a task of the engine is no more.
    pub(super) fn fatal(&self, why: &str) {
        tracing::error!("fatal: {why}; stopping");
        if lock(&self.fatal).replace(why.to_owned()).is_none() {
            self.extras.fatal(why);
        }
        self.told_to_stop.notify_one();
    }

    /// Whether this node prefers a source.
    pub(super) fn prefers(&self, source: usize) -> bool {
        lock(&self.preferred).get(source).copied().unwrap_or(true)
    }

    /// Looks who is there, and so which sources this node prefers.
    pub(super) async fn split(&self) -> Result<()> {
        if matches!(self.extras.splitter, Splitter::All) {
            return Ok(());
        }
        let (node, now) = (self.node(), self.store_now());
        let views = self.store.nodes().await?;
        let lives = |view: &NodeView| !view.dead && view.heartbeat_at + view.info.lease >= now;
        let lives = views.iter().filter(|view| lives(view)).map(|view| view.info.id.clone());
        let mut nodes: Vec<NodeId> = lives.chain([node.clone()]).collect();
        nodes.sort();
        nodes.dedup();
        let fleet = Fleet::of(&node, &nodes);
        let prefers = |source: &Source| {
            let prefers = shielded(|| self.extras.splitter.prefers(&fleet, &source.name));
            prefers.unwrap_or_else(|text| {
                tracing::error!(queue = &*source.name, "the splitter panicked: {text}");
                true
            })
        };
        let preferred = self.sources.iter().map(prefers).collect();
        *lock(&self.preferred) = preferred;
        Ok(())
    }

    /// Takes new work from now on, or none.
    pub(super) fn take_work(&self, takes: bool) {
        self.quiet.store(!takes, Ordering::Relaxed);
        self.pool.room.notify_one();
    }

    /// Sends back all that waits for a slot.
    pub(super) fn release_waiting(&self) {
        for (source, turns) in self.pool.take_all() {
            self.release(source, turns);
        }
    }
}
