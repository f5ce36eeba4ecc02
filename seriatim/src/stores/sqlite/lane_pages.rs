//! Pages of lanes.

use std::borrow::Cow;

use rusqlite::params;
use rusqlite::types::Value;

use super::lane::Work;
use super::row::{JOB_COLUMNS, Job, flag, state};
use super::tx::{QueueRow, Tx};
use super::views::behind;
use crate::contract::{LaneJob, LaneOrder, LaneQuery, LaneSource, LaneState, LaneView, Page};
use crate::model::{Cursor, Mode, NodeId, Result, Timestamp, Token};
use crate::stores::lane_filter::{Dialect, fits};
use crate::stores::look::Look;
use crate::stores::order::Order;

/// The lanes that are claimed: by their rows, or by a light claim.
const CLAIMED: &str = "id IN (SELECT id FROM held WHERE q = ?1)";

/// Lanes up to which a queue is small: see [`Tx::is_small`]. No index has the lanes of a queue by age: each push and settle
/// would pay for it.
const SMALL_LANES: i64 = 10_000;
/// The ids of all lanes of a queue, from the indexes of claims.
pub(super) const LANES_OF_QUEUE: &str = "SELECT id FROM ready WHERE q = ?1
               UNION ALL SELECT id FROM lane INDEXED BY lane_wake WHERE q = ?1 AND wake IS NOT NULL
               UNION ALL SELECT id FROM held WHERE q = ?1
               UNION ALL SELECT id FROM lane INDEXED BY lane_parked WHERE q = ?1 AND st = 3";

