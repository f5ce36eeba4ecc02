//! Pages of jobs, and one job: the server selects and orders rows; the model computes their views.

use std::collections::{BTreeSet, HashMap};

use async_trait::async_trait;

use super::Mysql;
use super::bodies::Bodies;
use super::error::Try;
use super::gates::Lock;
use super::job_row::{CANCELED, DEAD, SUCCEEDED};
use super::lane_row::st;
use super::sql::{Columns, LIST_MAX, list, text};
use super::tally::Figure;
use super::work::{Work, by_id};
use crate::contract::{JobFilter, JobOrder, JobQuery, JobState, JobView};
use crate::model::limits::PAGE_BYTES_MAX;
use crate::model::{Cursor, JobId, Mode, Result, Timestamp};
use crate::stores::handover::Handover;
use crate::stores::job_look::{JobRows, Step, place_of};
use crate::stores::order::{Order, last_of_newest};

#[async_trait]
impl JobRows for Mysql {
    async fn job_rows(&self, query: &JobQuery, looks_max: usize) -> Result<Step> {
        transact!(self.inner, Lock::Look, query.now, work => page(work, query, looks_max))
    }
}

/// Rows whose lengths are read at once: the server reads all of a payload to know its length.
const LENGTHS_AT_ONCE: usize = 250;

/// Jobs or lanes of a queue up to which sorting them costs less than passing by those of others.
const SORTED_MAX: u64 = 10_000;

/// A row of a listing.
struct Found {
    seq: u64,
    lane: Option<u64>,
    place: std::sync::Arc<str>,
}

/// What else the rows of a page need.
struct Length {
    id: JobId,
    /// Of its payload.
    bytes: usize,
    /// The bytes of its error or result, and progress.
    texts: usize,
}

async fn page(work: &mut Work<'_>, query: &JobQuery, most: usize) -> Try<Step> {
    let row = work.state.queue(&query.queue)?;
    let (queue, mode) = (row.number, row.queue.mode);
    let mut found = found(work, query, (queue, mode), most + 1).await?;
    let shown = &found[..found.len().min(most)];
    let (lengths, rows) = lengths(work, query, (queue, mode), shown).await?;
    let more = found.len() > rows;
    found.truncate(rows);
    let ids: Vec<JobId> = lengths.iter().map(|length| length.id).collect();
    let lanes = found.iter().filter_map(|found| found.lane).collect();
    let bodies = query.payload_bytes_max.map_or(Bodies::All, Bodies::UpTo);
    load(work, &ids, &lanes, bodies).await?;
    let view = |length: &Length| {
        let view = work.state.job_view(length.id)?;
        Some(JobView { payload_bytes: length.bytes, ..view })
    };
    let rows: Vec<JobView> = lengths.iter().filter_map(view).collect();
    let next = found.last().filter(|_| more).map(|last| {
        let place = match (query.order, rows.last()) {
            (JobOrder::Turn, Some(view)) => place_of(JobOrder::Turn, view),
            _ => last.place.to_string(),
        };
        Cursor::behind(last.seq, place)
    });
    Ok(Step::of(rows, next))
}

/// The first rows of a listing, behind its cursor.
async fn found(
    work: &mut Work<'_>,
    query: &JobQuery,
    (queue, mode): (u32, Mode),
    rows_max: usize,
) -> Try<Vec<Found>> {
    let after = query.begin()?;
    let from = source(work, query, (queue, mode), after.as_ref(), rows_max).await?;
    let order = match query.order {
        JobOrder::Arrival | JobOrder::Turn => Order::Number,
        JobOrder::Key => Order::Text("j.k"),
        JobOrder::UpdatedAt => Order::Value("-j.at"),
    };
    let by = match query.order {
        JobOrder::Turn => turns(mode, work.now),
        _ => order.by("j.seq"),
    };
    let filter = match &after {
        None => String::new(),
        Some(after) if query.order == JobOrder::Turn => {
            format!("WHERE {}", behind_turn(mode, work.now, after)?)
        }
        Some(after) => format!("WHERE {}", behind(order, after, "j.seq")?),
    };
    let sql = format!(
        "SELECT j.seq, j.lane, {} FROM {from} j {filter} ORDER BY {by} LIMIT {rows_max}",
        order.text(),
    );
    let mut found = Vec::new();
    for row in work.rows(&sql).await? {
        let mut row = Columns::of(row);
        let (seq, lane) = (row.int()? as u64, row.maybe_int()?.map(|lane| lane as u64));
        found.push(Found { seq, lane, place: row.text()? });
    }
    Ok(found)
}

