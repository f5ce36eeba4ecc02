//! Ends turns in the store: what has gathered goes as one batch.
//!
//! A settlement is tried until the store answers, whatever becomes of the handler that it came
//! from. The token fences it, so a repeat does no harm. One that the store refuses for a reason that will
//! not pass is put aside and tried again seldom: it must keep no other from being carried out.

use std::collections::HashSet;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};

use tokio::sync::Notify;
use tokio::time::{Instant, timeout_at};

use crate::contract::{Settle, Settled, TroubleKind};
use crate::engine::call::exhausted::announce;
use crate::engine::core::Core;
use crate::engine::limits::PUT_ASIDE_FOR;
use crate::engine::outage::Pauses;
use crate::engine::settle::turn_log::TurnLog;
use crate::handler::call::Call;
use crate::lock::lock;
use crate::model::clock::Timestamp;
use crate::model::error::{Error, ErrorKind};
use crate::model::id::{JobId, LaneId};
use crate::model::limits::SETTLE_TURNS_MAX;
use crate::model::settle::{EndKind, Ending, Settlement};
use crate::model::turn::Turn;

/// A turn that has ended, on its way to the store.
pub(in crate::engine) struct Ended {
    settlement: Settlement,
    /// None: its end is counted elsewhere.
    jobs: Option<Jobs>,
    /// The turn itself, kept only for observers and for the log of failures.
    witness: Option<(Arc<Call>, usize)>,
    /// The store has refused it before.
    aside: bool,
}

impl Ended {
    pub(in crate::engine) fn new(
        settlement: Settlement,
        call: &Arc<Call>,
        place: usize,
        observed: bool,
    ) -> Self {
        let jobs = Jobs::of(&call.turns[place], &settlement);
        let wanted = observed || TurnLog::tells(&settlement);
        let witness = wanted.then(|| (call.clone(), place));
        Self { settlement, jobs: Some(jobs), witness, aside: false }
    }

    /// One that nobody is told of.
    fn unseen(settlement: Settlement) -> Self {
        Self { settlement, jobs: None, witness: None, aside: false }
    }
}

/// The jobs of a turn, as far as it takes them to say how it ended: the payloads need not wait for
/// the store.
pub(in crate::engine) enum Jobs {
    /// All of so many are done.
    Done(usize),
    /// Each has a fate of its own.
    Each(Vec<JobId>),
}

impl Jobs {
    pub(in crate::engine) fn of(turn: &Turn, settlement: &Settlement) -> Self {
        match settlement.is_all_done() {
            true => Self::Done(turn.jobs.len()),
            false => Self::Each(turn.jobs.iter().map(|job| job.id).collect()),
        }
    }

