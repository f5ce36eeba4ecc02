//! Observes an engine in enough detail to record and check a history.

use std::sync::Arc;

use crate::contract::{Push, Pushed, Settled, Store};
use crate::model::{Error, Job, NodeId, Settlement, Timestamp, Token, Turn, Verdict};

/// Pushes, and tells the observer.
pub(crate) async fn push(
    store: &dyn Store,
    observer: Option<&Arc<dyn Observer>>,
    jobs: Vec<Job>,
) -> Result<Vec<Pushed>, Error> {
    let Some(observer) = observer else { return store.push(Push { now: None, jobs }).await };
    let sent_at = Timestamp::of_this_machine();
    let answer = store.push(Push { now: None, jobs: jobs.clone() }).await;
    observer.push_answered(sent_at, &jobs, answer.as_deref());
    answer
}

/// Observes one client or engine. Its methods run in their tasks: they must be quick and must not block.
///
/// For one turn the order is `started`, `ended`, `settling`, `settled`. For one that never started it is `settling`,
/// `settled` (a release); for a rescued one `rescued`, `settling`, `settled` (a crash). `settled` is left out if a
/// settlement was sent again and the repeat is stale: the first one may have taken effect.
pub trait Observer: Send + Sync + 'static {
    /// The store answered a push that was sent at `sent_at`. After a transient error it is unknown whether the jobs
    /// are stored.
    fn push_answered(&self, sent_at: Timestamp, jobs: &[Job], answer: Result<&[Pushed], &Error>) {
        let _ = (sent_at, jobs, answer);
    }

    /// A handler starts a turn.
    fn started(&self, turn: &Turn) {
        let _ = turn;
    }

    /// The handler of a turn ended.
    fn ended(&self, turn: &Turn, verdict: &Verdict) {
        let _ = (turn, verdict);
    }

    /// A settlement is about to be sent. If no answer follows, it is unknown whether it took effect.
    fn settling(&self, turn: &Turn, settlement: &Settlement) {
        let _ = (turn, settlement);
    }

    /// The store answered the settlement of a turn, which was sent at `sent_at`.
    fn settled(&self, turn: &Turn, settlement: &Settlement, settled: &Settled, sent_at: Timestamp) {
        let _ = (turn, settlement, settled, sent_at);
    }

    /// An expired claim was rescued, under the turn's new token.
    fn rescued(&self, turn: &Turn) {
        let _ = turn;
    }

    /// A person released a claim, under the turn's new token.
    fn released(&self, turn: &Turn) {
        let _ = turn;
    }

    /// The store confirmed a heartbeat: what `node` holds is its own until then at least, by this machine's clock. A
    /// node that others declared dead goes on under another name.
    fn renewed(&self, node: &NodeId, until: Timestamp) {
        let _ = (node, until);
    }

    /// Other nodes declared this node dead: it has lost these claims.
    fn lost(&self, tokens: &[Token]) {
        let _ = tokens;
    }
}
