//! The way from one node (or producer, or person) to the store, on which things go wrong.

use std::collections::BTreeMap;
use std::future::{Future, pending};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use seriatim::store::Capabilities;
use seriatim::{Error, ErrorKind, Result, SharedStore};
use tokio::time::{Instant, sleep, sleep_until};

use super::scribe::Scribe;
use super::world::{Outage, World, lock};
use crate::layer::{Layer, Over};

/// Most calls of one wire within one second of virtual time.
const CALLS_PER_SECOND_MAX: u64 = 3_000;

/// See the module.
pub(super) struct Wire {
    pub(super) world: Arc<World>,
    below: SharedStore,
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
        let (below, calls) = (Scribe::store(world.clone()), AtomicU64::new(0));
        Arc::new(Self { world, below, node, person, calls, window: Mutex::new(window) })
    }

    /// The store at its end.
    pub(super) fn store(self: &Arc<Self>) -> SharedStore {
        Over::store(self.clone())
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
}

impl Layer for Wire {
    fn below(&self) -> &SharedStore {
        &self.below
    }

    fn capabilities(&self) -> Capabilities {
        let claim_split = self.world.scene.claim_split;
        Capabilities { claim_split, ..self.below.capabilities() }
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

    /// The others go on.
    async fn close(&self) -> Result<()> {
        Ok(())
    }
}
