//! Claiming lanes and settling turns.

use std::sync::Arc;
use std::time::Duration;

use crate::model::clock::Timestamp;
use crate::model::id::{JobId, NodeId};
use crate::model::settle::Settlement;
use crate::model::turn::Turn;

/// See [`crate::Store::claim`].
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
    /// [`crate::Store::give_up`]. 0: it cannot be.
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

/// See [`crate::Store::settle`].
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

/// See [`crate::Store::give_up`].
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct GiveUp {
    /// Whose claims and rescues.
    pub node: NodeId,
    /// Those with this ticket and with lower ones.
    pub ticket: u64,
}
