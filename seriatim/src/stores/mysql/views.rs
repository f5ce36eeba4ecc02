//! Statistics and listings. The server selects and orders rows; the model computes their views.

use std::collections::{BTreeSet, HashMap};
use std::sync::Arc;

use async_trait::async_trait;

use super::bodies::Bodies;
use super::error::Try;
use super::gates::Lock;
use super::job_row::{CANCELED, DEAD, SUCCEEDED};
use super::lane_row::{node_number, st};
use super::load::Need;
use super::sql::{Columns, LIST_MAX, list, text};
use super::tally::Figure;
use super::work::Work;
use super::{Inner, Mysql, claim};
use crate::contract::{
    JobFilter, JobOrder, JobQuery, JobState, JobView, LaneOrder, LaneQuery, LaneSource, LaneView,
    NodeView, Page, QueueDue, QueueStats, QueueView, Views, rows_of_page,
};
use crate::model::clock::Timestamp;
use crate::model::cursor::Cursor;
use crate::model::error::Result;
use crate::model::id::{JobId, LaneId, Token};
use crate::model::limits::PAGE_ROWS_MAX;
use crate::model::queue::Mode;
use crate::model::turn::Turn;
use crate::stores::lane_filter::{Dialect, fits};
use crate::stores::look::Look;
use crate::stores::order::{Order, last_of_newest};
use crate::stores::state::QueueRow;
use crate::stores::state::views::lane_view;

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
        transact!(self.inner, Lock::Look, None, work => jobs(work, &query))
    }

    async fn job(&self, id: JobId) -> Result<Option<JobView>> {
        transact!(self.inner, Lock::Look, None, work => job(work, id))
    }

    async fn turn(&self, lane: LaneId, token: Token) -> Result<Option<Turn>> {
        transact!(self.inner, Lock::Look, None, work => claim::turn(work, lane, token))
    }

    async fn nodes(&self) -> Result<Vec<NodeView>> {
        transact!(self.inner, Lock::Look, None, work => node_views(work))
    }
}

