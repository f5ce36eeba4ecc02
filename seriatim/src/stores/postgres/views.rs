//! Statistics and listings.

use std::sync::Arc;

use async_trait::async_trait;
use tokio_postgres::Row;

use super::Postgres;
use super::convert::{
    JobKeys, column, job_id, kept, lane_id, lane_number, micros, options, text, time,
};
use super::nodes::command;
use super::queues::MODES;
use super::turn::turns;
use crate::contract::errors::no_queue;
use crate::contract::{
    JobQuery, JobState, JobView, LaneQuery, LaneView, NodeInfo, NodeView, Page, QueueDue,
    QueueStats, QueueView, Views, Vitals,
};
use crate::model::{
    Cursor, Error, ErrorKind, JobId, LaneId, Mode, NodeId, Payload, Queue, Result, Timestamp,
    Token, Turn, result,
};
use crate::stores::asleep::waits;
use crate::stores::options::ReadOptions;
use crate::stores::{gone, job_look};

const QUEUES: &str = "SELECT * FROM seriatim.queue ORDER BY name";
const QUEUE: &str = "SELECT number, mode FROM seriatim.queue WHERE name = $1";
const JOB: &str = "SELECT * FROM seriatim.find_jobs($1, $2, $3)";
const STATS: &str = "SELECT * FROM seriatim.stats($1)";

const TURN: &str = "SELECT * FROM seriatim.turn_job WHERE lane = $1 AND queue = $2 AND token = $3 \
    ORDER BY score, seq";
const DUE: &str = "SELECT q.name, CASE WHEN NOT q.paused THEN \
    seriatim.first_due(q.number) END AS due \
    FROM seriatim.queue q WHERE cardinality($1::text[]) = 0 OR q.name = ANY ($1) ORDER BY q.number";

const NODES: &str = "SELECT * FROM seriatim.node ORDER BY id";
const VITALS: &str = include_str!("sql/vitals.sql");

#[async_trait]
impl Views for Postgres {
    async fn queues(&self) -> Result<Vec<QueueView>> {
        self.pool.query(QUEUES, &[]).await?.iter().map(queue_view).collect()
    }

    async fn stats(&self, now: Option<Timestamp>) -> Result<Vec<QueueStats>> {
        self.pool.query(STATS, &[&now.map(micros)]).await?.iter().map(stats).collect()
    }

    async fn due(&self, queues: Vec<Arc<str>>) -> Result<Vec<QueueDue>> {
        let names: Vec<_> = queues.iter().map(|name| kept(name)).collect();
        let due = |row: &Row| {
            let queue = Arc::from(column::<_, &str>(row, "name")?);
            Ok(QueueDue::new(queue, time(row, "due")?))
        };
        let rows = self.pool.query(DUE, &[&names]).await?;
        let dues: Vec<QueueDue> = rows.iter().map(due).collect::<Result<_>>()?;
        for one in dues.iter().filter(|one| waits(one)) {
            self.wake.falls_asleep(&one.queue);
        }
        Ok(dues)
    }

    async fn lanes(&self, query: LaneQuery) -> Result<Page<LaneView>> {
        self.lane_page(&query).await
    }

    async fn jobs(&self, query: JobQuery) -> Result<Page<JobView>> {
        job_look::page(self, query).await
    }

    async fn job(&self, id: JobId) -> Result<Option<JobView>> {
        let keys: JobKeys = std::iter::once(id).collect();
        let rows = self.pool.query(JOB, &[&keys.seq, &keys.queue, &keys.millis]).await?;
        // An alias shows the state of the job it was merged into.
        rows.first().map(|row| Ok(JobView { id, ..job_view(row)? })).transpose()
    }

    async fn turn(&self, lane: LaneId, token: Token) -> Result<Option<Turn>> {
        let (number, queue) = (lane_number(lane), lane.queue as i32);
        let rows = self.pool.query(TURN, &[&number, &queue, &token.0]).await?;
        Ok(turns(&rows, 0, true)?.pop())
    }

    async fn nodes(&self) -> Result<Vec<NodeView>> {
        self.pool.query(NODES, &[]).await?.iter().map(node_view).collect()
    }

    async fn vitals(&self) -> Result<Vitals> {
        let rows = self.pool.query(VITALS, &[]).await?;
        let of = |name| {
            let figure = |row| column::<_, i64>(row, name).map(|figure| figure as u64);
            rows.first().map(figure).transpose()
        };
        Ok(Vitals {
            bytes: of("bytes")?,
            connections: of("connections")?,
            connections_max: of("connections_max")?,
            operations: of("operations")?,
            ..Vitals::default()
        })
    }
}

