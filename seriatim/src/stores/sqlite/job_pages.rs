//! Pages of jobs.

use async_trait::async_trait;
use rusqlite::params;
use rusqlite::types::Value;

use super::Sqlite;
use super::lane_pages::LANES_OF_QUEUE;
use super::tx::{QueueRow, Tx};
use super::views::behind;
use crate::contract::{JobFilter, JobOrder, JobQuery, JobState, JobView};
use crate::model::limits::PAGE_BYTES_MAX;
use crate::model::{Cursor, Mode, Result, Timestamp};
use crate::stores::handover::Handover;
use crate::stores::job_look::{JobRows, Step};
use crate::stores::order::{Order, last_of_newest};

/// Number, arrival time and place of a job.
type Found = (i64, i64, String);

/// Jobs up to which a queue is small: see [`of_small_queue`].
const SMALL_JOBS: i64 = 10_000;
/// The waiting or running jobs of a key's lane, with what decides their order.
const TURN_JOBS: &str = include_str!("sql/turn_jobs.sql");

#[async_trait]
impl JobRows for Sqlite {
    async fn job_rows(&self, query: &JobQuery, looks_max: usize) -> Result<Step> {
        let query = query.clone();
        self.look(move |tx| tx.at(query.now).job_rows(&query, looks_max)).await
    }
}

