//! Lanes that go on: the next turn of a lane is claimed in the step that settles its last one.

use std::sync::atomic::Ordering;
use std::time::Duration;

use tokio::time::Instant;

use crate::contract::{GoOn, Settle, Settled};
use crate::engine::core::Core;
use crate::engine::limits::{GO_ON_ALONE_FOR, GO_ON_FOR};
use crate::engine::outage::may_have_been_done;
use crate::engine::settle::ended::Ended;
use crate::model::{NodeId, Result, Settlement, Turn};

/// The lanes of a batch that may go on.
pub(super) struct GoingOn {
    node: NodeId,
    queues: Vec<QueueLanes>,
}

/// Those of one queue.
struct QueueLanes {
    source: usize,
    /// How long a lane may go on.
    most: Duration,
    go_on: GoOn,
    /// When they were first claimed, in the order of their places.
    since: Vec<Instant>,
}

impl GoingOn {
    /// Chooses them. `None` if there are none.
    pub(super) fn of(core: &Core, ended: &[Ended]) -> Option<Self> {
        let may = ended.iter().any(|one| one.may_go_on.is_some());
        if !may || core.phases.is_draining() {
            return None;
        }
        let since = core.held.since(ended.iter().map(|one| &one.settlement));
        let mut going_on = Self { node: core.node(), queues: Vec::new() };
        for (place, (one, since)) in ended.iter().zip(since).enumerate() {
            let (Some(queue), Some(since)) = (&one.may_go_on, since) else { continue };
            let Some(lanes) = going_on.lanes_of(core, queue) else { continue };
            if since.elapsed() < lanes.most {
                lanes.go_on.places.push(place);
                lanes.go_on.claim.lanes_max += 1;
                lanes.since.push(since);
            }
        }
        going_on.queues.retain(|lanes| !lanes.since.is_empty());
        (!going_on.queues.is_empty()).then_some(going_on)
    }

    fn lanes_of(&mut self, core: &Core, queue: &str) -> Option<&mut QueueLanes> {
        let known = self.queues.iter().position(|lanes| *lanes.go_on.claim.queue == *queue);
        let at = known.or_else(|| self.add_queue(core, queue))?;
        self.queues.get_mut(at)
    }

    fn add_queue(&mut self, core: &Core, queue: &str) -> Option<usize> {
        let source = core.sources.iter().position(|source| *source.name == *queue)?;
        if !core.takes_from(source) {
            return None;
        }
        let claim = core.claim_of(source, self.node.clone());
        let go_on = GoOn { claim, places: Vec::new() };
        let most = if core.sources[source].has_more() { GO_ON_FOR } else { GO_ON_ALONE_FOR };
        self.queues.push(QueueLanes { source, most, go_on, since: Vec::new() });
        Some(self.queues.len() - 1)
    }

    /// Settles the batch, and hands the next turns to the slots. Repeating it after an error is safe, but then the
    /// lanes do not go on.
    pub(super) async fn settle(self, core: &Core, turns: &[Settlement]) -> Result<Vec<Settled>> {
        // While lanes are compared with the store's list, none may be claimed.
        let Ok(claiming) = core.claiming.try_read() else {
            return core.store.settle(settle_of(turns)).await;
        };
        let go_on = self.queues.iter().map(|lanes| lanes.go_on.clone()).collect();
        let request = Settle { go_on, ..settle_of(turns) };
        let answer = core.store.settle(request).await;
        let mut settled = answer.inspect_err(|error| {
            if may_have_been_done(error) {
                core.claims_unanswered.store(true, Ordering::Release);
            }
        })?;
        if settled.contains(&Settled::Unanswered) {
            // Its lanes may have gone on all the same.
            core.claims_unanswered.store(true, Ordering::Release);
        }
        core.held.remove(answered(turns, settled.iter().map(Some)));
        let renamed = core.node() != self.node;
        for lanes in &self.queues {
            let mut next = Vec::new();
            for (place, since) in lanes.go_on.places.iter().zip(&lanes.since) {
                let Some(turn) = take_next(&mut settled[*place]) else { continue };
                core.held.add_since(&turn, *since);
                next.push(turn);
            }
            // Claimed under an id that was given up: no heartbeat would extend the lease.
            let left = if renamed { next } else { core.dispatch.go_on(lanes.source, next) };
            core.release(lanes.source, left);
        }
        drop(claiming);
        Ok(settled)
    }
}

fn take_next(settled: &mut Settled) -> Option<Turn> {
    match settled {
        Settled::Ok { next, .. } => next.take().map(|turn| *turn),
        Settled::Stale | Settled::Busy | Settled::Unanswered => None,
    }
}

/// Settles these turns; a locked lane does not delay the others.
pub(super) fn settle_of(turns: &[Settlement]) -> Settle {
    Settle { skip_locked: true, ..Settle::now(turns.to_vec()) }
}

/// The turns that are not to be sent again, with these answers.
pub(super) fn answered<'t>(
    turns: &'t [Settlement],
    settled: impl Iterator<Item = Option<&'t Settled>>,
) -> impl Iterator<Item = &'t Settlement> {
    let is_ended = |settled: Option<&Settled>| settled.is_some_and(|settled| !settled.is_open());
    turns.iter().zip(settled).filter(move |(_, settled)| is_ended(*settled)).map(|(turn, _)| turn)
}
