//! Claims lanes for the slots. Only this task claims, so that lanes of a lost answer are looked for before anything
//! else is claimed. Where a store answers concurrent calls sooner, the next claim is on its way before the last one is
//! answered, so that neither the store nor the slots wait for the other.

use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use tokio::time::Instant;

use crate::contract::{Claim, Claimed, TroubleKind, Wake, Wakeups};
use crate::engine::claim::buffer::Want;
use crate::engine::claim::flights::{Flights, Landed};
use crate::engine::claim::reconcile::{every_queue, reconcile};
use crate::engine::claim::source::Source;
use crate::engine::claim::suspects::{Crashed, take_suspects};
use crate::engine::core::Core;
use crate::engine::limits::{
    CLAIMS_IN_FLIGHT, HELD_LANES_MAX, LEFT_MAX, NOT_YET, PREFETCH_LANES_MAX, PUT_ASIDE_FOR,
    PUT_ASIDE_MAX, REST_MIN,
};
use crate::engine::outage::{Pauses, may_have_been_done, will_pass};
use crate::model::{Error, ErrorKind, Timestamp};

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
#[derive(Clone, Debug)]
struct Look {
    next: Next,
    /// A wake-up named it, and no claim has been sent since.
    is_woken: bool,
    /// Nothing says that it has lanes, but it has not been asked for long. So its due time is asked for first: an idle engine
    /// costs the store half as much as with a claim.
    is_doubtful: bool,
    at: Instant,
    /// A claim may have taken effect although its answer was lost.
    suspect: bool,
    /// Most lanes of one claim, reduced while the store refuses larger claims.
    most: usize,
    /// Its claims fail; it is not asked before this time, so that it does not hold up the others.
    aside_until: Option<Instant>,
    /// How long it is put aside after failures that will pass.
    pauses: Pauses,
    /// How long it was left alone after the last claim, if that brought nothing although something was due.
    not_yet: Duration,
    /// When to compare its lanes with the store's again.
    compare_at: Instant,
    crashed: Crashed,
    /// Since when it has had lanes that this node left to those that prefer it.
    left_since: Option<Instant>,
}

impl Look {
    fn is_aside(&self) -> bool {
        self.aside_until.is_some_and(|until| until > Instant::now())
    }

    /// Whether its lanes are to be compared with the store's now.
    fn is_to_compare(&self) -> bool {
        self.suspect && !self.is_aside() && self.compare_at <= Instant::now()
    }
}

