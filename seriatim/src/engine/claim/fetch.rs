//! Claims lanes for the slots. Only this task claims, so that lanes of a lost answer are looked for before anything
//! else is claimed. Where a store answers concurrent calls sooner, the next claim is on its way before the last one is
//! answered, so that neither the store nor the slots wait for the other.

use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use futures_util::future::BoxFuture;
use futures_util::stream::{FuturesUnordered, StreamExt};
use tokio::time::Instant;

use crate::contract::{Claim, Claimed, TroubleKind, Wake, Wakeups};
use crate::engine::claim::dispatch::Want;
use crate::engine::claim::reconcile::reconcile;
use crate::engine::claim::scheduler::Scheduler;
use crate::engine::claim::source::Source;
use crate::engine::core::Core;
use crate::engine::limits::{
    CLAIMS_IN_FLIGHT, HELD_LANES_MAX, PREFETCH_LANES_MAX, PUT_ASIDE_FOR, PUT_ASIDE_MAX, REST_MIN,
};
use crate::engine::outage::{Pauses, may_have_been_done, will_pass};
use crate::model::clock::Timestamp;
use crate::model::error::{Error, ErrorKind, Result};
use crate::model::id::NodeId;

/// When to ask a source again, the soonest first.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Next {
    /// Now: it may have lanes.
    Now,
    /// Not before this time of the store's clock.
    At(Timestamp),
    /// After a wake-up.
    Woken,
}

/// The fetcher's knowledge of one source.
#[derive(Clone, Copy, Debug)]
struct Look {
    next: Next,
    at: Instant,
    /// A claim may have taken effect although its answer was lost.
    suspect: bool,
    /// Most lanes of one claim, reduced while the store refuses larger claims.
    most: usize,
    /// The store refuses its claims for a lasting reason; it is not asked before this time.
    aside_until: Option<Instant>,
}

impl Look {
    fn is_aside(&self) -> bool {
        self.aside_until.is_some_and(|until| until > Instant::now())
    }
}

/// An answered claim.
struct Landed {
    place: usize,
    want: Want,
    /// The node that claimed.
    node: NodeId,
    answer: Result<Claimed>,
}

/// Claims until the engine drains.
pub(in crate::engine) async fn run(core: Arc<Core>) {
    let (next, at) = (Next::Now, Instant::now());
    let look = Look { next, at, suspect: false, most: usize::MAX, aside_until: None };
    let looks = vec![look; core.sources.len()];
    let names = core.sources.iter().map(|source| source.name.clone());
    let places: HashMap<_, _> = names.zip(0..).collect();
    let wakeups = core.store.wakeups().only(places.keys().cloned());
    let pauses = Pauses::default();
    let several = core.store.capabilities().claim_split.is_some();
    let mut fetcher = Fetcher {
        flights: FuturesUnordered::new(),
        flights_max: if several { CLAIMS_IN_FLIGHT } else { 1 },
        failure: None,
        round: 0,
        core,
        wakeups,
        places,
        looks,
        pauses,
    };
    while !fetcher.core.phases.is_draining() {
        let claimed = fetcher.claim_round().await;
        fetcher.release_old();
        if !claimed {
            fetcher.rest().await;
        }
    }
    fetcher.land_all().await;
}

struct Fetcher {
    core: Arc<Core>,
    wakeups: Wakeups,
    places: HashMap<Arc<str>, usize>,
    looks: Vec<Look>,
    pauses: Pauses,
    /// The claims on their way.
    flights: FuturesUnordered<BoxFuture<'static, Landed>>,
    flights_max: usize,
    /// Why a claim failed, if that will pass.
    failure: Option<Error>,
    round: usize,
}

impl Fetcher {
    /// Claims from every source that may have lanes. True if one had.
    async fn claim_round(&mut self) -> bool {
        self.wake_overdue();
        self.round += 1;
        let (mut claimed, mut first) = (false, true);
        if !self.reconcile().await {
            return false;
        }
        for place in self.order().await {
            if self.core.phases.is_draining() {
                break;
            }
            if !self.may_claim(place) {
                continue;
            }
            let is_fed = claimed || !self.flights.is_empty() || self.core.dispatch.is_waiting();
            if is_fed && !self.core.prefers(place) {
                // Another node prefers this source, and this node has enough work.
                self.core.dispatch.unreserve(|reserved| reserved == place);
                continue;
            }
            let want = self.want(place, first);
            first = false;
            if want.lanes > 0 {
                claimed |= self.claim(place, want).await;
            }
        }
        self.core.dispatch.unreserve(|place| !self.may_claim(place));
        claimed
    }

