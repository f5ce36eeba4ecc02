//! Queues: one in full, or all with their figures.

use std::sync::Arc;

use schemars::JsonSchema;
use serde::Serialize;
use seriatim::store::{NodeView, QueueStats, QueueView, Throttled};
use seriatim::{Backoff, DueRule, Exhaustion, Groups, Limit, Merge, Mode, Window, store::NodeId};

use super::node::Trouble;
use super::times::Times;
use crate::protocol::figures::Numbers;
use crate::protocol::schema::Foreign;

/// A queue with its figures.
#[derive(Serialize, JsonSchema)]
pub(crate) struct Queue {
    pub(crate) queue: String,
    #[schemars(with = "Foreign<Mode>")]
    mode: Mode,
    /// Whether a configuration or a request defined it; otherwise a push did
    declared: bool,
    paused: bool,
    #[serde(flatten)]
    figures: Numbers,
    /// The definition; absent in listings
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(with = "Option<Definition>")]
    settings: Option<seriatim::Queue>,
    /// The nodes that work on it; absent in listings
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(with = "Option<Vec<Foreign<NodeId>>>")]
    nodes: Option<Vec<NodeId>>,
    troubles: Vec<Trouble>,
    /// How long the turns of the last hour took; absent if none ended, and in listings
    #[serde(skip_serializing_if = "Option::is_none")]
    turns: Option<Times>,
}

impl Queue {
    pub(crate) fn new(view: &QueueView, figures: Numbers, troubles: Vec<Trouble>) -> Self {
        Self {
            queue: view.queue.name.clone(),
            mode: view.queue.mode,
            declared: view.declared,
            paused: view.paused,
            figures,
            settings: None,
            nodes: None,
            troubles,
            turns: None,
        }
    }

    pub(crate) fn in_full(
        self,
        settings: seriatim::Queue,
        nodes: &[NodeView],
        turns: Option<Times>,
    ) -> Self {
        let nodes = nodes.iter().map(|node| node.info.id.clone()).collect();
        Self { settings: Some(settings), nodes: Some(nodes), turns, ..self }
    }
}

/// All queues.
#[derive(Serialize, JsonSchema)]
pub(crate) struct Queues {
    pub(crate) queues: Vec<Queue>,
}

/// How the library writes the definition of a queue.
#[derive(JsonSchema)]
#[expect(dead_code, reason = "only its schema is used")]
struct Definition {
    name: String,
    mode: Foreign<Mode>,
    merge: Foreign<Merge>,
    due: Foreign<DueRule>,
    window: Option<Foreign<Window>>,
    take: u32,
    batch_size: u32,
    max_retries: u32,
    backoff: Foreign<Backoff>,
    exhausted: Foreign<Exhaustion>,
    max_crashes: u32,
    timeout: Option<String>,
    lease: Option<String>,
    lease_max: String,
    retain_completed: Option<String>,
    retain_dead: String,
    retain_dead_max: u64,
    idempotency_ttl: String,
    throttle: Option<String>,
    throttled: Foreign<Throttled>,
    limit: Foreign<Limit>,
    groups: Option<Foreign<Groups>>,
    weight: u32,
    shards: u16,
}

/// The figures of a queue, as `top` shows them.
#[derive(Serialize)]
pub(crate) struct QueueFigures {
    queue: Arc<str>,
    mode: Option<Mode>,
    paused: bool,
    #[serde(flatten)]
    figures: Numbers,
}

impl QueueFigures {
    pub(crate) fn new(stats: &QueueStats, figures: Numbers) -> Self {
        Self { queue: stats.queue.clone(), mode: stats.mode, paused: stats.paused, figures }
    }
}