/// Claims until the engine drains.
pub(in crate::engine) async fn run(core: Arc<Core>) {
    let (next, at) = (Next::Now, Instant::now());
    let crashed = Crashed::default();
    let (most, aside_until, pauses) = (usize::MAX, None, Pauses::default());
    let look = Look {
        next,
        is_woken: false,
        is_doubtful: false,
        at,
        suspect: false,
        most,
        aside_until,
        pauses,
        not_yet: Duration::ZERO,
        compare_at: at,
        crashed,
        left_since: None,
    };
    let looks = vec![look; core.sources.len()];
    let names = core.sources.iter().map(|source| source.name.clone());
    let places: HashMap<_, _> = names.zip(0..).collect();
    let wakeups = core.store.wakeups().only(places.keys().cloned());
    let patience = core.settings.patience(&wakeups);
    let pauses = Pauses::default();
    let several = core.store.capabilities().claim_split.is_some();
    let mut fetcher = Fetcher {
        flights: Flights::default(),
        flights_max: if several { CLAIMS_IN_FLIGHT } else { 1 },
        failure: None,
        compare_at: at,
        round: 0,
        core,
        wakeups,
        patience,
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
    // What it was woken for last is for others.
    if let Some(wake) = fetcher.wakeups.wait(Duration::ZERO).await {
        fetcher.wake(&wake);
    }
    fetcher.pass_on();
    if fetcher.looks.iter().any(|look| look.suspect) {
        // Compared once all turns are settled.
        fetcher.core.claims_unanswered.store(true, Ordering::Release);
    }
}

struct Fetcher {
    core: Arc<Core>,
    wakeups: Wakeups,
    /// How long to wait for one before asking for a source anyway.
    patience: Duration,
    places: HashMap<Arc<str>, usize>,
    looks: Vec<Look>,
    pauses: Pauses,
    /// The claims on their way.
    flights: Flights,
    flights_max: usize,
    /// The store no longer knows this node.
    failure: Option<Error>,
    /// When to compare the lanes of all queues with the store's again.
    compare_at: Instant,
    round: usize,
}

impl Fetcher {
    /// Claims from every source that may have lanes. True if one had.
    async fn claim_round(&mut self) -> bool {
        self.wake_overdue();
        self.round += 1;
        let (mut claimed, mut first) = (false, true);
        self.reconcile().await;
        for place in self.order().await {
            if self.core.phases.is_draining() {
                break;
            }
            if !self.may_claim(place) {
                continue;
            }
            let is_fed = claimed || !self.flights.is_empty() || self.core.dispatch.is_waiting();
            if is_fed && !self.prefers(place) {
                // Another node prefers this source, and this node has enough work.
                self.looks[place].left_since.get_or_insert_with(Instant::now);
                self.core.dispatch.unreserve(|reserved| reserved == place);
                continue;
            }
            let want = self.want(place, first);
            // A queue whose own limit is full has no use for its turn: it is the next one's.
            first &= !self.core.dispatch.may_run(place);
            if want.lanes > 0 {
                claimed |= self.claim(place, want).await;
            }
        }
        self.core.dispatch.unreserve(|place| !self.may_claim(place));
        self.pass_on();
        claimed
    }

    /// Wake-ups that this engine has no use for now are for others.
    fn pass_on(&mut self) {
        for (source, look) in self.core.sources.iter().zip(&mut self.looks) {
            if std::mem::take(&mut look.is_woken) {
                self.core.store.pass_on(&source.name);
            }
        }
    }

    fn may_claim(&self, place: usize) -> bool {
        let look = &self.looks[place];
        look.next == Next::Now && !look.is_aside() && self.core.takes_from(place)
    }

    /// Whether this node claims from a source although it has enough work: one that it prefers, or has long left to
    /// others. These may be away, or busy too.
    fn prefers(&self, place: usize) -> bool {
        let left = self.looks[place].left_since;
        self.core.prefers(place) || left.is_some_and(|since| since.elapsed() >= LEFT_MAX)
    }

    /// After lost answers: finds the lanes that the store counts as this node's. Done even if their queue has nothing
    /// to claim, because these lanes may be all that it has. A part of the store that does not answer holds up no
    /// other: it is compared later.
    async fn reconcile(&mut self) {
        let core = self.core.clone();
        let of_others = self.compare_at <= Instant::now()
            && core.claims_unanswered.swap(false, Ordering::AcqRel);
        if !of_others && !self.looks.iter().any(Look::is_to_compare) {
            return;
        }
        self.land_all().await;
        let compared: Vec<bool> =
            self.looks.iter().map(|look| of_others || look.is_to_compare()).collect();
        let queues = match of_others {
            true => every_queue(&core).await,
            false => Ok((core.sources.iter().zip(&compared))
                .filter(|(_, compared)| **compared)
                .map(|(source, _)| source.definition_for(None))
                .collect()),
        };
        let queues = match queues {
            Ok(queues) => queues,
            Err(error) => return self.compare_later(&error),
        };
        let failed = reconcile(&core, &core.node(), &queues).await;
        for (place, compared) in compared.into_iter().enumerate() {
            let (source, look) = (&core.sources[place], &mut self.looks[place]);
            match failed.iter().find(|(queue, _)| **queue == *source.name) {
                Some((_, error)) if will_pass(error) => {
                    look.suspect = true;
                    look.compare_at = Instant::now() + look.pauses.next();
                }
                Some((queue, error)) => {
                    look.suspect = true;
                    look.compare_at = Instant::now() + PUT_ASIDE_FOR;
                    tell_not_returned(queue, error);
                }
                // It stays suspect only if this round did not check it.
                None => look.suspect &= !compared,
            }
        }
        self.compare_others_later(&failed);
    }

    /// After a round that failed for queues that this node does not work on. What it has rescued of them stays claimed
    /// until then.
    fn compare_others_later(&mut self, failed: &[(String, Error)]) {
        let core = self.core.clone();
        let is_own = |queue: &str| core.sources.iter().any(|source| *source.name == *queue);
        let (passing, lasting): (Vec<_>, Vec<_>) =
            failed.iter().filter(|(queue, _)| !is_own(queue)).partition(|(_, e)| will_pass(e));
        if let Some((queue, error)) = lasting.first() {
            core.claims_unanswered.store(true, Ordering::Release);
            self.compare_at = Instant::now() + PUT_ASIDE_FOR;
            tell_not_returned(queue, error);
        }
        if let Some((_, error)) = passing.first() {
            self.compare_later(error);
        }
    }

    fn compare_later(&mut self, error: &Error) {
        self.core.claims_unanswered.store(true, Ordering::Release);
        self.core.outage.failed("comparing claims with the store's", error);
        self.compare_at = Instant::now() + self.pauses.next();
    }

    /// Asks for the sources that are due, or that it has not asked for long.
    fn wake_overdue(&mut self) {
        let now = self.core.store_now();
        for look in &mut self.looks {
            if matches!(look.next, Next::At(time) if time <= now) {
                look.next = Next::Now;
            } else if look.next != Next::Now && look.at.elapsed() >= self.patience {
                look.next = Next::Now;
                look.is_doubtful = true;
            }
        }
    }

    async fn order(&mut self) -> Vec<usize> {
        let asked = self.asked();
        let due = match asked[..] {
            [] => Vec::new(),
            [place] if !self.looks[place].is_doubtful => vec![None],
            _ => self.ask_due(&asked).await,
        };
        while self.flights.has_answer() {
            self.land().await;
        }
        let weight = |source: &Source| source.weight(source.definition().as_deref());
        let weights: Vec<u32> =
            asked.iter().map(|place| weight(&self.core.sources[*place])).collect();
        let order = self.core.settings.scheduler.order(&due, &weights, self.round);
        let mut order: Vec<usize> = order.into_iter().map(|at| asked[at]).collect();
        order.sort_by_key(|place| !self.prefers(*place));
        order
    }

    /// The sources that may have lanes.
    fn asked(&self) -> Vec<usize> {
        let looks = self.looks.iter().enumerate();
        let asked = looks.filter(|(_, look)| look.next == Next::Now && !look.is_aside());
        asked.map(|(place, _)| place).collect()
    }

    /// Asks since when each of these queues has lanes: one query, instead of a claim for each.
    async fn ask_due(&mut self, asked: &[usize]) -> Vec<Option<Timestamp>> {
        let queues = asked.iter().map(|place| self.core.sources[*place].name.clone()).collect();
        asked.iter().for_each(|place| self.looks[*place].is_doubtful = false);
        let core = self.core.clone();
        let Ok(answer) = self.flights.beside(core.store.due(queues)).await else {
            // The claims continue in the order of declaration, and report the error.
            return vec![None; asked.len()];
        };
        let now = self.core.store_now();
        // Where a part of the store did not answer, a claim tells.
        let known: HashMap<_, _> =
            answer.iter().map(|one| (&one.queue, one.may_have_at(now))).collect();
        let look_at = |place: usize| {
            let source = &self.core.sources[place];
            let known = known.get(&source.name);
            if known.is_none() && source.is_declared() && source.stands() {
                self.core.lost(place);
            }
            let (look, due) = (&mut self.looks[place], known.copied().flatten());
            look.at = Instant::now();
            look.next = match due {
                Some(time) if time <= now => Next::Now,
                Some(time) => Next::At(time),
                None => Next::Woken,
            };
            if look.next != Next::Now {
                // Whoever was woken too has taken it, so there is nothing to pass on.
                (look.left_since, look.is_woken) = (None, false);
            }
            due
        };
        asked.iter().copied().map(look_at).collect()
    }

    fn want(&self, place: usize, first: bool) -> Want {
        let (core, look) = (&self.core, &self.looks[place]);
        let source = &core.sources[place];
        let definition = source.definition();
        let held = core.held.count().saturating_sub(core.settles.aside().min(PUT_ASIDE_MAX));
        let batch = definition.as_ref().map_or(1, |queue| queue.batch_size as usize);
        // Slots that run full calls at once hold more.
        let held_max = HELD_LANES_MAX.max(core.settings.concurrency.saturating_mul(batch));
        let lanes = held_max.saturating_sub(held).min(look.most);
        let lanes = match core.series_max(source) {
            1 => lanes,
            _ => lanes.min(source.lanes_max()),
        };
        let crashed = self.looks[place].crashed.most(&self.core.held);
        let most = Want { lanes, crashed };
        core.dispatch.want(
            place,
            (definition.as_deref(), source.weight(definition.as_deref())),
            most,
            first,
        )
    }

    /// Claims, and handles answers until another claim may be sent. True if one had lanes.
    async fn claim(&mut self, place: usize, want: Want) -> bool {
        let most = self.core.store.capabilities().claim_split;
        let parts = if self.flights.is_empty() { want.split(most) } else { vec![want] };
        for part in parts {
            self.send(place, part);
        }
        let mut got = false;
        while self.flights.len() >= self.flights_max || self.flights.has_answer() {
            got |= self.land().await;
        }
        self.recover().await;
        got
    }

    fn send(&mut self, place: usize, want: Want) {
        let core = self.core.clone();
        core.dispatch.ask(place, want);
        // The answer says when to ask next; a wake-up before that may say it sooner.
        let look = &mut self.looks[place];
        look.next = Next::Woken;
        look.is_woken = false;
        look.left_since = None;
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

    /// After the node was declared dead: waits for its new id, but first for the claims that are still on their way.
    async fn recover(&mut self) {
        if self.failure.is_some() {
            self.land_all().await;
        }
        if let Some(error) = self.failure.take() {
            self.wait_after(error).await;
        }
    }

    async fn took(
        &mut self,
        place: usize,
        want: Want,
        mut claimed: Claimed,
        renamed: bool,
    ) -> bool {
        let core = &self.core;
        let got = claimed.turns.len();
        core.sources[place].set_more(claimed.next_due.is_some_and(|due| due <= core.store_now()));
        let look = &mut self.looks[place];
        let not_yet = std::mem::take(&mut look.not_yet);
        let next = match claimed.next_due {
            None => Next::Woken,
            Some(time) if got > 0 || time > core.store_now() => Next::At(time),
            // Due, but not claimable now: lanes with earlier crashes, while no slot is free or a suspect runs, or one
            // that another claim is taking. Or not due yet by the store's clock, which this node knows only roughly: so
            // it is asked again soon, and then less and less often.
            Some(_) => {
                look.not_yet = (not_yet * 2).clamp(REST_MIN, NOT_YET);
                Next::At(core.store_now() + look.not_yet)
            }
        };
        look.at = Instant::now();
        look.next = look.next.min(next);
        look.suspect |= claimed.unanswered;
        core.held.add(&claimed.turns);
        core.sources[place].claimed(&claimed.turns);
        if renamed {
            // Claimed under an id that was given up: no heartbeat would extend the lease.
            core.release(place, claimed.turns);
            core.dispatch.fill(place, Vec::new(), want);
            return got > 0;
        }
        if got > 0 && core.sources[place].definition().is_none() {
            // A push created the queue after this node started.
            let _ = self.flights.beside(core.read_definitions()).await;
        }
        let queue = core.sources[place].definition_for(claimed.turns.first());
        let suspects = take_suspects(&core.held, &queue, &mut claimed.turns);
        if want.crashed > 0 {
            self.looks[place].crashed.claimed(suspects.found);
        }
        core.release(place, suspects.others);
        core.dispatch.fill(place, claimed.turns, want);
        if core.quiet.load(Ordering::Relaxed) {
            // It was on its way when the node became quiet.
            core.release_waiting();
        }
        got > 0
    }

    /// After a successful claim, doubles the limit of lanes per claim, if failures reduced it.
    fn trust(&mut self, place: usize) {
        let look = &mut self.looks[place];
        if !look.suspect {
            look.pauses.reset();
        }
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
        if error.kind() == ErrorKind::NodeGone {
            self.failure = Some(error);
            return;
        }
        if will_pass(&error) {
            core.outage.failed("claiming", &error);
            look.aside_until = Some(Instant::now() + look.pauses.next());
            return;
        }
        if want.lanes > 1 {
            // A smaller claim may leave out the lane that makes it fail, and get those before it.
            look.most = want.lanes / 2;
            tracing::warn!(%error, queue = &*core.sources[place].name, lanes = want.lanes, "a claim was refused: the next one asks for fewer lanes");
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
            () = core.held.cleared.notified() => {
                self.looks.iter_mut().for_each(|look| look.next = Next::Now);
            }
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
            let look = &mut self.looks[place];
            look.next = Next::Now;
            look.is_doubtful = false;
            look.is_woken |= *wake != Wake::All;
            self.core.sources[place].set_more(true);
        }
    }

    fn rest_length(&self) -> Duration {
        let core = &self.core;
        let interval = core.settings.poll_interval;
        let now = Instant::now();
        let is_unsure = core.claims_unanswered.load(Ordering::Acquire)
            || self.looks.iter().any(|look| look.suspect);
        // A node that holds lanes looks for those that wait for a slot too long.
        let most = if is_unsure || core.held.count() > 0 { interval } else { self.patience };
        let due = self.looks.iter().zip(&core.sources).map(|(look, source)| {
            let aside = look.aside_until.filter(|until| *until > now);
            match (look.next, aside.max(source.paused_until())) {
                (_, Some(until)) => until.saturating_duration_since(now),
                // It has lanes, but there is no room: a free slot wakes the fetcher.
                (Next::Now, _) => interval,
                (Next::At(time), _) => core.until(time),
                (Next::Woken, _) => self.patience.saturating_sub(look.at.elapsed()),
            }
        });
        due.min().unwrap_or(interval).clamp(REST_MIN, most)
    }
}

/// What cannot be read stays claimed. It holds up no other claim: no lost call takes effect any more.
fn tell_not_returned(queue: &str, error: &Error) {
    let again_s = PUT_ASIDE_FOR.as_secs();
    tracing::error!(%error, queue, again_s, "cannot return all lanes that a lost call claimed; tries again");
}

/// Puts a source aside whose claims fail for a lasting reason, so that it does not delay the others.
fn put_aside(core: &Core, source: &Source, look: &mut Look, error: &Error) {
    look.aside_until = Some(Instant::now() + PUT_ASIDE_FOR);
    look.most = 1;
    let (queue, again_s) = (&*source.name, PUT_ASIDE_FOR.as_secs());
    tracing::error!(%error, queue, again_s, "the store refuses claims of this queue: it is set aside and asked again later");
    let text = format!("the store refuses claims: {error}");
    core.troubles.set(TroubleKind::ClaimsPutAside, Some(queue), queue, &text);
}
