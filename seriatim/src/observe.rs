//! What somebody who watches an engine is told: enough to record a history and judge it.

use crate::clock::Timestamp;
use crate::id::Token;
use crate::settle::{Settlement, Verdict};
use crate::store::Settled;
use crate::turn::Turn;

/// Watches an engine. Called from its tasks, so it must be quick and must not block.
pub trait Observer: Send + Sync + 'static {
    /// A handler begins a turn.
    fn started(&self, turn: &Turn) {
        let _ = turn;
    }

    /// The handler of a turn has ended.
    fn ended(&self, turn: &Turn, verdict: &Verdict) {
        let _ = (turn, verdict);
    }

    /// A settlement is about to be sent. If no answer follows, nobody knows whether it was carried out.
    fn settling(&self, turn: &Turn, settlement: &Settlement) {
        let _ = (turn, settlement);
    }

    /// The store has answered the settlement of a turn, which was sent to it at `sent_at`.
    fn settled(&self, turn: &Turn, settlement: &Settlement, settled: &Settled, sent_at: Timestamp) {
        let _ = (turn, settlement, settled, sent_at);
    }

    /// An expired claim was taken over, under the turn's new token.
    fn rescued(&self, turn: &Turn) {
        let _ = turn;
    }

    /// This node was declared dead by others: what it holds is not its any more.
    fn lost(&self, tokens: &[Token]) {
        let _ = tokens;
    }
}
