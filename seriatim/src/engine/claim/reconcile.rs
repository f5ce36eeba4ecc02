//! Recovers claims whose answers were lost. The store may count lanes as held by this node that the node does not
//! know, and every heartbeat would extend them. They are returned uncounted.
//!
//! A call whose answer was lost may also still be on its way. So all calls so far are given up first: afterwards the
//! store's listing shows everything that they will ever have taken.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use futures_util::stream::{self, StreamExt};

use crate::contract::{GiveUp, LaneQuery, LaneView};
use crate::engine::core::Core;
use crate::engine::limits::COMPARED_AT_ONCE;
use crate::engine::outage::{Pauses, will_pass};
use crate::engine::settle::settler::{keep_refused, send};
use crate::model::{
    Due, Error, ErrorKind, Fate, Keep, NodeId, Queue, Result, Settlement, Token, release,
};

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
    let mut after = None;
    loop {
        let node = Some(node.clone());
        let query = LaneQuery { node, after, bare: true, ..LaneQuery::new(queue.name.as_str()) };
        let page = match core.store.lanes(query).await {
            Ok(page) => page,
            Err(error) if error.kind() == ErrorKind::NotFound => return Ok(()),
            Err(error) => return Err(error),
        };
        for row in page.rows {
            if let Some(token) = row.token.filter(|token| !core.held.contains(row.lane, *token)) {
                put_back(core, queue, &row, token).await?;
            }
        }
        after = page.next;
        if after.is_none() {
            return Ok(());
        }
    }
}

async fn put_back(core: &Core, queue: &Queue, row: &LaneView, token: Token) -> Result<()> {
    let lane = row.lane;
    let end = match core.store.turn(lane, token).await {
        Ok(Some(turn)) => release(&turn, queue),
        // It was settled between the two queries.
        Ok(None) => return Ok(()),
        Err(error) if will_pass(&error) => return Err(error),
        Err(error) => {
            tracing::error!(%error, queue = queue.name, %lane, "a claimed turn cannot be read: it goes back as its lane shows it");
            release_unread(row, token)
        }
    };
    tracing::info!(queue = queue.name, %lane, %token, "a claim whose answer was lost is returned");
    core.losses.back(1);
    let turns = [end];
    let (settled, _) = send(core, &turns).await;
    keep_refused(core, &turns, settled);
    Ok(())
}

/// The settlement of a turn that is returned uncounted without having been read: a job whose payload is lost must not stay
/// claimed. Its jobs keep what they have; what a lane has of its own, a listing shows.
fn release_unread(row: &LaneView, token: Token) -> Settlement {
    let keep = Keep {
        job: None,
        due: Due::Unchanged,
        retry_count: row.retry_count,
        crashes: row.crashes,
        error: row.error.clone(),
        counted: false,
        others_unstarted: true,
        hold: false,
    };
    Settlement { rest: Fate::Keep, keep, ..Settlement::done(row.lane, token) }
}
