//! What the store's methods take and answer: one struct each, with an explicit `now`.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use serde::{Deserialize, Serialize};

use super::origin::Origin;
use super::trouble::Trouble;
use crate::model::clock::Timestamp;
use crate::model::id::{JobId, LaneId, NodeId, Token};
use crate::model::job::Job;
use crate::model::queue::Queue;
use crate::model::settle::Settlement;
use crate::model::turn::Turn;

/// What a store can and cannot do.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub struct Capabilities {
    /// Its name, as it stands in a URL: `sqlite`, `postgres`, …
    pub name: &'static str,
    /// Whether several processes can use it at once.
    pub shared: bool,
    /// Claims of more lanes than this go as two of half the size, side by side: a server with several
    /// cores answers them sooner. None: one claim is as fast.
    pub claim_split: Option<usize>,
}

/// A secret that all users of a store share. `Debug` does not show it. See [`crate::store::Store::secret`].
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct Secret(pub [u8; 32]);

impl fmt::Debug for Secret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Secret(…)")
    }
}

/// See [`crate::store::Store::declare`].
#[derive(Clone, Debug, Default)]
pub struct Declare {
    /// The time; the store's when none.
    pub now: Option<Timestamp>,
    /// The definitions.
    pub queues: Vec<Queue>,
}

/// See [`crate::store::Store::reshard`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub struct Resharded {
    /// Into how many shards the queue is split now.
    pub shards: u16,
    /// How many earlier numbers of shards are still looked at by pushes: each costs one a round trip.
    pub older: u16,
    /// Keys of which something waits or runs in a shard of an older number.
    pub lanes_left: u64,
    /// Idempotency keys that an older number's shards still remember.
    pub idempotency_keys_left: u64,
}

/// See [`crate::store::Store::push`].
#[derive(Clone, Debug, Default)]
pub struct Push {
    /// The time; the store's when none.
    pub now: Option<Timestamp>,
    /// The jobs, in order of arrival.
    pub jobs: Vec<Job>,
}

/// What became of a pushed job.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub struct Pushed {
    /// The id under which it is known.
    pub job_id: JobId,
    /// Whether that is a new job.
    pub status: PushStatus,
}

/// Whether a push made a new job.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum PushStatus {
    /// A new job.
    Queued,
    /// It merged into a waiting job with an equal payload.
    Merged,
    /// Its idempotency key was known.
    Duplicate,
}

/// See [`crate::store::Store::claim`].
#[derive(Clone, Debug)]
pub struct Claim {
    /// The time; the store's when none.
    pub now: Option<Timestamp>,
    /// The queue's name.
    pub queue: Arc<str>,
    /// Only this shard of it.
    pub shard: Option<u16>,
    /// Who claims.
    pub node: NodeId,
    /// The configured name of the node, for jobs that are bound to it.
    pub node_name: Option<Arc<str>>,
    /// The groups it belongs to, for jobs that are bound to one.
    pub groups: Vec<Arc<str>>,
    /// Most lanes to take.
    pub lanes_max: usize,
    /// Most of them with a crash behind them: the number of free slots, since such a lane must
    /// not wait in a prefetch buffer.
    pub crashed_max: usize,
    /// Most bytes of all turns together: of payloads, and [`CLAIM_JOB_BYTES`](crate::limits::CLAIM_JOB_BYTES) for
    /// each job. The claim ends before the first lane whose turn would exceed it. None: each turn has its own limits
    /// alone.
    pub bytes_max: Option<usize>,
    /// How long the claim stands.
    pub lease: Lease,
    /// Only if the queue is declared: the caller knows how it should be, and a queue that a push made is
    /// `NotFound`, as one that does not exist.
    pub declared: bool,
    /// Grows with every claim and rescue of the node, so that this one can be given up: see
    /// [`crate::store::Store::give_up`]. 0: it cannot be.
    pub ticket: u64,
}

/// How long a claim stands, and what extends it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Lease {
    /// It stands while its node beats: until `ttl` after the node's last heartbeat. A job's own
    /// `lease_ttl` makes it longer.
    Node {
        /// The length.
        ttl: Duration,
    },
    /// It stands until `ttl` after it was made or last extended by name; the node's death does
    /// not touch it. A job's own `lease_ttl` makes it longer.
    Own {
        /// The length.
        ttl: Duration,
    },
}

impl Lease {
    /// The length.
    pub fn ttl(self) -> Duration {
        match self {
            Self::Node { ttl } | Self::Own { ttl } => ttl,
        }
    }
}

/// What a claim got.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Claimed {
    /// The turns, in the order in which their lanes were due.
    pub turns: Vec<Turn>,
    /// When a claim of this queue may next find something; `None` when nothing waits.
    pub next_due: Option<Timestamp>,
    /// Whether it ended at a lane for which [`Claim::bytes_max`] left no room.
    pub cut: bool,
}

