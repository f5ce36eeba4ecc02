//! The way from one node (or producer, or person) to the store, on which things go wrong.

use std::collections::BTreeMap;
use std::future::pending;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use async_trait::async_trait;
use tokio::time::{Instant, sleep, sleep_until};

use super::Mutant;
use super::world::{Outage, World, lock};
use crate::clock::Timestamp;
use crate::error::{Error, ErrorKind, Result};
use crate::id::{JobId, LaneId, NodeId, Token};
use crate::store::*;
use crate::turn::Turn;

/// Most calls of one wire within one second of virtual time.
const CALLS_PER_SECOND_MAX: u64 = 3_000;

/// See the module.
pub(super) struct Wire {
    pub(super) world: Arc<World>,
    /// The node that uses it; none for producers and people.
    node: Option<usize>,
    /// Whether a person uses it. Nothing that a person does takes place in the calm, also if it was on its
    /// way when that began.
    person: bool,
    calls: AtomicU64,
    window: Mutex<Window>,
}

/// The calls of one second.
struct Window {
    began: Instant,
    calls: u64,
    by_operation: BTreeMap<&'static str, u64>,
}

impl Wire {
    pub(super) fn new(world: Arc<World>, node: Option<usize>) -> Arc<Self> {
        let window = Window { began: Instant::now(), calls: 0, by_operation: BTreeMap::new() };
        let calls = AtomicU64::new(0);
        Arc::new(Self { world, node, person: false, calls, window: Mutex::new(window) })
    }

    /// That of the people.
    pub(super) fn of_people(world: Arc<World>) -> Arc<Self> {
        let wire = Arc::into_inner(Self::new(world, None));
        Arc::new(Self { person: true, ..wire.expect("nobody else has it yet") })
    }

    /// How many calls were made.
    pub(super) fn calls(&self) -> u64 {
        self.calls.load(Ordering::SeqCst)
    }

    /// The way there.
    async fn reach(&self, operation: &'static str) -> Result<()> {
        self.count(operation);
        if self.world.alarm.is_raised() {
            return pending().await;
        }
        tokio::task::yield_now().await;
        let world = &self.world;
        if world.is_calm() {
            return self.arrive(operation);
        }
        self.dawdle().await;
        self.pass(operation, "before").await?;
        if world.happens(world.scene.wire.refused) {
            world.inject("error before");
            return self.fail(operation, "refused");
        }
        self.arrive(operation)
    }

    fn arrive(&self, operation: &'static str) -> Result<()> {
        match self.person && self.world.is_calm() {
            true => self.fail(operation, "nobody acts any more"),
            false => Ok(()),
        }
    }

    /// The way back.
    async fn back(&self, operation: &'static str) -> Result<()> {
        let world = &self.world;
        if world.is_calm() {
            return Ok(());
        }
        if world.happens(world.scene.wire.lost) {
            world.inject("lost answer");
            self.dawdle().await;
            return self.fail(operation, "the answer was lost");
        }
        self.dawdle().await;
        self.pass(operation, "after").await
    }

    async fn dawdle(&self) {
        let (world, plan) = (&self.world, self.world.scene.wire);
        let longest_ms = if world.happens(plan.stalled) {
            world.inject("stalled call");
            20_000
        } else if world.happens(plan.slow) {
            world.inject("slow call");
            1_000
        } else {
            return;
        };
        sleep(Duration::from_millis(world.roll(|rng| rng.u64(1..=longest_ms)))).await;
    }

    async fn pass(&self, operation: &'static str, when: &str) -> Result<()> {
        let Some(Outage { until, hangs, .. }) = self.world.outage(self.node) else {
            return Ok(());
        };
        self.world.inject("call in an outage");
        if hangs {
            sleep_until(until).await;
        }
        self.fail(operation, when)
    }

    fn fail(&self, operation: &str, why: &str) -> Result<()> {
        self.world.note(|| format!("{}: {operation} fails: {why}", self.who()));
        Err(Error::new(ErrorKind::Unavailable, format!("{operation}: {why}")))
    }

