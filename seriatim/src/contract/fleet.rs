//! How nodes keep each other working: heartbeats, rescues, leadership, removing old rows.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use serde::{Deserialize, Serialize};

use super::origin::Origin;
use super::periodic::PeriodicView;
use super::trouble::Trouble;
use crate::model::limits::{ACTION_ROWS_MAX, LEAD_MAX, REPORT_BYTES_MAX};
use crate::model::{Error, JobId, LaneId, NodeId, Result, Timestamp, Token, Turn};

/// Heartbeats, rescues of expired claims, leadership, and removing old rows.
#[async_trait]
pub trait Fleet: Send + Sync {
    /// Reports that a node is alive, extends its claims, and returns its cancellations, lost lanes and command.
    ///
    /// - The first heartbeat registers the node. A node that was declared dead stays dead: `alive` is false.
    /// - A heartbeat with a lease of zero deregisters the node. It counts as dead, but is shown as stopped; its claims
    ///   last until their leases expire.
    /// - All claims with a node lease are extended; claims with their own lease only if named, and by at most the
    ///   queue's `lease_max`.
    /// - Progress is stored with the turn. A named lane whose token is stale is returned as `lost`.
    /// - Jobs flagged for cancellation are returned for every claim of this node, and for every named one.
    async fn heartbeat(&self, request: Heartbeat) -> Result<Pulse>;

    /// Rescues expired claims: takes them over, under new tokens with the caller's lease.
    ///
    /// - First declares nodes dead whose last heartbeat is older than their lease, then takes over expired claims.
    ///   From then on writes of the old holder are refused.
    /// - A heartbeat that is more than a lease ahead is from before the clock was set back: it counts as one of now.
    /// - The turns have the same jobs, without payload. Crash counts do not change: the caller settles the turns as
    ///   [`Outcome::Crash`](crate::Outcome::Crash), which counts.
    /// - A caller that was declared dead itself is `NodeGone`.
    async fn rescue(&self, request: Rescue) -> Result<Vec<Turn>>;

    /// Releases claims: takes them away from their holders, as if they had expired. Returns the turns, like
    /// [`Self::rescue`];
    /// [`release_claims`](crate::store::release_claims) also settles them.
    ///
    /// - From then on writes of the old holder are refused, and a heartbeat that names the lane reports it `lost`.
    /// - Each lane gets a new token that no node holds and whose lease has expired. The caller settles it as
    ///   [`Outcome::Crash`](crate::Outcome::Crash); otherwise the next rescue takes it over. Crash counts do not change
    ///   until then.
    /// - Lanes that are not claimed are not touched, nor are claims made after `made_by`.
    /// - A queue that does not exist is `NotFound`.
    async fn release(&self, request: Release) -> Result<Vec<Turn>>;

    /// Declares a node dead, before its lease expires, because its process is known to be gone. True if it did.
    ///
    /// - Its claims with a node lease have expired from then on, however long the lease: the next rescue takes them
    ///   over. Those with their own lease last until it expires.
    /// - A node that sent a heartbeat after `heartbeat_at` is not touched; nor is one that is dead, has stopped, or is
    ///   unknown.
    async fn declare_dead(&self, request: DeclareDead) -> Result<bool>;

    /// Tells a node to take no more work, to take work again, or to stop. The node learns it at its next heartbeat.
    ///
    /// - Every later heartbeat returns the command, until `Resume` revokes it.
    /// - A node that is dead or has stopped is `NotFound`.
    async fn command_node(&self, node: NodeId, command: Command) -> Result<()>;

    /// Makes `node` the leader of `role` for `ttl`, unless another leader's time is not over. True if it is the leader
    /// now.
    ///
    /// If the clock was set back since, another leader has at most [`LEAD_MAX`](crate::limits::LEAD_MAX) left, or `ttl`
    /// if that is longer.
    async fn lead(&self, request: Lead) -> Result<bool>;

    /// Removes expired rows, at most `rows_max` rows of each kind; `more` means: call again.
    ///
    /// - Waiting jobs past `expires_at` that were never attempted end cancelled with error `expired`.
    /// - Finished and dead jobs past their retention, and dead ones over the queue's limit, are deleted.
    /// - Idempotency keys past their time are deleted if their job is gone; so are nodes that died or stopped a day
    ///   ago.
    async fn sweep(&self, request: Sweep) -> Result<Swept>;
}

