//! Turns that cannot be settled because transactions of users have locked their keys.

use std::collections::HashMap;
use std::sync::Mutex;
use std::time::Duration;

use seriatim::engine::Handle;
use seriatim::store::{LaneId, TroubleKind, Turn};
use tokio::time::Instant;

use crate::base::lock::lock;
use crate::base::text::one_line;

/// Workers send such a result again within seconds. One that did not come for so long was given up.
const FORGOTTEN_AFTER: Duration = Duration::from_secs(60);

/// How often those are looked for at most: one request may have ten thousand results that wait.
const LOOK_EVERY: Duration = Duration::from_secs(1);

/// What is known of turns that wait so.
#[derive(Default)]
pub(crate) struct Locked {
    /// Tells people of them; none in a service that mounts the API.
    node: Option<Handle>,
    known: Mutex<Known>,
}

#[derive(Default)]
struct Known {
    /// The lanes, and when a result of each last waited.
    lanes: HashMap<LaneId, Instant>,
    looked_at: Option<Instant>,
}

impl Locked {
    pub(crate) fn told_by(node: Option<Handle>) -> Self {
        Self { node, known: Mutex::default() }
    }

    /// A result was not stored for this reason.
    pub(super) fn met(&self, turn: &Turn) {
        let looked_at = lock(&self.known).looked_at;
        if looked_at.is_none_or(|at| at.elapsed() >= LOOK_EVERY) {
            self.forget_old();
        }
        let is_first = {
            let mut known = lock(&self.known);
            let is_first = known.lanes.is_empty();
            known.lanes.insert(turn.lane, Instant::now());
            is_first
        };
        let key = turn.key.as_deref().map(one_line);
        if is_first {
            tracing::warn!(
                queue = &*turn.queue,
                key = key.as_deref(),
                "a worker's result waits: an open transaction in the database has locked the key; end that transaction, the \
                 worker sends the result again; `seriatim doctor` names a few such keys"
            );
        }
        if let Some(node) = &self.node {
            let what = key.map_or_else(|| "it".to_owned(), |key| format!("the key \"{key}\""));
            let text = format!("an open transaction has locked {what}");
            let (queue, about) = (Some(&*turn.queue), turn.lane.to_string());
            node.trouble(TroubleKind::SettlesLocked, queue, &about, &text);
        }
    }

    /// The lane was settled, or its claim was lost.
    pub(super) fn over(&self, lane: LaneId) {
        if lock(&self.known).lanes.remove(&lane).is_some() {
            self.told_over(lane);
        }
    }

    /// Forgets those whose results were given up.
    pub(in crate::http) fn forget_old(&self) {
        let old = |_: &LaneId, at: &mut Instant| at.elapsed() >= FORGOTTEN_AFTER;
        let gone: Vec<_> = {
            let mut known = lock(&self.known);
            known.looked_at = Some(Instant::now());
            known.lanes.extract_if(old).collect()
        };
        gone.into_iter().for_each(|(lane, _)| self.told_over(lane));
    }

    fn told_over(&self, lane: LaneId) {
        if let Some(node) = &self.node {
            node.trouble_over(TroubleKind::SettlesLocked, &lane.to_string());
        }
    }
}
