//! Statistics and listings. The server selects and orders rows; the model computes their views.

use std::collections::HashMap;
use std::sync::Arc;

use async_trait::async_trait;

use super::bodies::Bodies;
use super::error::Try;
use super::gates::Lock;
use super::job_pages::behind;
use super::lane_row::{holder_number, st};
use super::load::Need;
use super::sql::{Columns, list, text};
use super::tally::Figure;
use super::work::{Work, by_id};
use super::{Inner, Mysql, by_due, claim, job_pages};
use crate::contract::{
    JobQuery, JobView, LaneOrder, LaneQuery, LaneSource, LaneView, NodeView, Page, QueueDue,
    QueueStats, QueueView, Views, Vitals,
};
use crate::model::{JobId, LaneId, Mode, Result, Timestamp, Token, Turn};
use crate::stores::asleep::waits;
use crate::stores::job_look;
use crate::stores::lane_filter::{Dialect, fits};
use crate::stores::look::Look;
use crate::stores::order::Order;
use crate::stores::state::QueueRow;

/// Of the tables of this database.
const SIZES: &str = "SELECT CAST(SUM(data_length + index_length) AS SIGNED), @@max_connections \
    FROM information_schema.tables WHERE table_schema = DATABASE()";
/// Of the whole server.
const COUNTERS: &str =
    "SHOW GLOBAL STATUS WHERE Variable_name IN ('Threads_connected', 'Questions')";

#[async_trait]
impl Views for Mysql {
    async fn queues(&self) -> Result<Vec<QueueView>> {
        transact!(self.inner, Lock::Look, None, work => async { Ok(work.state.queue_views()) })
    }

    async fn stats(&self, now: Option<Timestamp>) -> Result<Vec<QueueStats>> {
        transact!(self.inner, Lock::Look, now, work => stats(work))
    }

    async fn due(&self, queues: Vec<Arc<str>>) -> Result<Vec<QueueDue>> {
        due(&self.inner, queues).await
    }

    async fn lanes(&self, query: LaneQuery) -> Result<Page<LaneView>> {
        transact!(self.inner, Lock::Look, query.now, work => lanes(work, &query))
    }

    async fn jobs(&self, query: JobQuery) -> Result<Page<JobView>> {
        job_look::page(self, query).await
    }

    async fn job(&self, id: JobId) -> Result<Option<JobView>> {
        transact!(self.inner, Lock::Look, None, work => job_pages::one(work, id))
    }

    async fn turn(&self, lane: LaneId, token: Token) -> Result<Option<Turn>> {
        transact!(self.inner, Lock::Look, None, work => claim::turn(work, lane, token))
    }

    async fn nodes(&self) -> Result<Vec<NodeView>> {
        transact!(self.inner, Lock::Look, None, work => node_views(work))
    }

    async fn vitals(&self) -> Result<Vitals> {
        transact!(self.inner, Lock::Look, None, work => vitals(work))
    }
}

/// Looks at those of these queues that were not quiet lately; at all, if none is named.
async fn due(store: &Inner, queues: Vec<Arc<str>>) -> Result<Vec<QueueDue>> {
    let is_for_all = queues.is_empty();
    let (quiet, queues) = store.quiet.split(queues);
    if queues.is_empty() && !is_for_all {
        quiet.iter().filter(|one| waits(one)).for_each(|one| store.falls_asleep(&one.queue));
        return Ok(quiet);
    }
    let begun = store.quiet.begin();
    let (now, mut found) = transact!(store, Lock::Look, None, work => async {
        Ok((work.now, super::due::due(work, &queues).await?))
    })?;
    store.quiet.keep(begun, now, &found);
    found.extend(quiet);
    for one in found.iter().filter(|one| waits(one)) {
        store.falls_asleep(&one.queue);
    }
    Ok(found)
}

