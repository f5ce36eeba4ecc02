//! Ends turns in the store: what has gathered goes as one batch.
//!
//! A settlement is tried until the store answers, whatever becomes of the handler that it came
//! from. The token fences it, so a repeat does no harm.

use std::collections::HashSet;
use std::sync::{Arc, Mutex};

use tokio::sync::Notify;

use super::call::Call;
use super::core::Core;
use super::exhausted::announce;
use super::lock::lock;
use super::outage::Pauses;
use super::turn_log::TurnLog;
use crate::clock::Timestamp;
use crate::error::{Error, ErrorKind};
use crate::id::{JobId, LaneId};
use crate::limits::SETTLE_TURNS_MAX;
use crate::settle::{EndKind, Ending, Settlement};
use crate::store::{Settle, Settled};
use crate::turn::Turn;

/// A turn that has ended, on its way to the store.
pub(super) struct Ended {
    settlement: Settlement,
    jobs: Jobs,
    /// The turn itself, kept only for observers and for the log of failures.
    witness: Option<(Arc<Call>, usize)>,
}

impl Ended {
    pub(super) fn new(
        settlement: Settlement,
        call: &Arc<Call>,
        place: usize,
        observed: bool,
    ) -> Self {
        let jobs = Jobs::of(&call.turns[place], &settlement);
        let wanted = observed || TurnLog::tells(&settlement);
        Self { settlement, jobs, witness: wanted.then(|| (call.clone(), place)) }
    }
}

/// The jobs of a turn, as far as it takes them to say how it ended: the payloads need not wait for
/// the store.
pub(super) enum Jobs {
    /// All of so many are done.
    Done(usize),
    /// Each has a fate of its own.
    Each(Vec<JobId>),
}

impl Jobs {
    pub(super) fn of(turn: &Turn, settlement: &Settlement) -> Self {
        match settlement.is_all_done() {
            true => Self::Done(turn.jobs.len()),
            false => Self::Each(turn.jobs.iter().map(|job| job.id).collect()),
        }
    }

    /// How their turn ended; none when its settlement was refused.
    pub(super) fn ending(&self, settlement: &Settlement, settled: &Settled) -> Option<Ending> {
        match (settled, self) {
            (Settled::Stale, _) => None,
            (Settled::Ok { .. }, Self::Done(done)) => {
                Some(Ending { kind: EndKind::Done, done: *done })
            }
            (Settled::Ok { cancelled }, Self::Each(jobs)) => {
                Some(settlement.ending(jobs.iter().copied(), cancelled))
            }
        }
    }
}

/// What waits to be settled.
#[derive(Default)]
pub(super) struct Settles {
    waiting: Mutex<Waiting>,
    some: Notify,
}

#[derive(Default)]
struct Waiting {
    ended: Vec<Ended>,
    closed: bool,
}

impl Settles {
    pub(super) fn add(&self, ended: impl IntoIterator<Item = Ended>) {
        let mut waiting = lock(&self.waiting);
        let was_empty = waiting.ended.is_empty();
        waiting.ended.extend(ended);
        let wake = was_empty && !waiting.ended.is_empty();
        drop(waiting);
        if wake {
            self.some.notify_one();
        }
    }

    /// Lets the settler end when it is through.
    pub(super) fn close(&self) {
        lock(&self.waiting).closed = true;
        self.some.notify_one();
    }

    /// All that waits; none when the queue is closed and empty.
    async fn take(&self) -> Option<Vec<Ended>> {
        loop {
            {
                let mut waiting = lock(&self.waiting);
                if !waiting.ended.is_empty() {
                    return Some(std::mem::take(&mut waiting.ended));
                }
                if waiting.closed {
                    return None;
                }
            }
            self.some.notified().await;
        }
    }
}

/// Settles until the queue is closed.
pub(super) async fn run(core: Arc<Core>) {
    while let Some(mut ended) = core.settles.take().await {
        while !ended.is_empty() {
            let rest = ended.split_off(ended.len().min(SETTLE_TURNS_MAX));
            let again = if core.held.was_doubled() { take_doubled(&mut ended) } else { Vec::new() };
            settle(&core, ended).await;
            ended = again;
            ended.extend(rest);
        }
    }
}