    fn who(&self) -> String {
        self.node.map_or_else(|| "somebody".to_owned(), |node| format!("n{node}"))
    }

    /// A loop that asks the store without end is a defect, and must not hang the run.
    fn count(&self, operation: &'static str) {
        self.calls.fetch_add(1, Ordering::SeqCst);
        self.world.note(|| format!("{}: {operation}", self.who()));
        let mut window = lock(&self.window);
        if window.began.elapsed() >= Duration::from_secs(1) {
            *window = Window { began: Instant::now(), calls: 0, by_operation: BTreeMap::new() };
        }
        window.calls += 1;
        *window.by_operation.entry(operation).or_default() += 1;
        if self.node.is_some() && window.calls > CALLS_PER_SECOND_MAX {
            let (who, calls) = (self.who(), &window.by_operation);
            self.world.alarm.raise(format!("busy loop: calls of {who} in one second: {calls:?}"));
        }
    }

    fn now(&self) -> Timestamp {
        self.world.store_now()
    }

    fn is_mutant(&self, mutant: Mutant) -> bool {
        self.world.mutant == Some(mutant)
    }

    async fn settle_truly(&self, r: &Settle) -> Result<Vec<Settled>> {
        let world = &self.world;
        let aliases = world.aliases(&r.turns);
        let request = Settle { now: Some(self.now()), turns: r.turns.clone() };
        let settled = world.store.settle(request).await?;
        world.settled(&r.turns, &settled, &aliases);
        Ok(settled)
    }
}

/// A call that only reads, or that the history need not know.
macro_rules! plain {
    ($self:ident, $name:literal, $call:expr) => {{
        $self.reach($name).await?;
        let answer = $call.await;
        $self.back($name).await?;
        answer
    }};
}

/// A call that may take waiting jobs away, or bring dead ones back.
macro_rules! watched {
    ($self:ident, $name:literal, $call:expr) => {{
        $self.reach($name).await?;
        let before = $self.world.before().await;
        let answer = $call.await;
        $self.world.after(before).await;
        $self.back($name).await?;
        answer
    }};
}

