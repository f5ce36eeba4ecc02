//! What a call can reach beyond itself.

use std::fmt;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;

use tokio::sync::Notify;

use crate::codec::Codec;
use crate::contract::SharedStore;

pub(crate) struct Surroundings {
    pub(crate) store: SharedStore,
    /// How payloads are read, where not as they are stored.
    pub(crate) codec: Option<Arc<dyn Codec>>,
    /// Rung when progress should go out at once.
    pub(crate) hurry: Notify,
    /// The node stops: calls that can be taken up again elsewhere had better end.
    pub(crate) draining: AtomicBool,
}

impl Surroundings {
    pub(super) fn new(store: SharedStore, codec: Option<Arc<dyn Codec>>) -> Self {
        Self { store, codec, hurry: Notify::new(), draining: AtomicBool::new(false) }
    }
}

impl fmt::Debug for Surroundings {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Surroundings").field("draining", &self.draining).finish_non_exhaustive()
    }
}
