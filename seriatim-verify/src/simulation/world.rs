//! The shared state of a run: the store, time, current faults, and the tape.

use std::collections::BTreeMap;
use std::future::Future;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::Duration;

use fastrand::Rng;
use seriatim::{SharedStore, Timestamp};
use tokio::task::JoinSet;
use tokio::time::Instant;

use super::alarm::Alarm;
use super::clock::{START, StoreClock};
use super::scene::{Happening, Scene};
use super::tape::Tape;
use super::{Mutant, Options};
use crate::lock::lock;

/// The longest time between the loss of an answer and the execution. All late calls run before anything counts as
/// stuck.
const LATE_MAX_MS: u64 = 45_000;

/// The shared state of a run.
pub(super) struct World {
    pub(super) scene: Scene,
    /// The store itself, without injected faults.
    pub(super) store: SharedStore,
    pub(super) alarm: Arc<Alarm>,
    pub(super) mutant: Option<Mutant>,
    strict: bool,
    origin: Instant,
    calm: AtomicBool,
    store_clock: Arc<StoreClock>,
    tape: Mutex<Tape>,
    rng: Mutex<Rng>,
    /// A separate generator, so that seeds without late calls are unchanged.
    late_rng: Mutex<Rng>,
    late: Mutex<JoinSet<()>>,
    outages: Mutex<Vec<Outage>>,
    injected: Mutex<BTreeMap<&'static str, u64>>,
}

/// A time in which the store cannot be reached.
#[derive(Clone, Copy, Debug)]
pub(super) struct Outage {
    pub(super) until: Instant,
    /// Only by this node.
    pub(super) node: Option<usize>,
    /// Calls hang until it is over, instead of failing immediately.
    pub(super) hangs: bool,
}

impl World {
    pub(super) fn new(
        scene: Scene,
        (store, store_clock): (SharedStore, Arc<StoreClock>),
        rng: Rng,
        options: Options,
    ) -> Arc<Self> {
        let (mutant, traces) = (options.mutant, options.trace);
        let is_sound = mutant.is_none() && options.fault.is_none();
        let events = &scene.events;
        let fooled = [Happening::Pause, Happening::StoreClock];
        let strict = is_sound && !fooled.iter().any(|happening| events.contains(happening));
        Arc::new(Self {
            strict,
            scene,
            store,
            alarm: Arc::default(),
            mutant,
            origin: Instant::now(),
            calm: AtomicBool::new(false),
            store_clock,
            tape: Mutex::new(Tape::new(traces)),
            late_rng: Mutex::new(rng.clone()),
            late: Mutex::default(),
            rng: Mutex::new(rng),
            outages: Mutex::default(),
            injected: Mutex::default(),
        })
    }

    /// The delay until the next call is executed, if its answer is lost immediately. `None`: the call is not late.
    pub(super) fn lateness(&self) -> Option<Duration> {
        let chance = self.scene.wire.late;
        if chance == 0.0 || self.is_calm() {
            return None;
        }
        let mut rng = lock(&self.late_rng);
        let longest_ms = *rng.choice(&[50, 2_000, LATE_MAX_MS]).unwrap_or(&LATE_MAX_MS);
        (rng.f64() < chance).then(|| Duration::from_millis(rng.u64(1..=longest_ms)))
    }

    /// Runs a call in the background.
    pub(super) fn do_later(&self, call: impl Future<Output = ()> + Send + 'static) {
        lock(&self.late).spawn(call);
    }

    /// Drops the late calls that have not run yet.
    pub(super) fn forget_late(&self) {
        lock(&self.late).abort_all();
    }

    /// Draws from the generator; all randomness comes from the seed.
    pub(super) fn roll<T>(&self, roll: impl FnOnce(&mut Rng) -> T) -> T {
        roll(&mut lock(&self.rng))
    }

    pub(super) fn happens(&self, chance: f64) -> bool {
        chance > 0.0 && self.roll(|rng| rng.f64() < chance)
    }

    /// A random duration with this mean, at most five times as long.
    pub(super) fn about(&self, mean: Duration) -> Duration {
        let part = self.roll(|rng| -(1.0 - rng.f64()).ln()).clamp(0.01, 5.0);
        mean.mul_f64(part)
    }

    pub(super) fn elapsed(&self) -> Duration {
        self.origin.elapsed()
    }

    /// The time of the store's clock.
    pub(super) fn store_now(&self) -> Timestamp {
        self.store_clock.now()
    }

    pub(super) fn jump_store_clock(&self, by_us: i64) {
        self.store_clock.jump(by_us);
    }

    /// Whether no more faults are injected.
    pub(super) fn is_calm(&self) -> bool {
        self.calm.load(Ordering::SeqCst)
    }

    pub(super) fn become_calm(&self) {
        self.calm.store(true, Ordering::SeqCst);
        lock(&self.outages).clear();
        self.note(|| "faults end".to_owned());
    }

    pub(super) fn begin_outage(&self, outage: Outage) {
        lock(&self.outages).push(outage);
    }

    /// The outage between this node and the store.
    pub(super) fn outage(&self, node: Option<usize>) -> Option<Outage> {
        let now = Instant::now();
        let mut outages = lock(&self.outages);
        outages.retain(|outage| outage.until > now);
        outages.iter().find(|outage| outage.node.is_none_or(|name| node == Some(name))).copied()
    }

    /// Whether handlers of one key must never run concurrently, whatever their tokens. A paused node cannot stop its
    /// handlers in time, nor can one whose lease is shortened by a clock.
    pub(super) fn is_strict(&self) -> bool {
        self.strict
    }

    /// Counts an injected fault.
    pub(super) fn inject(&self, what: &'static str) {
        *lock(&self.injected).entry(what).or_default() += 1;
    }

    pub(super) fn injected(&self) -> BTreeMap<&'static str, u64> {
        lock(&self.injected).clone()
    }

    pub(super) fn tape(&self) -> MutexGuard<'_, Tape> {
        lock(&self.tape)
    }

    /// The next time of the history. All times differ, so the order of events is known.
    pub(super) fn tick(&self) -> i64 {
        let now = START + self.elapsed();
        self.tape().tick(now)
    }

    /// Adds a note for readers of the trace.
    pub(super) fn note(&self, text: impl FnOnce() -> String) {
        let mut tape = self.tape();
        if tape.traces() {
            let seconds = self.elapsed().as_secs_f64();
            tape.note(format!("# {seconds:9.3} {}", text()));
        }
    }
}
