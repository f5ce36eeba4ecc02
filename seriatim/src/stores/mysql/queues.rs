//! Declaring, pausing and deleting queues.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::sync::Arc;

use async_trait::async_trait;

use super::Mysql;
use super::actions::{STEP_JOBS, delete_part};
use super::bodies::Bodies;
use super::error::Try;
use super::gates::{Lock, wait_for_claims};
use super::load::Need;
use super::sql::Columns;
use super::tally::{Figure, Figures};
use super::work::Work;
use crate::contract::{Acted, Declare, DeleteQueue, Queues, Wake};
use crate::model::{Queue, Result};

/// Most rows of each kind in one step, which blocks the other changes of definitions.
const STEP_ROWS: usize = 1_000;

#[async_trait]
impl Queues for Mysql {
    async fn declare(&self, request: Declare) -> Result<()> {
        transact!(self.inner, Lock::ALONE, request.now, work => declare(work, &request.queues, false))
    }

    async fn declare_new(&self, request: Declare) -> Result<()> {
        transact!(self.inner, Lock::ALONE, request.now, work => declare(work, &request.queues, true))
    }

    async fn pause_queue(&self, queue: Arc<str>, paused: bool) -> Result<()> {
        transact!(self.inner, Lock::ALONE, None, work => pause(work, &queue, paused))?;
        if paused {
            // When this returns, the claims that were under way have ended. The definitions are not locked meanwhile.
            transact!(self.inner, Lock::FREE, None, work => wait_for(work, &queue))?;
        }
        self.inner.ring(&Wake::of([&*queue]));
        Ok(())
    }

    async fn delete_queue(&self, request: DeleteQueue) -> Result<Acted> {
        transact!(self.inner, Lock::ALONE, None, work => delete_queue(work, &request))
    }
}

/// Declares queues; with `keep` only those that are not declared.
async fn declare(work: &mut Work<'_>, queues: &[Queue], keep: bool) -> Try<()> {
    // Only a change of mode or merge reads lanes, and then all of the queue.
    let mut changed: BTreeMap<u32, bool> = BTreeMap::new();
    for queue in queues {
        let Ok(row) = work.state.queue(&queue.name) else { continue };
        if keep && row.declared {
            continue;
        }
        if (row.queue.mode, row.queue.merge) != (queue.mode, queue.merge) {
            let may_convert = !row.declared && row.queue.mode.is_keyed() && queue.mode.is_keyed();
            *changed.entry(row.number).or_default() |= may_convert;
        }
    }
    work.has_closed(changed.keys().copied().collect())?;
    for (number, may_convert) in changed {
        // One lane is enough for a refusal.
        let limit = if may_convert { "" } else { "LIMIT 1" };
        let lanes = format!("FORCE INDEX (lane_key) WHERE q = {number} {limit} FOR UPDATE");
        let ids = work.read_lanes(&lanes, Bodies::All).await?;
        work.load_jobs(&ids, Need::All, true, Bodies::All, &HashMap::new()).await?;
    }
    let (mut limited, mut repaced) = (BTreeSet::new(), Vec::new());
    for queue in queues {
        let Ok(row) = work.state.queue(&queue.name) else { continue };
        if keep && row.declared {
            continue;
        }
        if (row.queue.limit, &row.queue.groups) != (queue.limit, &queue.groups) {
            limited.insert(row.number);
        }
        if row.queue.rates() != queue.rates() {
            repaced.push(row.number.to_string());
        }
    }
    let now = work.now;
    work.state.declare(now, queues.to_vec(), keep)?;
    if !limited.is_empty() {
        // Claims under way know the old limits, and their turns are not counted before they end.
        work.run(&wait_for_claims(&limited)).await?;
    }
    work.save().await?;
    if !repaced.is_empty() {
        let queues = repaced.join(",");
        work.run(&format!("UPDATE seriatim_share SET paced = 0 WHERE q IN ({queues})")).await?;
    }
    Ok(())
}

