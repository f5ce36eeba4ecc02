//! Statistics and listings. They use the reading connection.

use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use rusqlite::params;
use rusqlite::types::Value;

use super::Sqlite;
use super::actions::Location;
use super::flush::Flush;
use super::lane::Work;
use super::line::Rank;
use super::row::{JOB_COLUMNS, Job};
use super::tx::{QueueRow, Tx};
use crate::contract::{
    JobQuery, JobState, JobView, LaneQuery, LaneView, NodeView, Page, QueueDue, QueueStats,
    QueueView, Views, Vitals,
};
use crate::model::{
    Cursor, JobId, LaneId, Mode, NodeId, Payload, Result, Timestamp, Token, Turn, result,
};
use crate::stores::order::Order;
use crate::stores::{gone, job_look};

#[async_trait]
impl Views for Sqlite {
    async fn queues(&self) -> Result<Vec<QueueView>> {
        self.look(|tx| tx.at(None).queue_views()).await
    }

    async fn stats(&self, now: Option<Timestamp>) -> Result<Vec<QueueStats>> {
        self.look(move |tx| tx.at(now).stats()).await
    }

    async fn due(&self, queues: Vec<Arc<str>>) -> Result<Vec<QueueDue>> {
        // Not by the reading thread: an engine asks it before it claims, which must not wait for a long list.
        self.write.call(Rank::First, 0, Flush::Later, move |tx| tx.at(None).due(&queues)).await
    }

    async fn lanes(&self, query: LaneQuery) -> Result<Page<LaneView>> {
        self.look(move |tx| tx.at(query.now).lane_page(&query)).await
    }

