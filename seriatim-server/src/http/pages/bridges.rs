//! The bridges, on the page of the nodes that move their jobs.

use seriatim::Timestamp;

use super::{Button, Moment, On, Visit, button, link};
use crate::app::bridges::state;
use crate::base::time::length;
use crate::protocol::document::{Bridge, BridgeSource};

/// Sources that the page shows, beside the nodes.
const ROWS_MAX: usize = 15;

/// A source for a template.
pub(super) struct SourceRow {
    /// Of its row in the page.
    pub(super) id: String,
    pub(super) bridge: String,
    pub(super) source: String,
    pub(super) state: &'static str,
    /// It neither moves jobs nor is paused by a person.
    pub(super) is_wrong: bool,
    pub(super) why: String,
    pub(super) left: u64,
    pub(super) lag: String,
    pub(super) taken: u64,
    pub(super) in_flight: u64,
    pub(super) rejected: u64,
    pub(super) at: Moment,
    pub(super) node: String,
    pub(super) buttons: Vec<Button>,
}

/// The first sources, and how many there are more: those that are wrong come first.
pub(super) fn rows(visit: &Visit, bridges: &[Bridge], now: Timestamp) -> (Vec<SourceRow>, usize) {
    let sources =
        bridges.iter().flat_map(|bridge| bridge.sources.iter().map(move |source| (bridge, source)));
    let mut sources: Vec<(&Bridge, &BridgeSource)> = sources.collect();
    let left_out = sources.len().saturating_sub(ROWS_MAX);
    if left_out > 0 {
        sources.sort_by_key(|(bridge, source)| !is_wrong(state(bridge, source, now).0));
    }
    let shown = sources.into_iter().take(ROWS_MAX);
    (shown.map(|(bridge, source)| row(visit, bridge, source, now)).collect(), left_out)
}

fn is_wrong(state: &str) -> bool {
    !["moving", "pausing", "paused"].contains(&state)
}

fn row(visit: &Visit, bridge: &Bridge, source: &BridgeSource, now: Timestamp) -> SourceRow {
    let status = &source.status;
    let (word, why) = state(bridge, source, now);
    // A pause of the whole ends as a whole.
    let deeds: &[&str] = match (&bridge.paused, &source.paused) {
        (None, None) => &["bridge.pause"],
        _ => &["bridge.resume"],
    };
    let one = bridge.paused.is_none().then(|| status.source.clone());
    let on = On::Bridge { name: bridge.name.clone(), source: one };
    SourceRow {
        id: format!("bridge-{}", link::encoded(&format!("{}-{}", bridge.name, status.source))),
        bridge: bridge.name.clone(),
        source: status.source.clone(),
        state: word,
        is_wrong: is_wrong(word),
        why: why.unwrap_or_default(),
        left: status.length,
        lag: length(std::time::Duration::try_from_secs_f64(status.lag).unwrap_or_default()),
        taken: status.taken,
        in_flight: status.in_flight,
        rejected: status.rejected,
        at: visit.clock.of(status.at.0),
        node: status.node.clone(),
        buttons: button::all(visit, deeds, &on),
    }
}
