//! Statistics and listings. They use the reading connection.

use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use rusqlite::params;
use rusqlite::types::Value;

use super::Sqlite;
use super::actions::Location;
use super::lane::Work;
use super::row::{JOB_COLUMNS, Job};
use super::tx::{QueueRow, Tx};
use crate::contract::{
    JobFilter, JobOrder, JobQuery, JobState, JobView, LaneQuery, LaneView, NodeView, Page,
    QueueDue, QueueStats, QueueView, Views,
};
use crate::model::clock::Timestamp;
use crate::model::cursor::Cursor;
use crate::model::error::Result;
use crate::model::id::{JobId, LaneId, Token};
use crate::model::limits::{PAGE_BYTES_MAX, PAGE_ROWS_MAX};
use crate::model::payload::Payload;
use crate::model::queue::Mode;
use crate::model::turn::Turn;
use crate::stores::order::{Order, last_of_newest};

#[async_trait]
impl Views for Sqlite {
    async fn queues(&self) -> Result<Vec<QueueView>> {
        self.look(|tx| tx.at(None).queue_views()).await
    }

    async fn stats(&self, now: Option<Timestamp>) -> Result<Vec<QueueStats>> {
        self.look(move |tx| tx.at(now).stats()).await
    }

    async fn due(&self, queues: Vec<Arc<str>>) -> Result<Vec<QueueDue>> {
        self.look(move |tx| tx.at(None).due(&queues)).await
    }

    async fn lanes(&self, query: LaneQuery) -> Result<Page<LaneView>> {
        self.look(move |tx| tx.at(query.now).lane_page(&query)).await
    }

    async fn jobs(&self, query: JobQuery) -> Result<Page<JobView>> {
        self.look(move |tx| tx.at(None).job_page(&query)).await
    }

    async fn job(&self, id: JobId) -> Result<Option<JobView>> {
        self.look(move |tx| tx.at(None).job_view(id)).await
    }

    async fn turn(&self, lane: LaneId, token: Token) -> Result<Option<Turn>> {
        let held = self.look(move |tx| tx.at(None).held_turn(lane.number as i64, true)).await?;
        Ok(held.filter(|turn| turn.lane == lane && turn.token == token))
    }

    async fn nodes(&self) -> Result<Vec<NodeView>> {
        self.look(|tx| tx.at(None).node_views()).await
    }
}

