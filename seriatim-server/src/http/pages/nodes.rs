//! Nodes: all of them, and one with its lanes.

use askama::Template;
use axum::response::Response;
use serde::Deserialize;
use seriatim::store::{Command, QueueStats};

use super::super::input::given;
use super::super::{Part, Query, Result, Shared};
use super::bridges::{SourceRow, rows};
use super::row::NodeRow;
use super::{Button, Frame, LaneRow, On, ROWS_SHOWN, Visit, button, link, page};
use crate::app::bridges;
use crate::app::limits;
use crate::app::running::{Running, running};
use crate::app::why::Around;
use crate::app::{nodes, troubles};

const LANES_SHOWN: usize = 50;
/// Queues that the page of a node names, and busy ones of which it looks for lanes.
const QUEUES_NAMED: usize = 50;
const QUEUES_LOOKED: usize = 8;

#[derive(Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub(super) struct Wish {
    /// The last node of the page before
    after: String,
}

#[derive(Template)]
#[template(path = "nodes.html", blocks = ["live"])]
struct Nodes<'a> {
    frame: &'a Frame,
    rows: Vec<NodeRow>,
    is_first: bool,
    export: String,
    next: Option<String>,
    versions: Vec<String>,
    bridges: Vec<SourceRow>,
    sources_left_out: usize,
    export_bridges: String,
}

page!(Nodes);

pub(super) async fn show_all(
    app: Shared,
    visit: Visit,
    Query(Wish { after }): Query<Wish>,
) -> Result<Response> {
    whole(&visit)?;
    let store = &*app.store;
    let (all, now) = (nodes::sorted(store).await?, store.now().await?);
    let mut versions: Vec<String> =
        all.iter().filter(|node| !node.dead).map(|node| node.info.version.clone()).collect();
    versions.sort_unstable();
    versions.dedup();
    let is_first = after.is_empty();
    let behind = nodes::behind(&all, given(&after))?;
    let (bridges, sources_left_out) = match is_first {
        true => rows(&visit, &bridges::all(store).await?, now),
        false => (Vec::new(), 0),
    };
    let (base, shown) = (&visit.frame.base, &behind[..behind.len().min(ROWS_SHOWN)]);
    let last = shown.last().filter(|_| shown.len() < behind.len());
    let next = last.map(|last| {
        link::with(&format!("{base}/nodes"), &[("after", &nodes::Place::of(last).text())])
    });
    visit.show(&Nodes {
        frame: &visit.frame,
        rows: shown.iter().map(|node| NodeRow::new(&visit, node, now)).collect(),
        is_first,
        export: format!("{base}/export/nodes"),
        next,
        versions,
        bridges,
        sources_left_out,
        export_bridges: format!("{base}/export/bridges"),
    })
}

/// Nodes work on all queues.
pub(super) fn whole(visit: &Visit) -> Result<()> {
    visit.scope.check_all("may not see nodes, which work on all queues")
}

#[derive(Template)]
#[template(path = "node.html", blocks = ["live"])]
struct Node<'a> {
    frame: &'a Frame,
    row: NodeRow,
    started: super::moment::Moment,
    lease: String,
    queues: Vec<(String, String)>,
    queues_more: usize,
    periodic: Vec<String>,
    troubles: Vec<String>,
    lanes: Vec<LaneRow>,
    /// Lanes, or busy queues that may have some, are left out.
    is_cut: bool,
    buttons: Vec<Button>,
}

page!(Node);

pub(super) async fn show_one(
    app: Shared,
    visit: Visit,
    Part(wanted): Part<String>,
) -> Result<Response> {
    whole(&visit)?;
    let store = &*app.store;
    let (node, now) = (nodes::find(store, &wanted).await?, store.now().await?);
    let (stats, queues) = (store.stats(None).await?, store.queues().await?);
    let mut busy = stats;
    busy.retain(|of| of.claimed > 0);
    // It may still hold claims of queues that it has left, but those that it works on come first.
    let is_left = |of: &QueueStats| !node.info.queues.iter().any(|queue| *queue == *of.queue);
    busy.sort_by_cached_key(|of| (is_left(of), std::cmp::Reverse(of.claimed)));
    let looked = &busy[..busy.len().min(QUEUES_LOOKED)];
    let held = running(store, looked, Some(&node.info.id), LANES_SHOWN + 1).await?;
    let is_cut = held.len() > LANES_SHOWN || busy.len() > QUEUES_LOOKED;
    let all = std::slice::from_ref(&node);
    let row = |one: &Running| {
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
    let on = On::Node(node.info.id.to_string());
    let mut buttons = button::all(&visit, deeds, &on);
    if !held.is_empty() || is_cut {
        buttons.extend(button::all(&visit, &["node.release"], &on));
    }
    let base = &visit.frame.base;
    let link_to = |queue: &String| (queue.clone(), link::queue(base, queue));
    visit.show(&Node {
        frame: &visit.frame,
        row: NodeRow::new(&visit, &node, now),
        started: visit.clock.of(node.info.started_at),
        lease: seriatim::duration::format(node.info.lease),
        queues: node.info.queues.iter().take(QUEUES_NAMED).map(link_to).collect(),
        queues_more: node.info.queues.len().saturating_sub(QUEUES_NAMED),
        periodic: node.info.periodic.iter().map(nodes::periodic).collect(),
        troubles: node.info.troubles.iter().map(|trouble| troubles::line(trouble, now)).collect(),
        lanes: held.iter().filter_map(row).take(LANES_SHOWN).collect(),
        is_cut,
        buttons,
    })
}