impl Tx<'_> {
    pub(super) fn lane_page(&mut self, query: &LaneQuery) -> Result<Page<LaneView>> {
        let queue = self.known_queue(&query.queue)?;
        // The sort key of a lane; the id breaks ties.
        let order = match query.order {
            LaneOrder::Age => Order::Number,
            // Its lanes have no keys.
            LaneOrder::Key if queue.queue.mode == Mode::Parallel => Order::Number,
            LaneOrder::Key => Order::Text("key"),
            LaneOrder::Due => Order::Value("due"),
            LaneOrder::RetryCount => Order::Value("-retry"),
        };
        let (after, end) = (query.begin()?, query.end()?);
        if matches!(order, Order::Number)
            && after.as_ref().is_some_and(|after| !after.place.is_empty())
        {
            return Ok(Page::default());
        }
        let now = Timestamp::from_micros(self.now);
        let fits = fits(query, now, &Dialect { key: "key", claimed: CLAIMED, text });
        let by_due = match (query.source(), order) {
            (LaneSource::Walk, Order::Value("due")) => {
                let rows_max = if query.is_range() { query.most() } else { query.looks_max() };
                let mut first =
                    self.first_by_due(queue.number, after.as_ref(), end.as_ref(), rows_max + 1)?;
                if !query.is_of_waiting() {
                    first.extend(self.busy_or_parked(queue.number)?);
                }
                Some(serde_json::to_string(&first).unwrap_or_default())
            }
            _ => None,
        };
        let (behind, last) = behind(order, after.as_ref(), "id")?;
        let (within, end) = within(order, end)?;
        let is_small = matches!(order, Order::Number) && self.is_small(queue.number)?;
        let failed = if query.order == LaneOrder::RetryCount { "retry >= 0" } else { "true" };
        let sql = format!(
            "SELECT id, {}, {fits} FROM {} AND {failed} AND {behind} AND {within} AND ?7 IS ?7 AND ?8 IS ?8 ORDER BY {}",
            order.text(),
            source(&queue, query, is_small),
            order.by("id")
        );
        let number = after.as_ref().map(|after| after.number);
        let node = query.node.as_ref().map(|node| &*node.0);
        let lane = query.lane.map(|lane| lane.number as i64);
        let values = params![queue.number, number, query.key, node, last, end, by_due, lane];
        let mut look = Look::of_lanes(query);
        self.while_rows(&sql, values, |row| {
            let (id, place, fits): (i64, String, bool) = (row.get(0)?, row.get(1)?, row.get(2)?);
            Ok(look.at(id as u64, place, fits.then_some(id)))
        })?;
        let (ids, next, cut) = look.page();
        let mut rows = Vec::with_capacity(ids.len());
        for id in ids {
            if let Some(work) = self.lane(id)? {
                rows.push(self.lane_view(&work)?);
            }
        }
        if query.lane.is_some() {
            rows.retain(|lane| query.shows(lane, now));
        }
        Ok(Page { rows, next, cut })
    }

    /// The first waiting lanes by due time: ready ones are in this order in each group, scheduled ones wake when they are
    /// due.
    fn first_by_due(
        &self,
        queue: u32,
        after: Option<&Cursor>,
        end: Option<&Cursor>,
        rows_max: usize,
    ) -> Result<Vec<i64>> {
        let due = |cursor: Option<&Cursor>, none| cursor.map_or(Ok(none), Cursor::place_number);
        let (from, to) = (due(after, i64::MIN)?, due(end, i64::MAX)?);
        let number = after.map_or(0, |after| after.number);
        let rows_max = rows_max as i64;
        let mut first: Vec<(i64, i64)> = Vec::new();
        let read = |row: &rusqlite::Row<'_>| Ok((row.get(0)?, row.get(1)?));
        for group in self.ready_groups(queue)? {
            let sql = "SELECT due, id FROM ready WHERE q = ?1 AND class = ?2 AND prio = ?3 AND (due, id) > (?4, ?5)
                         AND due <= ?6 ORDER BY due, id LIMIT ?7";
            let values = params![queue, group.class, group.prio, from, number, to, rows_max];
            first.extend(self.rows(sql, values, read)?);
        }
        let sql = "SELECT wake, id FROM lane INDEXED BY lane_wake WHERE q = ?1 AND wake IS NOT NULL AND st = 1
                     AND wake >= ?2 AND (wake, id) > (?2, ?3) AND wake <= ?4 ORDER BY wake, id LIMIT ?5";
        first.extend(self.rows(sql, params![queue, from, number, to, rows_max], read)?);
        first.sort_unstable();
        first.truncate(rows_max as usize);
        Ok(first.into_iter().map(|(_, id)| id).collect())
    }

    /// The lanes that are claimed, held or paused: few, so they are read and sorted.
    fn busy_or_parked(&self, queue: u32) -> Result<Vec<i64>> {
        let sql = "SELECT id FROM held WHERE q = ?1
                   UNION ALL SELECT id FROM lane INDEXED BY lane_parked WHERE q = ?1 AND st = 3";
        self.rows(sql, [queue], |row| row.get(0))
    }

    /// Whether a queue has so few lanes that reading the ids of all is cheaper than passing by the lanes of others.
    fn is_small(&self, queue: u32) -> Result<bool> {
        Ok(self.lane_count(queue)? <= SMALL_LANES)
    }

    fn lane_view(&mut self, work: &Work) -> Result<LaneView> {
        let head = &work.row.head;
        let holder = self.holder(work)?;
        let slot = i64::from(work.row.slot.is_some());
        let only = match slot + head.items {
            1 => self.only_job(work)?,
            _ => None,
        };
        Ok(LaneView {
            only,
            lane: head.lane_id(),
            key: head.key.clone(),
            state: match &holder {
                Some(_) => LaneState::Claimed,
                None if head.flags & flag::PAUSED != 0 => LaneState::Paused,
                None if head.flags & flag::HELD != 0 => LaneState::Held,
                None => LaneState::Waiting,
            },
            due: Some(Timestamp::from_micros(head.due)),
            collects_until: head
                .next_due
                .filter(|_| work.definition().window.is_some() && head.st == state::SCHEDULED)
                .map(Timestamp::from_micros),
            priority: head.prio as u16,
            jobs: (slot + head.items) as u64,
            retry_count: head.retry as i32,
            crashes: head.crashes as u32,
            error: head.error.clone(),
            token: holder.as_ref().map(|_| Token(head.token)),
            node: holder.as_ref().map(|holder| NodeId(holder.node.as_str().into())),
            claimed_at: head.claimed_at.filter(|_| holder.is_some()).map(Timestamp::from_micros),
            lease_until: holder.as_ref().and_then(|holder| holder.lease_until),
            progress: holder.and_then(|holder| holder.progress),
        })
    }

    /// The job of a lane with one.
    fn only_job(&self, work: &Work) -> Result<Option<LaneJob>> {
        let queue = work.row.head.queue;
        let view = |job: &Job| {
            let (id, task, options) = (job.id(queue), job.task.clone(), job.options());
            LaneJob { id, task, options }
        };
        if let Some(job) = &work.row.slot {
            return Ok(Some(view(job)));
        }
        let sql = format!("SELECT {JOB_COLUMNS} FROM item INDEXED BY item_order WHERE lane = ?1");
        self.first(&sql, [work.row.head.id], |row| Ok(view(&Job::read(row, 0)?)))
    }
}

