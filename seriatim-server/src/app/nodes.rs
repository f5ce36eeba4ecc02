//! Nodes, and commands to them.

use seriatim::store::{
    ClaimSelection, Command, NodeInfo, NodeView, Origin, PeriodicState, PeriodicView,
    release_claims,
};
use seriatim::{
    Timestamp,
    store::{NodeId, Store},
};

use super::error::{Error, Result};
use super::running::{Running, running};
use crate::base::text::count;
use crate::protocol::document::{Lane, Node, Nodes};

/// Claimed lanes of each queue that are looked at.
pub(crate) const RUNNING_MAX: usize = 1_000;

pub(crate) fn state_name(node: &NodeView, now: Timestamp) -> &'static str {
    if is_gone(node) { "gone" } else { node.state(now).as_str() }
}

/// Whether its last heartbeat is older than its lease, or its process is gone: it will be declared dead.
pub(crate) fn is_late(node: &NodeView, now: Timestamp) -> bool {
    node.heartbeat_at + node.info.lease < now || is_gone(node)
}

/// Whether it is of this machine and its process is gone, though the store does not know it yet.
pub(crate) fn is_gone(node: &NodeView) -> bool {
    !node.dead && node.info.origin.as_ref().is_some_and(Origin::is_gone)
}

/// Whether no other node takes work.
pub(crate) fn is_last(node: &NodeView, all: &[NodeView], now: Timestamp) -> bool {
    !all.iter().any(|other| other.info.id != node.info.id && takes_work(other, now))
}

/// Whether this process is it.
pub(crate) fn is_this_process(node: &NodeView) -> bool {
    let own = Origin::of_this_process();
    own.is_some() && node.info.origin == own
}

/// Whether it claims work of some queue: it lives, and is neither quiet nor stopping.
pub(crate) fn takes_work(node: &NodeView, now: Timestamp) -> bool {
    let lives = !node.dead && !is_late(node, now);
    lives && node.command.is_none() && !node.info.queues.is_empty()
}

/// Whether it claims work of a queue: it lives, and is neither quiet nor stopping.
pub(crate) fn works_on(node: &NodeView, queue: &str, now: Timestamp) -> bool {
    takes_work(node, now) && node.info.queues.iter().any(|of| of == queue)
}

/// The name of a node, or its id if the store has forgotten it.
pub(crate) fn name_of<'a>(nodes: &'a [NodeView], id: &'a NodeId) -> &'a str {
    let known = nodes.iter().find(|node| node.info.id == *id);
    known.map_or(&*id.0, |node| &node.info.name)
}

pub(crate) fn held_by<'a>(running: &'a [Running], node: &NodeView) -> Vec<&'a Running> {
    running.iter().filter(|one| one.lane.node.as_ref() == Some(&node.info.id)).collect()
}

/// All nodes, as a JSON document.
pub(crate) async fn all(store: &dyn Store) -> Result<Nodes> {
    let (nodes, now) = (sorted(store).await?, store.now().await?);
    let running = running(store, &store.stats(None).await?, None, RUNNING_MAX).await?;
    let document =
        |node: &NodeView| Node::new(node, state_name(node, now), held_by(&running, node).len());
    Ok(Nodes { nodes: nodes.iter().map(document).collect(), left_out: None })
}

/// Those that live first, then by their starts.
pub(crate) async fn sorted(store: &dyn Store) -> Result<Vec<NodeView>> {
    let mut nodes = store.nodes().await?;
    nodes.sort_by_cached_key(Place::of);
    Ok(nodes)
}

/// The place of a node in that order.
#[derive(PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Place {
    is_dead: bool,
    started_at: i64,
    id: NodeId,
}

impl Place {
    pub(crate) fn of(node: &NodeView) -> Self {
        let NodeInfo { started_at, id, .. } = &node.info;
        Self { is_dead: node.dead, started_at: started_at.as_micros(), id: id.clone() }
    }

    /// As a cursor.
    pub(crate) fn text(&self) -> String {
        format!("{}:{}:{}", u8::from(self.is_dead), self.started_at, self.id)
    }

    fn read(cursor: &str) -> Option<Self> {
        let mut parts = cursor.splitn(3, ':');
        let (is_dead, started_at) = (parts.next()? == "1", parts.next()?.parse().ok()?);
        Some(Self { is_dead, started_at, id: NodeId::from(parts.next()?) })
    }
}

