//! Views and control of a running engine.

use std::sync::Arc;
use std::time::Duration;

use crate::contract::{PeriodicView, TroubleKind};
use crate::engine::core::Core;

/// Most keys of a call in a view.
const KEYS_NAMED: usize = 5;

/// Controls a running engine. Cheap to clone.
#[derive(Clone)]
pub struct Handle {
    core: Arc<Core>,
}

/// A handler call under way. Handlers that end at their first poll never appear.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct RunningCall {
    /// The queue.
    pub queue: String,
    /// The task, if the jobs name one.
    pub task: Option<String>,
    /// The first keys of the call, at most five.
    pub keys: Vec<String>,
    /// The number of its lanes.
    pub lanes: usize,
    /// The time since its handler first waited.
    pub age: Duration,
    /// Whether it was asked to stop.
    pub asked_to_stop: bool,
}

impl Handle {
    pub(in crate::engine) fn new(core: Arc<Core>) -> Self {
        Self { core }
    }

    /// The calls under way, oldest first.
    pub fn running(&self) -> Vec<RunningCall> {
        let mut calls = self.core.running.all();
        calls.sort_by_key(|(_, age)| std::cmp::Reverse(*age));
        let seen = calls.into_iter().map(|(call, age)| RunningCall {
            queue: call.queue.name.clone(),
            task: call.task().map(str::to_owned),
            keys: call
                .turns
                .iter()
                .filter_map(|turn| Some(turn.key.as_ref()?.to_string()))
                .take(KEYS_NAMED)
                .collect(),
            lanes: call.turns.len(),
            age,
            asked_to_stop: call.control.reason().is_some(),
        });
        seen.collect()
    }

    /// The periodic workers of this engine.
    pub fn periodic(&self) -> Vec<PeriodicView> {
        self.core.periodic_views()
    }

    /// Stops or resumes taking new work. Running calls continue; lanes that wait for a slot are returned uncounted.
    pub fn quiet(&self, quiet: bool) {
        self.core.take_work(!quiet);
    }

    /// Reports a trouble of this node; `doctor`, `top` and the API show it within about a second. A repeat with the
    /// same kind and `about` is counted, and replaces the text.
    pub fn trouble(&self, kind: TroubleKind, queue: Option<&str>, about: &str, text: &str) {
        self.core.troubles.set(kind, queue, about, text);
    }

    /// Ends a trouble reported with [`Self::trouble`].
    pub fn trouble_over(&self, kind: TroubleKind, about: &str) {
        self.core.troubles.clear(kind, about);
    }

    /// Stops the engine, like the future given to [`crate::Engine::run_until`].
    pub fn stop(&self) {
        self.core.stop_requested.notify_one();
    }

    /// Ready when the engine begins to stop, for whatever reason. If it ends while it still waits for the store at its
    /// start, never.
    pub async fn stopping(&self) {
        self.core.phases.draining().await;
    }
}
