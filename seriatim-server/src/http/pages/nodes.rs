//! Nodes: all of them, and one with its lanes.

use askama::Template;
use axum::extract::State;
use axum::response::Response;
use seriatim::store::Command;

use super::super::input::Part;
use super::super::limits::NODES_MAX;
use super::super::problem::Problem;
use super::super::state::Shared;
use super::bridges::{SourceRow, rows};
use super::button::{self, Button};
use super::deed::On;
use super::frame::Frame;
use super::link;
use super::row::{LaneRow, NodeRow};
use super::visit::{Visit, page};
use crate::app::bridges;
use crate::app::limits;
use crate::app::running;
use crate::app::why::Around;
use crate::app::{nodes, troubles};

/// Lanes shown of a node, of each queue.
const LANES_SHOWN: usize = 100;

#[derive(Template)]
#[template(path = "nodes.html", blocks = ["live"])]
struct Nodes<'a> {
    frame: &'a Frame,
    rows: Vec<NodeRow>,
    left_out: usize,
    versions: Vec<String>,
    bridges: Vec<SourceRow>,
}

page!(Nodes);

pub(super) async fn show_all(State(app): State<Shared>, visit: Visit) -> Result<Response, Problem> {
    whole(&visit)?;
    let store = &*app.store;
    let (all, now) = (nodes::sorted(store).await?, store.now().await?);
    let mut versions: Vec<String> =
        all.iter().filter(|node| !node.dead).map(|node| node.info.version.clone()).collect();
    versions.sort_unstable();
    versions.dedup();
    visit.show(&Nodes {
        frame: &visit.frame,
        rows: all.iter().take(NODES_MAX).map(|node| NodeRow::new(&visit, node, now)).collect(),
        left_out: all.len().saturating_sub(NODES_MAX),
        versions,
        bridges: rows(&visit, &bridges::all(store).await?, now),
    })
}

/// Nodes work on all queues.
fn whole(visit: &Visit) -> Result<(), Problem> {
    match visit.scope.is_limited() {
        true => Err(visit.scope.refuse("may not see nodes, which work on all queues")),
        false => Ok(()),
    }
}

#[derive(Template)]
#[template(path = "node.html", blocks = ["live"])]
struct Node<'a> {
    frame: &'a Frame,
    row: NodeRow,
    started: super::moment::Moment,
    lease: String,
    queues: Vec<(String, String)>,
    periodic: Vec<String>,
    troubles: Vec<String>,
    lanes: Vec<LaneRow>,
    buttons: Vec<Button>,
}

page!(Node);

pub(super) async fn show_one(
    State(app): State<Shared>,
    visit: Visit,
    Part(wanted): Part<String>,
) -> Result<Response, Problem> {
    whole(&visit)?;
    let store = &*app.store;
    let (node, now) = (nodes::find(store, &wanted).await?, store.now().await?);
    let (stats, queues) = (store.stats(None).await?, store.queues().await?);
    let held = running::held_by(store, &stats, &node.info.id, LANES_SHOWN).await?;
    let all = std::slice::from_ref(&node);
    let row = |one: &running::Running| {
        let queue = queues.iter().find(|view| *view.queue.name == *one.queue)?;
        Some(LaneRow::new(
            &visit,
            &one.lane,
            Around { queue, usage: &limits::UNKNOWN, nodes: all, now },
        ))
    };
    let deeds: &[&str] = match node.command {
        _ if node.dead => &[],
        Some(Command::Quiet | Command::Stop) => &["node.resume", "node.stop"],
        Some(Command::Resume) | None => &["node.quiet", "node.stop"],
    };
    let base = &visit.frame.base;
    let link_to = |queue: &String| (queue.clone(), link::queue(base, queue));
    visit.show(&Node {
        frame: &visit.frame,
        row: NodeRow::new(&visit, &node, now),
        started: visit.clock.of(node.info.started_at),
        lease: seriatim::duration::format(node.info.lease),
        queues: node.info.queues.iter().map(link_to).collect(),
        periodic: node.info.periodic.iter().map(nodes::periodic).collect(),
        troubles: node.info.troubles.iter().map(|trouble| troubles::line(trouble, now)).collect(),
        lanes: held.iter().filter_map(row).collect(),
        buttons: button::all(&visit, deeds, &On::Node(node.info.id.to_string())),
    })
}
