//! States in words, each with its tone.

use seriatim::Timestamp;
use seriatim::store::{JobState, LaneState, LaneView, NodeState, NodeView};

use super::output::{Cell, Tone};
use crate::app::bridges;
use crate::app::nodes::{is_gone, state_name};
use crate::base::time::{length, relative};
use crate::protocol::document::{Bridge, BridgeSource, CronEntry};

pub(super) fn of_job(state: JobState) -> Tone {
    match state {
        JobState::Dead => Tone::Bad,
        JobState::Canceled => Tone::Warn,
        JobState::Succeeded => Tone::Faint,
        JobState::Queued | JobState::Running => Tone::Plain,
    }
}

/// What a lane does.
pub(super) fn lane_state(lane: &LaneView, now: Timestamp) -> Cell {
    let due = || lane.due.map(|due| relative(now, due)).unwrap_or_default();
    match lane.state {
        LaneState::Claimed => {
            let since = lane.claimed_at.map(|at| length(now.since(at))).unwrap_or_default();
            format!("running {since}").into()
        }
        LaneState::Held => Cell::toned("held", Tone::Bad),
        LaneState::Paused => Cell::toned("paused", Tone::Warn),
        LaneState::Waiting => format!("due {}", due()).into(),
    }
}

/// What a node does.
pub(super) fn node_state(node: &NodeView, now: Timestamp) -> Cell {
    let tone = match node.state(now) {
        _ if is_gone(node) => Tone::Bad,
        NodeState::Dead | NodeState::Late => Tone::Bad,
        NodeState::Stopping | NodeState::Quiet => Tone::Warn,
        NodeState::Alive | NodeState::Stopped => Tone::Plain,
    };
    Cell::toned(state_name(node, now), tone)
}

/// Whether a cron entry works.
pub(super) fn cron_state(entry: &CronEntry) -> Cell {
    let no_node = entry.definitions.iter().all(|one| one.nodes.is_empty());
    match &entry.paused {
        Some(pause) => {
            let reason = pause.reason.as_ref().map(|reason| format!(" ({reason})"));
            let told = format!("paused by {}{}", pause.by, reason.unwrap_or_default());
            Cell::toned(told, Tone::Warn)
        }
        None if no_node => Cell::toned("no node has it", Tone::Bad),
        None if entry.definitions.len() > 1 => Cell::toned("differs between nodes", Tone::Bad),
        None => "active".into(),
    }
}

/// What a bridge does with a source.
pub(super) fn source_state(bridge: &Bridge, source: &BridgeSource, now: Timestamp) -> Cell {
    let (state, why) = bridges::state(bridge, source, now);
    let told = why.map_or_else(|| state.to_owned(), |why| format!("{state}: {why}"));
    let tone = match state {
        "moving" => Tone::Plain,
        "paused" | bridges::PAUSING => Tone::Warn,
        _ => Tone::Bad,
    };
    Cell::toned(told, tone)
}