async fn stats(work: &mut Work<'_>) -> Try<Vec<QueueStats>> {
    let now = work.now;
    let figures = work.figures().await?;
    let queues: Vec<u32> = work.state.queues.keys().copied().collect();
    let dues = super::due::first_dues(work, &queues).await?;
    let stats = |row: &QueueRow| {
        let figure = |figure| figures.get(row.number, figure);
        QueueStats {
            queue: row.name.clone(),
            mode: Some(row.queue.mode),
            paused: row.paused,
            lanes: figure(Figure::Lanes),
            jobs: figure(Figure::Jobs),
            claimed: figure(Figure::Claimed),
            retrying: figure(Figure::Retrying),
            dead: figure(Figure::Dead),
            processed: figure(Figure::Processed),
            failed: figure(Figure::Failed),
            lag: dues.get(&row.number).map(|due| now.since(*due)).unwrap_or_default(),
        }
    };
    let mut stats: Vec<QueueStats> = work.state.queues.values().map(stats).collect();
    stats.sort_unstable_by(|a, b| a.queue.cmp(&b.queue));
    Ok(stats)
}

/// The rows of a listing in their order, without a limit: which lanes, and those of them that fit.
struct Walk {
    order: Order,
    table: &'static str,
    by: String,
    range: String,
    fits: String,
}

impl Walk {
    fn of(row: &QueueRow, query: &LaneQuery, now: Timestamp) -> Result<Self> {
        let queue = row.number;
        let order = match query.order {
            LaneOrder::Age => Order::Number,
            LaneOrder::Key => Order::Text("l.k"),
            LaneOrder::Due => Order::Value("l.due"),
            LaneOrder::RetryCount => Order::Value("-l.retry"),
        };
        let mut range = format!("l.q = {queue}");
        if let Some(lane) = query.lane {
            range += &format!(" AND l.id = {}", lane.number);
        }
        if let Some(key) = &query.key {
            range += &format!(" AND l.k = {}", text(key));
        }
        if let Some(node) = &query.node {
            range +=
                &format!(" AND l.st = {} AND l.node = {}", st::CLAIMED, holder_number(&node.0));
        }
        if let Some(end) = query.end()? {
            range += &match order {
                Order::Value(order) => format!(" AND {order} <= {}", end.place_number()?),
                Order::Text(order) if row.queue.mode != Mode::Parallel => {
                    format!(" AND {order} <= {}", text(&end.place))
                }
                _ => String::new(),
            };
        }
        if query.order == LaneOrder::RetryCount {
            range += " AND l.retry >= 0";
        }
        if let Some(after) = query.begin()? {
            range += &format!(" AND {}", behind(order, &after, "l.id")?);
        }
        let dialect = Dialect { key: "l.k", claimed: "st = 2", text };
        let fits = fits(query, now, &dialect);
        // Keys are unique, and the index that makes them so has their order, without the lane behind it.
        let is_by_key = matches!(order, Order::Text(_)) && row.queue.mode != Mode::Parallel;
        let (table, by) = match (is_by_key, query.source()) {
            (true, LaneSource::Walk) => {
                ("seriatim_lane l FORCE INDEX (lane_key)", "l.k".to_owned())
            }
            (false, LaneSource::Walk) if query.is_of_future() => {
                range += &format!(" AND l.st = {} AND l.class = 0 AND l.prio = 0", st::SCHEDULED);
                ("seriatim_lane l FORCE INDEX (lane_ready)", order.by("l.id"))
            }
            _ => ("seriatim_lane l", order.by("l.id")),
        };
        Ok(Self { order, table, by, range, fits })
    }

    /// Walks through these lanes alone.
    fn among(&mut self, lanes: &[u64]) {
        self.table = "seriatim_lane l FORCE INDEX (PRIMARY)";
        self.range += &format!(" AND l.id IN ({})", list(lanes));
    }