impl Tx<'_> {
    pub(super) fn queue_views(&mut self) -> Result<Vec<QueueView>> {
        let view = |row: QueueRow| QueueView {
            number: row.number,
            queue: (*row.queue).clone(),
            declared: row.declared,
            paused: row.paused,
        };
        let mut views: Vec<QueueView> = self.all_queues()?.into_iter().map(view).collect();
        views.sort_unstable_by(|a, b| a.queue.name.cmp(&b.queue.name));
        Ok(views)
    }

    pub(super) fn due(&mut self, queues: &[Arc<str>]) -> Result<Vec<QueueDue>> {
        let mut rows = match queues {
            [] => self.all_queues()?,
            _ => self.queues_named(queues)?,
        };
        rows.sort_unstable_by_key(|row| row.number);
        rows.dedup_by_key(|row| row.number);
        let mut sources = Vec::new();
        for row in rows {
            let (number, queue, paused) = (row.number, row.name, row.paused);
            let due = if paused { None } else { self.first_due(number)? };
            sources.push(QueueDue { queue, due: due.map(Timestamp::from_micros) });
        }
        Ok(sources)
    }

    /// The earliest due time of a queue's unclaimed lanes: of the scheduled ones, and of the first ready one in each
    /// class and priority.
    pub(super) fn first_due(&self, queue: u32) -> Result<Option<i64>> {
        let groups = self.ready_groups(queue)?;
        // Scheduled lanes may have become due since the last claim.
        let wake = self.first_wake(queue)?;
        Ok(groups.into_iter().map(|group| group.due).chain(wake).min())
    }

    /// The ready lanes of a queue by class and priority, each group with its first due time.
    pub(super) fn ready_groups(&self, queue: u32) -> Result<Vec<ReadyGroup>> {
        let next_class =
            "SELECT class FROM ready WHERE q = ?1 AND class > ?2 ORDER BY class LIMIT 1";
        let next_priority = "SELECT prio, due FROM ready WHERE q = ?1 AND class = ?2 AND prio > ?3
                             ORDER BY prio, due LIMIT 1";
        let mut groups = Vec::new();
        let mut last_class = -1_i64;
        while let Some(class) =
            self.first(next_class, params![queue, last_class], |row| row.get(0))?
        {
            let mut last = -1_i64;
            while let Some((prio, due)) =
                self.first(next_priority, params![queue, class, last], |row| {
                    Ok((row.get(0)?, row.get(1)?))
                })?
            {
                groups.push(ReadyGroup { class, prio, due });
                last = prio;
            }
            last_class = class;
        }
        Ok(groups)
    }

    pub(super) fn stats(&mut self) -> Result<Vec<QueueStats>> {
        let sql =
            "SELECT number, lanes, jobs, running, dead, processed, failed FROM queue ORDER BY name";
        let rows: Vec<[i64; 7]> = self.rows(sql, [], |row| {
            let mut numbers = [0; 7];
            for (i, number) in numbers.iter_mut().enumerate() {
                *number = row.get(i)?;
            }
            Ok(numbers)
        })?;
        let mut stats = Vec::with_capacity(rows.len());
        for [number, lanes, jobs, running, dead, processed, failed] in rows {
            let Some(queue) = self.queue_number(number as u32)? else { continue };
            let retries =
                "SELECT count(*) FROM lane INDEXED BY lane_failed WHERE q = ?1 AND retry >= 0";
            let retries: i64 = self.first(retries, [number], |row| row.get(0))?.unwrap_or_default();
            let due = self.first_due(number as u32)?.unwrap_or(self.now);
            let count = |number: i64| number.max(0) as u64;
            stats.push(QueueStats {
                queue: queue.name,
                mode: Some(queue.queue.mode),
                paused: queue.paused,
                lanes: count(lanes),
                jobs: count(jobs),
                claimed: count(running),
                retrying: count(retries),
                dead: count(dead),
                processed: count(processed),
                failed: count(failed),
                lag: Duration::from_micros(count(self.now - due)),
            });
        }
        Ok(stats)
    }

    pub(super) fn job_page(&mut self, query: &JobQuery) -> Result<Page<JobView>> {
        let queue = self.known_queue(&query.queue)?.number;
        let most = query.rows_max.clamp(1, PAGE_ROWS_MAX);
        let after = Cursor::read(query.after.as_deref())?;
        let seqs = match query.filter {
            JobFilter::Live | JobFilter::In(JobState::Queued | JobState::Running) => {
                self.live_page(queue, query, after, most)?
            }
            JobFilter::In(state) => self.ended_page(queue, query, state, after, most)?,
        };
        let (mut rows, mut bytes, mut shown) = (Vec::new(), 0, 0);
        for (seq, created, _) in seqs.iter().take(most) {
            if bytes >= PAGE_BYTES_MAX {
                break;
            }
            let view = self.job_view(super::push::job_id(*created, queue, *seq))?;
            bytes += view.as_ref().map_or(0, |view| view.payload.as_bytes().len());
            rows.extend(view);
            shown += 1;
        }
        let more = seqs.len() > shown;
        let last = seqs[..shown].last().filter(|_| more);
        let next = last.map(|(seq, _, place)| Cursor::behind(seq, place));
        Ok(Page { rows, next, cut: false })
    }

    /// Number, arrival time and sort value of each row of the page, and of one more.
    fn live_page(
        &mut self,
        queue: u32,
        query: &JobQuery,
        after: Option<Cursor>,
        most: usize,
    ) -> Result<Vec<(i64, i64, String)>> {
        let keyed = if query.key.is_some() { "l.key = ?3" } else { "?3 IS NULL" };
        let shown = match query.filter {
            JobFilter::In(JobState::Queued) => "NOT (RUNS)",
            JobFilter::In(_) => "(RUNS)",
            JobFilter::Live => "true",
        };
        // A light claim has the slot's job; in `accumulate`, all.
        let accumulates =
            self.queue_number(queue)?.is_some_and(|q| q.queue.mode == Mode::Accumulate);
        let light = "l.st = 0 AND l.id IN (SELECT id FROM held WHERE q = ?1)";
        let slot = shown.replace("RUNS", &format!("l.st = 2 AND l.gen < l.open OR {light}"));
        let item = format!("l.st = 2 AND i.gen < l.open OR {accumulates} AND {light}");
        let item = shown.replace("RUNS", &item);
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
        } else {
            in_arrival_order(&slot, &item)
        };
        let sql = format!(
            "SELECT seq, created, CAST(ifnull(key, '') AS TEXT) FROM ({branches})
             WHERE {behind} ORDER BY key, seq LIMIT ?4"
        );
        let number = after.as_ref().map(|after| after.number);
        let values = params![queue, number, query.key, most as i64 + 1, last];
        self.rows(&sql, values, |row| Ok((row.get(0)?, row.get(1)?, row.get(2)?)))
    }

    fn ended_page(
        &mut self,
        queue: u32,
        query: &JobQuery,
        state: JobState,
        after: Option<Cursor>,
        most: usize,
    ) -> Result<Vec<(i64, i64, String)>> {
        let order = match query.order {
            JobOrder::Arrival => Order::Number,
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
            (JobOrder::Arrival, _) => "NOT INDEXED",
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

    pub(super) fn job_view(&mut self, id: JobId) -> Result<Option<JobView>> {
        let view = match self.find(id)? {
            None => return Ok(None),
            Some((seq, Location::Lane(lane))) => self.live_view(lane, seq)?,
            Some((seq, Location::Ended)) => self.ended_view(seq)?,
        };
        Ok(view.map(|view| JobView { id, ..view }))
    }

    fn live_view(&mut self, lane: i64, seq: i64) -> Result<Option<JobView>> {
        let Some(work) = self.lane(lane)? else { return Ok(None) };
        let slot = work.row.slot.clone().filter(|slot| slot.seq == seq);
        let job = match slot {
            Some(mut slot) => {
                if work.definition().mode != Mode::Accumulate {
                    let head = &work.row.head;
                    (slot.retry, slot.crashes, slot.error) =
                        (head.retry, head.crashes, head.error.clone());
                }
                Some(slot)
            }
            None => {
                let sql = format!("SELECT {JOB_COLUMNS} FROM item WHERE seq = ?1");
                self.first(&sql, [seq], |row| Job::read(row, 0))?
            }
        };
        let Some(mut job) = job else { return Ok(None) };
        let head = &work.row.head;
        let runs = head.is_claimed() && job.gen_ < head.open;
        if work.definition().mode == Mode::Accumulate {
            (job.retry, job.crashes, job.error) = (head.retry, head.crashes, head.error.clone());
        }
        let claimed_at = head.claimed_at;
        let payload = self.payload_of(&job)?;
        let mut view = view_of(&work.queue, head.key.clone(), job, payload);
        if let Some(holder) = self.holder(&work)?.filter(|_| runs) {
            view.state = JobState::Running;
            view.attempt += 1;
            view.started_at = view.started_at.or(claimed_at.map(Timestamp::from_micros));
            view.heartbeat_at = Some(Timestamp::from_micros(holder.beat_at));
            view.progress = holder.progress;
        }
        Ok(Some(view))
    }

    pub(super) fn holder(&mut self, work: &Work) -> Result<Option<Holder>> {
        if !work.row.head.is_claimed() {
            return Ok(None);
        }
        let sql = "SELECT coalesce(c.node, ''), l.progress,
                     CASE WHEN c.until IS NOT NULL OR n.beat_at IS NULL THEN ?3 ELSE max(?3, n.beat_at) END
                   FROM lane l LEFT JOIN claim c ON c.tok = ?2 LEFT JOIN node n ON n.id = c.node WHERE l.id = ?1";
        let head = &work.row.head;
        self.first(sql, params![head.id, head.token, head.beat_at], |row| {
            Ok(Holder { node: row.get(0)?, progress: row.get(1)?, beat_at: row.get(2)? })
        })
    }

    fn ended_view(&mut self, seq: i64) -> Result<Option<JobView>> {
        let columns = JOB_COLUMNS.replace("gen", "0");
        let sql = format!("SELECT q, key, state, at, {columns} FROM ended WHERE seq = ?1");
        let row = self.first(&sql, [seq], |row| {
            let (queue, key): (u32, Option<Arc<str>>) = (row.get(0)?, row.get(1)?);
            let (state, at): (String, i64) = (row.get(2)?, row.get(3)?);
            Ok((queue, key, state, at, Job::read(row, 4)?))
        })?;
        let Some((number, key, state, at, job)) = row else { return Ok(None) };
        let Some(queue) = self.queue_number(number)? else { return Ok(None) };
        let payload = self.payload_of(&job)?;
        let mut view = view_of(&queue, key, job, payload);
        view.finished_at = Some(Timestamp::from_micros(at));
        view.state = match state.as_str() {
            "succeeded" => JobState::Succeeded,
            "canceled" => JobState::Canceled,
            _ => JobState::Dead,
        };
        Ok(Some(view))
    }
}

/// Ready lanes of one class and priority.
pub(super) struct ReadyGroup {
    pub(super) class: i64,
    pub(super) prio: i64,
    /// When the first one is due.
    pub(super) due: i64,
}

/// The claim of a lane, as views show it.
pub(super) struct Holder {
    pub(super) node: String,
    pub(super) progress: Option<Arc<str>>,
    pub(super) beat_at: i64,
}

fn view_of(queue: &QueueRow, key: Option<Arc<str>>, job: Job, payload: Vec<u8>) -> JobView {
    JobView {
        id: job.id(queue.number),
        queue: queue.name.clone(),
        key,
        state: JobState::Queued,
        options: job.options(),
        task: job.task,
        payload: Payload::from_bytes(payload),
        score: job.score,
        priority: job.prio as u16,
        run_at: Timestamp::from_micros(job.run_at),
        attempt: job.attempts as u32,
        retry_count: job.retry as i32,
        crashes: job.crashes as u32,
        error: job.error,
        cancel_requested: job.flagged,
        created_at: Timestamp::from_micros(job.created),
        started_at: job.started.map(Timestamp::from_micros),
        finished_at: None,
        heartbeat_at: None,
        progress: None,
    }
}

/// The running jobs: of the lanes that are claimed, without what waits behind them. `own` is the condition for jobs in
/// `item`, besides that they run; a light claim has those in `accumulate` only.
fn of_held_lanes(place: &str, accumulates: bool, slot: &str, own: &str) -> String {
    let held = "l.id IN (SELECT id FROM held WHERE q = ?1)";
    let item =
        format!("SELECT i.seq, i.created, {place} FROM lane l CROSS JOIN item i ON i.lane = l.id");
    format!(
        "SELECT l.seq AS seq, l.created AS created, {place} AS key FROM lane l WHERE {held} AND l.seq IS NOT NULL AND {slot}
         UNION ALL {item} AND i.gen < l.open WHERE {held} AND l.st = 2 AND {own}
         UNION ALL {item} WHERE {held} AND l.st = 0 AND {accumulates} AND {own}"
    )
}

/// The first waiting and running jobs by number. Most slots have the number of their lane; so no branch sorts, and each
/// ends at the limit.
fn in_arrival_order(slot: &str, item: &str) -> String {
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
    branches.map(branch).join(" UNION ALL ")
}

/// The condition for rows after a cursor, with its number and sort value in parameters 2 and 5; and the sort value.
pub(super) fn behind(
    order: Order,
    after: Option<&Cursor>,
    number: &str,
) -> Result<(String, Value)> {
    let Some(after) = after else {
        return Ok(("?2 IS ?5".to_owned(), Value::Null));
    };
    let (order, place) = match order {
        Order::Number => return Ok((format!("{number} > ?2 AND ?5 IS NULL"), Value::Null)),
        Order::Text(order) if after.place.is_empty() => {
            let sql = format!("({order} IS NOT NULL OR {number} > ?2) AND ?5 IS NULL");
            return Ok((sql, Value::Null));
        }
        Order::Value(order) => (order, Value::Integer(after.place_number()?)),
        Order::Text(order) => (order, Value::Text(after.place.clone())),
    };
    // The first part is the range of an index on an expression, which SQLite does not see in the second.
    Ok((format!("{order} >= ?5 AND ({order}, {number}) > (?5, ?2)"), place))
}
