//! When turns were tried first.

use futures_util::future::join_all;
use seriatim::Timestamp;
use seriatim::store::{Store, Turn};

/// Turns that are looked up side by side.
const AT_ONCE: usize = 16;

/// When the first attempt of each turn's first job began. Only what was tried before is looked up; none if the store does not
/// know it any more, or does not answer.
pub(crate) async fn attempts(store: &dyn Store, turns: &[Turn]) -> Vec<Option<Timestamp>> {
    let mut first = Vec::with_capacity(turns.len());
    for turns in turns.chunks(AT_ONCE) {
        first.extend(join_all(turns.iter().map(|turn| of(store, turn))).await);
    }
    first
}

async fn of(store: &dyn Store, turn: &Turn) -> Option<Timestamp> {
    match turn.head() {
        Some(head) if head.attempt > 1 => store.job(head.id).await.ok()??.started_at,
        _ => Some(turn.claimed_at),
    }
}
