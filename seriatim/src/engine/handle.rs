//! A look at a running engine, and a hand on it.

use std::sync::Arc;
use std::time::Duration;

use crate::contract::TroubleKind;
use crate::engine::core::Core;
use crate::engine::upkeep::periodic::PeriodicView;

/// Keys of a call that are named.
const KEYS_NAMED: usize = 5;

/// Speaks to a running engine. Cheap to clone.
#[derive(Clone)]
pub struct Handle {
    core: Arc<Core>,
}

/// A handler call that is under way. Calls that end without waiting are never seen.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct RunningCall {
    /// The queue.
    pub queue: String,
    /// The task, where the jobs name one.
    pub task: Option<String>,
    /// The first keys of the call, at most five.
    pub keys: Vec<String>,
    /// Its lanes.
    pub lanes: usize,
    /// How long it has been running.
    pub age: Duration,
    /// Whether it was told to end.
    pub told_to_end: bool,
}

impl Handle {
    pub(in crate::engine) fn new(core: Arc<Core>) -> Self {
        Self { core }
    }

    /// The calls under way, the oldest first.
    pub fn running(&self) -> Vec<RunningCall> {
        let mut calls = self.core.running.all();
        calls.sort_by_key(|(_, age)| std::cmp::Reverse(*age));
        let seen = calls.into_iter().map(|(call, age)| RunningCall {
            queue: call.queue.name.clone(),
            task: call.turns.first().and_then(|turn| Some(turn.task()?.to_string())),
            keys: call
                .turns
                .iter()
                .filter_map(|turn| Some(turn.key.as_ref()?.to_string()))
                .take(KEYS_NAMED)
                .collect(),
            lanes: call.turns.len(),
            age,
            told_to_end: call.control.reason().is_some(),
        });
        seen.collect()
    }

    /// The periodic workers of this engine.
    pub fn periodic(&self) -> Vec<PeriodicView> {
        self.core.periodic.iter().map(|(periodic, account)| account.view(periodic)).collect()
    }

    /// Takes no new work, or takes some again. What runs goes on.
    pub fn quiet(&self, quiet: bool) {
        self.core.take_work(!quiet);
    }

    /// Tells people what is wrong with this node: `doctor`, `top` and the API show it within about
    /// a second. The same kind and `about` again is counted; the latest text stands.
    pub fn trouble(&self, kind: TroubleKind, queue: Option<&str>, about: &str, text: &str) {
        self.core.troubles.set(kind, queue, about, text);
    }

    /// Takes back what [`Self::trouble`] told: it is over.
    pub fn trouble_over(&self, kind: TroubleKind, about: &str) {
        self.core.troubles.clear(kind, about);
    }

    /// Stops the engine, as when the future given to [`crate::Engine::run_until`] is ready.
    pub fn stop(&self) {
        self.core.told_to_stop.notify_one();
    }
}
