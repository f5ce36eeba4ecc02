//! Claiming lanes, taking over expired claims, and reading turns.

use std::sync::Arc;
use std::time::Duration;

use tokio_postgres::Row;

use super::convert::{
    column, count, job_id, kept, lane_id, lane_number, micros, micros_of, options, text, time,
};
use super::{Postgres, error};
use crate::contract::release::NOBODY;
use crate::contract::{
    Claim, ClaimSelection, Claimed, DueQuery, Lease, Release, Rescue, SourceDue,
};
use crate::model::clock::Timestamp;
use crate::model::error::{Error, ErrorKind, Result};
use crate::model::id::{LaneId, Token};
use crate::model::limits::{
    CLAIM_JOB_BYTES, CLAIM_LANES_MAX, PROMOTE_LANES_MAX, TURN_BYTES_MAX, TURN_JOBS_MAX,
};
use crate::model::payload::Payload;
use crate::model::queue::{Mode, Queue};
use crate::model::turn::{Turn, TurnJob};

const CLAIM: &str = "SELECT * \
    FROM seriatim.claim($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, $12, $13, $14, $15, $16)";
const RESCUE: &str = "SELECT * FROM seriatim.rescue($1, $2, $3, $4, $5)";
const RELEASE: &str = "SELECT * FROM seriatim.release($1, $2, $3, $4, $5, $6, $7, $8, $9)";
const TURN: &str = "SELECT * FROM seriatim.turn_job WHERE lane = $1 AND queue = $2 AND token = $3 \
    ORDER BY score, seq";
const DUE: &str = "SELECT q.name, CASE WHEN NOT q.paused THEN \
    seriatim.first_due(q.number) END AS due \
    FROM seriatim.queue q WHERE cardinality($1::text[]) = 0 OR q.name = ANY ($1) ORDER BY q.number";

impl Postgres {
    pub(super) async fn claim_lanes(&self, request: Claim) -> Result<Claimed> {
        if request.shard.is_some_and(|shard| shard != 0) {
            return Ok(Claimed::default());
        }
        let now = request.now.map(micros);
        let (queue, node) = (kept(&request.queue), kept(&request.node.0));
        let name = request.node_name.as_deref().map(kept);
        let groups: Vec<_> = request.groups.iter().map(|group| kept(group)).collect();
        let lanes_max = count(request.lanes_max, CLAIM_LANES_MAX);
        let crashed_max = count(request.crashed_max, CLAIM_LANES_MAX);
        let own = matches!(request.lease, Lease::Own { .. });
        let ttl = micros_of(request.lease.ttl());
        let (promote_max, jobs_max) = (PROMOTE_LANES_MAX as i32, TURN_JOBS_MAX as i32);
        let rows = self
            .pool
            .query_or(
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
                    &request.bytes_max.map(|bytes| bytes as i64),
                    &(CLAIM_JOB_BYTES as i32),
                    &request.declared,
                    &(request.ticket as i64),
                ],
                |e| claim_error(e, &request),
            )
            .await?;
        let Some((last, jobs)) = rows.split_last() else {
            return Ok(Claimed::default());
        };
        let cut = column::<Option<bool>>(last, "o_cut")?.unwrap_or(false);
        Ok(Claimed { next_due: time(last, "o_next_due")?, turns: turns(jobs, true)?, cut })
    }

    pub(super) async fn rescue_lanes(&self, request: Rescue) -> Result<Vec<Turn>> {
        let (now, node) = (request.now.map(micros), kept(&request.node.0));
        let ttl = micros_of(request.lease);
        let lanes_max = count(request.lanes_max, CLAIM_LANES_MAX);
        let ticket = request.ticket as i64;
        let rows = self.pool.query(RESCUE, &[&now, &node, &ttl, &lanes_max, &ticket]).await?;
        let Some((first, jobs)) = rows.split_first() else {
            return Ok(Vec::new());
        };
        if column(first, "o_gone")? {
            let message = "the node that rescues was declared dead itself: take a new id";
            return Err(Error::new(ErrorKind::NodeGone, message));
        }
        turns(jobs, false)
    }

    pub(super) async fn release_lanes(&self, request: Release) -> Result<Vec<Turn>> {
        let now = request.now.map(micros);
        let (mut name, mut key, mut lane, mut node) = (None, None, None, None);
        match &request.claims {
            ClaimSelection::Key { queue, key: of } => (name, key) = (Some(queue), Some(kept(of))),
            ClaimSelection::Lane(of) => lane = Some(*of),
            ClaimSelection::Queue(queue) => name = Some(queue),
            ClaimSelection::Node(of) => node = Some(kept(&of.0)),
        }
        let name = name.map(|name| kept(name));
        let (queue, number) = (lane.map(|lane| i64::from(lane.queue)), lane.map(lane_number));
        let made_by = request.made_by.map_or(i64::MAX, micros);
        let lanes_max = count(request.lanes_max, CLAIM_LANES_MAX);
        let params: super::pool::Params<'_> =
            &[&now, &name, &key, &queue, &number, &node, &made_by, &NOBODY, &lanes_max];
        turns(&self.pool.query(RELEASE, params).await?, false)
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

fn claim_error(e: tokio_postgres::Error, request: &Claim) -> Error {
    let Some(("SR009", detail)) = error::ours(&e) else { return error::common(e) };
    let most = detail.split(' ').nth(1).and_then(|most| most.parse().ok()).unwrap_or_default();
    let queue = Queue::new(&*request.queue, Mode::Parallel).lease_max(Duration::from_micros(most));
    match queue.check_lease(request.lease.ttl()) {
        Err(refusal) => refusal,
        Ok(()) => error::of_driver(e),
    }
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
