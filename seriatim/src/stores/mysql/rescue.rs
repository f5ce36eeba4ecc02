//! Rescue: takes over claims whose leases have ended.
//!
//! Most claims end with their nodes. Those that may end sooner, under a lease of their own or one shorter than the node's,
//! are marked in the index of claimed lanes ([`WATCHED`]), so a rescue reads these. It reads all claims only where a node
//! has died since it last did.

use std::collections::BTreeSet;

use super::bodies::Bodies;
use super::claim::take_over;
use super::error::Try;
use super::lane_row::WATCHED;
use super::sql::{Columns, LIST_MAX, given, literals};
use super::tickets::hold_ticket;
use super::walk::Walk;
use super::work::{Work, by_id};
use crate::contract::Rescue;
use crate::model::limits::CLAIM_LANES_MAX;
use crate::model::{NodeId, Result, Timestamp, Turn};
use crate::stores::state::NodeRow;

/// Rescues expired claims. Also returns the last walk. An error for a caller that is itself dead must not roll back that
/// others were declared dead.
pub(super) async fn rescue(
    work: &mut Work<'_>,
    request: &Rescue,
    last: Walk,
) -> Try<Result<(Vec<Turn>, Walk)>> {
    hold_ticket(work, &request.node, request.ticket).await?;
    // Without locks: heartbeats would wait for this call.
    work.load_nodes(None, "").await?;
    work.lock_silent().await?;
    let now = work.now;
    let (living, ahead) = (work.living(), work.nodes_where(|row| row.is_ahead(now)));
    // Declares nodes dead; no claims are loaded yet.
    let may = work.state.rescue(now, request);
    let dead: BTreeSet<_> = living.difference(&work.living()).cloned().collect();
    work.save_now("dead_at", &dead).await?;
    work.save_now("beat_at", &ahead).await?;
    if let Err(e) = may {
        return Ok(Err(e));
    }
    let most = request.lanes_max.min(CLAIM_LANES_MAX);
    let walks = last.is_due(now, work.state.nodes.values().filter_map(|node| node.dead_at).max());
    let claims = if walks { work.all_claims("") } else { work.marked_claims() };
    let ids = work.ended_of(&claims, most).await?;
    for ids in ids.chunks(LIST_MAX) {
        let lanes = by_id(ids.iter().copied());
        let lanes = format!("{lanes} AND st = 2 FOR UPDATE SKIP LOCKED");
        work.read_lanes(&lanes, Bodies::None).await?;
    }
    let here: Vec<u64> = work.lanes.keys().copied().collect();
    let mut turns = Vec::new();
    if !here.is_empty() {
        turns = take_over(work, &here, |state| state.rescue(now, request)).await?;
    }
    let is_whole = walks && ids.len() < most && here.len() == ids.len();
    let walk = if is_whole { Walk { at: now, next: work.next_end().await? } } else { last };
    Ok(Ok((turns, walk)))
}

/// Claims of these queues for which `also` holds, with their nodes and the extensions of their leases; `None` of no queues.
fn claims_of(queues: &[u32], also: &str) -> Option<String> {
    let given = given(queues);
    let claims = format!(
        "FROM {given} STRAIGHT_JOIN seriatim_lane l FORCE INDEX (lane_ready) ON l.q = given.number AND l.st = 2{also} \
         LEFT JOIN seriatim_node n ON n.number = l.node \
         LEFT JOIN seriatim_extension e ON e.lane = l.id AND e.tok = l.tok"
    );
    (!queues.is_empty()).then_some(claims)
}

