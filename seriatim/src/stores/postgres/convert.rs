//! Conversion between columns and the types of the contract.

use std::borrow::Cow;
use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use tokio_postgres::Row;
use tokio_postgres::row::RowIndex;
use tokio_postgres::types::FromSql;

use crate::model::limits::KEY_BYTES_MAX;
use crate::model::{Error, ErrorKind, JobId, JobOptions, LaneId, Result, Timestamp};
use crate::stores::options::ReadOptions;

/// A column of a row, by name or, where there are many rows, by place. `Corrupt` if it cannot be read.
pub(super) fn column<'a, I, T>(row: &'a Row, place: I) -> Result<T>
where
    I: RowIndex + fmt::Display + Copy,
    T: FromSql<'a>,
{
    row.try_get(place).map_err(|e| {
        Error::new(ErrorKind::Corrupt, format!("column {place} of PostgreSQL cannot be read"))
            .because(e)
    })
}

/// A nullable time.
pub(super) fn time(row: &Row, name: &str) -> Result<Option<Timestamp>> {
    Ok(column::<_, Option<i64>>(row, name)?.map(Timestamp::from_micros))
}

/// A nullable text.
pub(super) fn text(row: &Row, name: &str) -> Result<Option<Arc<str>>> {
    Ok(column::<_, Option<&str>>(row, name)?.map(Arc::from))
}

/// The options of a job.
pub(super) fn options(
    text: Option<&str>,
    read: &mut ReadOptions,
) -> Result<Option<Arc<JobOptions>>> {
    let wrong = |e| Error::new(ErrorKind::Corrupt, "a job's options cannot be read").because(e);
    text.map(|text| read.options(text).map_err(wrong)).transpose()
}

pub(super) fn job_id(created_at: i64, queue: i32, seq: i64) -> JobId {
    JobId::new(Timestamp::from_micros(created_at), queue as u32, 0, seq as u64)
}

/// The ids of jobs from three array columns.
pub(super) fn job_ids(row: &Row, seq: &str, queue: &str, created_at: &str) -> Result<Vec<JobId>> {
    let seq: Option<Vec<i64>> = column(row, seq)?;
    let queue: Option<Vec<i32>> = column(row, queue)?;
    let created_at: Option<Vec<i64>> = column(row, created_at)?;
    let queue = queue.unwrap_or_default();
    let parts = created_at.unwrap_or_default().into_iter().zip(queue);
    let parts = parts.zip(seq.unwrap_or_default());
    Ok(parts.map(|((created_at, queue), seq)| job_id(created_at, queue, seq)).collect())
}

/// The parts that identify a job. An id that this store cannot have issued matches nothing.
#[derive(Default)]
pub(super) struct JobKeys {
    pub seq: Vec<i64>,
    pub queue: Vec<i32>,
    pub millis: Vec<i64>,
}

impl FromIterator<JobId> for JobKeys {
    fn from_iter<I: IntoIterator<Item = JobId>>(ids: I) -> Self {
        let mut keys = Self::default();
        for id in ids {
            let ours = JobId::new(id.created_at(), id.queue(), 0, id.seq()) == id;
            keys.seq.push(if ours { id.seq() as i64 } else { -1 });
            keys.queue.push(id.queue() as i32);
            keys.millis.push(id.created_at().as_micros() / 1_000);
        }
        keys
    }
}

pub(super) fn lane_id(queue: i32, number: i64) -> LaneId {
    LaneId { queue: queue as u32, shard: 0, number: number as u64 }
}

/// The number of a lane; -1, which no lane has, if this store cannot have issued the id.
pub(super) fn lane_number(lane: LaneId) -> i64 {
    if lane.shard == 0 { i64::try_from(lane.number).unwrap_or(-1) } else { -1 }
}

pub(super) fn micros(time: Timestamp) -> i64 {
    time.as_micros()
}

/// Microseconds of a duration, at most the last valid time: adding it to a time does not overflow.
pub(super) fn micros_of(length: Duration) -> i64 {
    i64::try_from(length.as_micros()).unwrap_or(i64::MAX).min(Timestamp::MAX.as_micros())
}

/// A limit on rows as a parameter.
pub(super) fn count(rows: usize, most: usize) -> i32 {
    rows.min(most) as i32
}

/// A key to look for. With NUL, which no stored key has, it is longer than any of them.
pub(super) fn sought(key: &str) -> Cow<'_, str> {
    match key.contains('\0') {
        true => "\u{FFFD}".repeat(KEY_BYTES_MAX).into(),
        false => key.into(),
    }
}

/// A text without NUL, which `PostgreSQL` cannot store.
pub(super) fn kept(text: &str) -> Cow<'_, str> {
    match text.contains('\0') {
        true => text.replace('\0', "\u{FFFD}").into(),
        false => text.into(),
    }
}
