//! A store at one moment.

use std::collections::HashSet;

use serde::Serialize;
use seriatim::store::{
    LaneOrder, LaneQuery, LaneStage, LaneState, NodeId, NodeView, PeriodicView, QueueStats,
};
use seriatim::{Timestamp, store::Store};

use crate::app::figures::Figures;
use crate::app::nodes;
use crate::app::running::{Running, age, running, stands_out, usual_ages};
use crate::cli::output::Result;
use crate::protocol::document::{Lane, Node, QueueFigures};

/// Claimed lanes read of each queue, oldest first.
const RUNNING_MAX: usize = 100;
/// Failing lanes read of each queue, most retries first.
const FAILING_MAX: usize = 20;
/// Queues whose failing lanes are read, most failures first.
const FAILING_QUEUES_MAX: usize = 20;

/// Why a lane is shown, most urgent first.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Why {
    /// Held, or its node is gone.
    Stuck,
    /// Claimed far longer than others.
    Slow,
    Failing,
    Claimed,
}

impl Why {
    pub(super) fn as_str(self) -> &'static str {
        match self {
            Self::Stuck => "stuck",
            Self::Slow => "slow",
            Self::Failing => "retrying",
            Self::Claimed => "running",
        }
    }

    /// In JSON, where the states of lanes have the same words everywhere.
    fn name(self) -> &'static str {
        if self == Self::Claimed { "claimed" } else { self.as_str() }
    }
}

/// A lane that is shown.
pub(super) struct Shown {
    pub(super) why: Why,
    pub(super) one: Running,
}

/// A store at one moment.
pub(super) struct Sample {
    pub(super) now: Timestamp,
    pub(super) queues: Vec<Figures>,
    /// Most urgent first, then by age.
    pub(super) lanes: Vec<Shown>,
    pub(super) nodes: Vec<NodeView>,
}

impl Sample {
    pub(super) async fn take(store: &dyn Store) -> Result<Self> {
        let (now, stats) = (store.now().await?, store.stats(None).await?);
        let mut nodes = store.nodes().await?;
        nodes.retain(|node| !node.dead);
        nodes.sort_by_key(|node| node.info.started_at);
        let running = running(store, &stats, None, RUNNING_MAX).await?;
        let failing = failing(store, &stats).await?;
        let queues = Figures::of(stats, &nodes);
        let lanes = arrange(running, failing, &nodes, now);
        Ok(Self { now, queues, lanes, nodes })
    }

    /// Jobs that are done, and turns that failed, since `before`, per second.
    pub(super) fn rates(&self, before: &Self, queue: &QueueStats) -> Option<(f64, f64)> {
        let then = before.queues.iter().map(|of| &of.stats).find(|of| of.queue == queue.queue)?;
        let seconds = self.now.since(before.now).as_secs_f64();
        let rate = |now: u64, then: u64| now.saturating_sub(then) as f64 / seconds;
        (seconds > 0.0)
            .then(|| (rate(queue.processed, then.processed), rate(queue.failed, then.failed)))
    }

    /// The nodes that claim work of a queue.
    pub(super) fn working_on(&self, queue: &str) -> impl Iterator<Item = &NodeView> {
        self.nodes.iter().filter(move |node| nodes::works_on(node, queue, self.now))
    }

    /// The periodic workers and their nodes, first those with most failures.
    pub(super) fn periodic(&self) -> Vec<(&NodeView, &PeriodicView)> {
        let mut all: Vec<_> = self
            .nodes
            .iter()
            .flat_map(|node| node.info.periodic.iter().map(move |program| (node, program)))
            .collect();
        all.sort_by(|(_, a), (_, b)| b.failures.cmp(&a.failures).then_with(|| a.name.cmp(&b.name)));
        all
    }

    pub(super) fn document(&self) -> Document {
        let lane = |shown: &Shown| {
            let one = &shown.one;
            let lane = Lane::of_queue(one.lane.clone(), one.queue.clone());
            ShownLane { lane, why: shown.why.name() }
        };
        let node = |node: &NodeView| {
            let holds = |shown: &&Shown| shown.one.lane.node.as_ref() == Some(&node.info.id);
            let claimed = self.lanes.iter().filter(holds).count();
            Node::new(node, nodes::state_name(node, self.now), claimed)
        };
        let queue = |of: &Figures| QueueFigures::new(&of.stats, of.numbers());
        Document {
            queues: self.queues.iter().map(queue).collect(),
            lanes: self.lanes.iter().map(lane).collect(),
            nodes: self.nodes.iter().map(node).collect(),
        }
    }
}

/// A sample in JSON.
#[derive(Serialize)]
pub(super) struct Document {
    queues: Vec<QueueFigures>,
    lanes: Vec<ShownLane>,
    nodes: Vec<Node>,
}

#[derive(Serialize)]
struct ShownLane {
    #[serde(flatten)]
    lane: Lane,
    why: &'static str,
}

async fn failing(store: &dyn Store, queues: &[QueueStats]) -> Result<Vec<Running>> {
    let mut queues: Vec<&QueueStats> = queues.iter().filter(|queue| queue.retrying > 0).collect();
    queues.sort_by_key(|queue| std::cmp::Reverse(queue.retrying));
    let mut lanes = Vec::new();
    for queue in queues.into_iter().take(FAILING_QUEUES_MAX) {
        let (order, rows_max) = (LaneOrder::RetryCount, FAILING_MAX);
        // Those that are claimed are listed as claimed.
        let stages = vec![LaneStage::Retrying, LaneStage::Held, LaneStage::Paused];
        let of_queue = LaneQuery::new(queue.queue.clone());
        let rows = store.lanes(LaneQuery { order, stages, rows_max, ..of_queue }).await?.rows;
        lanes.extend(rows.into_iter().map(|lane| Running { queue: queue.queue.clone(), lane }));
    }
    Ok(lanes)
}

fn arrange(
    running: Vec<Running>,
    failing: Vec<Running>,
    nodes: &[NodeView],
    now: Timestamp,
) -> Vec<Shown> {
    let usual = usual_ages(&running, now);
    let late = nodes.iter().filter(|node| nodes::is_late(node, now)).map(|node| &node.info.id);
    let late: HashSet<&NodeId> = late.collect();
    let gone = |one: &Running| one.lane.node.as_ref().is_some_and(|node| late.contains(node));
    let whys: Vec<Why> = running
        .iter()
        .map(|one| match stands_out(age(one, now), usual[&one.queue]) {
            _ if gone(one) => Why::Stuck,
            true => Why::Slow,
            false => Why::Claimed,
        })
        .collect();
    let mut lanes: Vec<Shown> =
        whys.into_iter().zip(running).map(|(why, one)| Shown { why, one }).collect();
    lanes.extend(failing.into_iter().map(|one| {
        let held = one.lane.state == LaneState::Held;
        Shown { why: if held { Why::Stuck } else { Why::Failing }, one }
    }));
    lanes.sort_by_key(|shown| (shown.why, std::cmp::Reverse(age(&shown.one, now))));
    lanes
}
