//! Pages of the lanes of a queue, in an order and a range.

use seriatim::limits::{PAGE_BYTES_MAX, PAGE_ROWS_MAX};
use seriatim::store::Store;
use seriatim::store::{LaneOrder, LaneQuery, LaneView, Page};

use super::error::Error;
use super::range::{Bound, By, Range};

/// Lanes that are read at once: each may come with a progress of 64 KiB.
const STEP_LANES_MAX: usize = 250;
/// Lanes that one listing looks at in search of a range.
const RANGE_LANES_MAX: usize = 100_000;

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

/// A page of what lies in the range. The store lists in order but knows no ranges: what lies
/// before is passed over, within [`RANGE_LANES_MAX`].
pub(crate) async fn page(store: &dyn Store, wanted: Wanted<'_>) -> Result<Page<LaneView>, Error> {
    let range = Range::read(wanted.by, wanted.from, wanted.to)?;
    let (mut rows, mut after) = (Vec::new(), wanted.after.map(str::to_owned));
    let (mut looked, mut skips) = (0, range.has_beginning());
    while rows.len() < wanted.rows_max && looked < RANGE_LANES_MAX {
        let most = if skips { PAGE_ROWS_MAX } else { wanted.rows_max - rows.len() };
        let most = most.min(STEP_LANES_MAX);
        let page = store.lanes(wanted.query(after.clone(), most)).await?;
        let is_before = |lane: &LaneView| range.place(lane) == Bound::Before;
        if skips && !page.rows.iter().all(is_before) {
            // The range begins in here: once more, in steps that end where this page shall.
            skips = false;
            continue;
        }
        looked += page.rows.len();
        after = page.next;
        for lane in page.rows {
            match range.place(&lane) {
                Bound::Before => {}
                Bound::Within => rows.push(lane),
                Bound::After => return Ok(Page { rows, next: None }),
            }
        }
        let told = |lane: &LaneView| lane.progress.as_ref().map_or(0, |text| text.len());
        if after.is_none() || rows.iter().map(told).sum::<usize>() >= PAGE_BYTES_MAX {
            break;
        }
    }
    Ok(Page { rows, next: after })
}

impl Wanted<'_> {
    fn query(&self, after: Option<String>, rows_max: usize) -> LaneQuery {
        LaneQuery {
            queue: self.queue.into(),
            key: None,
            claimed: self.claimed,
            order: match self.by {
                By::Age => LaneOrder::Age,
                By::Key => LaneOrder::Key,
                By::Due => LaneOrder::Due,
                By::Retries => LaneOrder::RetryCount,
            },
            after,
            rows_max,
        }
    }
}
