//! Turns, built from rows of jobs.

use tokio_postgres::Row;

use super::convert::{column, job_id, lane_id, options, text};
use crate::model::clock::Timestamp;
use crate::model::error::Result;
use crate::model::id::{LaneId, Token};
use crate::model::payload::Payload;
use crate::model::turn::{Turn, TurnJob};

/// Builds turns from rows of jobs: the jobs of a lane are adjacent and in order.
pub(super) fn turns(rows: &[Row], with_payload: bool) -> Result<Vec<Turn>> {
    let mut turns: Vec<Turn> = Vec::new();
    for row in rows {
        let lane = lane_id(column(row, "queue")?, column(row, "lane")?);
        let job = turn_job(row, with_payload)?;
        match turns.last_mut().filter(|turn| turn.lane == lane) {
            Some(turn) => turn.jobs.push(job),
            None => turns.push(Turn { jobs: vec![job], ..empty_turn(row, lane)? }),
        }
    }
    Ok(turns)
}

fn empty_turn(row: &Row, lane: LaneId) -> Result<Turn> {
    Ok(Turn {
        lane,
        queue: column::<&str>(row, "name")?.into(),
        key: text(row, "key")?,
        token: Token(column(row, "token")?),
        retry_count: column(row, "retry_count")?,
        crashes: column::<i32>(row, "crashes")? as u32,
        error: text(row, "error")?,
        claimed_at: Timestamp::from_micros(column(row, "claimed_at")?),
        jobs: Vec::new(),
    })
}

fn turn_job(row: &Row, with_payload: bool) -> Result<TurnJob> {
    let payload: Vec<u8> = if with_payload { column(row, "payload")? } else { Vec::new() };
    Ok(TurnJob {
        id: job_id(column(row, "created_at")?, column(row, "queue")?, column(row, "seq")?),
        task: text(row, "task")?,
        payload: Payload::from_bytes(payload),
        score: column(row, "score")?,
        priority: column::<i16>(row, "priority")? as u16,
        run_at: Timestamp::from_micros(column(row, "run_at")?),
        attempt: column::<i32>(row, "attempt")? as u32,
        options: options(row)?,
    })
}