/// The lengths of the first rows that fill a page, and how many rows these are: some may have gone since.
async fn lengths(
    work: &mut Work<'_>,
    query: &JobQuery,
    (queue, mode): (u32, Mode),
    found: &[Found],
) -> Try<(Vec<Length>, usize)> {
    let bytes_max = query.payload_bytes_max.unwrap_or(usize::MAX);
    let (mut lengths, mut rows, mut shown) = (Vec::with_capacity(found.len()), 0, 0);
    for some in found.chunks(LENGTHS_AT_ONCE) {
        let mut read = HashMap::new();
        for row in work.rows(&lengths_of(mode, query, some)).await? {
            let mut row = Columns::of(row);
            let (seq, created) = (row.int()? as u64, Timestamp::from_micros(row.int()?));
            let bytes = row.maybe_int()?.unwrap_or_default() as usize;
            let texts = row.maybe_int()?.unwrap_or_default() as usize;
            read.insert(seq, Length { id: JobId::new(created, queue, 0, seq), bytes, texts });
        }
        for Found { seq, .. } in some {
            if shown >= PAGE_BYTES_MAX {
                return Ok((lengths, rows));
            }
            rows += 1;
            let Some(row) = read.remove(seq) else { continue };
            shown += row.texts + if row.bytes > bytes_max { 0 } else { row.bytes };
            lengths.push(row);
        }
    }
    Ok((lengths, rows))
}

/// The query for the lengths of these rows.
fn lengths_of(mode: Mode, query: &JobQuery, found: &[Found]) -> String {
    let seqs = list(found.iter().map(|found| found.seq));
    if !matches!(
        query.filter,
        JobFilter::Live | JobFilter::In(JobState::Queued | JobState::Running)
    ) {
        let error = ERROR.replace("REST", "rest");
        return format!(
            "SELECT seq, created, LENGTH(payload), {error} FROM seriatim_ended FORCE INDEX (PRIMARY) WHERE seq IN ({seqs})"
        );
    }
    let texts = texts_of_live(mode);
    format!(
        "SELECT j.seq, j.created, LENGTH(j.payload), {} FROM seriatim_job j FORCE INDEX (PRIMARY) \
         STRAIGHT_JOIN seriatim_lane l FORCE INDEX (PRIMARY) ON l.id = j.lane WHERE j.seq IN ({seqs}) UNION ALL \
         SELECT id, j_created, LENGTH(payload), {} FROM seriatim_lane l FORCE INDEX (PRIMARY) \
         WHERE id IN ({seqs}) AND j_gen IS NOT NULL",
        of_job(&texts),
        of_lane(&texts)
    )
}

// The columns of generation, number and `rest` differ between the tables: GEN, SEQ, REST.
/// Whether a job runs.
const RUNS: &str = "l.st = 2 AND (GEN < l.open OR SEQ = l.taken)";
/// The bytes of a job's own error or result.
const ERROR: &str = "IFNULL(LENGTH(JSON_UNQUOTE(JSON_EXTRACT(REST, '$.error'))), 0)";

/// The bytes of the error and progress that a job shows which has not ended.
fn texts_of_live(mode: Mode) -> String {
    let error = match mode {
        Mode::Accumulate => "IFNULL(LENGTH(l.error), 0)",
        _ => ERROR,
    };
    format!("{error} + IF({RUNS}, IFNULL(LENGTH(l.progress), 0), 0)")
}

