//! Lanes by due time: claims have those of each kind in this order, so a page is merged from what they read, and from the index of
//! held and paused lanes. It costs what it shows, not what waits (decision 35).

use super::Redis;
use super::entry::{Entry, SortKey};
use super::page::{Chosen, Rows, lane_entry};
use super::reply::{Fields, Shard, corrupt};
use crate::contract::{LaneOrder, LaneQuery, LaneSource, LaneStage};
use crate::model::clock::Timestamp;
use crate::model::error::Result;
use crate::model::queue::Mode;

/// Most lanes of a step. If filters let few through, the steps grow up to this.
const STEP_ROWS_MAX: i64 = 1_000;
const STEPS_GROW_BY: i64 = 4;
/// The answer of a shard that has no such order: its lanes are of many groups or priorities, or an earlier build held or
/// paused some.
const NO_ORDER: &str = "-";

/// A page by due time of a queue.
pub(super) struct ByDue<'q> {
    query: &'q LaneQuery,
    now: Timestamp,
    /// Of which unclaimed lanes: an argument of `index.lua`.
    which: &'static str,
    with_claimed: bool,
    /// Most unclaimed lanes of a shard to look at.
    looks_max: usize,
}

impl<'q> ByDue<'q> {
    /// `None`: the query is another one, or has an index of its own.
    pub(super) fn of(
        query: &'q LaneQuery,
        now: Timestamp,
        mode: Mode,
        looks_max: usize,
    ) -> Option<Self> {
        let is_walk = query.source() == LaneSource::Walk && query.order == LaneOrder::Due;
        if !is_walk || query.needs_failure() {
            return None;
        }
        let wants = |stages: &[LaneStage]| {
            query.stages.is_empty() || query.stages.iter().any(|stage| stages.contains(stage))
        };
        let with_parked = wants(&[LaneStage::Held, LaneStage::Paused, LaneStage::Crashed]);
        // In `exclusive`, lanes that are ready have a time too, for their later jobs.
        let is_later = query.is_of_future() && mode != Mode::Exclusive;
        let which = match (with_parked, is_later) {
            (true, _) => "all",
            (false, true) => "later",
            (false, false) => "waiting",
        };
        let with_claimed = wants(&[LaneStage::Running, LaneStage::Crashed]);
        Some(Self { query, now, which, with_claimed, looks_max })
    }
}

impl Redis {
    /// Adds the lanes of a shard that may be on the page. False: read all of them.
    pub(super) async fn add_by_due(
        &self,
        shard: Shard,
        page: &ByDue<'_>,
        chosen: &mut Chosen,
    ) -> Result<bool> {
        if !self.add_unclaimed(shard, page, chosen).await? {
            return Ok(false);
        }
        // After the others, as some of these may have been claimed meanwhile. There are as many as nodes hold.
        if page.with_claimed {
            let look = |row| {
                chosen.add(lane_entry(Fields::of(row)?, shard, page.query, page.now)?);
                Ok(())
            };
            self.each_row(shard, &Rows::claimed(), look).await?;
        }
        Ok(true)
    }

    async fn add_unclaimed(
        &self,
        shard: Shard,
        page: &ByDue<'_>,
        chosen: &mut Chosen,
    ) -> Result<bool> {
        let (mut from, mut looked, mut most) = (String::new(), 0, chosen.enough());
        loop {
            let left = i64::try_from(page.looks_max - looked).unwrap_or(i64::MAX);
            let rows = Rows::by_due(chosen, shard.shard, most.min(left), page.which);
            let (next, step) = self.rows_of_step(shard, &rows, &from).await?;
            if next == NO_ORDER {
                return Ok(false);
            }
            for row in step.rest() {
                looked += 1;
                chosen.add(lane_entry(Fields::of(row)?, shard, page.query, page.now)?);
            }
            if next.is_empty() {
                return Ok(true);
            }
            let place = place_in(&next, shard)?;
            if chosen.ends_at(&place) {
                return Ok(true);
            }
            if looked >= page.looks_max {
                chosen.cut_at(place);
                return Ok(true);
            }
            (from, most) = (next, (most * STEPS_GROW_BY).min(STEP_ROWS_MAX));
        }
    }
}

/// The place at which a step ended.
fn place_in(text: &str, shard: Shard) -> Result<Entry> {
    let (due, number) = text.split_once(' ').ok_or_else(corrupt)?;
    let read = |text: &str| text.parse().map_err(|_| corrupt());
    Ok(Entry { place: SortKey::Number(read(due)?), shard: shard.shard, number: read(number)? })
}
