//! Folding the figures of queues in the background.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use super::Inner;
use super::gates::Lock;
use crate::model::Result;

/// After this number of calls, a process folds.
const FOLD_CALLS: u64 = 1_000;

/// Counts a call, and folds after many.
pub(super) fn count_call(store: &Arc<Inner>) {
    let calls = &store.pool.calls;
    if calls.fetch_add(1, Ordering::Relaxed) + 1 < FOLD_CALLS {
        return;
    }
    // One that counts meanwhile finds few.
    if calls.swap(0, Ordering::Relaxed) >= FOLD_CALLS {
        let store = store.clone();
        tokio::spawn(async move {
            if let Err(error) = fold_all(&store).await {
                tracing::debug!(%error, "the figures of queues are left to the next fold");
            }
        });
    }
}

async fn fold_all(store: &Inner) -> Result<()> {
    while transact!(store, Lock::FREE, None, work => work.fold_figures())? {}
    Ok(())
}