/// In the terms of the table of jobs.
fn of_job(sql: &str) -> String {
    sql.replace("GEN", "j.gen").replace("SEQ", "j.seq").replace("REST", "j.rest")
}

/// In those of the lane's row, for the job that opened it.
fn of_lane(sql: &str) -> String {
    sql.replace("GEN", "l.j_gen").replace("SEQ", "l.id").replace("REST", "l.j_rest")
}

/// The table of a query's jobs. Without what the order does not need: then an index has it all.
async fn source(
    work: &mut Work<'_>,
    query: &JobQuery,
    (queue, mode): (u32, Mode),
    after: Option<&Cursor>,
    rows_max: usize,
) -> Try<String> {
    let (state, shown) = match query.filter {
        JobFilter::Live => (None, "true"),
        JobFilter::In(JobState::Queued) => {
            (None, "(l.st <> 2 OR GEN >= l.open AND SEQ <> l.taken)")
        }
        JobFilter::In(JobState::Running) => (None, RUNS),
        JobFilter::In(JobState::Dead) => (Some(DEAD), ""),
        JobFilter::In(JobState::Succeeded) => (Some(SUCCEEDED), ""),
        JobFilter::In(JobState::Canceled) => (Some(CANCELED), ""),
    };
    // In order of arrival, each table returns no more than a page.
    let bound = |number: &str| match query.order {
        JobOrder::Arrival => {
            let after = after.map_or(0, |after| after.number);
            format!("AND {number} > {after} ORDER BY {number} LIMIT {rows_max}")
        }
        _ => String::new(),
    };
    let key = query.key.as_deref().map(|key| format!("AND k = {}", text(key))).unwrap_or_default();
    let Some(state) = state else {
        if query.key.is_none() && query.order == JobOrder::Arrival && mode == Mode::Parallel {
            return Ok(of_lone_lanes(query.filter, queue, &bound("id")));
        }
        let walk = match (&query.key, query.order) {
            (None, JobOrder::Arrival) => Walk::of(work, queue).await?,
            _ => Walk::default(),
        };
        // Not by the jobs of the queue, if those of one lane are asked for.
        let joined = match query.key {
            Some(_) => {
                "seriatim_lane l FORCE INDEX (lane_key) STRAIGHT_JOIN seriatim_job j FORCE INDEX (job_lane) ON j.lane = l.id"
            }
            None => walk.jobs,
        };
        let place = match query.order {
            JobOrder::Turn => ["j.score, j.prio, j.run_at", "j_score, j_prio, j_run_at"],
            _ => ["1", "1"],
        };
        return Ok(format!(
            "((SELECT j.seq, j.lane, k, 0 AS at, {} FROM {joined} WHERE l.q = {queue} AND {} {key} {}) UNION ALL \
             (SELECT id, id, k, 0, {} FROM {} WHERE q = {queue} AND j_gen IS NOT NULL AND {} {key} {}))",
            place[0],
            of_job(shown),
            bound("j.seq"),
            place[1],
            walk.lanes,
            of_lane(shown),
            bound("id")
        ));
    };
    // Not by all of the state, if those of one key are asked for.
    let index = if query.key.is_some() { "FORCE INDEX (ended_key)" } else { "" };
    let from = format!("seriatim_ended {index} WHERE q = {queue} AND state = {state} {key}");
    let newest = newest(work, &from, query.order, after, rows_max).await?;
    Ok(format!("(SELECT seq, NULL AS lane, k, at FROM {from} {newest} {})", bound("seq")))
}

/// How the jobs of a queue are found in the order of their arrival, which has no index by queue.
struct Walk {
    /// Those in a table of their own, with their lanes.
    jobs: &'static str,
    /// Those that opened their lanes.
    lanes: &'static str,
}

impl Default for Walk {
    /// All are found and sorted.
    fn default() -> Self {
        Self {
            jobs: "seriatim_job j JOIN seriatim_lane l ON l.id = j.lane AND j.q = l.q",
            lanes: "seriatim_lane l",
        }
    }
}