    fn may_claim(&self, place: usize) -> bool {
        let look = &self.looks[place];
        look.next == Next::Now && !look.is_aside() && self.core.takes_from(place)
    }

    /// After lost answers: finds the lanes that the store counts as this node's. Done even if their queue has nothing
    /// to claim, because these lanes may be all that it has. False if that failed.
    async fn reconcile(&mut self) -> bool {
        let core = self.core.clone();
        let of_others = core.claims_unanswered.swap(false, Ordering::AcqRel);
        let is_due = |look: &Look| look.suspect && !look.is_aside();
        if !of_others && !self.looks.iter().any(is_due) {
            return true;
        }
        self.land_all().await;
        let suspects: Vec<&str> = (core.sources.iter().zip(&self.looks))
            .filter_map(|(source, look)| is_due(look).then_some(&*source.name))
            .collect();
        // A rescue takes lanes from all queues.
        let is_suspect = |queue: &str| of_others || suspects.contains(&queue);
        match reconcile(&core, &core.node(), is_suspect).await {
            Ok(failed) => {
                for (source, look) in core.sources.iter().zip(&mut self.looks) {
                    let error = failed.iter().find(|(queue, _)| **queue == *source.name);
                    match error {
                        Some((_, error)) => {
                            look.suspect = true;
                            put_aside(&core, source, look, error);
                        }
                        // It stays suspect only if this round did not check it.
                        None => look.suspect &= !of_others && !suspects.contains(&&*source.name),
                    }
                }
                true
            }
            Err(error) => {
                core.claims_unanswered.fetch_or(of_others, Ordering::AcqRel);
                self.wait_after(error).await;
                false
            }
        }
    }

    /// Asks the sources that are due or were not asked for a poll interval.
    fn wake_overdue(&mut self) {
        let now = self.core.store_now();
        let interval = self.core.settings.poll_interval;
        for look in &mut self.looks {
            let due = matches!(look.next, Next::At(time) if time <= now);
            if due || look.at.elapsed() >= interval {
                look.next = Next::Now;
            }
        }
    }

    async fn order(&mut self) -> Vec<usize> {
        if self.looks.len() == 1 {
            return vec![0];
        }
        let asked = self.asked();
        let scheduler = self.core.settings.scheduler;
        let due = match scheduler {
            Scheduler::Lag if asked.len() > 1 => self.ask_due(&asked).await,
            _ => vec![None; asked.len()],
        };
        let weight = |source: &Source| source.definition().map_or(1, |queue| queue.weight).max(1);
        let weights: Vec<u32> =
            asked.iter().map(|place| weight(&self.core.sources[*place])).collect();
        let order = scheduler.order(&due, &weights, self.round);
        let mut order: Vec<usize> = order.into_iter().map(|at| asked[at]).collect();
        order.sort_by_key(|place| !self.core.prefers(*place));
        order
    }

    /// The sources that may have lanes.
    fn asked(&self) -> Vec<usize> {
        let looks = self.looks.iter().enumerate();
        looks.filter(|(_, look)| look.next == Next::Now).map(|(place, _)| place).collect()
    }

    /// Asks since when each of these queues has lanes: one query, instead of a claim for each.
    async fn ask_due(&mut self, asked: &[usize]) -> Vec<Option<Timestamp>> {
        let queues = asked.iter().map(|place| self.core.sources[*place].name.clone()).collect();
        let Ok(answer) = self.core.store.due(queues).await else {
            // The claims continue in the order of declaration, and report the error.
            return vec![None; asked.len()];
        };
        let known: HashMap<_, _> = answer.into_iter().map(|one| (one.queue, one.due)).collect();
        let look_at = |place: usize| {
            let source = &self.core.sources[place];
            let known = known.get(&source.name);
            if known.is_none() && source.is_declared() && source.stands() {
                self.core.lost(place);
            }
            let (look, due) = (&mut self.looks[place], known.copied().flatten());
            look.at = Instant::now();
            look.next = match due {
                Some(time) if time <= self.core.store_now() => Next::Now,
                Some(time) => Next::At(time),
                None => Next::Woken,
            };
            due
        };
        asked.iter().copied().map(look_at).collect()
    }

