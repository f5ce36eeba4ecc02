//! Nodes, and what is wrong with them.

use std::sync::Arc;

use schemars::{JsonSchema, Schema, SchemaGenerator};
use serde::Serialize;
use seriatim::store::NodeId;
use seriatim::store::{self, Command, NodeView, PeriodicState, PeriodicView, TroubleKind};

use super::lane::Lane;
use crate::protocol::schema::{Foreign, one_of};
use crate::protocol::value::{Length, Time};

/// A process that runs jobs, or a remote worker.
#[derive(Serialize, JsonSchema)]
pub(crate) struct Node {
    /// The id, new at each start
    #[schemars(with = "Foreign<NodeId>")]
    node: NodeId,
    /// The configured name
    name: Arc<str>,
    host: String,
    pid: u32,
    version: String,
    #[schemars(schema_with = "states")]
    state: &'static str,
    queues: Vec<String>,
    /// Maximum concurrent handler calls
    concurrency: u32,
    /// Running handler calls
    busy: u32,
    /// Claimed turns: running or prefetched
    claimed: u64,
    running: u64,
    prefetched: u64,
    /// Its periodic programs
    #[serde(skip_serializing_if = "Vec::is_empty")]
    periodic: Vec<PeriodicProgram>,
    started_at: Time,
    heartbeat_at: Time,
    /// After this time without a heartbeat, the node is declared dead
    lease: Length,
    /// The last command to the node, unless taken back
    #[schemars(with = "Option<Foreign<Command>>")]
    command: Option<Command>,
    troubles: Vec<Trouble>,
    /// The claimed lanes; absent in listings
    #[serde(skip_serializing_if = "Option::is_none")]
    lanes: Option<Vec<Lane>>,
}

fn states(_: &mut SchemaGenerator) -> Schema {
    one_of(["alive", "late", "quiet", "stopping", "stopped", "dead", "gone"])
}

/// Claimed turns of a node, running and prefetched.
pub(crate) fn load(node: &NodeView, claimed: usize) -> (u64, u64) {
    let reported = node.info.prefetched.values().copied().map(u64::from).sum::<u64>();
    let prefetched = reported.min(claimed as u64);
    (claimed as u64 - prefetched, prefetched)
}

impl Node {
    pub(crate) fn new(node: &NodeView, state: &'static str, claimed: usize) -> Self {
        let (running, prefetched) = load(node, claimed);
        let info = node.info.clone();
        Self {
            node: info.id,
            name: info.name,
            host: info.host,
            pid: info.pid,
            version: info.version,
            state,
            queues: info.queues,
            concurrency: info.concurrency,
            busy: info.busy,
            claimed: claimed as u64,
            running,
            prefetched,
            periodic: info.periodic.into_iter().map(PeriodicProgram::from).collect(),
            started_at: Time(info.started_at),
            heartbeat_at: Time(node.heartbeat_at),
            lease: Length(info.lease),
            command: node.command,
            troubles: info.troubles.into_iter().map(Trouble::from).collect(),
            lanes: None,
        }
    }

    pub(crate) fn with_lanes(self, lanes: Vec<Lane>) -> Self {
        Self { lanes: Some(lanes), ..self }
    }
}

/// All nodes.
#[derive(Serialize, JsonSchema)]
pub(crate) struct Nodes {
    pub(crate) nodes: Vec<Node>,
    /// Further nodes that this answer leaves out
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) left_out: Option<usize>,
}

/// A program that runs, pauses, and runs again.
#[derive(Serialize, JsonSchema)]
struct PeriodicProgram {
    name: String,
    #[schemars(with = "Foreign<PeriodicState>")]
    state: PeriodicState,
    /// How often it has run since the node started
    runs: u64,
    failures: u64,
    /// The last failure
    error: Option<String>,
}

impl From<PeriodicView> for PeriodicProgram {
    fn from(view: PeriodicView) -> Self {
        let PeriodicView { name, state, runs, failures, error, .. } = view;
        Self { name, state, runs, failures, error }
    }
}

/// A present problem of a node.
#[derive(Serialize, JsonSchema)]
pub(crate) struct Trouble {
    #[schemars(with = "Foreign<TroubleKind>")]
    kind: TroubleKind,
    queue: Option<String>,
    /// What has the problem: a worker, a queue, a table
    about: String,
    /// The problem, in one sentence
    text: String,
    /// How often it has happened
    times: u64,
    since: Time,
    last_at: Time,
    /// Absent in the answer for a node
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(with = "Option<Foreign<NodeId>>")]
    node: Option<NodeId>,
}

impl From<store::Trouble> for Trouble {
    fn from(trouble: store::Trouble) -> Self {
        Self {
            kind: trouble.kind,
            queue: trouble.queue,
            about: trouble.about,
            text: trouble.text,
            times: trouble.times,
            since: Time(trouble.since),
            last_at: Time(trouble.last_at),
            node: None,
        }
    }
}

impl Trouble {
    pub(crate) fn of_node(trouble: &store::Trouble, node: &NodeId) -> Self {
        Self { node: Some(node.clone()), ..trouble.clone().into() }
    }
}