impl Work<'_> {
    fn all_claims(&self, also: &str) -> Vec<String> {
        let queues: Vec<u32> = self.state.queues.keys().copied().collect();
        claims_of(&queues, also).into_iter().collect()
    }

    fn marked_claims(&self) -> Vec<String> {
        let is_grouped = |queue: &u32| self.known.grouped.contains(queue);
        let (grouped, others): (Vec<u32>, Vec<u32>) =
            self.state.queues.keys().copied().partition(is_grouped);
        // Without groups, claimed lanes have one class, and the marked ones are a range of the index.
        let others = claims_of(&others, &format!(" AND l.class = 0 AND l.prio = {WATCHED}"));
        let grouped = claims_of(&grouped, &format!(" AND l.prio = {WATCHED}"));
        others.into_iter().chain(grouped).collect()
    }

    /// Those of these claims whose leases have ended.
    async fn ended_of(&mut self, claims: &[String], most: usize) -> Try<Vec<u64>> {
        let at = self.now.as_micros();
        let ended = |claims: &String| {
            format!(
                "SELECT l.id {claims} WHERE IF(l.own, GREATEST(l.until, IFNULL(e.until, 0)) < {at}, \
                 n.number IS NULL OR n.beat_at + l.ttl < {at})"
            )
        };
        if claims.is_empty() {
            return Ok(Vec::new());
        }
        let parts: Vec<String> = claims.iter().map(ended).collect();
        let parts = parts.join(" UNION ALL ");
        let sql = format!("SELECT c.id FROM ({parts}) c ORDER BY c.id LIMIT {most}");
        let mut ids = Vec::new();
        for row in self.rows(&sql).await? {
            ids.push(Columns::of(row).int()? as u64);
        }
        Ok(ids)
    }

    /// When the next of the claims of dead nodes ends, or of those under own leases that an earlier build did not mark.
    async fn next_end(&mut self) -> Try<Timestamp> {
        let Some(claims) = self.all_claims(" AND l.prio = 0").pop() else {
            return Ok(Timestamp::MAX);
        };
        let sql = format!(
            "SELECT MIN(IF(l.own, GREATEST(l.until, IFNULL(e.until, 0)), n.beat_at + l.ttl)) {claims} \
             WHERE l.own OR n.dead_at IS NOT NULL"
        );
        let first = self.rows(&sql).await?.into_iter().next();
        let end = first.map(|row| Columns::of(row).maybe_int()).transpose()?.flatten();
        Ok(end.map_or(Timestamp::MAX, Timestamp::from_micros))
    }

    /// Locks the nodes that are to be declared dead, or whose heartbeats are ahead, and reads them again: they may have
    /// beaten meanwhile.
    async fn lock_silent(&mut self) -> Try<()> {
        let now = self.now;
        let ids = self.nodes_where(|node| node.is_silent(now) || node.is_ahead(now));
        if ids.is_empty() {
            return Ok(());
        }
        self.state.nodes.retain(|id, _| !ids.contains(id));
        let these = format!(
            "FORCE INDEX (PRIMARY) WHERE id IN ({}) ORDER BY id FOR UPDATE",
            literals(ids.iter().map(|id| &*id.0))
        );
        let rows = self.rows(&super::load::nodes_from(&these)).await?;
        self.add_nodes(rows)
    }

    fn living(&self) -> BTreeSet<NodeId> {
        self.nodes_where(|row| row.dead_at.is_none())
    }

    fn nodes_where(&self, holds: impl Fn(&NodeRow) -> bool) -> BTreeSet<NodeId> {
        let nodes = self.state.nodes.iter().filter(|(_, row)| holds(row));
        nodes.map(|(id, _)| id.clone()).collect()
    }

    /// Writes the time into a column of these nodes.
    async fn save_now(&mut self, column: &str, nodes: &BTreeSet<NodeId>) -> Try<()> {
        if nodes.is_empty() {
            return Ok(());
        }
        let sql = format!(
            "UPDATE seriatim_node FORCE INDEX (PRIMARY) SET {column} = {} WHERE id IN ({})",
            self.now.as_micros(),
            literals(nodes.iter().map(|id| &*id.0))
        );
        self.run(&sql).await?;
        Ok(())
    }
}