impl Tx<'_> {
    pub(super) fn job_rows(&mut self, query: &JobQuery, most: usize) -> Result<Step> {
        let row = self.known_queue(&query.queue)?;
        let queue = row.number;
        let after = query.begin()?;
        let found = match query.filter {
            _ if query.order == JobOrder::Turn => self.turn_page(&row, query, after, most)?,
            JobFilter::Live | JobFilter::In(JobState::Queued | JobState::Running) => {
                self.live_page(queue, query, after, most)?
            }
            JobFilter::In(state) => self.ended_page(queue, query, state, after, most)?,
        };
        let (mut rows, mut bytes, mut shown) = (Vec::new(), 0, 0);
        for (seq, created, _) in found.iter().take(most) {
            if bytes >= PAGE_BYTES_MAX {
                break;
            }
            let id = super::push::job_id(*created, queue, *seq);
            let view = self.job_view_with(id, query.payload_bytes_max)?;
            bytes += view.as_ref().map_or(0, JobView::bytes);
            rows.extend(view);
            shown += 1;
        }
        let more = found.len() > shown;
        let last = found[..shown].last().filter(|_| more);
        let next = last.map(|(seq, _, place)| Cursor::behind(seq, place));
        Ok(Step::of(rows, next))
    }

    /// The jobs of a lane as it hands them over, and one more than a page has.
    fn turn_page(
        &mut self,
        queue: &QueueRow,
        query: &JobQuery,
        after: Option<Cursor>,
        most: usize,
    ) -> Result<Vec<Found>> {
        let (mode, now) = (queue.queue.mode, Timestamp::from_micros(self.now));
        let (slot, item) = in_state(query.filter, mode == Mode::Accumulate);
        // No integers: SQLite would take them for columns.
        let by = match mode {
            Mode::Exclusive => {
                "run_at > ?4, CASE WHEN run_at > ?4 THEN 0 ELSE prio END, run_at, seq"
            }
            _ => "?4 IS NULL, ?4 IS NULL, score, seq",
        };
        let last = |after: &Cursor| -> Result<_> {
            let last = Handover::read(after)?;
            let (later, priority, run_at) = last.place(mode, now);
            let exact = match mode {
                Mode::Exclusive => Value::Integer(run_at),
                _ => Value::Real(last.score),
            };
            Ok((Some(later), Some(priority), exact, Some(after.number)))
        };
        let behind = match &after {
            Some(_) => format!("({by}) > (?5, ?6, ?7, ?8)"),
            None => "coalesce(?5, ?6, ?7, ?8) IS NULL".to_owned(),
        };
        let last = after.as_ref().map(last).transpose()?;
        let (later, priority, exact, number) = last.unwrap_or((None, None, Value::Null, None));
        let jobs = TURN_JOBS.replace("SLOT", &slot).replace("ITEM", &item);
        let sql = format!(
            "SELECT seq, created, score, prio, run_at FROM ({jobs}) WHERE {behind} ORDER BY {by} LIMIT ?3"
        );
        let (key, rows_max) = (&query.key, most as i64 + 1);
        let values = params![queue.number, key, rows_max, self.now, later, priority, exact, number];
        self.rows(&sql, values, |row| {
            let (score, priority, run_at): (f64, i64, i64) =
                (row.get(2)?, row.get(3)?, row.get(4)?);
            let run_at = Timestamp::from_micros(run_at);
            let place = Handover { score, priority: priority as u16, run_at };
            Ok((row.get(0)?, row.get(1)?, place.to_string()))
        })
    }

    /// Number, arrival time and sort value of each row of the page, and of one more.
    fn live_page(
        &mut self,
        queue: u32,
        query: &JobQuery,
        after: Option<Cursor>,
        most: usize,
    ) -> Result<Vec<Found>> {
        let keyed = if query.key.is_some() { "l.key = ?3" } else { "?3 IS NULL" };
        let mode = self.queue_number(queue)?.map(|row| row.queue.mode);
        let accumulates = mode == Some(Mode::Accumulate);
        let (slot, item) = in_state(query.filter, accumulates);
        // Waiting and running jobs have no end time to sort by.
        let by_key = query.order == JobOrder::Key;
        let place = if by_key { "l.key" } else { "NULL" };
        let bound = |seq: &str| match by_key {
            true => String::new(),
            false => format!("AND {seq} > ifnull(?2, -1)"),
        };
        let order = if by_key { Order::Text("key") } else { Order::Number };
        let (behind, last) = behind(order, after.as_ref(), "seq")?;
        let slot = format!("{keyed} AND {slot} {}", bound("l.seq"));
        let item = format!("{keyed} AND {item} {}", bound("i.seq"));
        let branches = if query.filter == JobFilter::In(JobState::Running) {
            of_held_lanes(place, accumulates, &slot, &format!("{keyed} {}", bound("i.seq")))
        } else if by_key || query.key.is_some() {
            [
                format!("SELECT l.seq AS seq, l.created AS created, {place} AS key FROM lane l WHERE l.q = ?1 AND l.seq IS NOT NULL AND {slot}"),
                format!("SELECT i.seq, i.created, {place} FROM item i JOIN lane l ON l.id = i.lane WHERE l.q = ?1 AND {item}"),
            ]
            .join(" UNION ALL ")
        } else if self.job_count(queue)? <= SMALL_JOBS {
            of_small_queue(&slot, &item)
        } else {
            let in_slots = mode == Some(Mode::Parallel) && !self.has_keys(queue)?;
            in_arrival_order(&slot, &item, in_slots)
        };
        let sql = format!(
            "SELECT seq, created, CAST(ifnull(key, '') AS TEXT) FROM ({branches})
             WHERE {behind} ORDER BY key, seq LIMIT ?4"
        );
        let number = after.as_ref().map(|after| after.number);
        let values = params![queue, number, query.key, most as i64 + 1, last];
        self.rows(&sql, values, |row| Ok((row.get(0)?, row.get(1)?, row.get(2)?)))
    }

    /// Whether lanes of the queue have keys: in `parallel` those of jobs that were requeued since its mode changed.
    fn has_keys(&self, queue: u32) -> Result<bool> {
        let sql = "SELECT 1 FROM lane INDEXED BY lane_key WHERE q = ?1 AND key IS NOT NULL LIMIT 1";
        Ok(self.first(sql, [queue], |_| Ok(()))?.is_some())
    }

    fn ended_page(
        &mut self,
        queue: u32,
        query: &JobQuery,
        state: JobState,
        after: Option<Cursor>,
        most: usize,
    ) -> Result<Vec<Found>> {
        let order = match query.order {
            JobOrder::Arrival | JobOrder::Turn => Order::Number,
            JobOrder::Key => Order::Text("key"),
            JobOrder::UpdatedAt => Order::Value("-at"),
        };
        let name = match state {
            JobState::Succeeded => "succeeded",
            JobState::Canceled => "canceled",
            _ => "failed",
        };
        // Not as a parameter: an index is of dead jobs only.
        let dead = i64::from(state == JobState::Dead);
        let keyed = if query.key.is_some() { "key = ?3" } else { "?3 IS NULL" };
        let index = match (query.order, &query.key) {
            (_, Some(_)) | (JobOrder::Key, None) if state == JobState::Dead => {
                "INDEXED BY ended_key"
            }
            (JobOrder::UpdatedAt, _) => "INDEXED BY ended_at",
            (JobOrder::Arrival | JobOrder::Turn, _) => "NOT INDEXED",
            (JobOrder::Key, _) => "",
        };
        let from =
            format!("ended {index} WHERE q = ?1 AND dead = {dead} AND state = ?6 AND {keyed}");
        let newest = match query.order {
            JobOrder::UpdatedAt => {
                let place = after.as_ref().map(Cursor::place_number).transpose()?;
                let up_to = place.map_or(i64::MAX, i64::saturating_neg);
                let last = last_of_newest(&from, up_to, most + 1);
                format!("at <= {up_to} AND at >= ifnull(({last}), {up_to})")
            }
            _ => "true".to_owned(),
        };
        let (behind, last) = behind(order, after.as_ref(), "seq")?;
        let sql = format!(
            "SELECT seq, created, {} FROM {from} AND {behind} AND {newest} ORDER BY {} LIMIT ?4",
            order.text(),
            order.by("seq")
        );
        let number = after.as_ref().map(|after| after.number);
        let values = params![queue, number, query.key, most as i64 + 1, last, name];
        self.rows(&sql, values, |row| Ok((row.get(0)?, row.get(1)?, row.get(2)?)))
    }
}

