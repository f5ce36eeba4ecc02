//! Between what the server keeps and what the engine speaks of.

use std::borrow::Cow;
use std::sync::Arc;
use std::time::Duration;

use tokio_postgres::Row;
use tokio_postgres::types::FromSql;

use crate::model::clock::Timestamp;
use crate::model::error::{Error, ErrorKind, Result};
use crate::model::id::{JobId, LaneId};
use crate::model::job::JobOptions;

/// A column of a row.
pub(super) fn column<'a, T: FromSql<'a>>(row: &'a Row, name: &str) -> Result<T> {
    row.try_get(name).map_err(|e| {
        Error::new(ErrorKind::Corrupt, format!("column {name} of PostgreSQL cannot be read"))
            .because(e)
    })
}

/// A time that may be missing.
pub(super) fn time(row: &Row, name: &str) -> Result<Option<Timestamp>> {
    Ok(column::<Option<i64>>(row, name)?.map(Timestamp::from_micros))
}

/// A text that may be missing.
pub(super) fn text(row: &Row, name: &str) -> Result<Option<Arc<str>>> {
    Ok(column::<Option<&str>>(row, name)?.map(Arc::from))
}

/// What a job overrides.
pub(super) fn options(row: &Row) -> Result<Option<Box<JobOptions>>> {
    let wrong = |e| Error::new(ErrorKind::Corrupt, "a job's options cannot be read").because(e);
    column::<Option<&str>>(row, "options")?
        .map(|text| serde_json::from_str(text).map(Box::new).map_err(wrong))
        .transpose()
}

/// The id of a job.
pub(super) fn job_id(created_at: i64, queue: i32, seq: i64) -> JobId {
    JobId::new(Timestamp::from_micros(created_at), queue as u32, 0, seq as u64)
}

/// The ids of jobs whose parts stand in three columns.
pub(super) fn job_ids(row: &Row, seq: &str, queue: &str, created_at: &str) -> Result<Vec<JobId>> {
    let seq: Option<Vec<i64>> = column(row, seq)?;
    let queue: Option<Vec<i32>> = column(row, queue)?;
    let created_at: Option<Vec<i64>> = column(row, created_at)?;
    let queue = queue.unwrap_or_default();
    let parts = created_at.unwrap_or_default().into_iter().zip(queue);
    let parts = parts.zip(seq.unwrap_or_default());
    Ok(parts.map(|((created_at, queue), seq)| job_id(created_at, queue, seq)).collect())
}

/// The parts by which jobs are found. An id that this store cannot have given matches nothing.
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

/// The name of a lane.
pub(super) fn lane_id(queue: i32, number: i64) -> LaneId {
    LaneId { queue: queue as u32, shard: 0, number: number as u64 }
}

/// The number of a lane; of one that this store cannot have named, none's.
pub(super) fn lane_number(lane: LaneId) -> i64 {
    if lane.shard == 0 { i64::try_from(lane.number).unwrap_or(-1) } else { -1 }
}

/// Microseconds of a time.
pub(super) fn micros(time: Timestamp) -> i64 {
    time.as_micros()
}

/// Microseconds of a length, at most the last time: added to any time it stays in range.
pub(super) fn micros_of(length: Duration) -> i64 {
    i64::try_from(length.as_micros()).unwrap_or(i64::MAX).min(Timestamp::MAX.as_micros())
}

/// A number of rows as the server takes it.
pub(super) fn count(rows: usize, most: usize) -> i32 {
    rows.min(most) as i32
}

/// A text that the server can keep: `PostgreSQL` knows no NUL.
pub(super) fn kept(text: &str) -> Cow<'_, str> {
    match text.contains('\0') {
        true => text.replace('\0', "\u{FFFD}").into(),
        false => text.into(),
    }
}
