//! Settling turns.

use std::borrow::Cow;
use std::collections::{HashMap, HashSet};

use serde_json::json;
use tokio_postgres::Row;

use super::convert::{column, count, job_id, kept, lane_number, micros, micros_of};
use super::params::Param;
use super::pool::Params;
use super::summons::Summons;
use super::{Postgres, error, turn};
use crate::contract::{GoOn, Lease, Settle, Settled, Wake};
use crate::model::limits::{CLAIM_LANES_MAX, SERIES_JOBS_MAX, TURN_BYTES_MAX, TURN_JOBS_MAX};
use crate::model::{Due, Fate, JobId, LaneId, Result, Settlement};

pub(super) const SETTLE: &str = "SELECT * \
    FROM seriatim.settle($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, $12, $13, $14, $15, $16, $17, $18::text::jsonb, $19, $20)";

/// The places of turns that a settle has to leave out for now.
const BEHIND_BATCHES: &str = "SELECT place FROM seriatim.behind_batches($1, $2) place";
/// A token that no claim has.
const NO_TOKEN: i64 = -1;
/// Most attempts at a settle that meets batches which users' transactions keep locked.
const TRIES_MAX: usize = 4;

/// Job numbers start at 1.
const NO_JOB: i64 = 0;
/// The first column of a job of a next turn.
const TURN: usize = 3;

/// The answer to a settle.
pub(super) struct Answer {
    /// The result of each turn.
    pub(super) settled: Vec<Settled>,
    /// Whether a settled lane waits for a claim.
    pub(super) waits: bool,
    /// The queues of callbacks of batches that have ended.
    pub(super) called: Vec<String>,
}

/// What a row of the answer is.
enum RowKind {
    All,
    Waits,
    Busy(usize),
    Called(String),
    NextTurn,
    Turn(usize),
}

impl RowKind {
    fn of(row: &Row) -> Result<Self> {
        Ok(match column::<_, i32>(row, "o_place")? {
            0 => Self::All,
            -2 => Self::Waits,
            -3 => Self::Busy(column::<_, i64>(row, "o_seq")? as usize - 1),
            -4 => Self::Called(column(row, "name")?),
            place => usize::try_from(place - 1).map_or(Self::NextTurn, Self::Turn),
        })
    }
}

impl Postgres {
    /// Settles turns. Those of batches that a user's transaction keeps locked are looked for only if the settle has met one.
    pub(super) async fn settle_free(&self, request: &Settle) -> Result<Answer> {
        let mut batch = SettleBatch::new(request);
        let (mut busy, mut tries) = (Vec::new(), 1);
        loop {
            let mut was_locked = false;
            let refused = |e| {
                was_locked = error::is_lock_timeout(&e);
                error::common(e)
            };
            let rows = self.pool.query_or(SETTLE, &batch.params(), refused).await;
            if !was_locked || !request.skip_locked || tries == TRIES_MAX {
                let mut answer = answer(&rows?, &request.turns)?;
                for place in busy {
                    if let Some(entry) = answer.settled.get_mut(place) {
                        *entry = Settled::Busy;
                    }
                }
                return Ok(answer);
            }
            let params: Params<'_> = &[&batch.now, &batch.lane];
            let behind = self.pool.query(BEHIND_BATCHES, params).await?;
            for row in &behind {
                busy.push(column::<_, i64>(row, "place")? as usize - 1);
            }
            batch.leave_out(&busy);
            tries += 1;
        }
    }

    /// Whom a settle concerns. Its own process may take what waits.
    pub(super) fn settled(&self, answer: &Answer, turns: &[Settlement]) -> Summons {
        let mut wake = Wake::of(answer.called.iter().map(String::as_str));
        if answer.waits {
            wake.merge(&self.names.wake_of(turns));
        }
        Summons::two(&wake)
    }
}

/// Reads the answer to a settle of these turns.
pub(super) fn answer(rows: &[Row], turns: &[Settlement]) -> Result<Answer> {
    let done = || Settled::ok(Vec::new());
    let (mut settled, mut waits) = (vec![Settled::Stale; turns.len()], false);
    let (mut next, mut called) = (Vec::new(), Vec::new());
    for row in rows {
        match RowKind::of(row)? {
            RowKind::All => settled.fill(done()),
            RowKind::Waits => waits = true,
            RowKind::NextTurn => next.push(row),
            RowKind::Called(queue) => called.push(queue),
            RowKind::Busy(place) => {
                if let Some(entry) = settled.get_mut(place) {
                    *entry = Settled::Busy;
                }
            }
            RowKind::Turn(place) => {
                let (Some(entry), Some(turn)) = (settled.get_mut(place), turns.get(place)) else {
                    continue;
                };
                // The row of a turn comes before those of its jobs.
                match (cancelled(row, turn)?, entry) {
                    (Some(job), Settled::Ok { cancelled, .. }) => cancelled.push(job),
                    (_, entry) => *entry = done(),
                }
            }
        }
    }
    hand_over(next, turns, &mut settled)?;
    Ok(Answer { settled, waits, called })
}