/// See [`crate::store::Store::settle`].
#[derive(Clone, Debug, Default)]
pub struct Settle {
    /// The time; the store's when none.
    pub now: Option<Timestamp>,
    /// The turns to end. A lane stands in it once.
    pub turns: Vec<Settlement>,
}

/// What became of a settlement.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Settled {
    /// It was carried out.
    Ok {
        /// The jobs that ended cancelled because they were flagged.
        cancelled: Vec<JobId>,
    },
    /// The token was no longer the newest: nothing was changed.
    Stale,
}

impl Settled {
    /// Whether it was carried out.
    pub fn is_ok(&self) -> bool {
        matches!(self, Self::Ok { .. })
    }
}

/// See [`crate::store::Store::heartbeat`].
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

/// See [`crate::store::Store::declare_dead`].
#[derive(Clone, Debug)]
pub struct DeclareDead {
    /// The time; the store's when none.
    pub now: Option<Timestamp>,
    /// Who is gone.
    pub node: NodeId,
    /// Its last beat, as the caller knows it.
    pub heartbeat_at: Timestamp,
}

/// See [`crate::store::Store::rescue`].
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

/// See [`crate::store::Store::release`].
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

/// See [`crate::store::Store::delete_queue`].
#[derive(Clone, Debug)]
pub struct DeleteQueue {
    /// The queue.
    pub queue: Arc<str>,
    /// Most rows of each kind to remove in one call.
    pub rows_max: usize,
}

/// See [`crate::store::Store::give_up`].
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct GiveUp {
    /// Whose claims and rescues.
    pub node: NodeId,
    /// Those with this ticket and with lower ones.
    pub ticket: u64,
}

/// See [`crate::store::Store::sweep`].
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

/// See [`crate::store::Store::cancel`].
#[derive(Clone, Debug)]
pub struct Cancel {
    /// The time; the store's when none.
    pub now: Option<Timestamp>,
    /// The jobs.
    pub jobs: Vec<JobId>,
}

/// What a cancellation did.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Cancelled {
    /// It waited; it is cancelled.
    Now,
    /// It runs; its holder will learn it.
    Flagged,
    /// It had ended (also: it is in the morgue); nothing changed.
    Ended,
    /// No such job is known.
    Unknown,
}

/// Some dead jobs of a queue.
#[derive(Clone, Debug)]
pub struct Selected {
    /// The time; the store's when none.
    pub now: Option<Timestamp>,
    /// The queue.
    pub queue: Arc<str>,
    /// Which of them.
    pub which: Selection,
}

/// Which dead jobs.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Selection {
    /// These.
    Jobs(Vec<JobId>),
    /// All of these keys.
    Keys(Vec<String>),
    /// All.
    All,
}

/// What a bulk action did.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Acted {
    /// So many jobs or lanes.
    pub count: u64,
    /// Whether the limit of one call was reached: call again.
    pub more: bool,
}

/// See [`crate::store::Store::act`].
#[derive(Clone, Debug)]
pub struct Act {
    /// The time; the store's when none.
    pub now: Option<Timestamp>,
    /// The queue.
    pub queue: Arc<str>,
    /// Which lanes.
    pub lanes: LaneSelection,
    /// What to do.
    pub action: LaneAction,
}

/// Which lanes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum LaneSelection {
    /// The lane of this key.
    Key(String),
    /// This lane.
    Lane(LaneId),
    /// Every lane.
    All,
    /// Every lane with a failure behind it.
    Failed,
}

/// What to do with a lane.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum LaneAction {
    /// Claim it no more.
    Pause,
    /// Claim it again; also ends a hold.
    Resume,
    /// Make it due now; order is kept.
    RunNow,
    /// Bury what has failed: the lane's head.
    Bury,
    /// Delete all that waits in it.
    Delete,
}

/// See [`crate::store::Store::amend`].
#[derive(Clone, Debug)]
pub struct Amend {
    /// The time; the store's when none.
    pub now: Option<Timestamp>,
    /// The job.
    pub job: JobId,
    /// What to change.
    pub change: Change,
}

/// What to change of a waiting job.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Change {
    /// Due at this time (of its lane, in `accumulate`).
    RunAt(Timestamp),
    /// Bound to this node, or to none (its lane is, in `accumulate` and `fifo`).
    Node(Option<String>),
    /// Gone, without a trace.
    Delete,
}

/// See [`crate::store::Store::lead`].
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

/// See [`crate::store::Store::due`].
#[derive(Clone, Debug, Default)]
pub struct DueQuery {
    /// The time; the store's when none.
    pub now: Option<Timestamp>,
    /// The queues; all when empty.
    pub queues: Vec<Arc<str>>,
}

/// When a source next has something to claim.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SourceDue {
    /// The queue.
    pub queue: Arc<str>,
    /// The shard.
    pub shard: u16,
    /// The earliest due time of a lane that can be claimed (past: since then); none when nothing
    /// waits, or the queue is paused.
    pub due: Option<Timestamp>,
}
