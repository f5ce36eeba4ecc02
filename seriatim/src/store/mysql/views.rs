//! What people and programs see. Rows are chosen and ordered by the server; what they say of
//! themselves is the model's.

use std::collections::{BTreeSet, HashMap};

use super::claim::first_dues;
use super::error::Try;
use super::row::{CANCELED, DEAD, SUCCEEDED, WAITING, st};
use super::sql::{Columns, LIST_MAX, list, text};
use super::work::{Bodies, Need, Work};
use crate::error::{Error, Result};
use crate::id::JobId;
use crate::limits::PAGE_ROWS_MAX;
use crate::queue::Mode;
use crate::store::memory::views::lane_view;
use crate::store::view::{
    JobOrder, JobQuery, JobState, JobView, LaneOrder, LaneQuery, LaneView, Page, QueueStats,
};

pub(super) async fn stats(work: &mut Work<'_>) -> Try<Vec<QueueStats>> {
    let now = work.now;
    let queues = list(work.state.queues.iter().map(|row| u64::from(row.number)));
    let dues = first_dues(work, &queues).await?;
    let sql = format!(
        "SELECT q, COUNT(*), SUM(n + c), SUM(st = {}), SUM(retry >= 0) FROM seriatim_lane GROUP BY q; \
         SELECT q, COUNT(*) FROM seriatim_job WHERE q IN ({queues}) AND state = {DEAD} GROUP BY q; \
         SELECT q, SUM(processed), SUM(failed) FROM seriatim_tally GROUP BY q",
        st::CLAIMED
    );
    let mut numbers: Vec<HashMap<u32, Vec<u64>>> = Vec::new();
    for (answer, columns) in work.loan.run(&sql).await?.into_iter().zip([4, 1, 2]) {
        let mut of_queue = HashMap::new();
        for row in answer.rows {
            let mut row = Columns::of(row);
            let queue = row.int()? as u32;
            let values: Try<Vec<u64>> = (0..columns).map(|_| Ok(row.int()? as u64)).collect();
            of_queue.insert(queue, values?);
        }
        numbers.push(of_queue);
    }
    let number = |queue: u32, set: usize, column: usize| {
        let values = numbers.get(set).and_then(|set| set.get(&queue));
        values.and_then(|values| values.get(column)).copied().unwrap_or_default()
    };
    let mut stats: Vec<QueueStats> = work
        .state
        .queues
        .iter()
        .map(|row| QueueStats {
            queue: row.name.clone(),
            mode: Some(row.queue.mode),
            paused: row.paused,
            lanes: number(row.number, 0, 0),
            jobs: number(row.number, 0, 1),
            running: number(row.number, 0, 2),
            retries: number(row.number, 0, 3),
            dead: number(row.number, 1, 0),
            processed: number(row.number, 2, 0),
            failed: number(row.number, 2, 1),
            lag: dues.get(&row.number).map(|due| now.since(*due)).unwrap_or_default(),
        })
        .collect();
    stats.sort_unstable_by(|a, b| a.queue.cmp(&b.queue));
    Ok(stats)
}

pub(super) async fn lanes(work: &mut Work<'_>, query: &LaneQuery) -> Try<Page<LaneView>> {
    let row = work.state.queue(&query.queue)?;
    let (queue, mode) = (row.number, row.queue.mode);
    // Of a lane whose jobs have their own times it is the head's, or that of the turn.
    let head = "(SELECT j.run_at FROM seriatim_job j WHERE j.lane = l.id ORDER BY j.gen < l.open DESC, j.ord, j.seq LIMIT 1)";
    let order = match query.order {
        LaneOrder::Age => "l.age",
        LaneOrder::Key => "l.k",
        LaneOrder::Due if mode == Mode::Accumulate => "l.due",
        LaneOrder::Due => head,
        LaneOrder::RetryCount => "-l.retry",
    };
    let mut filter = format!("l.q = {queue}");
    if let Some(key) = &query.key {
        filter += &format!(" AND l.k = {}", text(key));
    }
    if query.running {
        filter += &format!(" AND l.st = {}", st::CLAIMED);
    }
    if query.order == LaneOrder::RetryCount {
        filter += " AND l.retry >= 0";
    }
    if let Some(after) = query.after.as_deref().map(cursor).transpose()? {
        let last = format!("SELECT {order} FROM seriatim_lane l WHERE l.id = {after}");
        filter += &format!(
            " AND ({order} > ({last}) OR ({order} = ({last}) AND (l.age, l.id) > \
             (SELECT age, id FROM seriatim_lane WHERE id = {after})))"
        );
    }
    let most = query.rows_max.clamp(1, PAGE_ROWS_MAX);
    let sql = format!(
        "SELECT l.id FROM seriatim_lane l WHERE {filter} ORDER BY {order}, l.age, l.id LIMIT {}",
        most + 1
    );
    let mut ids = Vec::new();
    for row in work.loan.rows(&sql).await? {
        ids.push(Columns::of(row).int()? as u64);
    }
    let more = ids.len() > most;
    ids.truncate(most);
    work.read_lanes(&format!("WHERE id IN ({})", list(ids.iter().copied()))).await?;
    work.load_jobs(&ids, Need::Position, true, Bodies::None, &HashMap::new()).await?;
    let view = |id: &u64| {
        let view = lane_view(work.state.lanes.get(id)?);
        let row = work.lanes.get(id)?;
        Some(LaneView { jobs: (row.n + row.c) as u64, ..view })
    };
    let next = ids.last().filter(|_| more).map(|id| id.to_string());
    Ok(Page { rows: ids.iter().filter_map(view).collect(), next })
}