/// Waits for the claims of this queue, if it is still there.
async fn wait_for(work: &mut Work<'_>, queue: &str) -> Try<()> {
    let number = work.state.queue(queue).map(|row| row.number);
    match number {
        Ok(number) => work.run(&wait_for_claims(&BTreeSet::from([number]))).await.map(drop),
        Err(_) => Ok(()),
    }
}

async fn pause(work: &mut Work<'_>, queue: &str, paused: bool) -> Try<()> {
    work.state.pause_queue(queue, paused)?;
    work.save().await?;
    Ok(())
}

async fn delete_queue(work: &mut Work<'_>, request: &DeleteQueue) -> Try<Acted> {
    let queue = work.state.queue(&request.queue)?.number;
    work.has_closed(BTreeSet::from([queue]))?;
    let sql = format!(
        "SELECT COUNT(*) FROM seriatim_lane FORCE INDEX (lane_ready) WHERE q = {queue} AND st = 2"
    );
    let claimed = work.rows(&sql).await?.into_iter().next().map(|row| Columns::of(row).int());
    work.state.close_queue(&request.queue, claimed.transpose()?.unwrap_or_default() as u64)?;
    let rows_max = request.rows_max.clamp(1, STEP_ROWS);
    let lanes_left = match load_lanes(work, queue, rows_max).await? {
        Loaded::Long(lane) => {
            let count = delete_part(work, &request.queue, lane).await?;
            return Ok(Acted { count, more: true });
        }
        Loaded::Lanes { more } => more,
    };
    let from =
        format!("FROM seriatim_ended j WHERE j.q = {queue} LIMIT {} FOR UPDATE", rows_max + 1);
    work.read_ended(&from, Bodies::None).await?;
    let acted = work.state.empty_queue(queue, rows_max);
    let sql = format!("DELETE FROM seriatim_idempotency WHERE q = {queue} LIMIT {rows_max}");
    let names = work.run(&sql).await?.first().map_or(0, |answer| answer.affected);
    let more = acted.more || lanes_left || names as usize == rows_max;
    if !more {
        forget_counters(work, queue).await?;
        work.state.queues.remove(&queue);
    }
    work.save().await?;
    Ok(Acted { more, ..acted })
}

/// Brings the counters of settled turns to zero. The other figures do so with what is deleted.
async fn forget_counters(work: &mut Work<'_>, queue: u32) -> Try<()> {
    let (figures, mut changes) = (work.figures().await?, Figures::default());
    for figure in [Figure::Processed, Figure::Failed] {
        changes.add(queue, figure, -(figures.get(queue, figure) as i64));
    }
    work.write_figures(&changes).await
}

/// What is deleted next.
enum Loaded {
    Lanes {
        /// Whether there are more.
        more: bool,
    },
    /// A lane with so many jobs that they go in parts.
    Long(u64),
}

/// Locks and reads lanes with about `rows_max` jobs, at least one lane, unless that is a long one.
async fn load_lanes(work: &mut Work<'_>, queue: u32, rows_max: usize) -> Try<Loaded> {
    let sql = format!(
        "SELECT id, n + c FROM seriatim_lane WHERE q = {queue} LIMIT {} FOR UPDATE",
        rows_max + 1
    );
    let (mut ids, mut jobs, mut more) = (BTreeSet::new(), 0, false);
    for row in work.rows(&sql).await? {
        let mut row = Columns::of(row);
        let (id, of_lane) = (row.int()? as u64, row.int()? as usize);
        if of_lane > STEP_JOBS && ids.is_empty() {
            return Ok(Loaded::Long(id));
        }
        if jobs >= rows_max || of_lane > STEP_JOBS {
            more = true;
            break;
        }
        ids.insert(id);
        jobs += of_lane.max(1);
    }
    work.lock_lanes(&ids).await?;
    let lanes: Vec<u64> = work.lanes.keys().copied().collect();
    work.load_jobs(&lanes, Need::All, true, Bodies::None, &HashMap::new()).await?;
    Ok(Loaded::Lanes { more })
}