    fn want(&self, place: usize, first: bool) -> Want {
        let (core, look) = (&self.core, &self.looks[place]);
        let definition = core.sources[place].definition();
        let held =
            core.held.count() - core.settles.aside().min(PUT_ASIDE_MAX).min(core.held.count());
        let most = HELD_LANES_MAX.saturating_sub(held).min(look.most);
        core.dispatch.want(place, definition.as_deref(), most, first)
    }

    /// Claims, and handles answers until another claim may be sent. True if one had lanes.
    async fn claim(&mut self, place: usize, want: Want) -> bool {
        let most = self.core.store.capabilities().claim_split;
        let parts = if self.flights.is_empty() { want.split(most) } else { vec![want] };
        for part in parts {
            self.send(place, part);
        }
        let mut got = false;
        while self.flights.len() >= self.flights_max {
            got |= self.land().await;
        }
        self.recover().await;
        got
    }

    fn send(&mut self, place: usize, want: Want) {
        let core = self.core.clone();
        core.dispatch.ask(place, want);
        // The answer says when to ask next; a wake-up before that may say it sooner.
        self.looks[place].next = Next::Woken;
        let node = core.node();
        let claim = Claim {
            lanes_max: want.lanes,
            crashed_max: want.crashed,
            ..core.claim_of(place, node.clone())
        };
        let flight = async move {
            let answer = core.store.claim(claim).await;
            Landed { place, want, node, answer }
        };
        self.flights.push(Box::pin(flight));
    }

    /// Waits for a claim and handles its answer. True if it had lanes.
    async fn land(&mut self) -> bool {
        match self.flights.next().await {
            Some(landed) => self.landed(landed).await,
            None => false,
        }
    }

    async fn land_all(&mut self) {
        while !self.flights.is_empty() {
            self.land().await;
        }
    }

    async fn landed(&mut self, landed: Landed) -> bool {
        let Landed { place, want, node, answer } = landed;
        match answer {
            Ok(claimed) => {
                self.core.outage.succeeded();
                self.pauses.reset();
                self.trust(place);
                let renamed = self.core.node() != node;
                self.took(place, want, claimed, renamed).await
            }
            Err(error) => {
                self.core.dispatch.fill(place, Vec::new(), want);
                self.failed(place, want, error);
                false
            }
        }
    }

    /// After a failure that will pass: waits, but first for the claims that are still on their way.
    async fn recover(&mut self) {
        if self.failure.is_some() {
            self.land_all().await;
        }
        if let Some(error) = self.failure.take() {
            self.wait_after(error).await;
        }
    }

    async fn took(&mut self, place: usize, want: Want, claimed: Claimed, renamed: bool) -> bool {
        let core = &self.core;
        let got = claimed.turns.len();
        let next = match claimed.next_due {
            None => Next::Woken,
            Some(time) if got > 0 || time > core.store_now() => Next::At(time),
            // Due, but not claimable now: a lane with earlier crashes while no slot is free, or one that another claim
            // is taking.
            Some(_) => Next::At(core.store_now() + Duration::from_millis(100)),
        };
        core.sources[place].set_more(claimed.next_due.is_some_and(|due| due <= core.store_now()));
        let look = &mut self.looks[place];
        look.at = Instant::now();
        look.next = look.next.min(next);
        core.held.add(&claimed.turns);
        if renamed {
            // Claimed under an id that was given up: no heartbeat would extend the lease.
            core.release(place, claimed.turns);
            core.dispatch.fill(place, Vec::new(), want);
            return got > 0;
        }
        if got > 0 && core.sources[place].definition().is_none() {
            // A push created the queue after this node started.
            let _ = core.read_definitions().await;
        }
        core.dispatch.fill(place, claimed.turns, want);
        got > 0
    }