pub(super) async fn jobs(work: &mut Work<'_>, query: &JobQuery) -> Try<Page<JobView>> {
    let queue = work.state.queue(&query.queue)?.number;
    let is_live = matches!(query.state, JobState::Queued | JobState::Running);
    let state = match query.state {
        JobState::Queued | JobState::Running => WAITING,
        JobState::Failed => DEAD,
        JobState::Succeeded => SUCCEEDED,
        JobState::Canceled => CANCELED,
    };
    let key = if is_live { "(SELECT l.k FROM seriatim_lane l WHERE l.id = j.lane)" } else { "j.k" };
    let order = match query.order {
        JobOrder::Arrival => "0",
        JobOrder::Key => key,
        JobOrder::UpdatedAt => "-j.at",
    };
    let mut filter = format!("j.q = {queue} AND j.state = {state}");
    if let Some(wanted) = &query.key {
        filter += &format!(" AND {key} = {}", text(wanted));
    }
    if let Some(after) = query.after.as_deref().map(cursor).transpose()? {
        let last = format!("SELECT {order} FROM seriatim_job j WHERE j.seq = {after}");
        filter += &match query.order {
            JobOrder::Arrival => format!(" AND j.seq > {after}"),
            _ => format!(" AND ({order} > ({last}) OR ({order} = ({last}) AND j.seq > {after}))"),
        };
    }
    let most = query.rows_max.clamp(1, PAGE_ROWS_MAX);
    let sort = if query.order == JobOrder::Arrival {
        "j.seq".to_owned()
    } else {
        format!("{order}, j.seq")
    };
    let sql = format!(
        "SELECT j.seq, j.created, j.lane FROM seriatim_job j WHERE {filter} ORDER BY {sort} LIMIT {}",
        most + 1
    );
    let (mut ids, mut lanes) = (Vec::new(), BTreeSet::new());
    for row in work.loan.rows(&sql).await? {
        let mut row = Columns::of(row);
        let seq = row.int()? as u64;
        let created = crate::clock::Timestamp::from_micros(row.int()?);
        ids.push(JobId::new(created, queue, 0, seq));
        lanes.extend(row.maybe_int()?.map(|lane| lane as u64));
    }
    let more = ids.len() > most;
    ids.truncate(most);
    load_some(work, &ids, &lanes).await?;
    let rows = ids.iter().filter_map(|id| view_of(work, *id)).collect();
    let next = ids.last().filter(|_| more).map(|id| id.seq().to_string());
    Ok(Page { rows, next })
}

/// Reads these jobs with their payloads, and their lanes, without the other jobs in them.
async fn load_some(work: &mut Work<'_>, ids: &[JobId], lanes: &BTreeSet<u64>) -> Try<()> {
    let lanes: Vec<u64> = lanes.iter().copied().collect();
    for lanes in lanes.chunks(LIST_MAX) {
        work.read_lanes(&format!("WHERE id IN ({})", list(lanes.iter().copied()))).await?;
    }
    for ids in ids.chunks(LIST_MAX) {
        let ids = list(ids.iter().map(|id| id.seq()));
        work.read_jobs(&format!("FROM seriatim_job j WHERE j.seq IN ({ids})"), Bodies::All).await?;
    }
    work.load_nodes(None, "").await
}

fn view_of(work: &Work<'_>, id: JobId) -> Option<JobView> {
    work.state.job_view(id)
}

pub(super) async fn job(work: &mut Work<'_>, id: JobId) -> Try<Option<JobView>> {
    let found = work.find(&[id]).await?;
    let ids: Vec<JobId> = found.iter().map(|(id, _)| *id).collect();
    let lanes = found.iter().filter_map(|(_, lane)| *lane).collect();
    load_some(work, &ids, &lanes).await?;
    Ok(view_of(work, id))
}

fn cursor(after: &str) -> Result<u64> {
    after
        .parse()
        .map_err(|_| Error::invalid("after", "a page begins where `next` of the page before says"))
}