    async fn jobs(&self, query: JobQuery) -> Result<Page<JobView>> {
        job_look::page(self, query).await
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

    async fn vitals(&self) -> Result<Vitals> {
        self.look(|tx| tx.at(None).vitals()).await
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

    /// The database without its write-ahead log, which is bounded.
    pub(super) fn vitals(&mut self) -> Result<Vitals> {
        let sql = "SELECT page_count * page_size FROM pragma_page_count(), pragma_page_size()";
        let bytes: Vec<i64> = self.rows(sql, [], |row| row.get(0))?;
        Ok(Vitals { bytes: bytes.first().map(|bytes| *bytes as u64), ..Vitals::default() })
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
            sources.push(QueueDue::new(queue, due.map(Timestamp::from_micros)));
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
        let sql = "SELECT number, lanes, jobs, running, retrying, dead, processed, failed FROM queue ORDER BY name";
        let rows: Vec<[i64; 8]> = self.rows(sql, [], |row| {
            let mut numbers = [0; 8];
            for (i, number) in numbers.iter_mut().enumerate() {
                *number = row.get(i)?;
            }
            Ok(numbers)
        })?;
        let mut stats = Vec::with_capacity(rows.len());
        for [number, lanes, jobs, running, retrying, dead, processed, failed] in rows {
            let Some(queue) = self.queue_number(number as u32)? else { continue };
            let due = self.first_due(number as u32)?.unwrap_or(self.now);
            let count = |number: i64| number.max(0) as u64;
            stats.push(QueueStats {
                queue: queue.name,
                mode: Some(queue.queue.mode),
                paused: queue.paused,
                lanes: count(lanes),
                jobs: count(jobs),
                claimed: count(running),
                retrying: count(retrying),
                dead: count(dead),
                processed: count(processed),
                failed: count(failed),
                lag: Duration::from_micros(count(self.now - due)),
            });
        }
        Ok(stats)
    }

    pub(super) fn job_view(&mut self, id: JobId) -> Result<Option<JobView>> {
        self.job_view_with(id, None)
    }

    /// A longer payload is left out.
    pub(super) fn job_view_with(
        &mut self,
        id: JobId,
        payload_bytes_max: Option<usize>,
    ) -> Result<Option<JobView>> {
        let view = match self.find(id)? {
            None => return Ok(None),
            Some((seq, Location::Lane(lane))) => self.live_view(lane, seq, payload_bytes_max)?,
            Some((seq, Location::Ended)) => self.ended_view(seq, payload_bytes_max)?,
        };
        Ok(view.map(|view| JobView { id, ..view }))
    }

    fn live_view(
        &mut self,
        lane: i64,
        seq: i64,
        payload_bytes_max: Option<usize>,
    ) -> Result<Option<JobView>> {
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
        let payload = self.payload_to_show(&job, payload_bytes_max)?;
        let mut view = view_of(&work.queue, head.key.clone(), job, payload);
        if let Some(holder) = self.holder(&work)?.filter(|_| runs) {
            view.state = JobState::Running;
            view.attempt += 1;
            view.started_at = view.started_at.or(claimed_at.map(Timestamp::from_micros));
            view.heartbeat_at = Some(Timestamp::from_micros(holder.beat_at));
            view.progress = holder.progress;
            view.token = Some(Token(work.row.head.token));
            view.node = Some(NodeId(holder.node.as_str().into()));
        }
        view.lane = Some(work.row.head.lane_id());
        Ok(Some(view))
    }

    pub(super) fn holder(&mut self, work: &Work) -> Result<Option<Holder>> {
        if !work.row.head.is_claimed() {
            return Ok(None);
        }
        let head = &work.row.head;
        let sql = include_str!("sql/holder.sql");
        self.first(sql, params![head.id, head.token, head.beat_at], |row| {
            let (until, beat, ttl): (Option<i64>, Option<i64>, Option<i64>) =
                (row.get(3)?, row.get(4)?, row.get(5)?);
            let of_node = beat.zip(ttl).map(|(beat, ttl)| {
                let ttl = Duration::from_micros(ttl.max(0) as u64);
                gone::lease_end(Timestamp::from_micros(beat), ttl)
            });
            Ok(Holder {
                node: row.get(0)?,
                progress: row.get(1)?,
                beat_at: row.get(2)?,
                lease_until: until.map(Timestamp::from_micros).or(of_node),
            })
        })
    }

    fn ended_view(
        &mut self,
        seq: i64,
        payload_bytes_max: Option<usize>,
    ) -> Result<Option<JobView>> {
        let columns = JOB_COLUMNS.replace("gen", "0");
        let sql = format!("SELECT q, key, state, at, {columns} FROM ended WHERE seq = ?1");
        let row = self.first(&sql, [seq], |row| {
            let (queue, key): (u32, Option<Arc<str>>) = (row.get(0)?, row.get(1)?);
            let (state, at): (String, i64) = (row.get(2)?, row.get(3)?);
            Ok((queue, key, state, at, Job::read(row, 4)?))
        })?;
        let Some((number, key, state, at, job)) = row else { return Ok(None) };
        let Some(queue) = self.queue_number(number)? else { return Ok(None) };
        let payload = self.payload_to_show(&job, payload_bytes_max)?;
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
    pub(super) lease_until: Option<Timestamp>,
}

fn view_of(
    queue: &QueueRow,
    key: Option<Arc<str>>,
    job: Job,
    (payload, payload_bytes): (Vec<u8>, usize),
) -> JobView {
    let (id, options) = (job.id(queue.number), job.options());
    let (error, result) = result::read(job.error);
    JobView {
        id,
        queue: queue.name.clone(),
        key,
        state: JobState::Queued,
        options,
        task: job.task,
        payload: Payload::from_bytes(payload),
        payload_bytes,
        score: job.score,
        priority: job.prio as u16,
        run_at: Timestamp::from_micros(job.run_at),
        attempt: job.attempts as u32,
        retry_count: job.retry as i32,
        crashes: job.crashes as u32,
        error,
        result,
        cancel_requested: job.flagged,
        created_at: Timestamp::from_micros(job.created),
        started_at: job.started.map(Timestamp::from_micros),
        finished_at: None,
        lane: None,
        token: None,
        node: None,
        heartbeat_at: None,
        progress: None,
    }
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
