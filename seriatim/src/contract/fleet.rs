//! What nodes do for each other: heartbeats, takeovers, leadership, cleaning up.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use serde::{Deserialize, Serialize};

use super::origin::Origin;
use super::trouble::Trouble;
use crate::model::clock::Timestamp;
use crate::model::id::{JobId, LaneId, NodeId, Token};

/// See [`crate::Store::heartbeat`].
#[derive(Clone, Debug)]
pub struct Heartbeat {
    /// The time; the store's when none.
    pub now: Option<Timestamp>,
    /// Who beats.
    pub node: NodeInfo,
    /// Turns of which there is something to say.
    pub beats: Vec<Beat>,
}

/// What a node tells of itself.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct NodeInfo {
    /// Unique for each start.
    pub id: NodeId,
    /// As configured; several processes may share it.
    pub name: Arc<str>,
    /// Where it runs.
    pub host: String,
    /// Its process id.
    pub pid: u32,
    /// Its version.
    pub version: String,
    /// The queues that it works on.
    pub queues: Vec<String>,
    /// Handler calls at once.
    pub concurrency: u32,
    /// Handler calls under way.
    pub busy: u32,
    /// Turns by queue that it has claimed and not started: they wait for a free slot. What else it has
    /// claimed is running. A worker that does not prefetch tells nothing.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub prefetched: BTreeMap<String, u32>,
    /// When it started.
    pub started_at: Timestamp,
    /// Without a beat for so long it is declared dead. Nothing: this beat is its last, and it has
    /// stopped.
    #[serde(with = "crate::model::duration")]
    pub lease: Duration,
    /// What is wrong with it right now, the oldest first.
    #[serde(default)]
    pub troubles: Vec<Trouble>,
    /// Its process, where that can be told. Without it only its lease says that it is gone.
    #[serde(default)]
    pub origin: Option<Origin>,
}

impl NodeInfo {
    /// A node of which little is known; enough to claim with.
    pub fn new(id: NodeId, lease: Duration) -> Self {
        Self {
            name: id.0.clone(),
            id,
            host: String::new(),
            pid: std::process::id(),
            version: env!("CARGO_PKG_VERSION").to_owned(),
            queues: Vec::new(),
            concurrency: 1,
            busy: 0,
            prefetched: BTreeMap::new(),
            started_at: Timestamp::of_this_machine(),
            lease,
            troubles: Vec::new(),
            origin: None,
        }
    }

    /// Whether it said goodbye.
    pub fn has_stopped(&self) -> bool {
        self.lease.is_zero()
    }
}

/// What there is to say of one running turn.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Beat {
    /// The lane.
    pub lane: LaneId,
    /// The token that holds it.
    pub token: Token,
    /// A JSON document that replaces the turn's progress.
    pub progress: Option<Arc<str>>,
    /// Extends a claim with its own lease until so long after now.
    pub extend: Option<Duration>,
}

/// What a heartbeat brings back.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Pulse {
    /// False when the node has been declared dead: it cancels what it runs and takes a new id. Also
    /// after its goodbye.
    pub alive: bool,
    /// Jobs flagged for cancellation.
    pub cancel: Vec<CancelNotice>,
    /// Named lanes that the caller no longer holds.
    pub lost: Vec<LaneId>,
    /// What a person told this node.
    pub command: Option<Command>,
}

/// Jobs of a running turn that somebody wants cancelled.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CancelNotice {
    /// The lane.
    pub lane: LaneId,
    /// The token that holds it.
    pub token: Token,
    /// The flagged jobs.
    pub jobs: Vec<JobId>,
}

/// What a person can tell a node.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Command {
    /// Take no more work.
    Quiet,
    /// Finish and exit.
    Stop,
    /// Take work again: takes back what was told before, unless the node has stopped meanwhile.
    Resume,
}

impl Command {
    /// What a store keeps of it for the node's heartbeats: of `Resume` nothing.
    pub(crate) fn kept(self) -> Option<Self> {
        (self != Self::Resume).then_some(self)
    }
}

/// See [`crate::Store::declare_dead`].
#[derive(Clone, Debug)]
pub struct DeclareDead {
    /// The time; the store's when none.
    pub now: Option<Timestamp>,
    /// Who is gone.
    pub node: NodeId,
    /// Its last beat, as the caller knows it.
    pub heartbeat_at: Timestamp,
}

/// See [`crate::Store::rescue`].
#[derive(Clone, Debug)]
pub struct Rescue {
    /// The time; the store's when none.
    pub now: Option<Timestamp>,
    /// Who takes the claims over; must be alive.
    pub node: NodeId,
    /// How long the caller's claim stands.
    pub lease: Duration,
    /// Most lanes to take over.
    pub lanes_max: usize,
    /// As that of a [`Claim`].
    pub ticket: u64,
}

/// See [`crate::Store::release`].
#[derive(Clone, Debug)]
pub struct Release {
    /// The time; the store's when none.
    pub now: Option<Timestamp>,
    /// Which claims.
    pub claims: ClaimSelection,
    /// Only claims that were made by then: those that stood when the first of several calls was made.
    pub made_by: Option<Timestamp>,
    /// Most lanes to release.
    pub lanes_max: usize,
}

/// Which claims.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ClaimSelection {
    /// The one that holds the lane of this key.
    Key {
        /// The queue.
        queue: Arc<str>,
        /// The key.
        key: String,
    },
    /// The one that holds this lane.
    Lane(LaneId),
    /// All of a queue.
    Queue(Arc<str>),
    /// All of a node, in every queue.
    Node(NodeId),
}

/// See [`crate::Store::sweep`].
#[derive(Clone, Copy, Debug)]
pub struct Sweep {
    /// The time; the store's when none.
    pub now: Option<Timestamp>,
    /// Most rows of each kind.
    pub rows_max: usize,
}

/// What a sweep removed.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Swept {
    /// Waiting jobs that expired.
    pub expired: Vec<JobId>,
    /// Finished jobs past their retention.
    pub completed: u64,
    /// Dead jobs past their retention or over the cap.
    pub dead: Vec<JobId>,
    /// Whether there is more to remove.
    pub more: bool,
}

/// See [`crate::Store::lead`].
#[derive(Clone, Debug)]
pub struct Lead {
    /// The time; the store's when none.
    pub now: Option<Timestamp>,
    /// What for: `maintenance`, `cron`, …
    pub role: Arc<str>,
    /// Who asks.
    pub node: NodeId,
    /// For how long.
    pub ttl: Duration,
}
