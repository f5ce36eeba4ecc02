//! Actions that need several calls of the store.

use seriatim::limits::PAGE_ROWS_MAX;
use seriatim::store::Store;
use seriatim::store::{Act, Acted, LaneAction, LaneId, LaneQuery, LaneSelection, Selected};

/// An action, repeated while the store has more to do.
#[derive(Clone)]
pub(crate) enum Bulk {
    /// To lanes; the action must take away what selects them.
    Act(Act),
    Requeue(Selected),
    DeleteDead(Selected),
}

/// Does it until nothing is left that can be done. To how many.
pub(crate) async fn repeat(store: &dyn Store, bulk: Bulk) -> seriatim::Result<u64> {
    let mut count = 0;
    loop {
        let acted: Acted = match bulk.clone() {
            Bulk::Act(act) => store.act(act).await?,
            Bulk::Requeue(selected) => store.requeue(selected).await?,
            Bulk::DeleteDead(selected) => store.delete_dead(selected).await?,
        };
        count += acted.count;
        // Nothing done: what is left cannot be done now, because it runs.
        if !acted.more || acted.count == 0 {
            return Ok(count);
        }
    }
}

/// Acts on the lanes that have failed and wait for a retry; the action must take them away.
pub(crate) async fn on_failed(
    store: &dyn Store,
    queue: &str,
    action: LaneAction,
) -> seriatim::Result<u64> {
    let lanes = LaneSelection::Failed;
    repeat(store, Bulk::Act(Act { now: None, queue: queue.into(), lanes, action })).await
}

/// Deletes what waits in a queue. Of how many lanes.
pub(crate) async fn drain(store: &dyn Store, queue: &str) -> seriatim::Result<u64> {
    let (queue_name, lanes) = (queue.into(), LaneSelection::All);
    let act = Act { now: None, queue: queue_name, lanes, action: LaneAction::Delete };
    let count = repeat(store, Bulk::Act(act)).await?;
    // Behind many lanes that run the calls above reach no others.
    Ok(count + on_all(store, queue, LaneAction::Delete).await?)
}

/// Acts on every lane of a queue.
///
/// One call reaches the oldest lanes only, and those stay: the next would reach the same ones. So
/// a larger queue is walked through page by page.
pub(crate) async fn on_all(
    store: &dyn Store,
    queue: &str,
    action: LaneAction,
) -> seriatim::Result<u64> {
    let lanes = LaneSelection::All;
    let acted = store.act(Act { now: None, queue: queue.into(), lanes, action }).await?;
    if !acted.more {
        return Ok(acted.count);
    }
    let (mut count, mut after, rows_max) = (0, None, PAGE_ROWS_MAX);
    loop {
        let page = store.lanes(LaneQuery { after, rows_max, ..LaneQuery::new(queue) }).await?;
        let lanes: Vec<LaneId> = page.rows.iter().map(|lane| lane.lane).collect();
        count += on_lanes(store, queue, lanes, action).await?;
        after = page.next;
        if after.is_none() {
            return Ok(count);
        }
    }
}

/// Acts on these lanes, at most as many as one call may.
pub(crate) async fn on_lanes(
    store: &dyn Store,
    queue: &str,
    lanes: Vec<LaneId>,
    action: LaneAction,
) -> seriatim::Result<u64> {
    if lanes.is_empty() {
        return Ok(0);
    }
    let lanes = LaneSelection::Lanes(lanes);
    Ok(store.act(Act { now: None, queue: queue.into(), lanes, action }).await?.count)
}