#[async_trait]
impl Store for Wire {
    fn capabilities(&self) -> Capabilities {
        let claim_split = self.world.scene.claim_split;
        Capabilities { claim_split, ..self.world.store.capabilities() }
    }
    async fn now(&self) -> Result<Timestamp> {
        plain!(self, "now", async { Ok(self.now()) })
    }
    async fn migrate(&self) -> Result<()> {
        self.world.store.migrate().await
    }
    async fn declare(&self, r: Declare) -> Result<()> {
        plain!(self, "declare", self.world.store.declare(Declare { now: Some(self.now()), ..r }))
    }
    async fn push(&self, r: Push) -> Result<Vec<Pushed>> {
        self.reach("push").await?;
        let now = self.now();
        let pushed = self.world.store.push(Push { now: Some(now), jobs: r.jobs.clone() }).await?;
        self.world.pushed(&r.jobs, now, &pushed);
        self.back("push").await?;
        Ok(pushed)
    }
    async fn claim(&self, r: Claim) -> Result<Claimed> {
        self.reach("claim").await?;
        let r = Claim { now: Some(self.now()), ..r };
        let claimed = self.world.store.claim(r).await?;
        self.world.claimed(&claimed.turns);
        self.back("claim").await?;
        Ok(claimed)
    }
    async fn settle(&self, r: Settle) -> Result<Vec<Settled>> {
        let answer = match self.reach("settle").await {
            Ok(()) => self.settle_truly(&r).await?,
            Err(_) if self.is_mutant(Mutant::SettleNotRepeated) => {
                return Ok(r.turns.iter().map(|_| Settled::Stale).collect());
            }
            Err(error) => return Err(error),
        };
        self.back("settle").await?;
        Ok(answer)
    }
    async fn heartbeat(&self, r: Heartbeat) -> Result<Pulse> {
        let alive = self.is_mutant(Mutant::DeathNotHeeded);
        self.reach("heartbeat").await?;
        let mut pulse =
            self.world.store.heartbeat(Heartbeat { now: Some(self.now()), ..r }).await?;
        pulse.alive |= alive;
        self.back("heartbeat").await?;
        Ok(pulse)
    }
    async fn rescue(&self, r: Rescue) -> Result<Vec<Turn>> {
        if self.is_mutant(Mutant::NothingRescued) {
            return Ok(Vec::new());
        }
        self.reach("rescue").await?;
        let turns = self.world.store.rescue(Rescue { now: Some(self.now()), ..r }).await?;
        self.world.rescued(&turns);
        self.back("rescue").await?;
        Ok(turns)
    }
    async fn sweep(&self, r: Sweep) -> Result<Swept> {
        watched!(self, "sweep", self.world.store.sweep(Sweep { now: Some(self.now()), ..r }))
    }
    async fn cancel(&self, r: Cancel) -> Result<Vec<Cancelled>> {
        watched!(self, "cancel", self.world.store.cancel(Cancel { now: Some(self.now()), ..r }))
    }
    async fn requeue(&self, r: Selected) -> Result<Acted> {
        watched!(self, "requeue", self.world.store.requeue(Selected { now: Some(self.now()), ..r }))
    }
    async fn delete_dead(&self, r: Selected) -> Result<Acted> {
        watched!(
            self,
            "delete_dead",
            self.world.store.delete_dead(Selected { now: Some(self.now()), ..r })
        )
    }
    async fn act(&self, r: Act) -> Result<Acted> {
        watched!(self, "act", self.world.store.act(Act { now: Some(self.now()), ..r }))
    }
    async fn amend(&self, r: Amend) -> Result<()> {
        watched!(self, "amend", self.world.store.amend(Amend { now: Some(self.now()), ..r }))
    }
    async fn pause_queue(&self, queue: &str, paused: bool) -> Result<()> {
        plain!(self, "pause_queue", self.world.store.pause_queue(queue, paused))
    }
    async fn reshard(&self, queue: &str, shards: u16) -> Result<Resharded> {
        plain!(self, "reshard", self.world.store.reshard(queue, shards))
    }
    async fn command_node(&self, node: &NodeId, command: Command) -> Result<()> {
        plain!(self, "command_node", self.world.store.command_node(node, command))
    }
    async fn lead(&self, r: Lead) -> Result<bool> {
        plain!(self, "lead", self.world.store.lead(Lead { now: Some(self.now()), ..r }))
    }
    async fn due(&self, r: DueQuery) -> Result<Vec<SourceDue>> {
        plain!(self, "due", self.world.store.due(DueQuery { now: Some(self.now()), ..r }))
    }
    async fn queues(&self) -> Result<Vec<QueueView>> {
        plain!(self, "queues", self.world.store.queues())
    }
    async fn stats(&self, _: Option<Timestamp>) -> Result<Vec<QueueStats>> {
        plain!(self, "stats", self.world.store.stats(Some(self.now())))
    }
    async fn lanes(&self, query: LaneQuery) -> Result<Page<LaneView>> {
        if self.is_mutant(Mutant::ClaimNotReconciled) && self.node.is_some() {
            return Ok(Page::default());
        }
        plain!(self, "lanes", self.world.store.lanes(query))
    }
    async fn jobs(&self, query: JobQuery) -> Result<Page<JobView>> {
        plain!(self, "jobs", self.world.store.jobs(query))
    }
    async fn job(&self, id: JobId) -> Result<Option<JobView>> {
        plain!(self, "job", self.world.store.job(id))
    }
    async fn turn(&self, lane: LaneId, token: Token) -> Result<Option<Turn>> {
        plain!(self, "turn", self.world.store.turn(lane, token))
    }
    async fn nodes(&self) -> Result<Vec<NodeView>> {
        plain!(self, "nodes", self.world.store.nodes())
    }
    fn wakeups(&self) -> Wakeups {
        self.world.store.wakeups()
    }
    async fn close(&self) -> Result<()> {
        Ok(())
    }
}
