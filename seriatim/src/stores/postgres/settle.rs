//! Settling turns.

use std::borrow::Cow;
use std::collections::HashSet;

use tokio_postgres::Row;

use super::convert::{column, job_id, kept, lane_number, micros, micros_of};
use super::params::Param;
use crate::contract::Settled;
use crate::model::clock::Timestamp;
use crate::model::error::Result;
use crate::model::id::JobId;
use crate::model::settle::{Due, Fate, Settlement};

pub(super) const SETTLE: &str = "SELECT * FROM seriatim.settle($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, \
    $12, $13, $14, $15, $16)";

/// The result of each turn.
pub(super) fn answers(rows: &[Row], turns: &[Settlement]) -> Result<Vec<Settled>> {
    let done = || Settled::ok(Vec::new());
    let mut settled = vec![Settled::Stale; turns.len()];
    for row in rows {
        let place = column::<_, i32>(row, "o_place")? as usize;
        if place == 0 {
            settled.fill(done());
            continue;
        }
        let place = place - 1;
        let (Some(entry), Some(turn)) = (settled.get_mut(place), turns.get(place)) else {
            continue;
        };
        // The row of a turn comes before those of its jobs.
        match (cancelled(row, turn)?, entry) {
            (Some(job), Settled::Ok { cancelled, .. }) => cancelled.push(job),
            (_, entry) => *entry = done(),
        }
    }
    Ok(settled)
}

fn cancelled(row: &Row, turn: &Settlement) -> Result<Option<JobId>> {
    let seq: Option<i64> = column(row, "o_seq")?;
    let created_at: Option<i64> = column(row, "o_created_at")?;
    let ids = created_at.zip(seq);
    Ok(ids.map(|(created_at, seq)| job_id(created_at, turn.lane.queue as i32, seq)))
}

/// A batch as arrays: one entry per settlement, and one per exception.
#[derive(Default)]
pub(super) struct SettleBatch<'a> {
    now: Option<i64>,
    lane: Vec<i64>,
    queue: Vec<i32>,
    token: Vec<i64>,
    rest: Vec<i16>,
    owner: Vec<Option<i64>>,
    due_kind: Vec<i16>,
    due_in: Vec<Option<i64>>,
    retry_count: Vec<i32>,
    crashes: Vec<i32>,
    error: Vec<Option<Cow<'a, str>>>,
    counted: Vec<bool>,
    hold: Vec<bool>,
    x_place: Vec<i32>,
    x_seq: Vec<i64>,
    x_fate: Vec<i16>,
}

impl<'a> SettleBatch<'a> {
    pub(super) fn new(now: Option<Timestamp>, turns: &'a [Settlement]) -> Self {
        let mut batch = Self { now: now.map(micros), ..Self::default() };
        for (place, turn) in turns.iter().enumerate() {
            batch.add(turn);
            batch.except(place as i32 + 1, turn);
        }
        batch
    }

    fn add(&mut self, turn: &'a Settlement) {
        let keep = &turn.keep;
        let (kind, length) = match keep.due {
            Due::Unchanged => (0, None),
            Due::Now => (1, None),
            Due::In(length) => (2, Some(micros_of(length))),
        };
        self.lane.push(lane_number(turn.lane));
        self.queue.push(turn.lane.queue as i32);
        self.token.push(turn.token.0);
        self.rest.push(number(turn.rest));
        self.owner.push(keep.job.map(|job| job.seq() as i64));
        self.due_kind.push(kind);
        self.due_in.push(length);
        self.retry_count.push(keep.retry_count);
        self.crashes.push(i32::try_from(keep.crashes).unwrap_or(i32::MAX));
        self.error.push(keep.error.as_deref().map(kept));
        self.counted.push(keep.counted);
        self.hold.push(keep.hold);
    }

    /// If a job has several exceptions, the first one counts.
    fn except(&mut self, place: i32, turn: &Settlement) {
        let mut named = HashSet::new();
        for (job, fate) in turn.exceptions.iter().filter(|(job, _)| named.insert(*job)) {
            self.x_place.push(place);
            self.x_seq.push(job.seq() as i64);
            self.x_fate.push(number(*fate));
        }
    }

    pub(super) fn params(&self) -> [&dyn Param; 16] {
        [
            &self.now,
            &self.lane,
            &self.queue,
            &self.token,
            &self.rest,
            &self.owner,
            &self.due_kind,
            &self.due_in,
            &self.retry_count,
            &self.crashes,
            &self.error,
            &self.counted,
            &self.hold,
            &self.x_place,
            &self.x_seq,
            &self.x_fate,
        ]
    }
}

fn number(fate: Fate) -> i16 {
    match fate {
        Fate::Done => 0,
        Fate::Bury => 1,
        Fate::Cancel => 2,
        Fate::Expire => 3,
        Fate::Drop => 4,
        Fate::Keep => 5,
    }
}
