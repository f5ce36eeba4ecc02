//! What the doctor looks at: read once, judged afterwards.

use std::sync::Arc;
use std::time::Duration;

use seriatim::store::{
    JobOrder, JobQuery, JobState, JobView, LaneOrder, LaneQuery, LaneState, LaneView, NodeView,
    QueueStats, QueueView,
};
use seriatim::{Timestamp, store::Store};

use super::finding::{Finding, Severity};
use crate::app::running::{Running, running};
use crate::base::time::length;
use crate::cli::output::Failure;
use crate::config::Config;

/// Running lanes of each queue that are looked at, the oldest.
const RUNNING_MAX: usize = 1_000;
/// Lanes of each queue that are looked at for retries and holds, those with most retries.
const FAILED_MAX: usize = 100;
/// Lanes of each queue that are looked at for pauses, the oldest.
const LANES_MAX: usize = 1_000;
/// Dead jobs of each queue that are looked at, the latest.
const DEAD_MAX: usize = 100;
/// Waiting jobs of each queue that are looked at for a node that they are bound to, the oldest.
const WAITING_MAX: usize = 1_000;
/// Clocks that differ by less are taken to agree.
const CLOCK_TOLERANCE: Duration = Duration::from_secs(5);

/// A store at one moment.
pub(super) struct Seen {
    pub(super) now: Timestamp,
    pub(super) here: Timestamp,
    pub(super) config: Config,
    pub(super) queues: Vec<QueueView>,
    pub(super) stats: Vec<QueueStats>,
    pub(super) nodes: Vec<NodeView>,
    pub(super) running: Vec<Running>,
    /// Those with failures, and those that are held or paused.
    pub(super) troubled: Vec<Running>,
    /// The oldest waiting jobs that are bound to a node, by queue.
    pub(super) bound: Vec<(Arc<str>, Vec<JobView>)>,
    /// The latest dead jobs, by queue.
    pub(super) dead: Vec<(Arc<str>, Vec<JobView>)>,
}

impl Seen {
    pub(super) fn queue(&self, name: &str) -> Option<&QueueView> {
        self.queues.iter().find(|view| view.queue.name == name)
    }
}

pub(super) async fn look(store: &dyn Store, config: Config) -> Result<Seen, Failure> {
    let (here, now) = (Timestamp::of_this_machine(), store.now().await?);
    let stats = store.stats(None).await?;
    let (mut troubled, mut bound, mut dead) = (Vec::new(), Vec::new(), Vec::new());
    for queue in &stats {
        if queue.lanes > 0 {
            troubled.extend(troubled_lanes(store, queue).await?);
        }
        if queue.jobs > 0 {
            let mut jobs = jobs(store, queue, JobState::Queued, WAITING_MAX).await?;
            jobs.retain(|job| job.options.as_ref().is_some_and(|options| options.node.is_some()));
            bound.push((queue.queue.clone(), jobs));
        }
        if queue.dead > 0 {
            let latest = jobs(store, queue, JobState::Dead, DEAD_MAX).await?;
            dead.push((queue.queue.clone(), latest));
        }
    }
    Ok(Seen {
        now,
        here,
        config,
        queues: store.queues().await?,
        nodes: store.nodes().await?,
        running: running(store, &stats, RUNNING_MAX).await?,
        stats,
        troubled,
        bound,
        dead,
    })
}

async fn troubled_lanes(store: &dyn Store, queue: &QueueStats) -> Result<Vec<Running>, Failure> {
    let query = |order, rows_max| LaneQuery {
        queue: queue.queue.clone(),
        key: None,
        claimed: false,
        order,
        after: None,
        rows_max,
    };
    let mut lanes = Vec::new();
    if queue.retrying > 0 {
        lanes = store.lanes(query(LaneOrder::RetryCount, FAILED_MAX)).await?.rows;
    }
    let oldest = store.lanes(query(LaneOrder::Age, LANES_MAX)).await?.rows;
    let stands = |lane: &LaneView| matches!(lane.state, LaneState::Held | LaneState::Paused);
    for lane in oldest.into_iter().filter(stands) {
        if !lanes.iter().any(|known| known.lane == lane.lane) {
            lanes.push(lane);
        }
    }
    Ok(lanes.into_iter().map(|lane| Running { queue: queue.queue.clone(), lane }).collect())
}

/// The oldest live jobs, the latest ended ones.
async fn jobs(
    store: &dyn Store,
    queue: &QueueStats,
    state: JobState,
    rows_max: usize,
) -> Result<Vec<JobView>, Failure> {
    let order = match state {
        JobState::Queued | JobState::Running => JobOrder::Arrival,
        _ => JobOrder::UpdatedAt,
    };
    let queue = queue.queue.clone();
    let query = JobQuery { queue, state, key: None, order, after: None, rows_max };
    Ok(store.jobs(query).await?.rows)
}

/// The store's clock decides what is due; a machine that disagrees pushes into the wrong time.
pub(super) fn check_clock(seen: &Seen) -> Option<Finding> {
    let apart = seen.now.since(seen.here).max(seen.here.since(seen.now));
    (apart > CLOCK_TOLERANCE).then(|| {
        Finding::new(
            Severity::Warning,
            "clock",
            format!("the store's and this machine's are {} apart", length(apart)),
            "the store's counts; set both by NTP, or write times as delays (--in)",
        )
    })
}
