//! One queue that this node handles.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use tokio::time::Instant;

use crate::engine::limits::{PACE_AT_FIRST, SERIES_CLAIM_JOBS, SERIES_FOR};
use crate::engine::shield::shielded;
use crate::handler::retrying::{Failed, Retrying};
use crate::handler::worker::Worker;
use crate::lock::lock;
use crate::model::limits::SERIES_JOBS_MAX;
use crate::model::{Queue, Turn};

#[derive(Debug)]
pub(in crate::engine) struct Source {
    pub(in crate::engine) name: Arc<str>,
    workers: Vec<Worker>,
    definition: Mutex<Option<Defined>>,
    /// The shortest lease of its own that it ever had here.
    lease: Mutex<Option<Duration>>,
    paused_until: Mutex<Option<Instant>>,
    /// Whether the engine declares the queue.
    is_declared: AtomicBool,
    /// Whether the store has it as declared, as far as is known.
    stands: AtomicBool,
    /// Whether the store has more ready lanes than this node claimed, as far as is known.
    has_more: AtomicBool,
    /// How long calls last of late, in nanoseconds.
    pace: AtomicU64,
    /// Jobs of a turn, in the last claim that had any.
    width: AtomicU64,
}

/// The definition of a queue, and as it holds for each worker. Made once, since a queue may have many groups.
#[derive(Debug)]
struct Defined {
    queue: Arc<Queue>,
    /// In the order of the workers.
    own: Vec<Arc<Queue>>,
}

impl Defined {
    fn new(queue: Queue, workers: &[Worker]) -> Self {
        let queue = Arc::new(queue);
        let own = workers.iter().map(|worker| worker.retrying.of(&queue)).collect();
        Self { queue, own }
    }

    fn of(&self, worker: Option<usize>) -> Arc<Queue> {
        worker.and_then(|place| self.own.get(place)).unwrap_or(&self.queue).clone()
    }
}

impl Source {
    pub(in crate::engine) fn new(name: Arc<str>, workers: Vec<Worker>) -> Self {
        Self {
            name,
            workers,
            definition: Mutex::default(),
            lease: Mutex::default(),
            paused_until: Mutex::default(),
            is_declared: AtomicBool::new(false),
            stands: AtomicBool::new(true),
            has_more: AtomicBool::new(true),
            pace: AtomicU64::new(PACE_AT_FIRST.as_nanos() as u64),
            width: AtomicU64::new(1),
        }
    }

    /// Counts how long a call lasted.
    pub(in crate::engine) fn called(&self, lasted: Duration) {
        // Of two calls that end at once, one may be lost: it is an average.
        let (pace, lasted) = (self.pace.load(Ordering::Relaxed), lasted.as_nanos() as u64);
        self.pace.store(pace - pace / 8 + lasted / 8, Ordering::Relaxed);
    }

    /// Notes what a claim brought.
    pub(in crate::engine) fn claimed(&self, turns: &[Turn]) {
        let jobs: usize = turns.iter().map(|turn| turn.jobs.len()).sum();
        if let Some(width) = jobs.checked_div(turns.len()) {
            self.width.store(width.max(1) as u64, Ordering::Relaxed);
        }
    }

    /// Most lanes of a claim: with several jobs each, fewer lanes keep the slots busy, and a claim stays short.
    pub(in crate::engine) fn lanes_max(&self) -> usize {
        match self.width.load(Ordering::Relaxed) {
            1 => usize::MAX,
            jobs => (SERIES_CLAIM_JOBS / jobs).max(1) as usize,
        }
    }

    /// How many jobs of a key to claim at once, to hand them over one after the other: as many as take [`SERIES_FOR`].
    pub(in crate::engine) fn series_max(&self) -> u32 {
        let by_one = |queue: Arc<Queue>| queue.hands_over_singly();
        if !self.definition().is_some_and(by_one) {
            return 1;
        }
        let jobs = SERIES_FOR.as_nanos() as u64 / self.pace.load(Ordering::Relaxed).max(1);
        jobs.clamp(1, SERIES_JOBS_MAX.into()) as u32
    }

    /// Most concurrent calls, within the node's own limit.
    pub(in crate::engine) fn concurrency(&self) -> usize {
        let limits = self.workers.iter().map(|worker| worker.concurrency.unwrap_or(usize::MAX));
        limits.max().unwrap_or(usize::MAX)
    }

    /// The share under the `weighted` scheduler: this process's, or the queue's.
    pub(in crate::engine) fn weight(&self, definition: Option<&Queue>) -> u32 {
        let own = self.workers.iter().filter_map(|worker| worker.weight).max();
        own.or_else(|| Some(definition?.weight)).unwrap_or(1).max(1)
    }

