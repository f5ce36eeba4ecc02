//! Lanes that go on: the next turn of a lane is claimed in the step that settles its last one.

use std::sync::atomic::Ordering;

use tokio::time::Instant;

use crate::contract::{GoOn, Settle, Settled};
use crate::engine::core::Core;
use crate::engine::limits::GO_ON_FOR;
use crate::engine::outage::may_have_been_done;
use crate::engine::settle::ended::Ended;
use crate::engine::settle::settler::{answered, settle_of};
use crate::model::error::Result;
use crate::model::id::NodeId;
use crate::model::settle::Settlement;
use crate::model::turn::Turn;

/// The lanes of a batch that may go on.
pub(super) struct GoingOn {
    node: NodeId,
    /// For each queue its source, and when the lanes were first claimed, in the order of their places.
    sources: Vec<(usize, Vec<Instant>)>,
    claims: Vec<GoOn>,
}

impl GoingOn {
    /// Chooses them. `None` if there are none.
    pub(super) fn of(core: &Core, ended: &[Ended]) -> Option<Self> {
        let may = ended.iter().any(|one| one.may_go_on.is_some());
        if !may || !core.store.capabilities().goes_on || core.phases.is_draining() {
            return None;
        }
        let since = core.held.since(ended.iter().map(|one| &one.settlement));
        let node = core.node();
        let mut going_on = Self { node, sources: Vec::new(), claims: Vec::new() };
        for (place, (one, since)) in ended.iter().zip(since).enumerate() {
            let Some(queue) = &one.may_go_on else { continue };
            let Some(since) = since.filter(|since| since.elapsed() < GO_ON_FOR) else { continue };
            let known = going_on.claims.iter().position(|known| known.claim.queue == *queue);
            let Some(at) = known.or_else(|| going_on.add_queue(core, queue)) else { continue };
            going_on.claims[at].places.push(place);
            going_on.claims[at].claim.lanes_max += 1;
            going_on.sources[at].1.push(since);
        }
        (!going_on.claims.is_empty()).then_some(going_on)
    }

    fn add_queue(&mut self, core: &Core, queue: &str) -> Option<usize> {
        let source = core.sources.iter().position(|source| *source.name == *queue)?;
        if !core.takes_from(source) {
            return None;
        }
        let claim = core.claim_of(source, self.node.clone());
        self.claims.push(GoOn { claim, places: Vec::new() });
        self.sources.push((source, Vec::new()));
        Some(self.claims.len() - 1)
    }

    /// Settles the batch, and hands the next turns to the slots. Repeating it after an error is safe, but then the
    /// lanes do not go on.
    pub(super) async fn settle(self, core: &Core, turns: &[Settlement]) -> Result<Vec<Settled>> {
        // While lanes are compared with the store's list, none may be claimed.
        let Ok(claiming) = core.claiming.try_read() else {
            return core.store.settle(settle_of(turns)).await;
        };
        let request = Settle { go_on: self.claims.clone(), ..settle_of(turns) };
        let answer = core.store.settle(request).await;
        let mut settled = answer.inspect_err(|error| {
            if may_have_been_done(error) {
                core.claims_unanswered.store(true, Ordering::Release);
            }
        })?;
        core.held.remove(answered(turns, settled.iter().map(Some)));
        let renamed = core.node() != self.node;
        for (go_on, (source, since)) in self.claims.iter().zip(&self.sources) {
            let mut next = Vec::new();
            for (place, since) in go_on.places.iter().zip(since) {
                let Some(turn) = take_next(&mut settled[*place]) else { continue };
                core.held.add_since(&turn, *since);
                next.push(turn);
            }
            // Claimed under an id that was given up: no heartbeat would extend the lease.
            let left = if renamed { next } else { core.dispatch.go_on(*source, next) };
            core.release(*source, left);
        }
        drop(claiming);
        Ok(settled)
    }
}

fn take_next(settled: &mut Settled) -> Option<Turn> {
    match settled {
        Settled::Ok { next, .. } => next.take().map(|turn| *turn),
        Settled::Stale | Settled::Busy => None,
    }
}
