//! Identifies a node's process, so that other processes of the same machine can see whether it still runs.

use serde::{Deserialize, Serialize};

/// The process of a node. Only processes on the same machine can see that it is gone; see [`Self::is_gone`].
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Origin {
    /// The running kernel, the namespaces, the host and the user. Process ids are comparable only within the same
    /// place.
    pub place: String,
    /// The process id there.
    pub pid: u32,
    /// When the process started, in ticks since the kernel did. It distinguishes a later process with the same id.
    pub started: u64,
    /// Its session, which the programs that it starts share.
    pub session: i32,
    /// Whether it starts programs that may outlive it and keep working.
    pub programs: bool,
}

impl Origin {
    /// The mark of the programs that this process starts.
    pub fn mark(&self) -> String {
        format!("{}:{}:{}", self.pid, self.started, self.place)
    }
}