impl Postgres {
    pub(super) async fn queue_number(&self, name: &str) -> Result<i32> {
        Ok(self.queue_and_mode(name).await?.0)
    }

    pub(super) async fn queue_and_mode(&self, name: &str) -> Result<(i32, Mode)> {
        let rows = self.pool.query(QUEUE, &[&kept(name)]).await?;
        let row = rows.first().ok_or_else(|| no_queue(name))?;
        let mode = MODES.get(column::<_, i16>(row, "mode")? as usize).copied();
        let unknown = || Error::new(ErrorKind::Corrupt, "a queue has a mode that is unknown here");
        Ok((column(row, "number")?, mode.ok_or_else(unknown)?))
    }
}

/// The sort value and number of a cursor.
pub(super) fn place_and_number(cursor: Option<Cursor>) -> (Option<String>, Option<i64>) {
    cursor.map_or((None, None), |cursor| (Some(cursor.place), Some(cursor.number)))
}

/// A place as a number: of a row without one it is empty.
pub(super) fn or_zero(place: String) -> String {
    if place.is_empty() { "0".into() } else { place }
}

fn queue_view(row: &Row) -> Result<QueueView> {
    let wrong =
        |e| Error::new(ErrorKind::Corrupt, "a queue's definition cannot be read").because(e);
    let queue: Queue = serde_json::from_str(column(row, "definition")?).map_err(wrong)?;
    Ok(QueueView {
        number: column::<_, i32>(row, "number")? as u32,
        queue,
        declared: column(row, "declared")?,
        paused: column(row, "paused")?,
    })
}

fn stats(row: &Row) -> Result<QueueStats> {
    let number = |name| column::<_, i64>(row, name).map(|n| n as u64);
    let now = Timestamp::from_micros(column(row, "now")?);
    Ok(QueueStats {
        queue: Arc::from(column::<_, &str>(row, "name")?),
        mode: MODES.get(column::<_, i16>(row, "mode")? as usize).copied(),
        paused: column(row, "paused")?,
        lanes: number("lanes")?,
        jobs: number("jobs")?,
        claimed: number("claimed")?,
        retrying: number("retrying")?,
        dead: number("dead")?,
        processed: number("processed")?,
        failed: number("failed")?,
        lag: time(row, "due")?.map(|due| now.since(due)).unwrap_or_default(),
    })
}

pub(super) fn job_view(row: &Row) -> Result<JobView> {
    let state = match column::<_, i16>(row, "state")? {
        0 => JobState::Queued,
        1 => JobState::Running,
        2 => JobState::Succeeded,
        3 => JobState::Dead,
        _ => JobState::Canceled,
    };
    let (number, payload): (i32, Vec<u8>) = (column(row, "queue")?, column(row, "payload")?);
    let (error, result) = result::read(text(row, "error")?);
    Ok(JobView {
        id: job_id(column(row, "created_at")?, number, column(row, "seq")?),
        queue: Arc::from(column::<_, &str>(row, "name")?),
        key: text(row, "key")?,
        task: text(row, "task")?,
        state,
        payload_bytes: payload.len(),
        payload: Payload::from_bytes(payload),
        score: column(row, "score")?,
        priority: column::<_, i16>(row, "priority")? as u16,
        run_at: Timestamp::from_micros(column(row, "run_at")?),
        attempt: column::<_, i32>(row, "attempt")? as u32,
        retry_count: column(row, "retry_count")?,
        crashes: column::<_, i32>(row, "crashes")? as u32,
        error,
        result,
        cancel_requested: column(row, "flagged")?,
        created_at: Timestamp::from_micros(column(row, "created_at")?),
        started_at: time(row, "started_at")?,
        finished_at: time(row, "finished_at")?,
        lane: column::<_, Option<i64>>(row, "lane")?.map(|lane| lane_id(number, lane)),
        token: column::<_, Option<i64>>(row, "token")?.map(Token),
        node: text(row, "node")?.map(NodeId),
        heartbeat_at: time(row, "heartbeat_at")?,
        progress: text(row, "progress")?,
        options: options(column(row, "options")?, &mut ReadOptions::default())?,
    })
}

fn node_view(row: &Row) -> Result<NodeView> {
    let wrong = |e| Error::new(ErrorKind::Corrupt, "a node cannot be read").because(e);
    let info: NodeInfo = serde_json::from_str(column(row, "info")?).map_err(wrong)?;
    Ok(NodeView {
        info,
        heartbeat_at: gone::as_it_was(Timestamp::from_micros(column(row, "beat_at")?)),
        dead: column::<_, Option<i64>>(row, "dead_at")?.is_some(),
        command: command(column(row, "command")?),
    })
}
