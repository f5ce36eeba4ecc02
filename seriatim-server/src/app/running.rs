//! The lanes that are claimed right now.

use std::sync::Arc;

use seriatim::Store;
use seriatim::store::{LaneOrder, LaneQuery, LaneView, QueueStats};

use crate::cli::output::Failure;

/// A claimed lane and its queue.
pub(crate) struct Running {
    pub(crate) queue: Arc<str>,
    pub(crate) lane: LaneView,
}

/// At most `lanes_max` claimed lanes of each queue that has any.
pub(crate) async fn running(
    store: &dyn Store,
    stats: &[QueueStats],
    lanes_max: usize,
) -> Result<Vec<Running>, Failure> {
    let mut all = Vec::new();
    for queue in stats.iter().filter(|queue| queue.claimed > 0) {
        let query = LaneQuery {
            queue: queue.queue.clone(),
            key: None,
            claimed: true,
            order: LaneOrder::Age,
            after: None,
            rows_max: lanes_max,
        };
        let rows = store.lanes(query).await?.rows;
        all.extend(rows.into_iter().map(|lane| Running { queue: queue.queue.clone(), lane }));
    }
    Ok(all)
}
