//! Where a node runs, told so exactly that others of the same machine see whether it still does.

use serde::{Deserialize, Serialize};

/// The process of a node. Only on the machine where it runs can anyone say that it is gone; see
/// [`Self::is_gone`].
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Origin {
    /// The running kernel, the namespaces, the host and the user: process ids mean the same to all
    /// that have the same.
    pub place: String,
    /// The process id there.
    pub pid: u32,
    /// When the process started, in ticks since the kernel did: a later process with the same id
    /// has another.
    pub started: u64,
    /// Its session, which the programs that it starts share.
    pub session: i32,
    /// Whether it starts programs that may outlive it and work on.
    pub programs: bool,
}

impl Origin {
    /// What marks the programs that this process starts as its own.
    pub fn mark(&self) -> String {
        format!("{}:{}:{}", self.pid, self.started, self.place)
    }
}