/// See [`Fleet::heartbeat`].
#[derive(Clone, Debug)]
pub struct Heartbeat {
    /// The time; the store's clock if unset.
    pub now: Option<Timestamp>,
    /// The node.
    pub node: NodeInfo,
    /// Running turns with progress to store or a lease to extend.
    pub beats: Vec<Beat>,
}

impl Heartbeat {
    /// Refuses progress that is too long.
    pub(crate) fn validate(&self) -> Result<()> {
        let lengths = self.beats.iter().filter_map(|beat| Some(beat.progress.as_ref()?.len()));
        match lengths.max() {
            Some(bytes) if bytes > REPORT_BYTES_MAX => {
                let message = format!("has {bytes} bytes; at most {REPORT_BYTES_MAX} are kept");
                Err(Error::invalid("progress", message))
            }
            _ => Ok(()),
        }
    }
}

/// A node's report about itself.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct NodeInfo {
    /// Unique for each start.
    pub id: NodeId,
    /// As configured; several processes may share it.
    pub name: Arc<str>,
    /// The host name.
    pub host: String,
    /// Its process id.
    pub pid: u32,
    /// Its version.
    pub version: String,
    /// The queues that it works on.
    pub queues: Vec<String>,
    /// The consumer groups whose jobs it takes, besides jobs without one.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub groups: Vec<String>,
    /// Most concurrent handler calls.
    pub concurrency: u32,
    /// Handler calls under way.
    pub busy: u32,
    /// Turns by queue that it has claimed but not started: they wait for a free slot. Its other claims are running.
    /// Empty for a worker that does not prefetch.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub prefetched: BTreeMap<String, u32>,
    /// Its periodic workers, in the order in which they were added.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub periodic: Vec<PeriodicView>,
    /// When it started.
    pub started_at: Timestamp,
    /// The node is declared dead after this time without a heartbeat. Zero: it has stopped, and this is its last
    /// heartbeat.
    #[serde(with = "crate::model::duration")]
    pub lease: Duration,
    /// The node's current troubles, oldest first.
    #[serde(default)]
    pub troubles: Vec<Trouble>,
    /// Its process, if that can be identified. Without it only the lease shows that the node is dead.
    pub origin: Option<Origin>,
}

impl NodeInfo {
    /// A node with defaults, sufficient for claiming.
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
            groups: Vec::new(),
            prefetched: BTreeMap::new(),
            periodic: Vec::new(),
            started_at: Timestamp::of_this_machine(),
            lease,
            troubles: Vec::new(),
            origin: None,
        }
    }

    /// Whether it deregistered when it stopped.
    pub fn has_stopped(&self) -> bool {
        self.lease.is_zero()
    }
}

/// Progress and lease of one running turn.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Beat {
    /// The lane.
    pub lane: LaneId,
    /// The token of its claim.
    pub token: Token,
    /// Replaces the report of the turn's holder: progress, and steps beside it
    /// ([`TurnReport`](crate::store::TurnReport)).
    pub progress: Option<Arc<str>>,
    /// Extends a claim with its own lease until this long from now.
    pub extend: Option<Duration>,
}

impl Beat {
    /// Of this turn: reports and extends nothing.
    pub fn of(turn: &Turn) -> Self {
        Self { lane: turn.lane, token: turn.token, progress: None, extend: None }
    }
}

/// What a heartbeat returns.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Pulse {
    /// False if the node was declared dead or has stopped: it must cancel its calls and take a new id.
    pub alive: bool,
    /// Jobs flagged for cancellation.
    pub cancel: Vec<CancelNotice>,
    /// Named lanes that the caller no longer holds.
    pub lost: Vec<LaneId>,
    /// The operator's command for this node.
    pub command: Option<Command>,
    /// Since the node's last heartbeat another server has taken over, or one was restarted, and may have lost the last
    /// writes: claims may be gone, and settled ones may be back.
    pub moved: bool,
}

/// Jobs of a running turn to be cancelled.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CancelNotice {
    /// The lane.
    pub lane: LaneId,
    /// The token of its claim.
    pub token: Token,
    /// The flagged jobs.
    pub jobs: Vec<JobId>,
}

