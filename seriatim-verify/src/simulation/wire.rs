//! The connection of one node, producer or administrator to the store, with faults.

use std::collections::BTreeMap;
use std::future::{Future, pending};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use seriatim::store::{Capabilities, Wrapper};
use seriatim::{Error, ErrorKind, Result, SharedStore};
use tokio::time::{Instant, sleep, sleep_until};

use super::scribe::Scribe;
use super::world::{Outage, World};
use crate::lock::lock;

/// Most calls of one connection within one second of virtual time.
const CALLS_PER_SECOND_MAX: u64 = 3_000;

/// A connection with faults.
pub(super) struct Wire {
    pub(super) world: Arc<World>,
    inner: SharedStore,
    /// The node that uses it. `None` for producers and administrators.
    node: Option<usize>,
    /// Whether an administrator uses it. Administrative actions do not run in the calm phase, even if they were sent
    /// before.
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

    /// The administrators' connection.
    pub(super) fn of_people(world: Arc<World>) -> Arc<Self> {
        Self::of(world, None, true)
    }

    fn of(world: Arc<World>, node: Option<usize>, person: bool) -> Arc<Self> {
        let window = Window { began: Instant::now(), calls: 0, by_operation: BTreeMap::new() };
        let (inner, calls) = (Scribe::store(world.clone()), AtomicU64::new(0));
        Arc::new(Self { world, inner, node, person, calls, window: Mutex::new(window) })
    }

    /// The connection as a store.
    pub(super) fn store(self: &Arc<Self>) -> SharedStore {
        self.clone()
    }

    /// The number of calls.
    pub(super) fn calls(&self) -> u64 {
        self.calls.load(Ordering::SeqCst)
    }

    /// Faults before execution.
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
            true => self.fail(operation, "no actions in the calm phase"),
            false => Ok(()),
        }
    }

    /// Faults after execution.
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
        self.node.map_or_else(|| "administrator or producer".to_owned(), |node| format!("n{node}"))
    }

    /// Counts a call. A loop of calls without end is a defect, and must not hang the run.
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

impl Wrapper for Wire {
    fn inner(&self) -> &SharedStore {
        &self.inner
    }

    fn capabilities(&self) -> Capabilities {
        let claim_split = self.world.scene.claim_split;
        Capabilities { claim_split, ..self.inner.capabilities() }
    }

    /// Executes a call and returns its answer. Or the answer is lost immediately and the call is executed later: like
    /// a server that continues with a call that its client has abandoned.
    async fn around<T: Send + 'static>(
        &self,
        operation: &'static str,
        call: impl Future<Output = Result<T>> + Send + 'static,
    ) -> Result<T> {
        if matches!(operation, "migrate" | "check" | "secret") {
            return call.await;
        }
        self.reach(operation).await?;
        if let Some(delay) = self.world.lateness() {
            let (world, person) = (self.world.clone(), self.person);
            world.inject("call executed after its answer was lost");
            let later = format!("the answer is lost, and it is executed after {delay:?}");
            self.world.do_later(async move {
                sleep(delay).await;
                if !(person && world.is_calm()) {
                    world.note(|| format!("{operation} is executed now; its answer was lost"));
                    let _ = call.await;
                }
            });
            return self.fail(operation, &later);
        }
        let answer = call.await;
        self.back(operation).await?;
        answer
    }

    /// Does nothing: other users of the store continue.
    async fn close(&self) -> Result<()> {
        Ok(())
    }
}