impl Walk {
    /// If the queue has many, the jobs of all queues are passed by in their order until a page is full.
    async fn of(work: &mut Work<'_>, queue: u32) -> Try<Self> {
        let figures = work.figures().await?;
        let mut walk = Self::default();
        if figures.get(queue, Figure::Jobs) > SORTED_MAX {
            walk.jobs = "seriatim_job j FORCE INDEX (PRIMARY) \
                 STRAIGHT_JOIN seriatim_lane l FORCE INDEX (PRIMARY) ON l.id = j.lane AND j.q = l.q";
        }
        if figures.get(queue, Figure::Lanes) > SORTED_MAX {
            walk.lanes = "seriatim_lane l FORCE INDEX (PRIMARY)";
        }
        Ok(walk)
    }
}

/// The jobs of a queue without keys, each in a lane of its own: an index has all that decides which are shown.
fn of_lone_lanes(filter: JobFilter, queue: u32, bound: &str) -> String {
    let shown = match filter {
        JobFilter::In(JobState::Queued) => format!("AND st <> {}", st::CLAIMED),
        JobFilter::In(_) => format!("AND st = {}", st::CLAIMED),
        JobFilter::Live => String::new(),
    };
    format!(
        "(SELECT id AS seq, id AS lane, NULL AS k, 0 AS at FROM seriatim_lane FORCE INDEX (lane_ready) \
         WHERE q = {queue} {shown} {bound})"
    )
}

/// The order in which a lane hands its jobs over.
fn turns(mode: Mode, now: Timestamp) -> String {
    let now = now.as_micros();
    match mode {
        Mode::Exclusive => {
            format!("j.run_at > {now}, IF(j.run_at > {now}, 0, j.prio), j.run_at, j.seq")
        }
        _ => "j.score, j.seq".to_owned(),
    }
}

/// The condition for the jobs behind a cursor in that order.
fn behind_turn(mode: Mode, now: Timestamp, after: &Cursor) -> Result<String> {
    let (last, number) = (Handover::read(after)?, after.number);
    let (later, priority, run_at) = last.place(mode, now);
    let place = match mode {
        Mode::Exclusive => format!("{},{priority},{run_at},{number}", u8::from(later)),
        // As scores are written to the tables.
        _ => format!("{:?},{number}", last.score),
    };
    Ok(format!("({}) > ({place})", turns(mode, now)))
}

/// If the newest come first, the condition for a number of them after a cursor, and all others of the last time: an
/// index has them.
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

/// Reads these jobs, and their lanes without other jobs.
async fn load(
    work: &mut Work<'_>,
    ids: &[JobId],
    lanes: &BTreeSet<u64>,
    bodies: Bodies,
) -> Try<()> {
    let lanes: Vec<u64> = lanes.iter().copied().collect();
    for lanes in lanes.chunks(LIST_MAX) {
        work.read_lanes(&by_id(lanes.iter().copied()), bodies).await?;
    }
    for ids in ids.chunks(LIST_MAX) {
        let ids = list(ids.iter().map(|id| id.seq()));
        let jobs = format!("FROM seriatim_job j FORCE INDEX (PRIMARY) WHERE j.seq IN ({ids})");
        work.read_jobs(&jobs, bodies).await?;
        let ended = format!("FROM seriatim_ended j WHERE j.seq IN ({ids})");
        work.read_ended(&ended, bodies).await?;
    }
    work.load_nodes(None, "").await
}

/// One job.
pub(super) async fn one(work: &mut Work<'_>, id: JobId) -> Try<Option<JobView>> {
    let found = work.find(&[id]).await?;
    let ids: Vec<JobId> = found.iter().map(|(id, _)| *id).collect();
    let lanes = found.iter().filter_map(|(_, lane)| *lane).collect();
    load(work, &ids, &lanes, Bodies::All).await?;
    Ok(work.state.job_view(id))
}

/// The condition for the rows after a cursor.
pub(super) fn behind(order: Order, after: &Cursor, number: &str) -> Result<String> {
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
