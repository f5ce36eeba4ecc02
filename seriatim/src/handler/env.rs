//! The environment of a call: its store, codec and node.

use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use tokio::sync::Notify;

use crate::contract::SharedStore;
use crate::handler::codec::Codec;
use crate::handler::exhausted::Exhausted;
use crate::model::{Job, JobId, Settlement, Turn};

pub(crate) struct CallEnv {
    pub(crate) store: SharedStore,
    /// Decodes payloads; `None`: they are read as stored.
    pub(crate) codec: Option<Arc<dyn Codec>>,
    /// Whether jobs about exhausted jobs are pushed.
    exhausted: AtomicBool,
    /// Notified when progress should be sent immediately.
    pub(crate) hurry: Notify,
    /// The node is stopping: calls that can be resumed elsewhere should end.
    pub(crate) draining: AtomicBool,
}

impl CallEnv {
    pub(crate) fn new(store: SharedStore, codec: Option<Arc<dyn Codec>>) -> Self {
        let (exhausted, draining) = (AtomicBool::new(false), AtomicBool::new(false));
        Self { store, codec, exhausted, hurry: Notify::new(), draining }
    }

    /// A job that the engine pushes, as a client with the same codec pushes it.
    #[cfg(feature = "cron")]
    pub(crate) fn encoded(&self, job: Job) -> crate::model::Result<Job> {
        crate::handler::codec::encoded(self.codec.as_deref(), job)
    }

    pub(crate) fn hears_of_exhausted(&self) -> bool {
        self.exhausted.load(Ordering::Relaxed)
    }

    pub(crate) fn hear_of_exhausted(&self, hears: bool) {
        self.exhausted.store(hears, Ordering::Relaxed);
    }

    /// The jobs about those that a settlement buries or drops, if anybody wants to hear of them; but not about flagged
    /// ones, which end cancelled.
    pub(crate) fn calls_about(
        &self,
        turn: &Turn,
        settlement: &Settlement,
        is_flagged: &dyn Fn(JobId) -> bool,
    ) -> Vec<Job> {
        match self.hears_of_exhausted() {
            true => Exhausted::calls(turn, settlement, self.codec.as_deref(), is_flagged),
            false => Vec::new(),
        }
    }
}

impl fmt::Debug for CallEnv {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("CallEnv").field("draining", &self.draining).finish_non_exhaustive()
    }
}