    /// How their turn ended; none when its settlement was refused.
    pub(in crate::engine) fn ending(
        &self,
        settlement: &Settlement,
        settled: &Settled,
    ) -> Option<Ending> {
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
pub(in crate::engine) struct Settles {
    waiting: Mutex<Waiting>,
    some: Notify,
    aside: AtomicUsize,
}

#[derive(Default)]
struct Waiting {
    ended: Vec<Ended>,
    /// What the store refuses: tried again seldom, so that it keeps nothing else waiting.
    aside: Vec<Ended>,
    aside_again: Option<Instant>,
    closed: bool,
    /// What was put aside has been tried since the queue was closed.
    tried: bool,
}

impl Settles {
    pub(in crate::engine) fn add(&self, ended: impl IntoIterator<Item = Ended>) {
        let mut waiting = lock(&self.waiting);
        let was_empty = waiting.ended.is_empty();
        waiting.ended.extend(ended);
        let wake = was_empty && !waiting.ended.is_empty();
        drop(waiting);
        if wake {
            self.some.notify_one();
        }
    }

    fn put_aside(&self, ended: Ended) {
        let mut waiting = lock(&self.waiting);
        waiting.aside.push(Ended { aside: true, ..ended });
        waiting.aside_again.get_or_insert_with(|| Instant::now() + PUT_ASIDE_FOR);
        self.aside.store(waiting.aside.len(), Ordering::Relaxed);
        drop(waiting);
        self.some.notify_one();
    }

    fn counts_aside(&self) {
        self.aside.store(lock(&self.waiting).aside.len(), Ordering::Relaxed);
    }

    /// How many turns are put aside.
    pub(in crate::engine) fn aside(&self) -> usize {
        self.aside.load(Ordering::Relaxed)
    }

    /// Lets the settler end when it is through.
    pub(in crate::engine) fn close(&self) {
        lock(&self.waiting).closed = true;
        self.some.notify_one();
    }

    /// All that waits; none when the queue is closed and empty.
    async fn take(&self) -> Option<Vec<Ended>> {
        loop {
            let again = {
                let mut waiting = lock(&self.waiting);
                if let Some(aside) = waiting.take_aside() {
                    return Some(aside);
                }
                if !waiting.ended.is_empty() {
                    return Some(std::mem::take(&mut waiting.ended));
                }
                if waiting.closed {
                    return None;
                }
                waiting.aside_again
            };
            match again {
                None => self.some.notified().await,
                Some(time) => {
                    let _ = timeout_at(time, self.some.notified()).await;
                }
            }
        }
    }
}

impl Waiting {
    /// What was put aside, when its time has come; once more when all else is settled at the end.
    fn take_aside(&mut self) -> Option<Vec<Ended>> {
        let last = self.closed && !self.tried && self.ended.is_empty();
        if !last && self.aside_again.is_none_or(|time| time > Instant::now()) {
            return None;
        }
        self.tried |= last;
        self.aside_again = None;
        (!self.aside.is_empty()).then(|| std::mem::take(&mut self.aside))
    }
}

/// Settles until the queue is closed.
pub(in crate::engine) async fn run(core: Arc<Core>) {
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
    tell(core, &ended).await;
    let (turns, rest): (Vec<Settlement>, Vec<_>) =
        ended.into_iter().map(|one| (one.settlement, (one.jobs, one.witness, one.aside))).unzip();
    let sent_at = Timestamp::of_this_machine();
    let (settled, repeated) = send(core, &turns).await;
    core.held.remove(answered(&turns, &settled));
    let endings =
        turns.iter().zip(&settled).zip(&rest).filter_map(|((turn, settled), (jobs, ..))| {
            Some(jobs.as_ref()?.ending(turn, settled.as_ref()?))
        });
    core.counters.settled(endings);
    for ((settlement, settled), (jobs, witness, aside)) in turns.into_iter().zip(settled).zip(rest)
    {
        let Some(settled) = settled else {
            core.settles.put_aside(Ended { settlement, jobs, witness, aside });
            continue;
        };
        if aside {
            core.settles.counts_aside();
            core.troubles.clear(TroubleKind::SettlesPutAside, &settlement.lane.to_string());
        }
        let repeated = repeated || aside;
        report(&settlement, &settled, repeated);
        // Nobody knows whether the first sending was carried out: then no answer is told.
        let known = settled.is_ok() || !repeated;
        let (true, Some((call, place))) = (known, witness) else { continue };
        let turn = &call.turns[place];
        if let Settled::Ok { cancelled } = &settled {
            core.hooks.turn_log.settled(turn, &settlement, cancelled);
        }
        if let Some(observer) = &core.observer {
            observer.settled(turn, &settlement, &settled, sent_at);
        }
    }
}

/// Tells those who want to know of what is about to be sent.
async fn tell(core: &Core, ended: &[Ended]) {
    if !core.keeps_witness() {
        return;
    }
    let news = || ended.iter().filter(|one| !one.aside);
    let seen = || {
        news().filter_map(|one| {
            let (call, place) = one.witness.as_ref()?;
            Some((&call.turns[*place], &one.settlement))
        })
    };
    if let Some(observer) = &core.observer {
        seen().for_each(|(turn, settlement)| observer.settling(turn, settlement));
    }
    announce(core, seen()).await;
}

fn report(settlement: &Settlement, settled: &Settled, repeated: bool) {
    // After a lost answer the repeat of what was carried out is stale too: nothing is wrong then.
    if !settled.is_ok() && !repeated {
        let (lane, token) = (settlement.lane, settlement.token);
        tracing::warn!(%lane, %token, "another node had taken this claim over: its outcome was refused");
    }
}

/// Sends a batch until it is answered. Also says whether it was sent more than once. None stands for a
/// turn that the store refuses by itself: it is to be put aside.
pub(in crate::engine) async fn send(
    core: &Core,
    turns: &[Settlement],
) -> (Vec<Option<Settled>>, bool) {
    let mut pauses = Pauses::default();
    let mut repeated = false;
    loop {
        match core.store.settle(Settle { now: None, turns: turns.to_vec() }).await {
            Ok(settled) => {
                core.outage.succeeded();
                return (settled.into_iter().map(Some).collect(), repeated);
            }
            Err(error) if !will_pass(&error) => return (split(core, turns, &error).await, true),
            Err(error) => core.outage.failed("settling", &error),
        }
        repeated = true;
        tokio::time::sleep(pauses.next()).await;
    }
}

/// Whether the store may take the same request later: it is away, or cannot take anything at all.
pub(in crate::engine) fn will_pass(error: &Error) -> bool {
    matches!(error.kind(), ErrorKind::Unavailable | ErrorKind::Full | ErrorKind::ReadOnly)
}

/// Sends a batch that the store refuses in halves, until what it refuses stands alone.
async fn split(core: &Core, turns: &[Settlement], error: &Error) -> Vec<Option<Settled>> {
    if let [one] = turns {
        refused(core, one, error).await;
        return vec![None];
    }
    let (left, right) = turns.split_at(turns.len() / 2);
    let mut settled = Box::pin(send(core, left)).await.0;
    settled.extend(Box::pin(send(core, right)).await.0);
    settled
}

/// Tells people of a turn that the store refuses to end.
async fn refused(core: &Core, settlement: &Settlement, error: &Error) {
    let (lane, token) = (settlement.lane, settlement.token);
    let turn = core.store.turn(lane, token).await.ok().flatten();
    let queue = turn.as_ref().map(|turn| &*turn.queue);
    let again_s = PUT_ASIDE_FOR.as_secs();
    tracing::error!(%error, %lane, %token, queue, again_s, "the store refuses to settle a turn: it is put aside and tried again");
    let text = format!("the store refuses the outcome of lane {lane}: {error}");
    core.troubles.set(TroubleKind::SettlesPutAside, queue, &lane.to_string(), &text);
}

/// What is to be done with turns that were sent and are not the settler's own: those that the store
/// refuses are put aside. Answers what became of the others.
pub(in crate::engine) fn keep_refused(
    core: &Core,
    turns: &[Settlement],
    settled: Vec<Option<Settled>>,
) -> Vec<(usize, Settled)> {
    core.held.remove(answered(turns, &settled));
    let mut told = Vec::new();
    for (place, (turn, settled)) in turns.iter().zip(settled).enumerate() {
        match settled {
            Some(settled) => told.push((place, settled)),
            None => core.settles.put_aside(Ended::unseen(turn.clone())),
        }
    }
    told
}

/// The turns to which the store has answered.
fn answered<'t>(
    turns: &'t [Settlement],
    settled: &'t [Option<Settled>],
) -> impl Iterator<Item = &'t Settlement> {
    turns.iter().zip(settled).filter(|(_, settled)| settled.is_some()).map(|(turn, _)| turn)
}