/// The conditions for the job in a lane's slot and for those in `item`. A light claim has the slot's job; in
/// `accumulate`, all.
fn in_state(filter: JobFilter, accumulates: bool) -> (String, String) {
    let shown = match filter {
        JobFilter::In(JobState::Queued) => "NOT (RUNS)",
        JobFilter::In(_) => "(RUNS)",
        JobFilter::Live => "true",
    };
    let light = "l.st = 0 AND l.id IN (SELECT id FROM held WHERE q = ?1)";
    let slot = format!("l.st = 2 AND l.gen < l.open OR {light}");
    let item = format!("l.st = 2 AND i.gen < l.open OR {accumulates} AND {light}");
    (shown.replace("RUNS", &slot), shown.replace("RUNS", &item))
}

/// The running jobs: of the lanes that are claimed, without what waits behind them. `own` is the condition for jobs in
/// `item`, besides that they run; a light claim has those in `accumulate` only.
fn of_held_lanes(place: &str, accumulates: bool, slot: &str, own: &str) -> String {
    let held = "l.id IN (SELECT id FROM held WHERE q = ?1)";
    let item = format!(
        "SELECT i.seq, i.created, {place} FROM lane l CROSS JOIN item i INDEXED BY item_order ON i.lane = l.id"
    );
    format!(
        "SELECT l.seq AS seq, l.created AS created, {place} AS key FROM lane l WHERE {held} AND l.seq IS NOT NULL AND {slot}
         UNION ALL {item} AND i.gen < l.open WHERE {held} AND l.st = 2 AND {own}
         UNION ALL {item} WHERE {held} AND l.st = 0 AND {accumulates} AND {own}"
    )
}

/// All jobs of a queue that has few: those of other queues are not passed by, and sorting costs little.
fn of_small_queue(slot: &str, item: &str) -> String {
    let held = format!("l.id IN ({LANES_OF_QUEUE})");
    format!(
        "SELECT l.seq AS seq, l.created AS created, NULL AS key FROM lane l WHERE {held} AND l.seq IS NOT NULL AND {slot}
         UNION ALL SELECT i.seq, i.created, NULL FROM lane l CROSS JOIN item i INDEXED BY item_order ON i.lane = l.id WHERE {held} AND {item}"
    )
}

/// The first waiting and running jobs by number. Most slots have the number of their lane; so no branch sorts, and each
/// ends at the limit. `in_slots`: each lane is one job with its number, so jobs of other queues are not passed by.
fn in_arrival_order(slot: &str, item: &str, in_slots: bool) -> String {
    let branches = [
        ("l.id", "l.created", "lane l WHERE l.seq = l.id", slot),
        ("l.seq", "l.created", "lane l INDEXED BY lane_slot WHERE l.seq <> l.id", slot),
        ("i.seq", "i.created", "item i CROSS JOIN lane l ON l.id = i.lane WHERE true", item),
    ];
    let branch = |(seq, created, from, shown)| {
        format!(
            "SELECT * FROM (SELECT {seq} AS seq, {created} AS created, NULL AS key FROM {from}
               AND l.q = ?1 AND {shown} ORDER BY {seq} LIMIT ?4)"
        )
    };
    let branches = branches.into_iter().take(if in_slots { 1 } else { 3 }).map(branch);
    branches.collect::<Vec<_>>().join(" UNION ALL ")
}
