//! The engine: *fetch → execute → settle*, in batches from end to end.
//!
//! Five tasks, and as many executors as calls may run at once:
//!
//! - `fetch` claims lanes into a small buffer, no more than are worked off in a moment;
//! - `execute` takes calls from the buffer and runs the handlers;
//! - `settle` sends what has ended, all that has gathered in one batch, until the store has it;
//! - `beat` says that the node lives, and brings back what was cancelled or lost;
//! - `rescue` takes over what dead nodes held, and sweeps.
//!
//! They share a [`shared::Shared`]; data goes one way through it.

mod beat;
mod execute;
mod fetch;
mod rescue;
mod settings;
mod settle;
mod shared;

use std::collections::HashMap;
use std::future::Future;
use std::sync::Arc;
use std::time::Duration;

use tokio::task::JoinHandle;
use tokio::time::timeout;

pub use settings::{Engine, EngineBuilder};
use shared::Shared;

use crate::error::Result;
use crate::settle::Outcome;
use crate::store::Declare;

/// How long handlers get to end after they have been cancelled.
const CANCEL_GRACE: Duration = Duration::from_secs(5);

/// What an engine did.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Summary {
    /// Turns that were settled as done.
    pub done: u64,
    /// Turns that were settled as failed.
    pub failed: u64,
    /// Turns that went back unstarted, or unfinished at the end.
    pub released: u64,
    /// Settlements that the store refused because the claim had been taken over.
    pub stale: u64,
    /// Claims of dead nodes that were taken over.
    pub rescued: u64,
}

impl Engine {
    /// Runs until `shutdown` resolves, then stops in order: no new claims; handlers finish within
    /// the shutdown timeout; prefetched lanes go back uncounted; handlers that are still running
    /// are cancelled, and their lanes go back uncounted; everything is settled.
    ///
    /// Fails when the queues contradict what the store holds, or the store cannot be reached at
    /// the start. Later the engine waits for a store that is away, and goes on.
    pub async fn run_until(self, shutdown: impl Future<Output = ()>) -> Result<Summary> {
        let shared = self.start().await?;
        let mut tasks = Tasks::spawn(&shared);
        shutdown.await;
        tasks.stop(&shared).await;
        Ok(shared.summary())
    }

    async fn start(self) -> Result<Arc<Shared>> {
        let store = self.store.clone();
        store.migrate().await?;
        let declared = self.queues.clone();
        store.declare(Declare { now: None, queues: declared }).await?;
        let known = store.queues().await?;
        let mut queues = HashMap::new();
        for view in known {
            if self.registry.find(&view.queue.name, None).is_some()
                || self.registry.queues().any(|name| name == view.queue.name)
            {
                queues.insert(view.queue.name.clone(), Arc::new(view.queue));
            }
        }
        let shared = Arc::new(Shared::new(self, queues));
        shared.beat_once().await?;
        Ok(shared)
    }
}

/// The tasks of a running engine.
struct Tasks {
    fetcher: JoinHandle<()>,
    executors: Vec<JoinHandle<()>>,
    settler: JoinHandle<()>,
    helpers: Vec<JoinHandle<()>>,
}

impl Tasks {
    fn spawn(shared: &Arc<Shared>) -> Self {
        Self {
            fetcher: tokio::spawn(fetch::run(shared.clone())),
            executors: (0..shared.settings.concurrency)
                .map(|_| tokio::spawn(execute::run(shared.clone())))
                .collect(),
            settler: tokio::spawn(settle::run(shared.clone())),
            helpers: vec![
                tokio::spawn(beat::run(shared.clone())),
                tokio::spawn(rescue::run(shared.clone())),
            ],
        }
    }

    async fn stop(&mut self, shared: &Arc<Shared>) {
        shared.stop.cancel();
        let _ = (&mut self.fetcher).await;
        shared.release_buffered();
        let patience = shared.settings.shutdown_timeout;
        if timeout(patience, all(&mut self.executors)).await.is_err() {
            tracing::warn!("handlers are still running after {patience:?}: they are cancelled");
            shared.give_up();
            if timeout(CANCEL_GRACE, all(&mut self.executors)).await.is_err() {
                self.executors.iter().for_each(JoinHandle::abort);
            }
        }
        for turn in shared.take_running() {
            shared.ended(turn, Outcome::Release.into());
        }
        shared.all_ended.cancel();
        if timeout(patience, &mut self.settler).await.is_err() {
            tracing::error!("the store did not take the last results: their claims will expire");
            self.settler.abort();
        }
        self.helpers.iter().for_each(JoinHandle::abort);
    }
}

async fn all(tasks: &mut [JoinHandle<()>]) {
    for task in tasks {
        if !task.is_finished() {
            let _ = task.await;
        }
    }
}