/// An operator's command for a node.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Command {
    /// Take no more work.
    Quiet,
    /// Finish and exit.
    Stop,
    /// Take work again: revokes an earlier command, unless the node has stopped meanwhile.
    Resume,
}

impl Command {
    /// What a store keeps for the node's heartbeats: nothing for `Resume`.
    pub(crate) fn kept(self) -> Option<Self> {
        (self != Self::Resume).then_some(self)
    }

    /// Its name in a store, as in JSON.
    #[cfg(any(feature = "mysql", feature = "redis"))]
    pub(crate) fn as_str(self) -> &'static str {
        match self {
            Self::Quiet => "quiet",
            Self::Stop => "stop",
            Self::Resume => "resume",
        }
    }

    /// The command of this name, if there is one.
    #[cfg(any(feature = "mysql", feature = "redis"))]
    pub(crate) fn named(name: &str) -> Option<Self> {
        [Self::Quiet, Self::Stop, Self::Resume].into_iter().find(|command| command.as_str() == name)
    }
}

/// See [`Fleet::declare_dead`].
#[derive(Clone, Debug)]
pub struct DeclareDead {
    /// The time; the store's clock if unset.
    pub now: Option<Timestamp>,
    /// The node whose process is gone.
    pub node: NodeId,
    /// Its last heartbeat, as the caller knows it.
    pub heartbeat_at: Timestamp,
}

/// See [`Fleet::rescue`].
#[derive(Clone, Debug)]
pub struct Rescue {
    /// The time; the store's clock if unset.
    pub now: Option<Timestamp>,
    /// The node that takes over the claims; it must be alive.
    pub node: NodeId,
    /// How long the new claims last.
    pub lease: Duration,
    /// Most lanes to take over.
    pub lanes_max: usize,
    /// See [`Claim::ticket`](super::Claim::ticket).
    pub ticket: u64,
}

/// See [`Fleet::release`].
#[derive(Clone, Debug)]
pub struct Release {
    /// The time; the store's clock if unset.
    pub now: Option<Timestamp>,
    /// Which claims.
    pub claims: ClaimSelection,
    /// Only claims made until then, so that repeated calls release only the claims that existed at the first one.
    pub made_by: Option<Timestamp>,
    /// Most lanes to release.
    pub lanes_max: usize,
}

/// Which claims to release.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ClaimSelection {
    /// The claim of this key's lane.
    Key {
        /// The queue.
        queue: Arc<str>,
        /// The key.
        key: String,
    },
    /// The claim of this lane.
    Lane(LaneId),
    /// All claims of a queue.
    Queue(Arc<str>),
    /// All claims of a node, in every queue.
    Node(NodeId),
}

/// See [`Fleet::sweep`].
#[derive(Clone, Copy, Debug)]
pub struct Sweep {
    /// The time; the store's clock if unset.
    pub now: Option<Timestamp>,
    /// Most rows of each kind, up to [`ACTION_ROWS_MAX`](crate::limits::ACTION_ROWS_MAX).
    pub rows_max: usize,
}

impl Sweep {
    /// Most rows of each kind that it removes.
    pub(crate) fn most(&self) -> usize {
        self.rows_max.min(ACTION_ROWS_MAX)
    }
}

/// What a sweep removed.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Swept {
    /// Waiting jobs that expired.
    pub expired: Vec<JobId>,
    /// Finished jobs past their retention.
    pub completed: u64,
    /// Dead jobs past their retention or over the limit.
    pub dead: Vec<JobId>,
    /// Whether there is more to remove.
    pub more: bool,
}

/// See [`Fleet::lead`].
#[derive(Clone, Debug)]
pub struct Lead {
    /// The time; the store's clock if unset.
    pub now: Option<Timestamp>,
    /// The task to lead: `maintenance`, …
    pub role: Arc<str>,
    /// The node that asks.
    pub node: NodeId,
    /// For how long.
    pub ttl: Duration,
}

impl Lead {
    /// The longest time that a leader of the role can have left.
    pub(crate) fn longest(&self) -> Duration {
        self.ttl.max(LEAD_MAX)
    }
}
