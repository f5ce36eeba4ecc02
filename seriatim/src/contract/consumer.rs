//! Claiming lanes and settling turns.

use std::collections::HashSet;
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;

use crate::model::limits::{SERIES_JOBS_MAX, SETTLE_TURNS_MAX};
use crate::model::{
    Error, JobId, NodeId, Queue, Result, Settlement, Timestamp, Turn, check_result,
};

/// Claims lanes and settles their turns.
#[async_trait]
pub trait Consumer: Send + Sync {
    /// Claims lanes of one queue for execution, each under a new token. The token fixes a set of the lane's jobs:
    /// nothing changes that set until the settle.
    ///
    /// - A lane that is claimed, held, paused, not due, or empty is never claimed; nor is a lane of a paused queue.
    /// - Lanes come in the order (priority, due, age), at most `lanes_max`, at most `crashed_max` of them with
    ///   earlier crashes.
    /// - A lane routed to another node or consumer group is not claimed.
    /// - In a queue with groups, these take turns instead: each gives as many lanes as its weight, in the order
    ///   (priority, due, age), and the next claim continues where this one ended. A group without a claimable lane is
    ///   skipped.
    /// - No claim exceeds the limits of the queue and of its groups ([`Limit`](crate::Limit)). If a rate holds back
    ///   lanes, `next_due` says until when; if the most turns are running, the settle that ends one wakes the waiting
    ///   nodes.
    /// - The mode decides which jobs a turn has (see [`Mode::takes`](crate::Mode::takes)): in the order of the mode,
    ///   at most 10,000 jobs or 16 MiB, ending before the first job of another task.
    /// - With `series_max`, a `fifo` turn may have more jobs than one: jobs that were never claimed before and have no
    ///   options except a batch, an idempotency key and descriptions, at most 256 KiB. So after a crash or failure,
    ///   jobs are claimed by the settings of the queue.
    /// - Each token is higher than all earlier ones of its lane and its key.
    /// - With `declared`, a queue that only a push created is `NotFound`, like one that does not exist.
    /// - A lease longer than the queue's `lease_max` is `Invalid` (field `lease`). A job's own `lease_ttl` extends the
    ///   lease, up to `lease_max`.
    /// - A node that never sent a heartbeat, or was declared dead, is `NodeGone`; a call that was
    ///   [given up](Self::give_up) is `Conflict`.
    /// - `next_due` is the earliest time at which a claim of this queue can find something; only a wake-up can make
    ///   it sooner.
    async fn claim(&self, request: Claim) -> Result<Claimed>;

    /// Ends turns. The answer has one entry for each, in order.
    ///
    /// - Naming a turn (a lane and a token) twice is `Invalid`.
    /// - A settlement whose token is not the lane's current one changes nothing and returns `Stale`. So does the repeat
    ///   of one that took effect.
    /// - Only the jobs that the claim fixed change.
    /// - A job flagged for cancellation ends cancelled unless its fate is `Done`.
    /// - Kept jobs return with the state in `keep`: the lane's in `accumulate` (`due` has precedence over arrivals
    ///   during the turn), otherwise that of the job it names. With `counted`, the attempt counts.
    /// - In `accumulate`, a kept job equal to one that arrived during the turn merges with it, under the older id; both
    ///   ids stay known and share the outcome.
    /// - If nothing is kept, the lane's retry count and crashes are reset, and it is due when the arrivals during the
    ///   turn are; an empty lane is removed.
    /// - Buried jobs are in the morgue; finished ones are kept for the queue's retention.
    /// - Each done job keeps the result of its turn, instead of its last error, as long as it is kept itself. A result
    ///   longer than [`RESULT_BYTES_MAX`](crate::limits::RESULT_BYTES_MAX) is `Invalid`.
    /// - A lane named in [`Settle::go_on`] may be claimed again in the same step: see [`GoOn`].
    async fn settle(&self, request: Settle) -> Result<Vec<Settled>>;