/// Takes out what names a lane that stands in the batch already.
fn take_doubled(ended: &mut Vec<Ended>) -> Vec<Ended> {
    let mut seen: HashSet<LaneId> = HashSet::with_capacity(ended.len());
    let is_second = |one: &mut Ended| !seen.insert(one.settlement.lane);
    ended.extract_if(.., is_second).collect()
}

async fn settle(core: &Core, ended: Vec<Ended>) {
    let (turns, (jobs, witnesses)): (Vec<_>, (Vec<_>, Vec<_>)) =
        ended.into_iter().map(|one| (one.settlement, (one.jobs, one.witness))).unzip();
    if let Some(observer) = &core.observer {
        for (settlement, witness) in turns.iter().zip(&witnesses) {
            if let Some((call, place)) = witness {
                observer.settling(&call.turns[*place], settlement);
            }
        }
    }
    let witnessed = turns.iter().zip(&witnesses);
    announce(
        core,
        witnessed.filter_map(|(settlement, witness)| {
            let (call, place) = witness.as_ref()?;
            Some((&call.turns[*place], settlement))
        }),
    )
    .await;
    let sent_at = Timestamp::of_this_machine();
    let (settled, repeated) = send(core, &turns).await;
    core.held.remove(&turns);
    let answered = turns.iter().zip(&settled).zip(&jobs);
    let endings = answered.map(|((settlement, settled), jobs)| jobs.ending(settlement, settled));
    core.counters.settled(endings);
    for ((settlement, settled), witness) in turns.iter().zip(&settled).zip(&witnesses) {
        report(settlement, settled, repeated);
        // Nobody knows whether the first sending was carried out: then no answer is told.
        let known = settled.is_ok() || !repeated;
        let (true, Some((call, place))) = (known, witness) else { continue };
        let turn = &call.turns[*place];
        if let Settled::Ok { cancelled } = settled {
            core.extras.turn_log.settled(turn, settlement, cancelled);
        }
        if let Some(observer) = &core.observer {
            observer.settled(turn, settlement, settled, sent_at);
        }
    }
}

fn report(settlement: &Settlement, settled: &Settled, repeated: bool) {
    // After a lost answer the repeat of what was carried out is stale too: nothing is wrong then.
    if !settled.is_ok() && !repeated {
        let (lane, token) = (settlement.lane, settlement.token);
        tracing::warn!(%lane, %token, "another node had taken this claim over: its outcome was refused");
    }
}

/// Sends a batch until it is answered. Also says whether it was sent more than once.
pub(super) async fn send(core: &Core, turns: &[Settlement]) -> (Vec<Settled>, bool) {
    let mut pauses = Pauses::default();
    let mut repeated = false;
    loop {
        match core.store.settle(Settle { now: None, turns: turns.to_vec() }).await {
            Ok(settled) => {
                core.outage.succeeded();
                return (settled, repeated);
            }
            Err(error) if is_hopeless(&error) => {
                return (split(core, turns, &error).await, repeated);
            }
            Err(error) => core.outage.failed("settling", &error),
        }
        repeated = true;
        tokio::time::sleep(pauses.next()).await;
    }
}

/// Whether the store will refuse the same batch again.
fn is_hopeless(error: &Error) -> bool {
    matches!(
        error.kind(),
        ErrorKind::Invalid | ErrorKind::NotFound | ErrorKind::Conflict | ErrorKind::Corrupt
    )
}

/// One bad settlement must not keep the others from being carried out.
async fn split(core: &Core, turns: &[Settlement], error: &Error) -> Vec<Settled> {
    if let [one] = turns {
        let (lane, token) = (one.lane, one.token);
        tracing::error!(%error, %lane, %token, "the store refuses to settle a turn: it stays claimed until this node ends");
        return vec![Settled::Stale];
    }
    let (left, right) = turns.split_at(turns.len() / 2);
    let mut settled = Box::pin(send(core, left)).await.0;
    settled.extend(Box::pin(send(core, right)).await.0);
    settled
}
