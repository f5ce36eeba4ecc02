//! Pages of the lanes of a queue: an order, filters, a range.

use seriatim::Timestamp;
use std::time::Duration;

use seriatim::limits::PAGE_BYTES_MAX;
use seriatim::store::{LaneOrder, LanePlace, LaneQuery, LaneStage, LaneView, Page, Store};

use super::error::Result;
use super::lane_filters::Filters;
use super::nodes;
use super::range::By;
use super::running::STEP_LANES_MAX;

/// Default of `scan_max`: the lanes that a page reads to find matches.
pub(crate) const SCAN_DEFAULT: usize = 10_000;
/// Maximum of `scan_max`.
pub(crate) const SCAN_MAX: usize = 100_000;

/// Which lanes.
pub(crate) struct Wanted<'a> {
    pub(crate) queue: &'a str,
    pub(crate) by: By,
    pub(crate) filters: Filters<'a>,
    pub(crate) from: Option<&'a str>,
    pub(crate) to: Option<&'a str>,
    pub(crate) after: Option<&'a str>,
    pub(crate) rows_max: usize,
    pub(crate) scan_max: usize,
    /// The store's clock, if it was read already.
    pub(crate) now: Option<Timestamp>,
}

/// A page, which ends early when the progress of its lanes fills it, or when it has looked at enough.
pub(crate) async fn page(store: &dyn Store, wanted: Wanted<'_>) -> Result<Page<LaneView>> {
    let query = LaneQuery {
        order: wanted.by.order(),
        from: wanted.by.place("from", wanted.from)?,
        to: wanted.by.place("to", wanted.to)?,
        after: wanted.after.map(str::to_owned),
        scan_max: Some(wanted.scan_max),
        ..LaneQuery::new(wanted.queue)
    };
    let (mut query, lag_min) = wanted.filters.of(query)?;
    if !wanted.filters.node.is_empty() {
        query.node = Some(nodes::find(store, wanted.filters.node).await?.info.id);
    }
    let is_of_later = query.order == LaneOrder::Due && query.stages == [LaneStage::Scheduled];
    if is_of_later || lag_min.is_some() {
        let now = match wanted.now {
            Some(now) => now,
            None => store.now().await?,
        };
        query.now = Some(now);
        if is_of_later {
            begin_with_later(&mut query, now);
        }
        if let Some(least) = lag_min {
            query = query.lagging(least, now);
        }
    }
    let mut rows = Vec::new();
    loop {
        query.rows_max = STEP_LANES_MAX.min(wanted.rows_max - rows.len());
        let page = store.lanes(query.clone()).await?;
        rows.extend(page.rows);
        query.after = page.next;
        let told = |lane: &LaneView| lane.progress.as_ref().map_or(0, |text| text.len());
        let is_full =
            rows.len() >= wanted.rows_max || rows.iter().map(told).sum::<usize>() >= PAGE_BYTES_MAX;
        if query.after.is_none() || is_full || page.cut {
            return Ok(Page { rows, next: query.after, cut: page.cut });
        }
    }
}

/// Lanes that are due are not scheduled: none of them is looked at.
fn begin_with_later(query: &mut LaneQuery, now: Timestamp) {
    let later = now + Duration::from_micros(1);
    let from = match query.from {
        Some(LanePlace::Due(from)) => from.max(later),
        _ => later,
    };
    query.from = Some(LanePlace::Due(from));
}
