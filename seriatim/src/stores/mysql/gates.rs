//! What an operation locks besides lanes.

use std::collections::BTreeSet;
use std::sync::Arc;

use super::pool::LOCK_WAIT_SECONDS;
use super::sql::list;
use crate::contract::{ClaimSelection, Release, Settle};
use crate::model::{Job, JobId};
use crate::stores::state::queues::Queues;

/// How many seconds a settle waits for lanes that it may leave out, and a change of a queue before it gives way: the shortest
/// wait that the server knows.
const BRIEF_WAIT_SECONDS: u32 = 1;

/// How an operation locks the definitions.
#[derive(Clone, Debug)]
pub(super) enum Lock {
    /// Not: it only reads.
    Look,
    /// It writes lanes of these queues, whose modes do not change until it ends.
    Write(Gates),
    /// It claims lanes of this queue, whose mode does not change until it ends. A pause waits for it.
    Claim(Arc<str>),
    /// It settles claimed lanes, which keep their queue's mode.
    Settle(Patience),
    /// It removes what is old in lanes of all queues, whose modes do not change until it ends. It waits for no lane.
    Sweep,
    /// Exclusive: it may change definitions. It first waits for everything that writes lanes of these queues, and keeps
    /// new writers out. If that takes too long (a user's transaction may be open for hours), it gives way and tries
    /// again.
    Alone(BTreeSet<u32>),
}

/// How long a settle waits for lanes that other transactions have locked.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Patience {
    /// As long as any operation.
    Full,
    /// [`BRIEF_WAIT_SECONDS`], in the line of those who want the lane: otherwise, pushes to a busy key could pass by for
    /// ever. Longer locks are those of users.
    Brief,
    /// Not at all: it leaves them out. The second attempt after a brief wait.
    Skip,
}

/// Queues whose gates are locked: see the table `seriatim_gate`.
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
    pub(super) const ALONE: Self = Self::Alone(BTreeSet::new());

    pub(super) fn of_settle(request: &Settle) -> Self {
        Self::Settle(if request.skip_locked { Patience::Brief } else { Patience::Full })
    }

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
        matches!(self, Self::Alone(_))
    }

    pub(super) fn waits_briefly(&self) -> bool {
        match self {
            Self::Settle(patience) => *patience == Patience::Brief,
            Self::Alone(closed) => !closed.is_empty(),
            _ => false,
        }
    }

    pub(super) fn skips_locked(&self) -> bool {
        matches!(self, Self::Sweep | Self::Settle(Patience::Skip))
    }

    pub(super) fn is_look(&self) -> bool {
        matches!(self, Self::Look)
    }

    /// The queues to lock.
    pub(super) fn gates(&self, queues: &Queues) -> BTreeSet<u32> {
        match self {
            Self::Look | Self::Settle(_) | Self::Write(Gates::None) => BTreeSet::new(),
            Self::Alone(closed) => closed.clone(),
            Self::Sweep | Self::Write(Gates::All) => queues.keys().copied().collect(),
            Self::Write(Gates::Numbered(numbers)) => numbers.clone(),
            Self::Write(Gates::Named(names)) => {
                names.iter().filter_map(|name| queues.number(name)).collect()
            }
            Self::Claim(name) => queues.number(name).into_iter().collect(),
        }
    }

    /// The queues to lock that exist and are not among these.
    pub(super) fn unlocked(&self, queues: &Queues, locked: &BTreeSet<u32>) -> BTreeSet<u32> {
        let mut wanted = self.gates(queues);
        wanted.retain(|number| queues.contains_key(number) && !locked.contains(number));
        wanted
    }

    /// The statements that a transaction with this lock begins with. They answer the gates that are there.
    pub(super) fn first_statements(&self, gates: &BTreeSet<u32>) -> Vec<String> {
        let wait = self.waits_briefly().then(|| lock_wait(BRIEF_WAIT_SECONDS));
        let gates = (!gates.is_empty()).then(|| self.lock_gates(gates));
        wait.into_iter().chain(gates).collect()
    }

    /// What follows the end of its transaction.
    pub(super) fn last_statement(&self) -> String {
        match self.waits_briefly() {
            true => format!(";{}", lock_wait(LOCK_WAIT_SECONDS)),
            false => String::new(),
        }
    }

    /// The statements that roll its transaction back.
    pub(super) fn undo(&self) -> String {
        format!("ROLLBACK{}", self.last_statement())
    }

    /// The statement that locks the gates of these queues. It must precede the one that reads their definitions.
    pub(super) fn lock_gates(&self, numbers: &BTreeSet<u32>) -> String {
        match self {
            Self::Claim(_) => lock_gates(numbers, "", SHARED),
            Self::Alone(_) => lock_gates(numbers, WRITING, "FOR UPDATE"),
            _ => lock_gates(numbers, WRITING, SHARED),
        }
    }
}

fn lock_wait(seconds: u32) -> String {
    format!("SET SESSION innodb_lock_wait_timeout = {seconds}")
}

const SHARED: &str = "LOCK IN SHARE MODE";
const WRITING: &str = "AND claims = 0";
const CLAIMING: &str = "AND claims = 1";

fn lock_gates(numbers: &BTreeSet<u32>, which: &str, how: &str) -> String {
    let numbers = list(numbers.iter().map(|number| u64::from(*number)));
    format!("SELECT q FROM seriatim_gate WHERE q IN ({numbers}) {which} ORDER BY q, claims {how}")
}

/// Waits for the claims of these queues.
pub(super) fn wait_for_claims(numbers: &BTreeSet<u32>) -> String {
    lock_gates(numbers, CLAIMING, "FOR UPDATE")
}

/// Makes a pause or new limit of these queues wait until the operation ends. What it reads of them afterwards is not older
/// than one that has returned before.
pub(super) fn begin_claim(numbers: &BTreeSet<u32>) -> String {
    lock_gates(numbers, CLAIMING, SHARED)
}
