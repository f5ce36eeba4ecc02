//! Watching an engine: enough to record a history and judge it.

use crate::contract::{Pushed, Settled};
use crate::model::clock::Timestamp;
use crate::model::error::Error;
use crate::model::id::Token;
use crate::model::job::Job;
use crate::model::settle::{Settlement, Verdict};
use crate::model::turn::Turn;

/// Watches one client or engine. Called from their tasks, so it must be quick and must not block.
///
/// For one turn the calls come in the order `started`, `ended`, `settling`, `settled`; a turn that
/// never started is only settled (as a release), and so is one that was taken over (as a crash).
pub trait Observer: Send + Sync + 'static {
    /// The store has answered a push that was sent at `sent_at`; after an error that is transient
    /// nobody knows whether the jobs are stored.
    fn push_answered(&self, sent_at: Timestamp, jobs: &[Job], answer: Result<&[Pushed], &Error>) {
        let _ = (sent_at, jobs, answer);
    }

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
