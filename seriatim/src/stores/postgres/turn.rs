//! Turns, built from rows of jobs.

use tokio_postgres::Row;
use tokio_postgres::types::FromSql;

use super::convert::{column, job_id, lane_id, options};
use crate::model::{LaneId, Payload, Result, Timestamp, Token, Turn, TurnJob};
use crate::stores::options::ReadOptions;

/// A row of a job: the columns of `seriatim.taken`, from this place on.
struct JobRow<'a>(&'a Row, usize);

impl<'a> JobRow<'a> {
    fn at<T: FromSql<'a>>(&self, place: usize) -> Result<T> {
        column(self.0, self.1 + place)
    }
}

/// Builds turns from rows of jobs, whose columns begin at `first`: the jobs of a lane are adjacent and in order.
pub(super) fn turns<'a>(
    rows: impl IntoIterator<Item = &'a Row>,
    first: usize,
    with_payload: bool,
) -> Result<Vec<Turn>> {
    let rows = rows.into_iter();
    let mut turns: Vec<Turn> = Vec::with_capacity(rows.size_hint().0);
    let mut read = ReadOptions::default();
    for row in rows {
        let row = JobRow(row, first);
        let lane = lane_id(row.at(1)?, row.at(0)?);
        let job = turn_job(&row, with_payload, &mut read)?;
        match turns.last_mut().filter(|turn| turn.lane == lane) {
            Some(turn) => turn.jobs.push(job),
            None => turns.push(Turn { jobs: vec![job], ..empty_turn(&row, lane)? }),
        }
    }
    Ok(turns)
}

fn empty_turn(row: &JobRow<'_>, lane: LaneId) -> Result<Turn> {
    Ok(Turn {
        lane,
        queue: row.at::<&str>(2)?.into(),
        key: row.at::<Option<&str>>(3)?.map(Into::into),
        token: Token(row.at(4)?),
        retry_count: row.at(5)?,
        crashes: row.at::<i32>(6)? as u32,
        error: row.at::<Option<&str>>(7)?.map(Into::into),
        claimed_at: Timestamp::from_micros(row.at(8)?),
        jobs: Vec::new(),
    })
}

fn turn_job(row: &JobRow<'_>, with_payload: bool, read: &mut ReadOptions) -> Result<TurnJob> {
    let payload: Vec<u8> = if with_payload { row.at(12)? } else { Vec::new() };
    Ok(TurnJob {
        id: job_id(row.at(10)?, row.at(1)?, row.at(9)?),
        task: row.at::<Option<&str>>(11)?.map(Into::into),
        payload: Payload::from_bytes(payload),
        score: row.at(13)?,
        priority: row.at::<i16>(14)? as u16,
        run_at: Timestamp::from_micros(row.at(15)?),
        attempt: row.at::<i32>(16)? as u32,
        options: options(row.at(17)?, read)?,
    })
}
