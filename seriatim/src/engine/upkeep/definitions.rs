//! The queues that this engine declares and keeps declared in the store.

use std::collections::BTreeMap;
use std::sync::Mutex;

use tokio::sync::Notify;
use tokio::time::Instant;

use crate::lock::lock;
use crate::model::Queue;

#[derive(Debug, Default)]
pub(in crate::engine) struct Definitions {
    pub(super) queues: Vec<Queue>,
    /// Queues that the store does not have as declared, and when that was last logged.
    pub(super) waiting: Mutex<BTreeMap<String, Instant>>,
    /// Notified when a queue must be declared again.
    pub(super) lost: Notify,
}

impl Definitions {
    pub(in crate::engine) fn new(queues: Vec<Queue>) -> Self {
        Self { queues, ..Self::default() }
    }

    pub(super) fn get(&self, name: &str) -> Option<&Queue> {
        self.queues.iter().find(|queue| queue.name == name)
    }

    pub(super) fn is_waiting(&self) -> bool {
        !lock(&self.waiting).is_empty()
    }
}