    /// The worker of a task: its own, or the one without a task.
    pub(in crate::engine) fn worker(&self, task: Option<&str>) -> Option<&Worker> {
        self.workers.get(self.place_of(task)?)
    }

    fn place_of(&self, task: Option<&str>) -> Option<usize> {
        let own = self.workers.iter().position(|w| w.task.is_some() && w.task.as_deref() == task);
        own.or_else(|| self.workers.iter().position(|worker| worker.task.is_none()))
    }

    /// The queue's definition, if it was read from the store.
    pub(in crate::engine) fn definition(&self) -> Option<Arc<Queue>> {
        lock(&self.definition).as_ref().map(|defined| defined.queue.clone())
    }

    pub(in crate::engine) fn define(&self, queue: Queue) {
        if let Some(lease) = queue.lease {
            let mut shortest = lock(&self.lease);
            *shortest = Some(shortest.map_or(lease, |before| before.min(lease)));
        }
        *lock(&self.definition) = Some(Defined::new(queue, &self.workers));
    }

    /// The shortest lease of its own that the queue ever had here: calls and claims may still be under it.
    pub(in crate::engine) fn shortest_lease(&self) -> Option<Duration> {
        *lock(&self.lease)
    }

    /// Nothing is claimed under a former lease any more.
    pub(in crate::engine) fn forget_former_leases(&self) {
        *lock(&self.lease) = self.definition().and_then(|queue| queue.lease);
    }

    /// Records that the engine declares the queue.
    pub(in crate::engine) fn declare(&self, queue: Queue) {
        self.is_declared.store(true, Ordering::Relaxed);
        self.define(queue);
    }

    pub(in crate::engine) fn is_declared(&self) -> bool {
        self.is_declared.load(Ordering::Relaxed)
    }

    /// Whether the store has the queue as the engine declares it; true if the engine does not declare it.
    pub(in crate::engine) fn stands(&self) -> bool {
        self.stands.load(Ordering::Relaxed)
    }

    pub(in crate::engine) fn stand(&self, stands: bool) {
        self.stands.store(stands, Ordering::Relaxed);
    }

    /// Whether the store has more ready lanes than this node claimed, as far as is known.
    pub(in crate::engine) fn has_more(&self) -> bool {
        self.has_more.load(Ordering::Relaxed)
    }

    pub(in crate::engine) fn set_more(&self, has_more: bool) {
        self.has_more.store(has_more, Ordering::Relaxed);
    }

    /// The definition; if it is unknown, that of an undeclared queue.
    pub(in crate::engine) fn definition_for(&self, turn: Option<&Turn>) -> Arc<Queue> {
        self.definition().unwrap_or_else(|| Arc::new(self.implied(turn)))
    }

    /// The same, as it holds for the worker of this turn.
    pub(in crate::engine) fn own_definition_for(&self, turn: Option<&Turn>) -> Arc<Queue> {
        let worker = self.place_of(turn.and_then(Turn::task).map(AsRef::as_ref));
        match &*lock(&self.definition) {
            Some(defined) => defined.of(worker),
            None => Defined::new(self.implied(turn), &self.workers).of(worker),
        }
    }

    fn implied(&self, turn: Option<&Turn>) -> Queue {
        Queue::implied(&self.name, turn.is_some_and(|turn| turn.key.is_some()))
    }

    /// How long a failed turn waits before its retry: by its own backoff, its worker's, or the queue's.
    pub(in crate::engine) fn wait(&self, failed: &Failed<'_>, queue: &Queue) -> Duration {
        let retry = failed.retry;
        let usual = || retry.backoff(queue).wait(retry.count, fastrand::f64());
        match self.retrying(failed.turn).and_then(|retrying| retrying.wait.as_ref()) {
            Some(wait) if retry.own_backoff().is_none() => shielded(|| wait(failed))
                .unwrap_or_else(|text| {
                    tracing::error!(
                        queue = &*self.name,
                        "the worker's backoff panicked, so the queue's counts: {text}"
                    );
                    usual()
                }),
            _ => usual(),
        }
    }

    /// What the worker of this turn sets about retries.
    fn retrying(&self, turn: &Turn) -> Option<&Retrying> {
        self.worker(turn.task().map(AsRef::as_ref)).map(|worker| &worker.retrying)
    }

    /// Pauses the source. True if it was not paused before.
    pub(in crate::engine) fn pause(&self, length: Duration) -> bool {
        let was = lock(&self.paused_until).replace(Instant::now() + length);
        was.is_none_or(|until| until <= Instant::now())
    }

    pub(in crate::engine) fn paused_until(&self) -> Option<Instant> {
        lock(&self.paused_until).filter(|until| *until > Instant::now())
    }
}
