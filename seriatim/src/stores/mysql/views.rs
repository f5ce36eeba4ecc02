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
    JobFilter, JobOrder, JobQuery, JobState, JobView, LaneOrder, LaneQuery, LaneView, NodeView,
    Page, QueueDue, QueueStats, QueueView, Views, rows_of_page,
};
use crate::model::clock::Timestamp;
use crate::model::cursor::Cursor;
use crate::model::error::Result;
use crate::model::id::{JobId, LaneId, Token};
use crate::model::limits::PAGE_ROWS_MAX;
use crate::model::turn::Turn;
use crate::stores::order::{Order, in_state};
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
        transact!(self.inner, Lock::Look, None, work => lanes(work, &query))
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

async fn lanes(work: &mut Work<'_>, query: &LaneQuery) -> Try<Page<LaneView>> {
    let queue = work.state.queue(&query.queue)?.number;
    let order = match query.order {
        LaneOrder::Age => Order::Number,
        LaneOrder::Key => Order::Text("l.k"),
        LaneOrder::Due => Order::Value("l.due"),
        LaneOrder::RetryCount => Order::Value("-l.retry"),
    };
    let mut filter = format!("l.q = {queue}");
    if let Some(key) = &query.key {
        filter += &format!(" AND l.k = {}", text(key));
    }
    filter += &format!(" AND {}", in_state(query.state));
    if let Some(node) = &query.node {
        filter += &format!(" AND l.st = {} AND l.node = {}", st::CLAIMED, node_number(&node.0));
    }
    if let Some(end) = query.end()? {
        filter += &match order {
            Order::Number => String::new(),
            Order::Value(order) => format!(" AND {order} <= {}", end.place_number()?),
            Order::Text(order) => format!(" AND IFNULL({order}, '') <= {}", text(&end.place)),
        };
    }
    if query.order == LaneOrder::RetryCount {
        filter += " AND l.retry >= 0";
    }
    if let Some(after) = query.begin()? {
        filter += &format!(" AND {}", behind(order, &after, "l.id")?);
    }
    let most = query.rows_max.clamp(1, PAGE_ROWS_MAX);
    let sql = format!(
        "SELECT l.id, {} FROM seriatim_lane l WHERE {filter} ORDER BY {} LIMIT {}",
        order.text(),
        order.by("l.id"),
        most + 1
    );
    let (mut ids, mut places) = (Vec::new(), Vec::new());
    for row in work.rows(&sql).await? {
        let mut row = Columns::of(row);
        ids.push(row.int()? as u64);
        places.push(row.text()?);
    }
    let more = ids.len() > most;
    ids.truncate(most);
    let of_page = format!("WHERE id IN ({})", list(ids.iter().copied()));
    work.read_lanes(&of_page, Bodies::None).await?;
    work.load_jobs(&ids, Need::Position, true, Bodies::None, &HashMap::new()).await?;
    let view = |id: &u64| {
        let view = lane_view(work.state.lanes.get(id)?);
        let row = work.lanes.get(id)?;
        Some(LaneView { jobs: (row.n + row.c) as u64, ..view })
    };
    let last = ids.iter().zip(&places).next_back().filter(|_| more);
    let next = last.map(|(id, place)| Cursor::behind(id, place));
    Ok(Page { rows: ids.iter().filter_map(view).collect(), next })
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
        Some(state) => format!(
            "(SELECT seq, created, NULL AS lane, k, at, LENGTH(payload) AS bytes FROM seriatim_ended WHERE q = {queue} AND state = {state} {key} {})",
            bound("seq")
        ),
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
    Ok(Page { rows, next })
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
    Ok(format!("({order} > {last} OR ({order} = {last} AND {number}))"))
}

async fn node_views(work: &mut Work<'_>) -> Try<Vec<NodeView>> {
    work.load_nodes(None, "").await?;
    Ok(work.state.node_views())
}