    /// The first lanes that fit, with their places, among the first `looks_max` in the order.
    fn first(&self, rows_max: usize, looks_max: Option<usize>) -> String {
        let Self { order, table, by, range, fits } = self;
        let place = order.text();
        let Some(looks_max) = looks_max else {
            return format!(
                "SELECT l.id, {place} FROM {table} WHERE {range} AND {fits} ORDER BY {by} LIMIT {rows_max}"
            );
        };
        let sorted = match *order {
            Order::Number => "0",
            Order::Value(sorted) | Order::Text(sorted) => sorted,
        };
        format!(
            "SELECT id, place FROM (SELECT l.id, {place} AS place, {sorted} AS sorted, {fits} AS fits
               FROM {table} WHERE {range} ORDER BY {by} LIMIT {looks_max}) w
             WHERE fits ORDER BY sorted, id LIMIT {rows_max}"
        )
    }

    /// The last lane that was looked at, and the next one.
    fn edge(&self, looks_max: usize) -> String {
        let Self { order, table, by, range, .. } = self;
        let place = order.text();
        let skipped = looks_max - 1;
        format!(
            "SELECT l.id, {place} FROM {table} WHERE {range} ORDER BY {by} LIMIT 2 OFFSET {skipped}"
        )
    }
}

async fn lanes(work: &mut Work<'_>, query: &LaneQuery) -> Try<Page<LaneView>> {
    let row = work.state.queue(&query.queue)?;
    let (queue, mut walk) = (row.number, Walk::of(row, query, work.now)?);
    let looks_max = query.scan_max.map(|_| query.looks_max());
    let looks_max = looks_max.filter(|_| query.source() == LaneSource::Walk && walk.fits != "true");
    if let Some(first) = by_due::first(work, queue, query).await? {
        walk.among(&first);
    }
    let mut look = Look::of_lanes(query);
    let mut is_full = false;
    for (id, place) in places(work, &walk.first(query.most() + 1, looks_max)).await? {
        is_full = !look.at(id, place, Some(id));
    }
    if let Some(looks_max) = looks_max.filter(|_| !is_full)
        && let [(id, place), (next, behind)] = &places(work, &walk.edge(looks_max)).await?[..]
    {
        look.skip_to(looks_max - 1);
        look.at(*id, place.clone(), None);
        look.at(*next, behind.clone(), None);
    }
    let (ids, next, cut) = look.page();
    work.read_lanes(&by_id(ids.iter().copied()), Bodies::None).await?;
    work.load_jobs(&ids, Need::Position, true, Bodies::None, &HashMap::new()).await?;
    work.load_nodes(None, "").await?;
    let view = |id: &u64| {
        let view = work.state.lane_view(work.state.lanes.get(id)?);
        let row = work.lanes.get(id)?;
        let jobs = (row.n + row.c) as u64;
        // Of more, some may not be read.
        let only = view.only.filter(|_| jobs == 1);
        Some(LaneView { jobs, only, ..view })
    };
    let is_asked = |lane: &LaneView| query.lane.is_none_or(|wanted| lane.lane == wanted);
    Ok(Page { rows: ids.iter().filter_map(view).filter(is_asked).collect(), next, cut })
}

/// Lanes and their places in the order.
async fn places(work: &mut Work<'_>, sql: &str) -> Try<Vec<(u64, Arc<str>)>> {
    let mut found = Vec::new();
    for row in work.rows(sql).await? {
        let mut row = Columns::of(row);
        found.push((row.int()? as u64, row.text()?));
    }
    Ok(found)
}

async fn vitals(work: &mut Work<'_>) -> Try<Vitals> {
    let mut vitals = Vitals::default();
    if let Some(row) = work.rows(SIZES).await?.pop() {
        let mut columns = Columns::of(row);
        vitals.bytes = columns.maybe_int()?.map(|bytes| bytes as u64);
        vitals.connections_max = Some(columns.int()? as u64);
    }
    for row in work.rows(COUNTERS).await? {
        let mut columns = Columns::of(row);
        let name = columns.bytes()?;
        let count = Some(columns.int()? as u64);
        match name.as_deref() {
            Some(b"Threads_connected") => vitals.connections = count,
            _ => vitals.operations = count,
        }
    }
    Ok(vitals)
}

async fn node_views(work: &mut Work<'_>) -> Try<Vec<NodeView>> {
    work.load_nodes(None, "").await?;
    Ok(work.state.node_views())
}