/// Looks at those of these queues that were not quiet lately; at all, if none is named.
async fn due(store: &Inner, queues: Vec<Arc<str>>) -> Result<Vec<QueueDue>> {
    let is_for_all = queues.is_empty();
    let (quiet, queues) = store.quiet.split(queues);
    if queues.is_empty() && !is_for_all {
        return Ok(quiet);
    }
    let begun = store.quiet.begin();
    let (now, mut found) = transact!(store, Lock::Look, None, work => async {
        Ok((work.now, super::due::due(work, &queues).await?))
    })?;
    store.quiet.keep(begun, now, &found);
    found.extend(quiet);
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
            range += &format!(" AND l.st = {} AND l.node = {}", st::CLAIMED, node_number(&node.0));
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
            _ => ("seriatim_lane l", order.by("l.id")),
        };
        Ok(Self { order, table, by, range, fits })
    }

    /// The first lanes that fit, with their places: among so many in the order.
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
    let walk = Walk::of(work.state.queue(&query.queue)?, query, work.now)?;
    let looks_max = query.scan_max.map(|_| query.looks_max());
    let looks_max = looks_max.filter(|_| query.source() == LaneSource::Walk && walk.fits != "true");
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
    let of_page = format!("WHERE id IN ({})", list(ids.iter().copied()));
    work.read_lanes(&of_page, Bodies::None).await?;
    work.load_jobs(&ids, Need::Position, true, Bodies::None, &HashMap::new()).await?;
    let view = |id: &u64| {
        let view = lane_view(work.state.lanes.get(id)?);
        let row = work.lanes.get(id)?;
        Some(LaneView { jobs: (row.n + row.c) as u64, ..view })
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

async fn jobs(work: &mut Work<'_>, query: &JobQuery) -> Try<Page<JobView>> {
    let queue = work.state.queue(&query.queue)?.number;
    // The columns of generation and number differ between the tables.
    let (state, shown) = match query.filter {
        JobFilter::Live => (None, "true"),
        JobFilter::In(JobState::Queued) => {
            (None, "(l.st <> 2 OR GEN >= l.open AND SEQ <> l.taken)")
        }
        JobFilter::In(JobState::Running) => (None, "l.st = 2 AND (GEN < l.open OR SEQ = l.taken)"),
        JobFilter::In(JobState::Dead) => (Some(DEAD), ""),
        JobFilter::In(JobState::Succeeded) => (Some(SUCCEEDED), ""),
        JobFilter::In(JobState::Canceled) => (Some(CANCELED), ""),
    };
    let most = query.rows_max.clamp(1, PAGE_ROWS_MAX);
    let after = Cursor::read(query.after.as_deref())?;
    // In order of arrival, each table returns no more than a page.
    let bound = |number: &str| match (query.order, &after) {
        (JobOrder::Arrival, after) => {
            let (after, limit) = (after.as_ref().map_or(0, |after| after.number), most + 1);
            format!("AND {number} > {after} ORDER BY {number} LIMIT {limit}")
        }
        _ => String::new(),
    };
    let key = query.key.as_deref().map(|key| format!("AND k = {}", text(key))).unwrap_or_default();
    let from = match state {
        Some(state) => {
            let from = format!("seriatim_ended WHERE q = {queue} AND state = {state} {key}");
            let newest = newest(work, &from, query.order, after.as_ref(), most + 1).await?;
            format!(
                "(SELECT seq, created, NULL AS lane, k, at, LENGTH(payload) AS bytes FROM {from} {newest} {})",
                bound("seq")
            )
        }
        None => format!(
            "((SELECT j.seq, j.created, j.lane, k, 0 AS at, LENGTH(j.payload) AS bytes FROM seriatim_job j JOIN seriatim_lane l ON l.id = j.lane \
              WHERE j.q = {queue} AND {} {key} {}) UNION ALL \
             (SELECT id, j_created, id, k, 0, LENGTH(payload) FROM seriatim_lane l WHERE q = {queue} AND j_gen IS NOT NULL AND {} {key} {}))",
            shown.replace("GEN", "j.gen").replace("SEQ", "j.seq"),
            bound("j.seq"),
            shown.replace("GEN", "l.j_gen").replace("SEQ", "l.id"),
            bound("id")
        ),
    };
    let order = match query.order {
        JobOrder::Arrival => Order::Number,
        JobOrder::Key => Order::Text("j.k"),
        JobOrder::UpdatedAt => Order::Value("-j.at"),
    };
    let filter = match &after {
        None => String::new(),
        Some(after) => format!("WHERE {}", behind(order, after, "j.seq")?),
    };
    let sql = format!(
        "SELECT j.seq, j.created, j.lane, j.bytes, {} FROM {from} j {filter} ORDER BY {} LIMIT {}",
        order.text(),
        order.by("j.seq"),
        most + 1
    );
    let (mut ids, mut lanes, mut lengths) = (Vec::new(), Vec::new(), Vec::new());
    let mut places = Vec::new();
    for row in work.rows(&sql).await? {
        let mut row = Columns::of(row);
        let seq = row.int()? as u64;
        let created = Timestamp::from_micros(row.int()?);
        ids.push(JobId::new(created, queue, 0, seq));
        lanes.push(row.maybe_int()?.map(|lane| lane as u64));
        lengths.push(row.maybe_int()?.unwrap_or_default() as usize);
        places.push(row.text()?);
    }
    let most = rows_of_page(lengths).min(most);
    let more = ids.len() > most;
    ids.truncate(most);
    let lanes = lanes.into_iter().take(most).flatten().collect();
    load_some(work, &ids, &lanes).await?;
    let rows = ids.iter().filter_map(|id| view_of(work, *id)).collect();
    let last = ids.iter().zip(&places).next_back().filter(|_| more);
    let next = last.map(|(id, place)| Cursor::behind(id.seq(), place));
    Ok(Page { rows, next, cut: false })
}

/// If the newest come first, the condition for so many of them after a cursor, and all others of the last time: an index has
/// them.
async fn newest(
    work: &mut Work<'_>,
    from: &str,
    order: JobOrder,
    after: Option<&Cursor>,
    rows_max: usize,
) -> Try<String> {
    if order != JobOrder::UpdatedAt {
        return Ok(String::new());
    }
    let place = after.map(Cursor::place_number).transpose()?;
    let up_to = place.map_or(i64::MAX, i64::saturating_neg);
    // As a number: a subquery would be no range of the index.
    let rows = work.rows(&last_of_newest(from, up_to, rows_max)).await?;
    let last = rows.into_iter().next().map(|row| Columns::of(row).maybe_int());
    let last = last.transpose()?.flatten().unwrap_or(up_to);
    Ok(format!("AND at BETWEEN {last} AND {up_to}"))
}

/// Reads these jobs with their payloads, and their lanes without other jobs.
async fn load_some(work: &mut Work<'_>, ids: &[JobId], lanes: &BTreeSet<u64>) -> Try<()> {
    let lanes: Vec<u64> = lanes.iter().copied().collect();
    for lanes in lanes.chunks(LIST_MAX) {
        let these = format!("WHERE id IN ({})", list(lanes.iter().copied()));
        work.read_lanes(&these, Bodies::All).await?;
    }
    for ids in ids.chunks(LIST_MAX) {
        let ids = list(ids.iter().map(|id| id.seq()));
        let jobs = format!("FROM seriatim_job j FORCE INDEX (PRIMARY) WHERE j.seq IN ({ids})");
        work.read_jobs(&jobs, Bodies::All).await?;
        let ended = format!("FROM seriatim_ended j WHERE j.seq IN ({ids})");
        work.read_ended(&ended, Bodies::All).await?;
    }
    work.load_nodes(None, "").await
}

fn view_of(work: &Work<'_>, id: JobId) -> Option<JobView> {
    work.state.job_view(id)
}

async fn job(work: &mut Work<'_>, id: JobId) -> Try<Option<JobView>> {
    let found = work.find(&[id]).await?;
    let ids: Vec<JobId> = found.iter().map(|(id, _)| *id).collect();
    let lanes = found.iter().filter_map(|(_, lane)| *lane).collect();
    load_some(work, &ids, &lanes).await?;
    Ok(view_of(work, id))
}

/// The condition for the rows after a cursor.
fn behind(order: Order, after: &Cursor, number: &str) -> Result<String> {
    let (order, last) = match order {
        Order::Number => return Ok(format!("{number} > {}", after.number)),
        Order::Text(order) if after.place.is_empty() => {
            return Ok(format!("({order} IS NOT NULL OR {number} > {})", after.number));
        }
        Order::Value(order) => (order, after.place_number()?.to_string()),
        Order::Text(order) => (order, text(&after.place)),
    };
    let number = format!("{number} > {}", after.number);
    // The first part is the range of an index.
    Ok(format!("{order} >= {last} AND ({order} > {last} OR {number})"))
}

async fn node_views(work: &mut Work<'_>) -> Try<Vec<NodeView>> {
    work.load_nodes(None, "").await?;
    Ok(work.state.node_views())
}