/// The table, its index and the first condition: what is read to find the lanes of a page.
fn source(queue: &QueueRow, query: &LaneQuery, is_small: bool) -> Cow<'static, str> {
    Cow::Borrowed(match (query.source(), query.order) {
        (LaneSource::Lane(_), _) => "lane WHERE q = ?1 AND id = ?8",
        (LaneSource::Key(_), _) => {
            "lane WHERE q = ?1 AND key = ?3 AND (?4 IS NULL OR id IN (SELECT id FROM held WHERE q = ?1 AND node = ?4))"
        }
        (LaneSource::Claimed(Some(_)), _) => {
            "lane WHERE id IN (SELECT id FROM held WHERE q = ?1 AND node = ?4)"
        }
        (LaneSource::Claimed(None), _) => "lane WHERE id IN (SELECT id FROM held WHERE q = ?1)",
        (LaneSource::Parked, _) => "lane INDEXED BY lane_parked WHERE q = ?1 AND st = 3",
        (LaneSource::Walk, LaneOrder::RetryCount) => {
            "lane INDEXED BY lane_worst WHERE q = ?1 AND retry >= 0"
        }
        (LaneSource::Walk, LaneOrder::Due) => "lane WHERE id IN (SELECT value FROM json_each(?7))",
        (LaneSource::Walk, LaneOrder::Key) if queue.queue.mode != Mode::Parallel => {
            "lane INDEXED BY lane_key WHERE q = ?1 AND key IS NOT NULL"
        }
        (LaneSource::Walk, _) if is_small => {
            return Cow::Owned(format!("lane WHERE id IN ({LANES_OF_QUEUE})"));
        }
        (LaneSource::Walk, _) => "lane NOT INDEXED WHERE q = ?1",
    })
}

/// A text as a literal, which may hold any character.
fn text(text: &str) -> String {
    use std::fmt::Write;
    let mut sql = String::from("CAST(x'");
    for byte in text.as_bytes() {
        let _ = write!(sql, "{byte:02x}");
    }
    sql + "' AS TEXT)"
}

/// The condition for rows up to the sort value in parameter 6, and that value.
fn within(order: Order, end: Option<Cursor>) -> Result<(String, Value)> {
    Ok(match (order, end) {
        (Order::Number, _) | (_, None) => ("?6 IS NULL".to_owned(), Value::Null),
        (Order::Value(order), Some(end)) => {
            (format!("{order} <= ?6"), Value::Integer(end.place_number()?))
        }
        (Order::Text(order), Some(end)) => (format!("{order} <= ?6"), Value::Text(end.place)),
    })
}
