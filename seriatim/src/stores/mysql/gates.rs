//! What an operation locks besides lanes.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use super::sql::list;
use crate::contract::{ClaimSelection, Release};
use crate::model::id::JobId;
use crate::model::job::Job;
use crate::stores::state::QueueRow;

/// How an operation locks the definitions.
#[derive(Clone, Debug)]
pub(super) enum Lock {
    /// Not: it only reads.
    Look,
    /// It writes lanes of these queues, whose modes do not change until it ends.
    Write(Gates),
    /// Exclusive: it may change definitions. Only other operations of this kind wait for it.
    Alone,
}

/// Queues whose rows in `seriatim_gate` are locked. A queue whose mode changes, or that is being deleted, is locked
/// exclusively.
#[derive(Clone, Debug)]
pub(super) enum Gates {
    /// The operation writes no lanes, or only claimed ones, which keep their queue's mode.
    None,
    Named(BTreeSet<Arc<str>>),
    Numbered(BTreeSet<u32>),
    All,
}

impl Lock {
    /// Writes nothing that depends on the mode of a queue.
    pub(super) const FREE: Self = Self::Write(Gates::None);

    pub(super) fn queue(name: &Arc<str>) -> Self {
        Self::Write(Gates::Named(BTreeSet::from([name.clone()])))
    }

    pub(super) fn queues_of(jobs: &[Job]) -> Self {
        let names: BTreeSet<&str> = jobs.iter().map(|job| &*job.queue).collect();
        Self::Write(Gates::Named(names.into_iter().map(Arc::from).collect()))
    }

    pub(super) fn queues_of_ids(jobs: &[JobId]) -> Self {
        Self::Write(Gates::Numbered(jobs.iter().map(|id| id.queue()).collect()))
    }

    pub(super) fn of_release(request: &Release) -> Self {
        match &request.claims {
            ClaimSelection::Key { queue, .. } | ClaimSelection::Queue(queue) => Self::queue(queue),
            ClaimSelection::Lane(lane) => {
                Self::Write(Gates::Numbered(BTreeSet::from([lane.queue])))
            }
            ClaimSelection::Node(_) => Self::Write(Gates::All),
        }
    }

    pub(super) fn is_alone(&self) -> bool {
        matches!(self, Self::Alone)
    }

    pub(super) fn is_look(&self) -> bool {
        matches!(self, Self::Look)
    }

    /// The queues to lock.
    pub(super) fn gates(&self, queues: &BTreeMap<u32, QueueRow>) -> BTreeSet<u32> {
        match self {
            Self::Look | Self::Alone | Self::Write(Gates::None) => BTreeSet::new(),
            Self::Write(Gates::All) => queues.keys().copied().collect(),
            Self::Write(Gates::Numbered(numbers)) => numbers.clone(),
            Self::Write(Gates::Named(names)) => {
                let named = queues.values().filter(|row| names.contains(&row.name));
                named.map(|row| row.number).collect()
            }
        }
    }
}

/// The statement that locks these queues. It must precede the one that reads their definitions.
pub(super) fn lock_gates(numbers: &BTreeSet<u32>) -> String {
    let numbers = list(numbers.iter().map(|number| u64::from(*number)));
    format!("SELECT q FROM seriatim_gate WHERE q IN ({numbers}) ORDER BY q LOCK IN SHARE MODE")
}
