//! Listings and figures.

use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use serde::{Deserialize, Serialize};

use super::fleet::{Command, NodeInfo};
use super::job_query::JobQuery;
use super::job_view::JobView;
use super::lane_query::LaneQuery;
use super::lane_view::LaneView;
use super::vitals::Vitals;
use crate::model::limits::PAGE_BYTES_MAX;
use crate::model::{JobId, LaneId, Mode, Queue, Result, Timestamp, Token, Turn};

/// Listings and figures; read-only.
///
/// Listings come in pages of at most [`PAGE_ROWS_MAX`](crate::limits::PAGE_ROWS_MAX) rows. A page starts after the
/// previous page's `next`, also if that row is gone. A queue that does not exist is `NotFound`.
#[async_trait]
pub trait Views: Send + Sync {
    /// All queues, by name.
    async fn queues(&self) -> Result<Vec<QueueView>>;

    /// The figures of every queue, by name. Lag is counted up to `now`; the store's clock if unset.
    async fn stats(&self, now: Option<Timestamp>) -> Result<Vec<QueueStats>>;

    /// When each of these queues next has a lane to claim; all queues if none is named. One query for all.
    async fn due(&self, queues: Vec<Arc<str>>) -> Result<Vec<QueueDue>>;

    /// Lanes of a queue, one page.
    async fn lanes(&self, query: LaneQuery) -> Result<Page<LaneView>>;

    /// Jobs of a queue, one page. A page ends early when its payloads reach
    /// [`PAGE_BYTES_MAX`](crate::limits::PAGE_BYTES_MAX), and with filters when it has looked at enough.
    ///
    /// - The order of turns without a key, or of jobs that do not wait or run, is `Invalid`.
    async fn jobs(&self, query: JobQuery) -> Result<Page<JobView>>;

    /// One job in any state. The id of a job that merged with another returns the state of that one.
    async fn job(&self, id: JobId) -> Result<Option<JobView>>;

    /// The turn of a current token, as its holder got it; `None` if the token is stale.
    async fn turn(&self, lane: LaneId, token: Token) -> Result<Option<Turn>>;

    /// All nodes that are alive, or died or stopped within a day.
    async fn nodes(&self) -> Result<Vec<NodeView>>;

    /// Sizes and counters of the store's server. The server may need some milliseconds for them: not for each call.
    async fn vitals(&self) -> Result<Vitals>;
}

/// When a queue next has a lane to claim.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct QueueDue {
    /// The queue.
    pub queue: Arc<str>,
    /// The earliest due time of its waiting lanes; if in the past, a lane has been due since then. `None` if nothing
    /// waits, or the queue is paused.
    pub due: Option<Timestamp>,
    /// Whether a part of the store that may have lanes of the queue did not answer: then only a claim can tell.
    pub unanswered: bool,
}

impl QueueDue {
    /// As all of the store says.
    pub(crate) fn new(queue: Arc<str>, due: Option<Timestamp>) -> Self {
        Self { queue, due, unanswered: false }
    }

    /// When a claim may find something: now, if only a claim can tell.
    pub fn may_have_at(&self, now: Timestamp) -> Option<Timestamp> {
        match self.unanswered {
            true => Some(self.due.map_or(now, |due| due.min(now))),
            false => self.due,
        }
    }
}

/// A page of a listing.
#[derive(Clone, Debug, PartialEq)]
pub struct Page<T> {
    /// The rows.
    pub rows: Vec<T>,
    /// Where the next page starts; `None` at the end. Opaque.
    pub next: Option<String>,
    /// Whether the search ended at `scan_max` before the page was full: the next page may have more.
    pub cut: bool,
}

impl<T> Default for Page<T> {
    fn default() -> Self {
        Self { rows: Vec::new(), next: None, cut: false }
    }
}

/// A queue as the store knows it.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct QueueView {
    /// Its number in this store.
    pub number: u32,
    /// Its definition.
    pub queue: Queue,
    /// Whether it was declared; otherwise an undeclared push created it.
    pub declared: bool,
    /// Whether it is paused: none of its lanes may be claimed.
    pub paused: bool,
}

/// The figures of a queue, as `docs/figures.md` defines them.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct QueueStats {
    /// The queue.
    pub queue: Arc<str>,
    /// Its mode.
    pub mode: Option<Mode>,
    /// Whether it is paused.
    pub paused: bool,
    /// Lanes, waiting or claimed.
    pub lanes: u64,
    /// Jobs that have not ended, waiting or claimed.
    pub jobs: u64,
    /// Claimed lanes, which are turns: running, or prefetched by their node.
    pub claimed: u64,
    /// Lanes that failed and have not succeeded since, whether they wait, are held, or are claimed.
    pub retrying: u64,
    /// Dead jobs.
    pub dead: u64,
    /// Jobs that are done.
    pub processed: u64,
    /// Turns that failed or crashed.
    pub failed: u64,
    /// How long the oldest due lane has been due.
    #[serde(skip)]
    pub lag: Duration,
}

impl QueueStats {
    /// Lanes that are not claimed: due, scheduled, waiting for a retry, held or paused.
    pub fn waiting(&self) -> u64 {
        self.lanes.saturating_sub(self.claimed)
    }
}

/// The number of payloads of these lengths in one page: up to the one that reaches
/// [`PAGE_BYTES_MAX`](crate::limits::PAGE_BYTES_MAX).
pub(crate) fn rows_of_page(lengths: impl IntoIterator<Item = usize>) -> usize {
    let (mut rows, mut bytes) = (0, 0);
    for length in lengths {
        if bytes >= PAGE_BYTES_MAX {
            break;
        }
        (rows, bytes) = (rows + 1, bytes + length);
    }
    rows
}

/// A node, as listings show it.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct NodeView {
    /// The node's report about itself.
    pub info: NodeInfo,
    /// Its last heartbeat.
    pub heartbeat_at: Timestamp,
    /// Whether it was declared dead, or has stopped: it will never claim again. See [`Self::state`].
    pub dead: bool,
    /// The operator's command, unless revoked.
    pub command: Option<Command>,
}

/// The states of a node.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum NodeState {
    /// It works.
    Alive,
    /// An operator asked it to take no more work.
    Quiet,
    /// An operator asked it to stop.
    Stopping,
    /// Its last heartbeat is older than its lease: it will be declared dead.
    Late,
    /// It deregistered when it stopped.
    Stopped,
    /// It sent no heartbeats and was declared dead.
    Dead,
}

impl NodeState {
    /// The name, as listings show it.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Alive => "alive",
            Self::Quiet => "quiet",
            Self::Stopping => "stopping",
            Self::Late => "late",
            Self::Stopped => "stopped",
            Self::Dead => "dead",
        }
    }
}

impl NodeView {
    /// Its state at `now`, by the store's clock.
    pub fn state(&self, now: Timestamp) -> NodeState {
        match (self.dead, self.command) {
            _ if self.info.has_stopped() => NodeState::Stopped,
            (true, _) => NodeState::Dead,
            (false, _) if self.heartbeat_at + self.info.lease < now => NodeState::Late,
            (false, Some(Command::Stop)) => NodeState::Stopping,
            (false, Some(Command::Quiet)) => NodeState::Quiet,
            (false, Some(Command::Resume) | None) => NodeState::Alive,
        }
    }
}
