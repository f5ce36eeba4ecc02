//! What a call can reach beyond itself.

use std::fmt;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;

use tokio::sync::Notify;

use crate::contract::SharedStore;
use crate::handler::codec::Codec;

pub(crate) struct CallEnv {
    pub(crate) store: SharedStore,
    /// How payloads are read, where not as they are stored.
    pub(crate) codec: Option<Arc<dyn Codec>>,
    /// Rung when progress should go out at once.
    pub(crate) hurry: Notify,
    /// The node stops: calls that can be taken up again elsewhere had better end.
    pub(crate) draining: AtomicBool,
}

impl CallEnv {
    pub(crate) fn new(store: SharedStore, codec: Option<Arc<dyn Codec>>) -> Self {
        Self { store, codec, hurry: Notify::new(), draining: AtomicBool::new(false) }
    }
}

impl fmt::Debug for CallEnv {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("CallEnv").field("draining", &self.draining).finish_non_exhaustive()
    }
}
