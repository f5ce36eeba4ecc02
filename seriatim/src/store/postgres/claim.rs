//! Claiming lanes, taking over expired claims, and reading turns.

use std::sync::Arc;

use tokio_postgres::Row;

use super::Postgres;
use super::convert::{
    column, count, job_id, kept, lane_id, lane_number, micros, micros_of, options, text, time,
};
use crate::clock::Timestamp;
use crate::error::{Error, ErrorKind, Result};
use crate::id::{LaneId, Token};
use crate::limits::{CLAIM_LANES_MAX, PROMOTE_LANES_MAX, TURN_BYTES_MAX, TURN_JOBS_MAX};
use crate::payload::Payload;
use crate::store::request::{Claim, Claimed, DueQuery, Lease, Rescue, SourceDue};
use crate::turn::{Turn, TurnJob};

const CLAIM: &str = "SELECT * \
    FROM seriatim.claim($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, $12)";
const RESCUE: &str = "SELECT * FROM seriatim.rescue($1, $2, $3, $4)";
const TURN: &str = "SELECT * FROM seriatim.turn_job WHERE lane = $1 AND queue = $2 AND token = $3 \
    ORDER BY score, seq";
const DUE: &str = "SELECT q.name, CASE WHEN NOT q.paused THEN \
    seriatim.first_due(q.number) END AS due \
    FROM seriatim.queue q WHERE cardinality($1::text[]) = 0 OR q.name = ANY ($1) ORDER BY q.number";

/// From so many lanes on a claim goes half and half in two sessions at once: a session has one core of the
/// server, and claiming is the longest part of a job's way.
const TOGETHER_LANES_MIN: usize = 500;

impl Postgres {
    pub(super) async fn claim_lanes(&self, request: Claim) -> Result<Claimed> {
        if request.shard.is_some_and(|shard| shard != 0) {
            return Ok(Claimed::default());
        }
        let (all, crashed) = (request.lanes_max, request.crashed_max);
        // Who names the time wants to be answered as if nobody else were there.
        if all < TOGETHER_LANES_MIN || request.now.is_some() {
            return self.claim_some(&request, all, crashed).await;
        }
        let first = self.claim_some(&request, all - all / 2, crashed);
        let (first, second) = tokio::join!(first, self.claim_some(&request, all / 2, 0));
        together(first, second)
    }

    async fn claim_some(
        &self,
        request: &Claim,
        lanes_max: usize,
        crashed_max: usize,
    ) -> Result<Claimed> {
        let now = request.now.map(micros);
        let (queue, node) = (kept(&request.queue), kept(&request.node.0));
        let name = request.node_name.as_deref().map(kept);
        let groups: Vec<_> = request.groups.iter().map(|group| kept(group)).collect();
        let lanes_max = count(lanes_max, CLAIM_LANES_MAX);
        let crashed_max = count(crashed_max, CLAIM_LANES_MAX);
        let own = matches!(request.lease, Lease::Own { .. });
        let ttl = micros_of(request.lease.ttl());
        let (promote_max, jobs_max) = (PROMOTE_LANES_MAX as i32, TURN_JOBS_MAX as i32);
        let rows = self
            .pool
            .query(
                CLAIM,
                &[
                    &now,
                    &queue,
                    &node,
                    &name,
                    &groups,
                    &lanes_max,
                    &crashed_max,
                    &own,
                    &ttl,
                    &promote_max,
                    &jobs_max,
                    &(TURN_BYTES_MAX as i64),
                ],
            )
            .await?;
        let Some((first, jobs)) = rows.split_first() else {
            return Ok(Claimed::default());
        };
        Ok(Claimed { next_due: time(first, "o_next_due")?, turns: turns(jobs, true)? })
    }

    pub(super) async fn rescue_lanes(&self, request: Rescue) -> Result<Vec<Turn>> {
        let (now, node) = (request.now.map(micros), kept(&request.node.0));
        let ttl = micros_of(request.lease);
        let lanes_max = count(request.lanes_max, CLAIM_LANES_MAX);
        let rows = self.pool.query(RESCUE, &[&now, &node, &ttl, &lanes_max]).await?;
        let Some((first, jobs)) = rows.split_first() else {
            return Ok(Vec::new());
        };
        if column(first, "o_gone")? {
            let message = "the node that rescues was declared dead itself: take a new id";
            return Err(Error::new(ErrorKind::NodeGone, message));
        }
        turns(jobs, false)
    }

    pub(super) async fn read_turn(&self, lane: LaneId, token: Token) -> Result<Option<Turn>> {
        let (number, queue) = (lane_number(lane), lane.queue as i32);
        let rows = self.pool.query(TURN, &[&number, &queue, &token.0]).await?;
        Ok(turns(&rows, true)?.pop())
    }

    pub(super) async fn due_sources(&self, request: DueQuery) -> Result<Vec<SourceDue>> {
        let names: Vec<_> = request.queues.iter().map(|name| kept(name)).collect();
        let rows = self.pool.query(DUE, &[&names]).await?;
        let source = |row: &Row| {
            let queue = Arc::from(column::<&str>(row, "name")?);
            Ok(SourceDue { queue, shard: 0, due: time(row, "due")? })
        };
        rows.iter().map(source).collect()
    }
}

/// What two sessions took at the same time. Where one of them failed, nobody is told what the other took: the
/// caller looks for it, as it does when an answer is lost.
pub(super) fn together(first: Result<Claimed>, second: Result<Claimed>) -> Result<Claimed> {
    let (mut all, other) = match (first, second) {
        (Ok(first), Ok(second)) => (first, second),
        (Ok(claimed), Err(error)) | (Err(error), Ok(claimed)) if !claimed.turns.is_empty() => {
            let message = "half of a claim failed, and what the other half took is not known here";
            return Err(Error::new(ErrorKind::Unavailable, message).because(error));
        }
        (Err(error), _) | (_, Err(error)) => return Err(error),
    };
    all.turns.extend(other.turns);
    let soonest = |turn: &Turn| turn.jobs.first().map(|job| (job.priority, job.run_at));
    all.turns.sort_by_key(soonest);
    all.next_due = [all.next_due, other.next_due].into_iter().flatten().min();
    Ok(all)
}

/// Turns from rows of jobs: the jobs of one lane stand together, in order.
fn turns(rows: &[Row], with_payload: bool) -> Result<Vec<Turn>> {
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
