//! Recovers claims whose answers were lost. The store may count lanes as held by this node that the node does not
//! know, and every heartbeat would extend them. They are returned uncounted.
//!
//! A call whose answer was lost may also still be on its way. So all calls so far are given up first: afterwards the
//! store's listing shows everything that they will ever have taken.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use futures_util::stream::{self, StreamExt};

use crate::contract::{GiveUp, LaneQuery};
use crate::engine::core::Core;
use crate::engine::limits::COMPARED_AT_ONCE;
use crate::engine::outage::{Pauses, will_pass};
use crate::engine::settle::settler::{keep_refused, send};
use crate::model::{Error, ErrorKind, LaneId, NodeId, Queue, Result, Token, release};

/// Compares the store's list of lanes held by `node` in these queues with the node's own list. Called by the fetcher,
/// while none of its claims is in flight. Returns the queues for which that failed.
pub(in crate::engine) async fn reconcile(
    core: &Core,
    node: &NodeId,
    queues: &[Arc<Queue>],
) -> Vec<(String, Error)> {
    let _no_rescue = core.claiming.write().await;
    let ticket = core.last_ticket();
    let compare = async |queue: &Arc<Queue>| {
        let answer = reconcile_queue(core, queue, node, ticket).await;
        Some((queue.name.clone(), answer.err()?))
    };
    let answers = stream::iter(queues).map(compare).buffered(COMPARED_AT_ONCE);
    answers.filter_map(std::future::ready).collect().await
}

/// Returns, at the end of an engine, what it has claimed by calls whose answers were lost.
pub(in crate::engine) async fn take_back(core: &Core) {
    let mut pauses = Pauses::default();
    while core.claims_unanswered.swap(false, Ordering::AcqRel) {
        let failed = match every_queue(core).await {
            Ok(queues) => reconcile(core, &core.node(), &queues).await.into_iter().next(),
            Err(error) => Some((String::new(), error)),
        };
        if let Some((_, error)) = failed {
            core.outage.failed("comparing claims with the store's", &error);
            core.claims_unanswered.store(true, Ordering::Release);
            tokio::time::sleep(pauses.next()).await;
        }
    }
}

/// The store's queues: a rescue takes lanes from all.
pub(in crate::engine) async fn every_queue(core: &Core) -> Result<Vec<Arc<Queue>>> {
    let views = core.store.queues().await?;
    Ok(views.into_iter().map(|view| Arc::new(view.queue)).collect())
}

async fn reconcile_queue(core: &Core, queue: &Queue, node: &NodeId, ticket: u64) -> Result<()> {
    let name = Some(queue.name.as_str().into());
    core.store.give_up(GiveUp { node: node.clone(), ticket, queue: name }).await?;
    let (mut after, mut unreadable) = (None, None);
    loop {
        let node = Some(node.clone());
        let query = LaneQuery { node, after, ..LaneQuery::new(queue.name.as_str()) };
        let page = match core.store.lanes(query).await {
            Ok(page) => page,
            Err(error) if error.kind() == ErrorKind::NotFound => return Ok(()),
            Err(error) => return Err(error),
        };
        for row in page.rows {
            if let Some(token) = row.token.filter(|token| !core.held.contains(row.lane, *token)) {
                match put_back(core, queue, row.lane, token).await {
                    // One that cannot be read holds up no other.
                    Err(error) if !will_pass(&error) => unreadable = Some(error),
                    answer => answer?,
                }
            }
        }
        after = page.next;
        if after.is_none() {
            return unreadable.map_or(Ok(()), Err);
        }
    }
}

async fn put_back(core: &Core, queue: &Queue, lane: LaneId, token: Token) -> Result<()> {
    // `None`: it was settled between the two queries.
    let Some(turn) = core.store.turn(lane, token).await? else { return Ok(()) };
    tracing::info!(queue = queue.name, %lane, %token, "a claim whose answer was lost is returned");
    let turns = [release(&turn, queue)];
    let (settled, _) = send(core, &turns).await;
    keep_refused(core, &turns, settled);
    Ok(())
}