    /// After a successful claim, doubles the limit of lanes per claim, if failures reduced it.
    fn trust(&mut self, place: usize) {
        let look = &mut self.looks[place];
        if look.most == usize::MAX {
            return;
        }
        look.most = if look.most > PREFETCH_LANES_MAX { usize::MAX } else { look.most * 2 };
        look.aside_until = None;
        let name = &*self.core.sources[place].name;
        self.core.troubles.clear(TroubleKind::ClaimsPutAside, name);
    }

    fn failed(&mut self, place: usize, want: Want, error: Error) {
        let core = self.core.clone();
        let look = &mut self.looks[place];
        look.at = Instant::now();
        look.next = Next::Now;
        match error.kind() {
            ErrorKind::NotFound => {
                if core.sources[place].is_declared() {
                    core.lost(place);
                } else {
                    // No job was pushed to it yet.
                    look.next = Next::Woken;
                }
                return;
            }
            ErrorKind::NodeGone => core.gone.notify_one(),
            _ => look.suspect |= may_have_been_done(&error),
        }
        if will_pass(&error) || error.kind() == ErrorKind::NodeGone {
            self.failure = Some(error);
            return;
        }
        if want.lanes > 1 {
            // A smaller claim may leave out the lane that makes it fail, and get those before it.
            look.most = want.lanes / 2;
            tracing::warn!(%error, queue = &*core.sources[place].name, lanes = want.lanes, "a claim was refused: the next is of fewer lanes");
            return;
        }
        put_aside(&core, &core.sources[place], look, &error);
    }

    async fn wait_after(&mut self, error: Error) {
        let core = self.core.clone();
        core.outage.failed("claiming", &error);
        tokio::select! {
            biased;
            () = tokio::time::sleep(self.pauses.next()) => {}
            () = core.renamed.notified() => {}
            () = core.phases.draining() => {}
        }
    }

    /// Returns turns that waited too long for a slot, so that other nodes can claim them.
    fn release_old(&self) {
        for (place, turns) in self.core.dispatch.take_old() {
            tracing::debug!(
                queue = &*self.core.sources[place].name,
                lanes = turns.len(),
                "prefetched lanes are returned: the jobs have become slow"
            );
            self.core.release(place, turns);
        }
        for (place, source) in self.core.sources.iter().enumerate() {
            if source.paused_until().is_some() {
                self.core.release(place, self.core.dispatch.take_all_of(place));
            }
        }
    }

    /// Sleeps until the next lane is due, a wake-up arrives or a slot gets free.
    async fn rest(&mut self) {
        let core = self.core.clone();
        let length = self.rest_length();
        tokio::select! {
            biased;
            Some(landed) = self.flights.next() => {
                self.landed(landed).await;
            }
            wake = self.wakeups.wait(length) => {
                if let Some(wake) = wake {
                    self.wake(&wake);
                }
            }
            () = core.dispatch.room.notified() => {}
            () = core.phases.draining() => {}
        }
        self.recover().await;
    }

    fn wake(&mut self, wake: &Wake) {
        let places: Vec<usize> = match wake {
            Wake::All => (0..self.looks.len()).collect(),
            Wake::Queues(queues) => {
                queues.iter().filter_map(|queue| self.places.get(queue).copied()).collect()
            }
        };
        for place in places {
            self.looks[place].next = Next::Now;
            self.core.sources[place].set_more(true);
        }
    }

    fn rest_length(&self) -> Duration {
        let core = &self.core;
        let interval = core.settings.poll_interval;
        let due = self.looks.iter().map(|look| match look.next {
            // It has lanes, but there is no room: a free slot wakes the fetcher.
            Next::Now => interval,
            Next::At(time) => core.until(time),
            Next::Woken => interval.saturating_sub(look.at.elapsed()),
        });
        due.min().unwrap_or(interval).clamp(REST_MIN, interval)
    }
}

/// Puts a source aside whose claims fail for a lasting reason, so that it does not delay the others.
fn put_aside(core: &Core, source: &Source, look: &mut Look, error: &Error) {
    look.aside_until = Some(Instant::now() + PUT_ASIDE_FOR);
    look.most = 1;
    let (queue, again_s) = (&*source.name, PUT_ASIDE_FOR.as_secs());
    tracing::error!(%error, queue, again_s, "the store refuses claims of this queue: it is put aside and asked again");
    let text = format!("the store refuses claims: {error}");
    core.troubles.set(TroubleKind::ClaimsPutAside, Some(queue), queue, &text);
}
