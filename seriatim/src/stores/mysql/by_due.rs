//! Lanes by due time. The index of claims has them in this order for each state, class and priority, so that the first of
//! a queue are read without sorting all.

use super::error::Try;
use super::lane_row::st;
use super::sql::Columns;
use super::work::Work;
use crate::contract::{LaneOrder, LaneQuery, LaneSource};
use crate::model::Cursor;

/// Most groups of lanes, each of a state, class and priority. With more, all lanes of the queue are sorted.
const GROUPS_MAX: usize = 16;
/// The states of lanes that are not claimed; those that wait come first.
const STATES: [i64; 3] = [st::READY, st::SCHEDULED, st::PARKED];
/// Most lanes that are chosen. For more, all lanes of the queue are sorted.
const LANES_MAX: usize = 50_000;

/// Lanes among which are all of the query's page; `None` if the query has another order, or must look at all.
pub(super) async fn first(
    work: &mut Work<'_>,
    queue: u32,
    query: &LaneQuery,
) -> Try<Option<Vec<u64>>> {
    let is_walk = query.order == LaneOrder::Due && query.source() == LaneSource::Walk;
    let rows_max = if query.is_range() { query.most() } else { query.looks_max() };
    if !is_walk || query.is_of_future() || rows_max >= LANES_MAX {
        return Ok(None);
    }
    // Held and paused lanes are parked: they would take the room of those that fit.
    let is_of_waiting = query.is_of_waiting();
    let states = if is_of_waiting { &STATES[..2] } else { &STATES };
    let Some(groups) = groups(work, queue, states).await? else { return Ok(None) };
    let (after, end) = (query.begin()?, query.end()?);
    let behind = behind(after.as_ref(), end.as_ref())?;
    let of_queue = format!("FROM seriatim_lane FORCE INDEX (lane_ready) WHERE q = {queue}");
    let rows_max = rows_max + 1;
    let first = |(state, class, prio): &(i64, i64, i64)| {
        format!(
            "(SELECT id, due {of_queue} AND st = {state} AND class = {class} AND prio = {prio} {behind} \
             ORDER BY due, id LIMIT {rows_max})"
        )
    };
    // Those that are claimed are few, and in no order.
    let claimed = format!("(SELECT id, NULL {of_queue} AND st = {})", st::CLAIMED);
    let parts: Vec<String> =
        (!is_of_waiting).then_some(claimed).into_iter().chain(groups.iter().map(first)).collect();
    if parts.is_empty() {
        return Ok(Some(Vec::new()));
    }
    let (mut claimed, mut waiting) = (Vec::new(), Vec::new());
    for row in work.rows(&parts.join(" UNION ALL ")).await? {
        let mut row = Columns::of(row);
        let (id, due) = (row.int()? as u64, row.maybe_int()?);
        match due {
            Some(due) => waiting.push((due, id)),
            None => claimed.push(id),
        }
    }
    waiting.sort_unstable();
    waiting.truncate(rows_max);
    claimed.extend(waiting.into_iter().map(|(_, id)| id));
    Ok((claimed.len() < LANES_MAX).then_some(claimed))
}

/// The groups of lanes that are not claimed; `None` if there are many. Each step reads the first entry of the next one.
async fn groups(
    work: &mut Work<'_>,
    queue: u32,
    states: &[i64],
) -> Try<Option<Vec<(i64, i64, i64)>>> {
    let mut groups = Vec::new();
    for state in states {
        let mut behind = String::new();
        loop {
            let sql = format!(
                "SELECT class, prio FROM seriatim_lane FORCE INDEX (lane_ready) WHERE q = {queue} AND st = {state} \
                 {behind} ORDER BY class, prio, due LIMIT 1"
            );
            let Some(row) = work.rows(&sql).await?.pop() else { break };
            let mut row = Columns::of(row);
            let (class, prio) = (row.int()?, row.int()?);
            if groups.len() == GROUPS_MAX {
                return Ok(None);
            }
            groups.push((*state, class, prio));
            behind = format!("AND (class > {class} OR class = {class} AND prio > {prio})");
        }
    }
    Ok(Some(groups))
}

/// The condition for lanes behind a place and up to another one.
fn behind(after: Option<&Cursor>, end: Option<&Cursor>) -> Try<String> {
    let mut sql = String::new();
    if let Some(after) = after {
        let (due, number) = (after.place_number()?, after.number);
        // The first part is the range of the index.
        sql += &format!("AND due >= {due} AND (due > {due} OR id > {number})");
    }
    if let Some(end) = end {
        sql += &format!(" AND due <= {}", end.place_number()?);
    }
    Ok(sql)
}
