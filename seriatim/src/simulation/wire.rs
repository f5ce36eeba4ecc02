//! The way from one node (or producer, or person) to the store, on which things go wrong.

use std::collections::BTreeMap;
use std::future::{Future, pending};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use tokio::time::{Instant, sleep, sleep_until};

use super::Mutant;
use super::world::{Outage, World, lock};
use crate::contract::*;
use crate::model::clock::Timestamp;
use crate::model::error::{Error, ErrorKind, Result};
use crate::model::turn::Turn;

/// Most calls of one wire within one second of virtual time.
const CALLS_PER_SECOND_MAX: u64 = 3_000;

/// See the module.
pub(super) struct Wire {
    pub(super) world: Arc<World>,
    inner: SharedStore,
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
        Self::of(world, node, false)
    }

    /// That of the people.
    pub(super) fn of_people(world: Arc<World>) -> Arc<Self> {
        Self::of(world, None, true)
    }

    fn of(world: Arc<World>, node: Option<usize>, person: bool) -> Arc<Self> {
        let window = Window { began: Instant::now(), calls: 0, by_operation: BTreeMap::new() };
        let inner = Arc::new(world.store.clone());
        Arc::new(Self {
            world,
            inner,
            node,
            person,
            calls: AtomicU64::new(0),
            window: Mutex::new(window),
        })
    }

    /// How many calls were made.
    pub(super) fn calls(&self) -> u64 {
        self.calls.load(Ordering::SeqCst)
    }

    /// Carries a call to the store and its answer back. Or the answer is lost at once, and the deed is
    /// done later: as by a server that goes on with what its client has given up.
    async fn carry<T: Send + 'static>(
        &self,
        operation: &'static str,
        deed: impl Future<Output = Result<T>> + Send + 'static,
    ) -> Result<T> {
        self.reach(operation).await?;
        if let Some(delay) = self.world.lateness() {
            let (world, person) = (self.world.clone(), self.person);
            world.inject("deed after its answer was lost");
            let later = format!("the answer is lost, and it is done after {delay:?}");
            self.world.do_later(async move {
                sleep(delay).await;
                if !(person && world.is_calm()) {
                    world.note(|| format!("{operation} is done now, of which the answer was lost"));
                    let _ = deed.await;
                }
            });
            return self.fail(operation, &later);
        }
        let answer = deed.await;
        self.back(operation).await?;
        answer
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

    fn fail<T>(&self, operation: &str, why: &str) -> Result<T> {
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

    fn is_mutant(&self, mutant: Mutant) -> bool {
        self.world.mutant == Some(mutant)
    }
}

/// A call: what it does to the store, and with whose world.
macro_rules! deed {
    ($self:ident, $name:literal, |$world:ident, $now:ident| $body:expr) => {{
        let $world = $self.world.clone();
        let deed = async move {
            let $now = Some($world.store_now());
            $body
        };
        $self.carry($name, deed).await
    }};
}

/// One that may take waiting jobs away, or bring dead ones back.
macro_rules! watched {
    ($self:ident, $name:literal, |$world:ident, $now:ident| $body:expr) => {
        deed!($self, $name, |$world, $now| {
            let before = $world.before().await;
            let answer = $body;
            $world.after(before).await;
            answer
        })
    };
}

impl Wrapper for Wire {
    fn inner(&self) -> &SharedStore {
        &self.inner
    }
    async fn around<T: Send + 'static>(
        &self,
        operation: &'static str,
        call: impl Future<Output = Result<T>> + Send + 'static,
    ) -> Result<T> {
        match operation {
            "migrate" | "check" | "secret" => call.await,
            _ => self.carry(operation, call).await,
        }
    }
    fn capabilities(&self) -> Capabilities {
        let claim_split = self.world.scene.claim_split;
        Capabilities { claim_split, ..self.world.store.capabilities() }
    }
    async fn now(&self) -> Result<Timestamp> {
        deed!(self, "now", |world, now| Ok(now.unwrap_or_else(|| world.store_now())))
    }
    async fn declare(&self, r: Declare) -> Result<()> {
        deed!(self, "declare", |world, now| world.store.declare(Declare { now, ..r }).await)
    }
    async fn push(&self, r: Push) -> Result<Vec<Pushed>> {
        deed!(self, "push", |world, now| {
            let pushed = world.store.push(Push { now, jobs: r.jobs.clone() }).await?;
            world.pushed(&r.jobs, now.unwrap_or_default(), &pushed);
            Ok(pushed)
        })
    }
    async fn claim(&self, r: Claim) -> Result<Claimed> {
        deed!(self, "claim", |world, now| {
            let claimed = world.store.claim(Claim { now, ..r }).await?;
            world.claimed(&claimed.turns);
            Ok(claimed)
        })
    }
    async fn settle(&self, r: Settle) -> Result<Vec<Settled>> {
        let turns = r.turns.len();
        let answer = deed!(self, "settle", |world, now| {
            let aliases = world.aliases(&r.turns);
            let settled = world.store.settle(Settle { now, turns: r.turns.clone() }).await?;
            world.settled(&r.turns, &settled, &aliases);
            Ok(settled)
        });
        match answer {
            Err(_) if self.is_mutant(Mutant::SettleNotRepeated) => Ok(vec![Settled::Stale; turns]),
            answer => answer,
        }
    }
    async fn heartbeat(&self, r: Heartbeat) -> Result<Pulse> {
        let pulse = deed!(self, "heartbeat", |world, now| world
            .store
            .heartbeat(Heartbeat { now, ..r })
            .await);
        let mut pulse = pulse?;
        pulse.alive |= self.is_mutant(Mutant::DeathNotHeeded);
        Ok(pulse)
    }
    async fn rescue(&self, r: Rescue) -> Result<Vec<Turn>> {
        if self.is_mutant(Mutant::NothingRescued) {
            return Ok(Vec::new());
        }
        deed!(self, "rescue", |world, now| {
            let turns = world.store.rescue(Rescue { now, ..r }).await?;
            world.rescued(&turns);
            Ok(turns)
        })
    }
    async fn release(&self, r: Release) -> Result<Vec<Turn>> {
        deed!(self, "release", |world, now| {
            let turns = world.store.release(Release { now, ..r }).await?;
            world.rescued(&turns);
            Ok(turns)
        })
    }
    async fn give_up(&self, r: GiveUp) -> Result<()> {
        if self.is_mutant(Mutant::CallsNotGivenUp) {
            return Ok(());
        }
        deed!(self, "give_up", |world, _now| world.store.give_up(r).await)
    }
    async fn sweep(&self, r: Sweep) -> Result<Swept> {
        watched!(self, "sweep", |world, now| world.store.sweep(Sweep { now, ..r }).await)
    }
    async fn cancel(&self, r: Cancel) -> Result<Vec<Cancelled>> {
        watched!(self, "cancel", |world, now| world.store.cancel(Cancel { now, ..r }).await)
    }
    async fn requeue(&self, r: Selected) -> Result<Acted> {
        watched!(self, "requeue", |world, now| world.store.requeue(Selected { now, ..r }).await)
    }
    async fn delete_dead(&self, r: Selected) -> Result<Acted> {
        watched!(self, "delete_dead", |world, now| {
            world.store.delete_dead(Selected { now, ..r }).await
        })
    }
    async fn act(&self, r: Act) -> Result<Acted> {
        watched!(self, "act", |world, now| world.store.act(Act { now, ..r }).await)
    }
    async fn amend(&self, r: Amend) -> Result<()> {
        watched!(self, "amend", |world, now| world.store.amend(Amend { now, ..r }).await)
    }
    async fn declare_dead(&self, r: DeclareDead) -> Result<bool> {
        deed!(self, "declare_dead", |world, now| {
            world.store.declare_dead(DeclareDead { now, ..r }).await
        })
    }
    async fn lead(&self, r: Lead) -> Result<bool> {
        deed!(self, "lead", |world, now| world.store.lead(Lead { now, ..r }).await)
    }
    async fn stats(&self, _: Option<Timestamp>) -> Result<Vec<QueueStats>> {
        deed!(self, "stats", |world, now| world.store.stats(now).await)
    }
    async fn lanes(&self, query: LaneQuery) -> Result<Page<LaneView>> {
        if self.is_mutant(Mutant::ClaimNotReconciled) && self.node.is_some() {
            return Ok(Page::default());
        }
        deed!(self, "lanes", |world, _now| world.store.lanes(query).await)
    }
    async fn close(&self) -> Result<()> {
        Ok(())
    }
}
