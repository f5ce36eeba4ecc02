//! Pages of the lanes of a queue: an order, filters, a range.

use seriatim::Timestamp;
use std::time::Duration;

use seriatim::limits::PAGE_BYTES_MAX;
use seriatim::store::{LaneId, LaneOrder, LanePlace, LaneQuery, LaneStage, LaneView, Page, Store};

use super::error::{Error, Result};
use super::nodes;
use super::range::By;
use super::running::STEP_LANES_MAX;
use crate::base::time;

/// Default of `scan_max`: the lanes that a page reads to find matches.
pub(crate) const SCAN_DEFAULT: usize = 10_000;
/// Maximum of `scan_max`.
pub(crate) const SCAN_MAX: usize = 100_000;

/// The filters, as a user writes them; an empty one is none.
#[derive(Default)]
pub(crate) struct Filters<'a> {
    /// Stages, separated by commas.
    pub(crate) state: &'a str,
    pub(crate) lane: &'a str,
    pub(crate) prefix: &'a str,
    pub(crate) node: &'a str,
    pub(crate) due_from: &'a str,
    pub(crate) due_to: &'a str,
    pub(crate) retries_min: &'a str,
    pub(crate) lag_min: &'a str,
}

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
    let Filters { state, lane, prefix, node, due_from, due_to, retries_min, lag_min } =
        wanted.filters;
    let node = match node {
        "" => None,
        node => Some(nodes::find(store, node).await?.info.id),
    };
    let due = |field, text: &str| {
        let read = |text| time::read(text).map_err(|why| Error::Bound { field, why });
        Some(text).filter(|text| !text.is_empty()).map(read).transpose()
    };
    let mut query = LaneQuery {
        stages: stages(state)?,
        lane: named(lane)?,
        prefix: Some(prefix).filter(|prefix| !prefix.is_empty()).map(str::to_owned),
        node,
        due_from: due("due_from", due_from)?,
        due_to: due("due_to", due_to)?,
        retries_min: retries(retries_min)?,
        order: wanted.by.order(),
        from: wanted.by.place("from", wanted.from)?,
        to: wanted.by.place("to", wanted.to)?,
        after: wanted.after.map(str::to_owned),
        scan_max: Some(wanted.scan_max),
        ..LaneQuery::new(wanted.queue)
    };
    let lag_min = lag(lag_min, &query.stages)?;
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

/// The least lag of lanes in these stages.
fn lag(text: &str, stages: &[LaneStage]) -> Result<Option<Duration>> {
    if text.is_empty() {
        return Ok(None);
    }
    let wrong = |why: String| Error::Bound { field: "lag_min", why };
    if let Some(stage) = stages.iter().find(|stage| !LaneStage::WAITING.contains(stage)) {
        let why = format!("only lanes that wait have a lag: these are {}", stage.as_str());
        return Err(wrong(why));
    }
    seriatim::duration::parse(text).map(Some).map_err(|error| wrong(error.to_string()))
}

fn stages(text: &str) -> Result<Vec<LaneStage>> {
    let named = |name: &str| {
        let stage = LaneStage::ALL.into_iter().find(|stage| stage.as_str() == name);
        stage.ok_or_else(|| {
            let names = LaneStage::ALL.map(LaneStage::as_str).join(", ");
            let why =
                format!("{name:?} is not a lane state: use {names}, or several separated by commas");
            Error::Bound { field: "state", why }
        })
    };
    text.split(',').map(str::trim).filter(|name| !name.is_empty()).map(named).collect()
}

fn named(text: &str) -> Result<Option<LaneId>> {
    let wrong = |_| {
        let why = format!("{text:?} is not the id of a lane: copy it from a listing, as in 1-0-5");
        Error::Bound { field: "lane", why }
    };
    Some(text).filter(|text| !text.is_empty()).map(str::parse::<LaneId>).transpose().map_err(wrong)
}

fn retries(text: &str) -> Result<Option<i32>> {
    let wrong = |_| {
        let why = format!("{text:?} is not a retry count: write a whole number");
        Error::Bound { field: "retries_min", why }
    };
    Some(text).filter(|text| !text.is_empty()).map(str::parse::<i32>).transpose().map_err(wrong)
}
