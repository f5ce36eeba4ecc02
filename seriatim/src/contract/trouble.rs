//! The troubles of a node, as its heartbeats report them.

use serde::{Deserialize, Serialize};

use crate::model::Timestamp;

/// A current problem of a node. It stays until it is over.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Trouble {
    /// What kind of trouble.
    pub kind: TroubleKind,
    /// The queue that it concerns, if it concerns one.
    pub queue: Option<String>,
    /// The subject: a worker, a queue, a table. A node has one trouble for each kind and subject.
    pub about: String,
    /// The problem in one sentence. At most [`TROUBLE_TEXT_BYTES_MAX`](crate::limits::TROUBLE_TEXT_BYTES_MAX) bytes;
    /// longer texts are cut.
    pub text: String,
    /// How often it has happened since it began.
    pub times: u64,
    /// When it began, by the store's clock.
    pub since: Timestamp,
    /// When it last happened, by the store's clock.
    pub last_at: Timestamp,
}

impl Trouble {
    /// The subject of a worker's troubles: its queue, and its task if it has one.
    pub fn about_worker(queue: &str, task: Option<&str>) -> String {
        match task {
            Some(task) => format!("worker of {queue}, task {task}"),
            None => format!("worker of {queue}"),
        }
    }
}

/// What kind of [`Trouble`] a node has.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
pub enum TroubleKind {
    /// A worker's program cannot be started, so its jobs wait.
    WorkerCannotStart,
    /// A worker's process runs but does not answer.
    WorkerSilent,
    /// The node could not apply its definition of a queue.
    QueueNotApplied,
    /// The store refuses outcomes of this node; the node puts them aside and tries them again.
    SettlesPutAside,
    /// An outcome waits for an open transaction that has locked its key; it is sent again until the transaction ends.
    SettlesLocked,
    /// The store refuses claims of this node; the node tries them again after a while.
    ClaimsPutAside,
    /// A server of the store was restarted, or took over, without the last writes of this node. Told for an hour.
    WritesLost,
    /// The store's inbox cannot be drained; the node tries it again.
    InboxNotDrained,
    /// A kind that this version does not know.
    #[serde(other)]
    Other,
}

impl TroubleKind {
    /// The name, as listings and the API show it.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::WorkerCannotStart => "worker_cannot_start",
            Self::WorkerSilent => "worker_silent",
            Self::QueueNotApplied => "queue_not_applied",
            Self::SettlesPutAside => "settles_put_aside",
            Self::SettlesLocked => "settles_locked",
            Self::ClaimsPutAside => "claims_put_aside",
            Self::WritesLost => "writes_lost",
            Self::InboxNotDrained => "inbox_not_drained",
            Self::Other => "other",
        }
    }
}
