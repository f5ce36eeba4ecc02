//! What the tasks of an engine share: the buffer of calls, the running turns, the ended ones.

use std::collections::{HashMap, VecDeque};
use std::sync::atomic::{AtomicBool, AtomicI64, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tokio::sync::Notify;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use super::Summary;
use super::settings::{Engine, Settings};
use crate::batch::{PauseSink, ProgressSink};
use crate::clock::Timestamp;
use crate::id::{JobId, LaneId, NodeId, Token};
use crate::queue::Queue;
use crate::settle::{Outcome, Settlement, Verdict, backoff_of, plan};
use crate::store::SharedStore;
use crate::turn::Turn;
use crate::worker::{Registry, Worker};

/// Turns that go to one handler call.
pub(super) struct Call {
    pub turns: Vec<Arc<Turn>>,
    pub worker: Worker,
    pub timeout: Option<Duration>,
}

/// A turn whose handler runs.
struct Running {
    turn: Arc<Turn>,
    call: u64,
    cancel: CancellationToken,
    flagged: Vec<JobId>,
}

/// A turn that has ended and is not settled yet.
pub(super) struct Ended {
    pub turn: Arc<Turn>,
    pub settlement: Settlement,
}

#[derive(Default)]
struct Counters {
    done: AtomicU64,
    failed: AtomicU64,
    released: AtomicU64,
    stale: AtomicU64,
    rescued: AtomicU64,
}

pub(super) struct Shared {
    pub store: SharedStore,
    pub settings: Settings,
    pub registry: Registry,
    pub queues: HashMap<String, Arc<Queue>>,
    pub started_at: Timestamp,
    node: Mutex<NodeId>,
    buffer: Mutex<VecDeque<Call>>,
    /// Lanes in the buffer.
    buffered: AtomicUsize,
    /// At so many buffered lanes the fetcher is woken.
    pub low_water: AtomicUsize,
    /// Executors that run a call.
    busy: AtomicUsize,
    /// By how many microseconds the store's clock is ahead of this machine's.
    clock_ahead: AtomicI64,
    /// The shutdown waits no longer: what is cancelled now goes back uncounted.
    giving_up: AtomicBool,
    /// Numbers the calls.
    calls: AtomicU64,
    running: Mutex<HashMap<LaneId, Running>>,
    paused: Mutex<HashMap<String, Instant>>,
    ended: Mutex<Vec<Ended>>,
    told: Mutex<HashMap<LaneId, (Token, Arc<str>)>>,
    counters: Counters,
    /// Something is in the buffer.
    pub filled: Notify,
    /// The buffer has run low.
    pub drained: Notify,
    /// An executor has become free.
    pub freed: Notify,
    /// Something has ended.
    pub ending: Notify,
    /// Progress waits to be told.
    pub progressed: Notify,
    /// No new claims.
    pub stop: CancellationToken,
    /// Nothing will end any more.
    pub all_ended: CancellationToken,
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    // Nothing that runs under these locks panics half way through a change.
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Shared {
    pub(super) fn new(engine: Engine, queues: HashMap<String, Arc<Queue>>) -> Self {
        let node = NodeId::unique(&engine.settings.name);
        Self {
            store: engine.store,
            settings: engine.settings,
            registry: engine.registry,
            queues,
            started_at: Timestamp::of_this_machine(),
            node: Mutex::new(node),
            buffer: Mutex::default(),
            buffered: AtomicUsize::new(0),
            low_water: AtomicUsize::new(0),
            busy: AtomicUsize::new(0),
            clock_ahead: AtomicI64::new(0),
            giving_up: AtomicBool::new(false),
            calls: AtomicU64::new(0),
            running: Mutex::default(),
            paused: Mutex::default(),
            ended: Mutex::default(),
            told: Mutex::default(),
            counters: Counters::default(),
            filled: Notify::new(),
            drained: Notify::new(),
            freed: Notify::new(),
            ending: Notify::new(),
            progressed: Notify::new(),
            stop: CancellationToken::new(),
            all_ended: CancellationToken::new(),
        }
    }

    pub(super) fn node(&self) -> NodeId {
        lock(&self.node).clone()
    }

    /// Takes a new id, after the old one was declared dead.
    pub(super) fn renew_node(&self) {
        *lock(&self.node) = NodeId::unique(&self.settings.name);
    }

    // The buffer.

    /// Lanes that wait for an executor.
    pub(super) fn buffered(&self) -> usize {
        self.buffered.load(Ordering::Acquire)
    }

    pub(super) fn busy(&self) -> usize {
        self.busy.load(Ordering::Acquire)
    }

    pub(super) fn fill(&self, calls: Vec<Call>) {
        let lanes: usize = calls.iter().map(|call| call.turns.len()).sum();
        let count = calls.len();
        lock(&self.buffer).extend(calls);
        self.buffered.fetch_add(lanes, Ordering::AcqRel);
        for _ in 0..count.min(self.settings.concurrency) {
            self.filled.notify_one();
        }
    }

    pub(super) fn next_call(&self) -> Option<Call> {
        let mut buffer = lock(&self.buffer);
        let call = buffer.pop_front()?;
        let is_last = buffer.is_empty();
        drop(buffer);
        let before = self.buffered.fetch_sub(call.turns.len(), Ordering::AcqRel);
        if !is_last {
            // A notification reaches one executor; each passes it on while there is work.
            self.filled.notify_one();
        }
        if before - call.turns.len() <= self.low_water.load(Ordering::Relaxed) {
            self.drained.notify_one();
        }
        Some(call)
    }

    /// Gives back what no executor has taken.
    pub(super) fn release_buffered(&self) {
        while let Some(call) = self.next_call() {
            for turn in call.turns {
                self.ended(turn, Outcome::Release.into());
            }
        }
    }

    /// Drops what no executor has taken: its claims are not ours any more.
    pub(super) fn drop_buffered(&self) {
        while self.next_call().is_some() {}
    }

    // Running turns.

    pub(super) fn begin(&self, turns: &[Arc<Turn>], cancel: &CancellationToken) {
        self.busy.fetch_add(1, Ordering::AcqRel);
        let call = self.calls.fetch_add(1, Ordering::Relaxed);
        let mut running = lock(&self.running);
        for turn in turns {
            let (turn, cancel) = (turn.clone(), cancel.clone());
            let entry = Running { turn: turn.clone(), call, cancel, flagged: Vec::new() };
            running.insert(turn.lane, entry);
        }
        drop(running);
        if let Some(observer) = &self.settings.observer {
            turns.iter().for_each(|turn| observer.started(turn));
        }
    }

    /// The turns of a call that are still ours to settle.
    pub(super) fn end(&self, turns: Vec<Arc<Turn>>) -> Vec<Arc<Turn>> {
        self.busy.fetch_sub(1, Ordering::AcqRel);
        self.freed.notify_one();
        let mut running = lock(&self.running);
        let ours = |turn: &Arc<Turn>| match running.get(&turn.lane) {
            Some(entry) if entry.turn.token == turn.token => running.remove(&turn.lane).is_some(),
            _ => false,
        };
        turns.into_iter().filter(ours).collect()
    }

    /// All turns that are still running.
    pub(super) fn take_running(&self) -> Vec<Arc<Turn>> {
        lock(&self.running).drain().map(|(_, entry)| entry.turn).collect()
    }

    /// The store's time, as far as is known since the last heartbeat.
    pub(super) fn now(&self) -> Timestamp {
        let here = Timestamp::of_this_machine().as_micros();
        Timestamp::from_micros(here.saturating_add(self.clock_ahead.load(Ordering::Relaxed)))
    }

    pub(super) fn set_clock(&self, store: Timestamp) {
        let ahead = store.as_micros() - Timestamp::of_this_machine().as_micros();
        self.clock_ahead.store(ahead, Ordering::Relaxed);
    }

    pub(super) fn give_up(&self) {
        self.giving_up.store(true, Ordering::Release);
        self.cancel_all();
    }

    pub(super) fn is_giving_up(&self) -> bool {
        self.giving_up.load(Ordering::Acquire)
    }

    pub(super) fn cancel_all(&self) {
        lock(&self.running).values().for_each(|entry| entry.cancel.cancel());
    }

    /// Notes that somebody wants these jobs cancelled. A call is cancelled when that is true of
    /// all jobs of all its turns.
    pub(super) fn flag(&self, lane: LaneId, token: Token, jobs: &[JobId]) {
        let mut running = lock(&self.running);
        let Some(entry) = running.get_mut(&lane).filter(|entry| entry.turn.token == token) else {
            return;
        };
        entry.flagged = jobs.to_vec();
        let (call, cancel) = (entry.call, entry.cancel.clone());
        let is_flagged =
            |entry: &Running| entry.turn.jobs.iter().all(|job| entry.flagged.contains(&job.id));
        if running.values().filter(|entry| entry.call == call).all(is_flagged) {
            cancel.cancel();
        }
    }

    /// Cancels the handlers of lanes that are not ours any more.
    pub(super) fn lose(&self, lanes: &[LaneId]) {
        let running = lock(&self.running);
        lanes.iter().filter_map(|lane| running.get(lane)).for_each(|entry| entry.cancel.cancel());
    }

    pub(super) fn held_tokens(&self) -> Vec<Token> {
        lock(&self.running).values().map(|entry| entry.turn.token).collect()
    }

    // Workers that cannot work.

    pub(super) fn pause_sink(self: &Arc<Self>) -> Arc<PauseSink> {
        let shared = self.clone();
        Arc::new(move |queue, length| {
            lock(&shared.paused).insert(queue.into(), Instant::now() + length);
        })
    }

    pub(super) fn is_paused(&self, queue: &str) -> bool {
        lock(&self.paused).get(queue).is_some_and(|until| *until > Instant::now())
    }

    // Progress.

    pub(super) fn progress_sink(self: &Arc<Self>) -> Arc<ProgressSink> {
        let shared = self.clone();
        Arc::new(move |lane, token, progress| {
            lock(&shared.told).insert(lane, (token, progress));
            shared.progressed.notify_one();
        })
    }

    pub(super) fn take_progress(&self) -> HashMap<LaneId, (Token, Arc<str>)> {
        std::mem::take(&mut lock(&self.told))
    }

    // Ended turns.

    /// A turn has ended so: what follows from it is decided here and waits to be settled.
    pub(super) fn ended(&self, turn: Arc<Turn>, verdict: Verdict) {
        let settlement = self.plan(&turn, &verdict);
        let counter = match verdict.outcome {
            Outcome::Done => &self.counters.done,
            Outcome::Release => &self.counters.released,
            _ => &self.counters.failed,
        };
        counter.fetch_add(1, Ordering::Relaxed);
        lock(&self.ended).push(Ended { turn, settlement });
        self.ending.notify_one();
    }

    pub(super) fn plan(&self, turn: &Turn, verdict: &Verdict) -> Settlement {
        let queue = self.queues.get(&*turn.queue);
        let wait = |queue: &Queue| {
            let backoff = backoff_of(turn, queue);
            plan(turn, queue, verdict, &|retry_count| backoff.wait(retry_count, fastrand::f64()))
        };
        match queue {
            Some(queue) => wait(queue),
            // A queue that this node does not work on: its claim was rescued.
            None => wait(&Queue::new(&*turn.queue, implied_mode(turn))),
        }
    }

    pub(super) fn take_ended(&self) -> Vec<Ended> {
        std::mem::take(&mut lock(&self.ended))
    }

    pub(super) fn count_stale(&self) {
        self.counters.stale.fetch_add(1, Ordering::Relaxed);
    }

    pub(super) fn count_rescued(&self) {
        self.counters.rescued.fetch_add(1, Ordering::Relaxed);
    }

    pub(super) fn summary(&self) -> Summary {
        let read = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
        let c = &self.counters;
        Summary {
            done: read(&c.done),
            failed: read(&c.failed),
            released: read(&c.released),
            stale: read(&c.stale),
            rescued: read(&c.rescued),
        }
    }
}

fn implied_mode(turn: &Turn) -> crate::queue::Mode {
    crate::queue::Mode::of_undeclared(turn.key.is_some())
}
