//! Pages of the lanes of a queue, in an order and a range.

use seriatim::limits::PAGE_BYTES_MAX;
use seriatim::store::Store;
use seriatim::store::{LaneQuery, LaneState, LaneView, Page};

use super::error::Error;
use super::range::By;

/// Lanes read together: each may have a progress of 64 KiB.
const STEP_LANES_MAX: usize = 250;

/// Which lanes.
pub(crate) struct Wanted<'a> {
    pub(crate) queue: &'a str,
    pub(crate) by: By,
    pub(crate) claimed: bool,
    pub(crate) from: Option<&'a str>,
    pub(crate) to: Option<&'a str>,
    pub(crate) after: Option<&'a str>,
    pub(crate) rows_max: usize,
}

/// A page, which ends early when the progress of its lanes fills it.
pub(crate) async fn page(store: &dyn Store, wanted: Wanted<'_>) -> Result<Page<LaneView>, Error> {
    let mut query = LaneQuery {
        state: wanted.claimed.then_some(LaneState::Claimed),
        order: wanted.by.order(),
        from: wanted.by.place("from", wanted.from)?,
        to: wanted.by.place("to", wanted.to)?,
        after: wanted.after.map(str::to_owned),
        ..LaneQuery::new(wanted.queue)
    };
    let mut rows = Vec::new();
    loop {
        query.rows_max = STEP_LANES_MAX.min(wanted.rows_max - rows.len());
        let page = store.lanes(query.clone()).await?;
        rows.extend(page.rows);
        query.after = page.next;
        let told = |lane: &LaneView| lane.progress.as_ref().map_or(0, |text| text.len());
        let is_full =
            rows.len() >= wanted.rows_max || rows.iter().map(told).sum::<usize>() >= PAGE_BYTES_MAX;
        if query.after.is_none() || is_full {
            return Ok(Page { rows, next: query.after });
        }
    }
}