/// Adds the next turns, whose jobs are the rows.
fn hand_over(rows: Vec<&Row>, turns: &[Settlement], settled: &mut [Settled]) -> Result<()> {
    if rows.is_empty() {
        return Ok(());
    }
    let places: HashMap<LaneId, usize> =
        turns.iter().enumerate().map(|(place, turn)| (turn.lane, place)).collect();
    for turn in turn::turns(rows, TURN, true)? {
        let entry = places.get(&turn.lane).and_then(|place| settled.get_mut(*place));
        if let Some(Settled::Ok { next, .. }) = entry {
            *next = Some(Box::new(turn));
        }
    }
    Ok(())
}

/// The claims of the lanes that go on, as JSON.
fn claims(request: &Settle) -> Option<String> {
    let number = |place: &usize| request.turns.get(*place).map(|turn| turn.lane.queue);
    let claim = |GoOn { claim, places }: &GoOn| {
        json!({
            "queue": kept(&claim.queue),
            "number": places.first().and_then(number),
            "node": kept(&claim.node.0),
            "node_name": claim.node_name.as_deref().map(kept),
            "groups": claim.groups.iter().map(|group| kept(group)).collect::<Vec<_>>(),
            "own": matches!(claim.lease, Lease::Own { .. }),
            "ttl": micros_of(claim.lease.ttl()),
            "declared": claim.declared,
            "ticket": claim.ticket,
            "lanes_max": count(claim.lanes_max, CLAIM_LANES_MAX),
            "jobs_max": TURN_JOBS_MAX,
            "bytes_max": TURN_BYTES_MAX,
            "series": claim.series_max.min(SERIES_JOBS_MAX),
            "places": places.iter().map(|place| place + 1).collect::<Vec<_>>(),
        })
    };
    let claims: Vec<_> = request.go_on.iter().map(claim).collect();
    (!claims.is_empty()).then(|| serde_json::Value::from(claims).to_string())
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
    alone: Vec<bool>,
    x_place: Vec<i32>,
    x_seq: Vec<i64>,
    x_fate: Vec<i16>,
    claims: Option<String>,
    skip_locked: bool,
    /// Empty if no turn has one.
    result: Vec<Option<Cow<'a, str>>>,
}

impl<'a> SettleBatch<'a> {
    pub(super) fn new(request: &'a Settle) -> Self {
        let now = request.now.map(micros);
        let (claims, skip_locked) = (claims(request), request.skip_locked);
        let mut batch = Self { now, claims, skip_locked, ..Self::default() };
        for (place, turn) in request.turns.iter().enumerate() {
            batch.add(turn);
            batch.except(place as i32 + 1, turn);
        }
        if request.turns.iter().any(|turn| turn.result.is_some()) {
            let left = |turn: &Settlement| {
                turn.left_by(Fate::Done).map(|text| kept(&text).into_owned().into())
            };
            batch.result = request.turns.iter().map(left).collect();
        }
        batch
    }

    /// Makes these turns stale.
    fn leave_out(&mut self, places: &[usize]) {
        for place in places {
            if let Some(token) = self.token.get_mut(*place) {
                *token = NO_TOKEN;
            }
        }
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
        self.alone.push(keep.others_unstarted);
    }

    /// If a job has several exceptions, the first one counts.
    fn except(&mut self, place: i32, turn: &Settlement) {
        if turn.result.is_some() {
            // No job has this number: a turn with an exception is kept out of the compact forms, which write no results.
            self.x_place.push(place);
            self.x_seq.push(NO_JOB);
            self.x_fate.push(number(Fate::Done));
        }
        let mut named = HashSet::new();
        for (job, fate) in turn.exceptions.iter().filter(|(job, _)| named.insert(*job)) {
            self.x_place.push(place);
            self.x_seq.push(job.seq() as i64);
            self.x_fate.push(number(*fate));
        }
    }

    pub(super) fn params(&self) -> [&dyn Param; 20] {
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
            &self.alone,
            &self.x_place,
            &self.x_seq,
            &self.x_fate,
            &self.claims,
            &self.skip_locked,
            &self.result,
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