/// Those behind a cursor, which may be of a node that is gone.
pub(crate) fn behind<'a>(sorted: &'a [NodeView], after: Option<&str>) -> Result<&'a [NodeView]> {
    let after = after.map(|after| Place::read(after).ok_or(Error::Cursor)).transpose()?;
    let is_before = |node: &NodeView| after.as_ref().is_some_and(|after| Place::of(node) <= *after);
    Ok(&sorted[sorted.partition_point(is_before)..])
}

/// Sends a command to a node; returns its id.
pub(crate) async fn command(store: &dyn Store, wanted: &str, command: Command) -> Result<NodeId> {
    let node = find(store, wanted).await?.info;
    store.command_node(node.id.clone(), command).await?;
    Ok(node.id)
}

/// Takes all claims from a node; returns its id and the number of lanes. A node that the store has forgotten may
/// still have claims.
pub(crate) async fn release(store: &dyn Store, wanted: &str) -> Result<(NodeId, u64)> {
    let found = find(store, wanted).await;
    let id = found.as_ref().map_or_else(|_| NodeId::from(wanted), |node| node.info.id.clone());
    match release_claims(store, ClaimSelection::Node(id.clone())).await? {
        0 => found.map(|_| (id, 0)),
        lanes => Ok((id, lanes)),
    }
}

/// The node with this id, name, or start of the id.
pub(crate) async fn find(store: &dyn Store, wanted: &str) -> Result<NodeView> {
    let nodes = store.nodes().await?;
    if let Some(node) = nodes.iter().find(|node| *node.info.id.0 == *wanted) {
        return Ok(node.clone());
    }
    let fits = |node: &&NodeView| {
        !node.dead && (*node.info.name == *wanted || node.info.id.0.starts_with(wanted))
    };
    let found: Vec<&NodeView> = nodes.iter().filter(fits).collect();
    match found.as_slice() {
        [node] => Ok((*node).clone()),
        [] => Err(Error::NoNode(wanted.to_owned())),
        several => Err(Error::SeveralNodes {
            name: wanted.to_owned(),
            ids: several.iter().map(|node| node.info.id.to_string()).collect(),
        }),
    }
}

/// Whether all its slots are busy, as far as it is known: of a remote worker it is not.
pub(crate) fn is_full(info: &NodeInfo) -> bool {
    info.concurrency > 0 && info.busy >= info.concurrency
}

/// How many of its slots are busy; a remote worker tells neither.
pub(crate) fn busy(info: &NodeInfo) -> String {
    match info.concurrency {
        0 => "-".to_owned(),
        slots => format!("{}/{slots}", info.busy),
    }
}

/// One node and its claimed lanes, as a JSON document.
pub(crate) async fn one(store: &dyn Store, wanted: &str) -> Result<Node> {
    let (node, now) = (find(store, wanted).await?, store.now().await?);
    let stats = store.stats(None).await?;
    let held = running(store, &stats, Some(&node.info.id), RUNNING_MAX).await?;
    let lane = |one: &Running| Lane::of_queue(one.lane.clone(), one.queue.clone());
    let lanes = held.iter().map(lane).collect();
    Ok(Node::new(&node, state_name(&node, now), held.len()).with_lanes(lanes))
}

/// What a periodic program does.
pub(crate) fn periodic_state(program: &PeriodicView) -> &'static str {
    match program.state {
        PeriodicState::Idle => "pauses",
        PeriodicState::Work => "runs",
        PeriodicState::Stop => "has stopped",
    }
}

/// A periodic program in words.
pub(crate) fn periodic(program: &PeriodicView) -> String {
    let (name, runs) = (&program.name, program.runs);
    let Some(error) = &program.error else {
        return format!("{name} {}; {}", periodic_state(program), count(runs, "run"));
    };
    let of = match program.failures {
        1 if runs == 1 => "its only run".to_owned(),
        all if all == runs => format!("all {runs} runs"),
        some => format!("{some} of {runs} runs"),
    };
    let ended = if program.state == PeriodicState::Stop { "; it has stopped" } else { "" };
    format!("{name} failed in {of}; last error: {error}{ended}")
}
