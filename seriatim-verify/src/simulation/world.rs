//! What everybody in a run shares: the store, time, what is wrong right now, and the tape.

use std::collections::BTreeMap;
use std::future::Future;
use std::sync::atomic::{AtomicBool, AtomicI64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use fastrand::Rng;
use seriatim::{SharedStore, Timestamp};
use tokio::task::JoinSet;
use tokio::time::Instant;

use super::alarm::Alarm;
use super::clock::{START, shifted};
use super::scene::{Happening, Scene};
use super::tape::Tape;
use super::{Mutant, Options};

/// The longest time between the loss of an answer and the deed. All are done before anybody may be called
/// stuck.
const LATE_MAX_MS: u64 = 45_000;

/// See the module.
pub(super) struct World {
    pub(super) scene: Scene,
    /// Itself, without any of what goes wrong on the way to it.
    pub(super) store: SharedStore,
    pub(super) alarm: Arc<Alarm>,
    pub(super) mutant: Option<Mutant>,
    strict: bool,
    origin: Instant,
    calm: AtomicBool,
    store_offset_us: AtomicI64,
    tape: Mutex<Tape>,
    rng: Mutex<Rng>,
    /// Chance of its own, so that a seed without such deeds is what it was before there were any.
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
    /// Calls do not fail at once: they hang until it is over.
    pub(super) hangs: bool,
}

impl World {
    pub(super) fn new(scene: Scene, store: SharedStore, rng: Rng, options: Options) -> Arc<Self> {
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
            store_offset_us: AtomicI64::new(0),
            tape: Mutex::new(Tape::new(traces)),
            late_rng: Mutex::new(rng.clone()),
            late: Mutex::default(),
            rng: Mutex::new(rng),
            outages: Mutex::default(),
            injected: Mutex::default(),
        })
    }

    /// After what time the next call is carried out of which the answer is lost at once; none: it is not
    /// such a call.
    pub(super) fn lateness(&self) -> Option<Duration> {
        let chance = self.scene.wire.late;
        if chance == 0.0 || self.is_calm() {
            return None;
        }
        let mut rng = lock(&self.late_rng);
        let longest_ms = *rng.choice(&[50, 2_000, LATE_MAX_MS]).unwrap_or(&LATE_MAX_MS);
        (rng.f64() < chance).then(|| Duration::from_millis(rng.u64(1..=longest_ms)))
    }

    /// Does something that nobody waits for.
    pub(super) fn do_later(&self, deed: impl Future<Output = ()> + Send + 'static) {
        lock(&self.late).spawn(deed);
    }

    /// What is not done yet will never be.
    pub(super) fn forget_late(&self) {
        lock(&self.late).abort_all();
    }

    /// Chance, all of which comes from the seed.
    pub(super) fn roll<T>(&self, roll: impl FnOnce(&mut Rng) -> T) -> T {
        roll(&mut lock(&self.rng))
    }

    pub(super) fn happens(&self, chance: f64) -> bool {
        chance > 0.0 && self.roll(|rng| rng.f64() < chance)
    }

    /// A time of this mean, at most five times as long.
    pub(super) fn about(&self, mean: Duration) -> Duration {
        let part = self.roll(|rng| -(1.0 - rng.f64()).ln()).clamp(0.01, 5.0);
        mean.mul_f64(part)
    }

    pub(super) fn elapsed(&self) -> Duration {
        self.origin.elapsed()
    }

    /// What the store's clock shows.
    pub(super) fn store_now(&self) -> Timestamp {
        let offset = self.store_offset_us.load(Ordering::SeqCst);
        shifted(START + self.elapsed(), offset)
    }

    pub(super) fn jump_store_clock(&self, by_us: i64) {
        self.store_offset_us.fetch_add(by_us, Ordering::SeqCst);
    }

    /// Whether nothing goes wrong any more.
    pub(super) fn is_calm(&self) -> bool {
        self.calm.load(Ordering::SeqCst)
    }

    pub(super) fn become_calm(&self) {
        self.calm.store(true, Ordering::SeqCst);
        lock(&self.outages).clear();
        self.note(|| "nothing goes wrong any more".to_owned());
    }

    pub(super) fn begin_outage(&self, outage: Outage) {
        lock(&self.outages).push(outage);
    }

    /// The outage that stands between this node and the store.
    pub(super) fn outage(&self, node: Option<usize>) -> Option<Outage> {
        let now = Instant::now();
        let mut outages = lock(&self.outages);
        outages.retain(|outage| outage.until > now);
        outages.iter().find(|outage| outage.node.is_none_or(|name| node == Some(name))).copied()
    }

    /// Whether handlers of one key may never run at once, whatever tokens they hold. A node that
    /// stands still cannot end its handlers in time, nor can one whose lease a clock cuts short.
    pub(super) fn is_strict(&self) -> bool {
        self.strict
    }

    /// Counts something that was made to go wrong.
    pub(super) fn inject(&self, what: &'static str) {
        *lock(&self.injected).entry(what).or_default() += 1;
    }

    pub(super) fn injected(&self) -> BTreeMap<&'static str, u64> {
        lock(&self.injected).clone()
    }

    pub(super) fn tape(&self) -> MutexGuard<'_, Tape> {
        lock(&self.tape)
    }

    /// The next moment of the history: no two are the same, so that what happened first is known.
    pub(super) fn tick(&self) -> i64 {
        let now = START + self.elapsed();
        self.tape().tick(now)
    }

    /// Writes down for a reader what the judges need not know.
    pub(super) fn note(&self, text: impl FnOnce() -> String) {
        let mut tape = self.tape();
        if tape.traces() {
            let seconds = self.elapsed().as_secs_f64();
            tape.note(format!("# {seconds:9.3} {}", text()));
        }
    }
}

pub(super) fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
