//! What somebody who watches an engine or a client is told: enough to record a history and judge it.

use crate::error::Error;
use crate::id::NodeId;
use crate::job::Job;
use crate::settle::{Settlement, Verdict};
use crate::store::{Pushed, Settled};
use crate::turn::Turn;

/// Watches clients and engines. It is called from their tasks, so it must be quick and must not
/// block. Every method does nothing unless it is overridden.
///
/// For one turn the calls come in the order `started`, `ended`, `settled`; a turn that never
/// started is only settled (as a release).
pub trait Observer: Send + Sync + 'static {
    /// Jobs are about to be pushed.
    fn pushing(&self, jobs: &[Job]) {
        let _ = jobs;
    }

    /// The store has answered a push; after an error that is transient nobody knows whether the
    /// jobs were stored.
    fn pushed(&self, jobs: &[Job], answer: Result<&[Pushed], &Error>) {
        let _ = (jobs, answer);
    }

    /// A handler begins with a turn.
    fn started(&self, node: &NodeId, turn: &Turn) {
        let _ = (node, turn);
    }

    /// The handler has ended with a turn.
    fn ended(&self, node: &NodeId, turn: &Turn, verdict: &Verdict) {
        let _ = (node, turn, verdict);
    }

    /// A settlement of a turn is about to be sent; it may be sent several times.
    fn settling(&self, node: &NodeId, turn: &Turn, settlement: &Settlement) {
        let _ = (node, turn, settlement);
    }

    /// The store has answered a settlement. `Stale` after a lost answer may mean that the first
    /// sending was carried out: then `repeated` is true.
    fn settled(
        &self,
        node: &NodeId,
        turn: &Turn,
        settlement: &Settlement,
        settled: &Settled,
        repeated: bool,
    ) {
        let _ = (node, turn, settlement, settled, repeated);
    }

    /// An expired claim was taken over, under the turn's new token; it is settled as a crash next.
    fn rescued(&self, node: &NodeId, turn: &Turn) {
        let _ = (node, turn);
    }

    /// The others have declared this node dead; it goes on as `now`.
    fn renamed(&self, before: &NodeId, now: &NodeId) {
        let _ = (before, now);
    }
}
