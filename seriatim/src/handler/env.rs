//! The environment of a call: its store, codec and node.

use std::fmt;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;

use tokio::sync::Notify;

use crate::contract::SharedStore;
use crate::handler::codec::Codec;

pub(crate) struct CallEnv {
    pub(crate) store: SharedStore,
    /// Decodes payloads; `None`: they are read as stored.
    pub(crate) codec: Option<Arc<dyn Codec>>,
    /// Notified when progress should be sent immediately.
    pub(crate) hurry: Notify,
    /// The node is stopping: calls that can be resumed elsewhere should end.
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