    /// Gives up the claims and rescues of a node up to a ticket, because their answers were lost.
    ///
    /// - When this returns, the claims that took effect are in the listings, and no other will take effect. So a
    ///   listing then shows everything that the node holds.
    /// - A given-up call that arrives later is `Conflict` and takes nothing. Higher tickets, and those of other
    ///   nodes, are not touched.
    /// - Repeating it, or giving up a lower ticket, changes nothing.
    async fn give_up(&self, request: GiveUp) -> Result<()>;
}

/// See [`Consumer::claim`].
#[derive(Clone, Debug)]
pub struct Claim {
    /// The time; the store's clock if unset.
    pub now: Option<Timestamp>,
    /// The queue's name.
    pub queue: Arc<str>,
    /// The claiming node.
    pub node: NodeId,
    /// The configured name of the node, for jobs bound to it.
    pub node_name: Option<Arc<str>>,
    /// The consumer groups of the node, for jobs bound to one.
    pub groups: Vec<Arc<str>>,
    /// Most lanes to claim.
    pub lanes_max: usize,
    /// Most of them with earlier crashes: the number of free slots, because such a lane must not wait in a prefetch
    /// buffer.
    pub crashed_max: usize,
    /// Most bytes of all turns together: the payloads, plus [`CLAIM_JOB_BYTES`](crate::limits::CLAIM_JOB_BYTES) for
    /// each job. The claim ends before the first lane whose turn would exceed it. `None`: only the limits of each
    /// turn apply.
    pub bytes_max: Option<usize>,
    /// How long the claim lasts.
    pub lease: Lease,
    /// In `fifo`, most jobs of a turn that its holder hands over one after the other, where the queue's `take` is 1; up
    /// to [`SERIES_JOBS_MAX`](crate::limits::SERIES_JOBS_MAX). 1: turns follow the queue's settings. Ignored by stores
    /// without [`Capabilities::series`](super::Capabilities::series), and in queues with limits or groups, or that keep
    /// finished jobs.
    pub series_max: u32,
    /// Whether the caller declares the queue. If so, a queue that only a push created is `NotFound`, like one that
    /// does not exist.
    pub declared: bool,
    /// Identifies this call for [`Consumer::give_up`]; grows with every claim and rescue of the node. 0: the call
    /// cannot be given up.
    pub ticket: u64,
}

impl Claim {
    /// A claim of at most `lanes_max` lanes, also of those with earlier crashes, by a node without a name and consumer groups.
    /// Its payloads are not limited, its turns follow the queue's settings, the queue need not be declared, and it
    /// cannot be given up.
    pub fn new(
        queue: impl Into<Arc<str>>,
        node: impl Into<NodeId>,
        lanes_max: usize,
        lease: Lease,
    ) -> Self {
        Self {
            now: None,
            queue: queue.into(),
            node: node.into(),
            node_name: None,
            groups: Vec::new(),
            lanes_max,
            crashed_max: lanes_max,
            bytes_max: None,
            lease,
            series_max: 1,
            declared: false,
            ticket: 0,
        }
    }

    /// Most jobs of a turn that are handed over one after the other.
    pub(crate) fn series_of(&self, queue: &Queue) -> u32 {
        if queue.hands_over_singly() { self.series_max.min(SERIES_JOBS_MAX) } else { 1 }
    }
}

/// How long a claim lasts, and what extends it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Lease {
    /// Until `ttl` after the node's last heartbeat. A job's own `lease_ttl` makes it longer.
    Node {
        /// The length.
        ttl: Duration,
    },
    /// Until `ttl` after the claim, or as long as a heartbeat has extended it ([`Beat::extend`](crate::store::Beat::extend));
    /// the death of the node does not end it. A job's own `lease_ttl` makes it longer.
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

/// The result of a claim.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Claimed {
    /// The turns, in the order (priority, due, age) of their lanes.
    pub turns: Vec<Turn>,
    /// The next time at which a claim of this queue may find something; `None` if nothing waits.
    pub next_due: Option<Timestamp>,
    /// Whether the claim ended at a lane that [`Claim::bytes_max`] left no room for.
    pub cut: bool,
    /// Whether a part of the store did not answer: then the claim may also have taken lanes there, as if its answer had
    /// been lost.
    pub unanswered: bool,
}

