//! The environment of a call: its store, codec and node.

use std::fmt;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;

use tokio::sync::Notify;

use crate::contract::SharedStore;
use crate::handler::codec::Codec;
use crate::model::{Job, JobId, Result, Settlement, Turn};

/// The calls of a hook for the jobs that a settlement buries or drops, but for those that are flagged: they end cancelled.
pub(crate) type ExhaustedCalls =
    fn(&CallEnv, &Turn, &Settlement, is_flagged: &dyn Fn(JobId) -> bool) -> Vec<Job>;

pub(crate) struct CallEnv {
    pub(crate) store: SharedStore,
    /// Decodes payloads; `None`: they are read as stored.
    pub(crate) codec: Option<Arc<dyn Codec>>,
    /// Set if the engine has a hook for exhausted jobs.
    pub(crate) exhausted: Option<ExhaustedCalls>,
    /// Notified when progress should be sent immediately.
    pub(crate) hurry: Notify,
    /// The node is stopping: calls that can be resumed elsewhere should end.
    pub(crate) draining: AtomicBool,
}

impl CallEnv {
    pub(crate) fn new(
        store: SharedStore,
        codec: Option<Arc<dyn Codec>>,
        exhausted: Option<ExhaustedCalls>,
    ) -> Self {
        let (hurry, draining) = (Notify::new(), AtomicBool::new(false));
        Self { store, codec, exhausted, hurry, draining }
    }

    /// A job that the engine pushes, as a client with the same codec pushes it.
    pub(crate) fn encoded(&self, mut job: Job) -> Result<Job> {
        if let Some(codec) = &self.codec {
            job.payload = codec.encode(&job.payload)?;
        }
        Ok(job)
    }
}

impl fmt::Debug for CallEnv {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("CallEnv").field("draining", &self.draining).finish_non_exhaustive()
    }
}
