//! Claiming lanes, settling turns, and giving calls up.

use std::time::Duration;

use async_trait::async_trait;

use super::convert::{column, count, kept, micros, micros_of, time};
use super::turn::turns;
use super::{Postgres, error};
use crate::contract::{Claim, Claimed, Consumer, GiveUp, Lease, Settle, Settled};
use crate::model::limits::{
    CLAIM_JOB_BYTES, CLAIM_LANES_MAX, PROMOTE_LANES_MAX, SERIES_JOBS_MAX, TURN_BYTES_MAX,
    TURN_JOBS_MAX,
};
use crate::model::{Error, Mode, Queue, Result};
use crate::stores::asleep::leaves_some;

const CLAIM: &str = "SELECT * \
    FROM seriatim.claim($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, $12, $13, $14, $15, $16, $17)";
const GIVE_UP: &str = "SELECT seriatim.give_up($1, $2)";

#[async_trait]
impl Consumer for Postgres {
    async fn claim(&self, request: Claim) -> Result<Claimed> {
        self.wake.claims(&request.queue);
        let claimed = self.claim_of(&request).await?;
        if leaves_some(&claimed) {
            self.wake.leaves_some(&request.queue);
        } else {
            self.wake.falls_asleep(&request.queue);
        }
        Ok(claimed)
    }

    async fn settle(&self, request: Settle) -> Result<Vec<Settled>> {
        let turns = &request.turns;
        request.validate()?;
        if turns.is_empty() {
            return Ok(Vec::new());
        }
        let answer = self.settle_free(&request).await?;
        self.rounds.count(&self.pool);
        let jobs_next = |settled: &Settled| match settled {
            Settled::Ok { next: Some(turn), .. } => turn.jobs.len(),
            _ => 0,
        };
        self.rounds.taken(0, answer.settled.iter().map(jobs_next).sum(), &self.pool);
        self.summon(&self.settled(&answer, turns));
        Ok(answer.settled)
    }

    async fn give_up(&self, request: GiveUp) -> Result<()> {
        let (node, ticket) = (kept(&request.node.0), request.ticket as i64);
        self.pool.query(GIVE_UP, &[&node, &ticket]).await.map(drop)
    }
}

impl Postgres {
    async fn claim_of(&self, request: &Claim) -> Result<Claimed> {
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
                    &request.bytes_max.map(|bytes| i64::try_from(bytes).unwrap_or(i64::MAX)),
                    &(CLAIM_JOB_BYTES as i32),
                    &request.declared,
                    &(request.ticket as i64),
                    &(request.series_max.min(SERIES_JOBS_MAX) as i32),
                ],
                |e| claim_error(e, request),
            )
            .await?;
        let Some((last, jobs)) = rows.split_last() else {
            return Ok(Claimed::default());
        };
        let cut = column::<_, Option<bool>>(last, "o_cut")?.unwrap_or(false);
        let turns = turns(jobs, 2, true)?;
        self.names.learn(&turns);
        self.rounds.claimed(&turns, &self.pool);
        Ok(Claimed { next_due: time(last, "o_next_due")?, turns, cut, unanswered: false })
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