/// See [`Consumer::settle`].
#[derive(Clone, Debug, Default)]
pub struct Settle {
    /// The time; the store's clock if unset.
    pub now: Option<Timestamp>,
    /// The turns to end. Each lane occurs once.
    pub turns: Vec<Settlement>,
    /// The lanes whose next turns to claim; at most one entry per queue.
    pub go_on: Vec<GoOn>,
    /// Turns whose lanes or batches another transaction keeps locked may be answered [`Settled::Busy`], and those in a
    /// part of the store that does not answer [`Settled::Unanswered`], so that the others need not wait. If false, the
    /// call waits for them, or fails.
    pub skip_locked: bool,
}

/// Claims the next turns of lanes in the step that settles their turns: one transaction instead of two.
///
/// - A lane is claimed only if the settlement took effect and ends all jobs of the turn as done, and if a claim could
///   take the lane: it is due, not held, not paused, without earlier crashes, and not routed elsewhere.
/// - A lane stays behind if a lane with a better priority was ready in its queue when the call began. It does not stay
///   behind lanes of its own priority, so the caller limits how long a lane goes on.
/// - Nothing fails because of it. A node that is gone, or a ticket that was given up, gets no turns.
#[derive(Clone, Debug)]
pub struct GoOn {
    /// The claim. `lanes_max` is the number of lanes that may go on; `crashed_max` and `bytes_max` are ignored.
    pub claim: Claim,
    /// The places of the lanes' settlements in [`Settle::turns`], ascending. If not all may go on, the first ones do.
    pub places: Vec<usize>,
}

impl Settle {
    /// Ends these turns at the store's time.
    pub fn now(turns: Vec<Settlement>) -> Self {
        Self { turns, ..Self::default() }
    }

    /// Refuses a request that is too large or names a turn twice, and a result that is too long.
    pub(crate) fn validate(&self) -> Result<()> {
        let turns = self.turns.len();
        if turns > SETTLE_TURNS_MAX {
            let message = format!("has {turns} turns; at most {SETTLE_TURNS_MAX} go in one");
            return Err(Error::invalid("turns", message));
        }
        let long = |turn: &Settlement| check_result(turn.result.as_deref()?, 1).err();
        if let Some((place, error)) =
            self.turns.iter().enumerate().find_map(|(place, turn)| Some((place, long(turn)?)))
        {
            return Err(error.in_field(format!("turns[{place}]")));
        }
        let mut named = HashSet::with_capacity(turns);
        match self.turns.iter().position(|turn| !named.insert((turn.lane, turn.token))) {
            Some(place) => Err(Error::invalid(format!("turns[{place}]"), "is named twice")),
            None => Ok(()),
        }
    }
}

/// The result of a settlement.
#[derive(Clone, Debug, PartialEq)]
pub enum Settled {
    /// It took effect.
    Ok {
        /// The jobs that ended cancelled because they were flagged.
        cancelled: Vec<JobId>,
        /// The lane's next turn, if the lane goes on.
        next: Option<Box<Turn>>,
    },
    /// The token was no longer current: nothing changed.
    Stale,
    /// Another transaction keeps the lane, or a batch of its jobs, locked: nothing changed, and the settlement is to be
    /// repeated. Only with [`Settle::skip_locked`].
    Busy,
    /// The part of the store that has the lane did not answer: whether the settlement took effect is unknown, and it is
    /// to be repeated. Only with [`Settle::skip_locked`].
    Unanswered,
}

impl Settled {
    /// It took effect, and the lane does not go on.
    pub fn ok(cancelled: Vec<JobId>) -> Self {
        Self::Ok { cancelled, next: None }
    }

    /// Whether the settlement is to be repeated.
    pub fn is_open(&self) -> bool {
        matches!(self, Self::Busy | Self::Unanswered)
    }

    /// Whether it took effect.
    pub fn is_ok(&self) -> bool {
        matches!(self, Self::Ok { .. })
    }
}

/// See [`Consumer::give_up`].
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct GiveUp {
    /// The node whose claims and rescues are given up.
    pub node: NodeId,
    /// The highest ticket to give up; all lower ones are included.
    pub ticket: u64,
    /// Only calls for this queue need be given up; if unset, all.
    pub queue: Option<Arc<str>>,
}
