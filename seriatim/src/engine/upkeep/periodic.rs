//! Periodic workers: closures that run with a pause, on every node or on one of them.

use std::fmt;
use std::future::Future;
use std::pin::Pin;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use crate::contract::{PeriodicState, PeriodicView, SharedStore};
use crate::engine::phase::Phases;
use crate::handler::failure::Failure;
use crate::lock::lock;
use crate::model::limits::DELAY_MAX;

type Run = dyn Fn(Tick) -> Pin<Box<dyn Future<Output = Result<(), Failure>> + Send>> + Send + Sync;

/// A closure that runs repeatedly, with a pause after each run. It has no job and so no retry: a failure is logged,
/// and the closure runs again after the pause.
///
/// ```
/// # use std::{sync::Arc, time::Duration};
/// # use seriatim::{Engine, Periodic, engine::Tick, store::Memory};
/// let cleaner = Periodic::new("cleaner", Duration::from_secs(600), |tick: Tick| async move {
///     println!("{} queues", tick.store().queues().await?.len());
///     Ok(())
/// });
/// # let builder = Engine::builder(Arc::new(Memory::new()));
/// builder.periodic(cleaner.once_in_fleet())
/// # ;
/// ```
#[derive(Clone)]
pub struct Periodic {
    pub(super) name: Arc<str>,
    pub(super) pause: Duration,
    pub(super) once_in_fleet: bool,
    pub(super) run: Arc<Run>,
}

/// One run of a periodic worker.
#[derive(Clone)]
pub struct Tick {
    pub(super) store: SharedStore,
    pub(super) phases: Arc<Phases>,
}

impl Periodic {
    /// Runs `run` on every node, with `pause` between the end of a run and the start of the next.
    pub fn new<F, Fut>(name: impl Into<Arc<str>>, pause: Duration, run: F) -> Self
    where
        F: Fn(Tick) -> Fut + Send + Sync + 'static,
        Fut: Future<Output = Result<(), Failure>> + Send + 'static,
    {
        let run = Arc::new(move |tick| -> Pin<Box<dyn Future<Output = _> + Send>> {
            Box::pin(run(tick))
        });
        // With `Duration::MAX` a lead would end later than a clock can show.
        Self { name: name.into(), pause: pause.min(DELAY_MAX), once_in_fleet: false, run }
    }

    /// Runs on one node at a time. If that node dies, another follows within its lease (or three pauses, if they are
    /// longer). Two may run concurrently if one was suspended for that long.
    #[must_use]
    pub fn once_in_fleet(mut self) -> Self {
        self.once_in_fleet = true;
        self
    }
}

impl Tick {
    /// The store of the engine.
    pub fn store(&self) -> &SharedStore {
        &self.store
    }

    /// Whether the engine is stopping: the run should end.
    pub fn is_stopping(&self) -> bool {
        self.phases.is_draining()
    }

    /// Waits until the engine stops.
    pub async fn stopping(&self) {
        self.phases.draining().await;
    }
}

/// The counters and state of one periodic worker.
#[derive(Default)]
pub(in crate::engine) struct Account {
    pub(super) runs: AtomicU64,
    failures: AtomicU64,
    now: Mutex<(PeriodicState, Option<String>)>,
}

impl Account {
    pub(in crate::engine) fn view(&self, periodic: &Periodic) -> PeriodicView {
        let (state, error) = lock(&self.now).clone();
        PeriodicView {
            name: periodic.name.to_string(),
            state,
            runs: self.runs.load(Ordering::Relaxed),
            failures: self.failures.load(Ordering::Relaxed),
            error,
        }
    }

    pub(super) fn is(&self, state: PeriodicState) {
        lock(&self.now).0 = state;
    }

    pub(super) fn failed(&self, error: String) {
        self.failures.fetch_add(1, Ordering::Relaxed);
        lock(&self.now).1 = Some(error);
    }
}

impl fmt::Debug for Periodic {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Periodic")
            .field("name", &self.name)
            .field("pause", &self.pause)
            .field("once_in_fleet", &self.once_in_fleet)
            .finish_non_exhaustive()
    }
}
