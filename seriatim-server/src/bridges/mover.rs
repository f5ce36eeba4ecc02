//! Moves the jobs of one source, on one node at a time.
//!
//! A step takes a batch (a script copies it into a hash, then cuts the source), pushes it, and then forgets it in the
//! source. No step takes while a batch is in flight, so that the next leader after a crash, or one beside a leader that was
//! only slow, pushes the same batch first: what is in the store already is recognised by its idempotency key.

use std::sync::Arc;

use seriatim::limits::PAYLOAD_BYTES_MAX;
use seriatim::store::{Lead, NodeId};
use seriatim::{SharedStore, Timestamp};
use tokio::sync::watch;
use tokio::time::{Duration, Instant, sleep};

use super::batch::Done;
use super::ledger::Ledger;
use super::link::{OLDEST, TAKE, UNWAKE};
use super::sets::{Found, Look};
use super::signal::Signal;
use super::twins::Twins;
use super::{
    Batch, ByQueue, Call, Element, Fault, Keys, Link, Reason, Source, consumers, ids, morgue,
};
use crate::app::bridges::Pauses;
use crate::config::Sets;
use crate::protocol::document::BridgeState;

/// Most jobs of a batch, and the bytes at which it ends early.
const BATCH_JOBS_MAX: usize = 500;
const BATCH_BYTES_MAX: usize = 16 << 20;
/// How long a node leads without asking again, and how often it asks.
const LEADS_FOR: Duration = Duration::from_secs(6);
const LEAD_EVERY: Duration = Duration::from_secs(2);
/// How long one wait for a job lasts, in seconds: meanwhile nothing else is noticed.
const WAIT_SECONDS: u64 = 2;
/// The pauses after a failure.
const PAUSE_MIN: Duration = Duration::from_millis(200);
const PAUSE_MAX: Duration = Duration::from_secs(5);

/// What the movers of one bridge share.
pub(super) struct Bridge {
    pub(super) name: String,
    pub(super) url: String,
    pub(super) keys: Keys,
    pub(super) sets: Sets,
    pub(super) routes: ByQueue,
    /// Changes with all that decides what a job becomes.
    pub(super) mark: String,
    pub(super) store: SharedStore,
    /// The name under which it leads, and the name of this process for people.
    pub(super) node: NodeId,
    pub(super) shown: String,
    /// `None`: not yet known.
    pub(super) pauses: watch::Receiver<Option<Pauses>>,
    pub(super) stopping: watch::Receiver<bool>,
}

pub(super) struct Mover {
    bridge: Arc<Bridge>,
    source: Source,
    ledger: Ledger,
    look: Look,
    twins: Twins,
    /// When it last was made the leader.
    led: Option<Instant>,
    /// Whether a job may stand in the list that wakes it.
    is_woken: bool,
    /// Of ids, where the server can tell of new ones.
    signal: Option<Signal>,
}

impl Mover {
    pub(super) fn new(bridge: Arc<Bridge>, source: Source) -> Self {
        let ledger = Ledger::new(&bridge.name, source.name(), &bridge.shown);
        let look = Look::new(&source, bridge.sets);
        let twins = Twins::default();
        Self { bridge, source, ledger, look, twins, led: None, is_woken: true, signal: None }
    }

    /// Moves jobs until the node stops.
    pub(super) async fn run(mut self) {
        let mut pause = PAUSE_MIN;
        while !self.is_stopping() {
            let rests = match self.lead(LEADS_FOR).await {
                Ok(false) => LEAD_EVERY,
                Ok(true) => match self.tenure().await {
                    Ok(()) => {
                        pause = PAUSE_MIN;
                        continue;
                    }
                    Err(fault) => self.told(fault, &mut pause).await,
                },
                Err(fault) => self.told(fault, &mut pause).await,
            };
            self.rest(rests).await;
        }
        if self.led.is_some() {
            let _ = self.ledger.leave(&*self.bridge.store).await;
            // The next node need not wait.
            let _ = self.lead(Duration::from_millis(1)).await;
        }
    }

    /// Says what is wrong. How long to wait.
    async fn told(&mut self, fault: Fault, pause: &mut Duration) -> Duration {
        self.ledger.becomes(fault.state(), Some(fault.to_string()));
        if !matches!(fault, Fault::Store(_)) {
            // A node that does not lead does not overwrite what the leader says.
            if let (Some(_), Err(error)) = (self.led, self.ledger.write(&*self.bridge.store).await)
            {
                tracing::debug!(%error, "cannot note how a bridge is");
            }
        }
        if matches!(fault, Fault::Foreign(_)) {
            // The node with those routes may lead.
            self.led = None;
            return LEADS_FOR * 2;
        }
        let rests = *pause;
        *pause = (*pause * 2).min(PAUSE_MAX);
        rests
    }

    fn is_stopping(&self) -> bool {
        *self.bridge.stopping.borrow()
    }

    /// Waits for this long, or until the node stops.
    async fn rest(&self, length: Duration) {
        let mut stopping = self.bridge.stopping.clone();
        tokio::select! {
            () = sleep(length) => {}
            _ = stopping.wait_for(|is| *is) => {}
        }
    }

    async fn lead(&mut self, ttl: Duration) -> Result<bool, Fault> {
        let asked = Instant::now();
        let place = format!("{}/{}", self.bridge.name, self.source.name());
        let role = format!("bridge/{}", &blake3::hash(place.as_bytes()).to_hex()[..32]);
        let lead = Lead { now: None, role: role.into(), node: self.bridge.node.clone(), ttl };
        let leads = self.bridge.store.lead(lead).await?;
        self.led = leads.then_some(asked);
        Ok(leads)
    }

    /// Leads until it may not, or something is wrong.
    async fn tenure(&mut self) -> Result<(), Fault> {
        self.ledger.load(&*self.bridge.store).await?;
        let mut link = Link::open(&self.bridge.url).await?;
        self.is_woken = true;
        self.signal = match self.source {
            Source::Ids { .. } => Signal::open(&self.bridge.url).await,
            _ => None,
        };
        // What a leader before this one left.
        self.push(&mut link).await?;
        loop {
            if self.is_stopping() {
                return self.unwake(&mut link).await;
            }
            if self.led.is_none_or(|at| at.elapsed() >= LEAD_EVERY) && !self.lead(LEADS_FOR).await?
            {
                return Ok(());
            }
            let (bridge, name) = (&self.bridge, self.source.name());
            let known = is_paused(bridge.pauses.clone(), bridge.stopping.clone(), &name).await;
            let Some(is_paused) = known else { continue };
            if self.ledger.is_due() {
                if !is_paused && let Err(held) = self.refuse_consumers(&mut link).await {
                    // Others may take what woke this one.
                    self.unwake(&mut link).await?;
                    return Err(held);
                }
                self.measure(&mut link).await?;
                self.ledger.write(&*self.bridge.store).await?;
            }
            if is_paused {
                self.unwake(&mut link).await?;
                self.stays(BridgeState::Paused).await?;
                continue;
            }
            self.step(&mut link).await?;
        }
    }

    /// Does nothing for a while.
    async fn stays(&mut self, state: BridgeState) -> Result<(), Fault> {
        self.ledger.becomes(state, None);
        self.ledger.write(&*self.bridge.store).await?;
        let (mut pauses, mut stopping) = (self.bridge.pauses.clone(), self.bridge.stopping.clone());
        pauses.mark_unchanged();
        tokio::select! {
            () = sleep(LEAD_EVERY) => {}
            _ = pauses.changed() => {}
            _ = stopping.wait_for(|is| *is) => {}
        }
        Ok(())
    }

    /// Puts back the job that ended a wait, if it will not be taken.
    async fn unwake(&mut self, link: &mut Link) -> Result<(), Fault> {
        let keys = &self.bridge.keys;
        if std::mem::take(&mut self.is_woken) && matches!(self.source, Source::Queue(_)) {
            let mut script = Call::of(&UNWAKE);
            script.key(keys.source(&self.source)).key(keys.woken(&self.source));
            link.call::<i64>(&script).await?;
        }
        Ok(())
    }

    /// Takes a batch, or the one in flight, and pushes it; waits if there is none.
    async fn step(&mut self, link: &mut Link) -> Result<(), Fault> {
        let bridge = self.bridge.clone();
        let (word, taken) = match &self.source {
            Source::Queue(queue) => self.take(link, queue).await?,
            Source::Ids { queue, shards } => {
                let (place, of) = ((&bridge.keys, &self.source), (queue.as_str(), *shards));
                ids::take(link, place, of, &bridge.mark).await?
            }
            Source::Morgue(queue) => {
                morgue::take(link, (&bridge.keys, &self.source), queue, &bridge.mark).await?
            }
            Source::Set(_) => {
                let place = (&bridge.keys, &self.source);
                match self.look.step(link, place, (&bridge.routes, &bridge.mark)).await? {
                    Found::Taken(taken) => ("taken".to_owned(), taken),
                    Found::Held => ("held".to_owned(), 0),
                    Found::Over { ours, refused, rests } => {
                        // Most stay in their set; those that the store refused are beside it.
                        let kept = redis::Cmd::zcard(bridge.keys.rejected(&self.source));
                        let kept: u64 = link.ask(&kept).await?;
                        self.ledger.status.length = ours;
                        self.ledger.status.rejected = refused + kept;
                        self.ledger.becomes(BridgeState::Moving, None);
                        self.rest(rests.min(LEAD_EVERY)).await;
                        return Ok(());
                    }
                    Found::Rests(rests) => {
                        self.rest(rests.min(LEAD_EVERY)).await;
                        return Ok(());
                    }
                }
            }
        };
        match &*word {
            "none" => self.wait(link).await,
            "paused" => {
                self.unwake(link).await?;
                self.stays(BridgeState::Paused).await
            }
            "refused" => {
                self.ledger.took(taken);
                let why = format!("has more than {PAYLOAD_BYTES_MAX} bytes");
                let refused = vec![Reason::Malformed.because(why)];
                self.did(&Done { refused, ..Done::default() });
                Ok(())
            }
            _ => {
                if taken > 0 {
                    self.ledger.took(taken);
                }
                self.push(link).await
            }
        }
    }

    async fn take(&self, link: &mut Link, queue: &str) -> Result<(String, u64), Fault> {
        let (bridge, source) = (&self.bridge, &self.source);
        let keys = &bridge.keys;
        let mut script = Call::of(&TAKE);
        script.key(keys.source(source)).key(keys.woken(source)).key(keys.in_flight(source));
        script.key(keys.sequence(source)).key(keys.theirs("paused")).key(keys.rejected(source));
        script.arg(queue).arg(BATCH_JOBS_MAX).arg(BATCH_BYTES_MAX);
        script.arg(Timestamp::of_this_machine().as_micros() / 1_000);
        script.arg(&bridge.mark).arg(keys.run(source, &link.run)).arg(PAYLOAD_BYTES_MAX);
        link.call(&script).await
    }

    /// Pushes what is in flight.
    async fn push(&mut self, link: &mut Link) -> Result<(), Fault> {
        let bridge = self.bridge.clone();
        let Some(mut batch) = Batch::read(link, &bridge.keys, &self.source).await? else {
            // A person may have dropped it, or another node pushed it.
            self.ledger.none_in_flight();
            return Ok(());
        };
        let now = Timestamp::of_this_machine();
        self.ledger.status.in_flight = batch.len() as u64;
        self.ledger.status.in_doubt = if batch.is_in_doubt(now) { batch.len() as u64 } else { 0 };
        batch.check(&bridge.mark, now)?;
        let place = (&bridge.keys, &self.source);
        let is_queue = matches!(self.source, Source::Queue(_));
        if is_queue && !batch.number(link, place, &mut self.twins).await? {
            self.ledger.none_in_flight();
            return Ok(());
        }
        let done = batch.push(&*bridge.store, link, place, &bridge.routes).await?;
        self.did(&done);
        Ok(())
    }

    /// Counts what became of jobs, and tells what was refused.
    fn did(&mut self, done: &Done) {
        if let Some(refusal) = done.refused.first() {
            let (jobs, source) = (done.refused.len(), self.source.name());
            tracing::warn!(
                bridge = self.bridge.name,
                source,
                jobs,
                "jobs were refused; the first one: {refusal}"
            );
        }
        self.ledger.did(done);
        self.ledger.becomes(BridgeState::Moving, None);
    }

    /// Waits for a job.
    async fn wait(&mut self, link: &mut Link) -> Result<(), Fault> {
        self.ledger.becomes(BridgeState::Moving, None);
        match self.source {
            Source::Ids { .. } => self.wait_for_ids().await,
            Source::Morgue(_) => {
                self.rest(morgue::LOOK_EVERY).await;
                Ok(())
            }
            Source::Queue(_) | Source::Set(_) => {
                self.is_woken = true;
                let keys = &self.bridge.keys;
                // Redis has it since 2.2. It brings the whole element here, up to the 512 MiB that Redis takes from a
                // producer: no command waits for an element and leaves it.
                let mut command = redis::cmd("BRPOPLPUSH");
                command.arg(keys.source(&self.source)).arg(keys.woken(&self.source));
                link.ask::<Option<Vec<u8>>>(command.arg(WAIT_SECONDS)).await.map(drop)
            }
        }
    }

    async fn wait_for_ids(&mut self) -> Result<(), Fault> {
        let rests = ids::rest(self.bridge.routes.len());
        let Some(mut signal) = self.signal.take() else {
            self.rest(rests).await;
            return Ok(());
        };
        let set = self.bridge.keys.source(&self.source);
        let told = tokio::select! {
            told = signal.members_of(&set) => told,
            () = self.rest(Duration::from_secs(WAIT_SECONDS)) => Ok(()),
        };
        self.signal = Some(signal);
        told
    }

    /// Two that take from one queue keep no order.
    async fn refuse_consumers(&self, link: &mut Link) -> Result<(), Fault> {
        let queue = match &self.source {
            Source::Queue(queue) => queue,
            Source::Set(_) | Source::Morgue(_) => return Ok(()),
            Source::Ids { queue, .. } => {
                let others = ids::others(link, &self.bridge.keys, queue).await?;
                return others.map_or(Ok(()), |others| Err(Fault::Held(others)));
            }
        };
        if !self.bridge.routes.get(queue).is_some_and(|routes| routes.are_keyed()) {
            return Ok(());
        }
        let living = consumers::living(link, &self.bridge.keys).await?;
        match living.iter().find(|consumer| consumer.takes(queue)) {
            None => Ok(()),
            Some(consumer) => Err(Fault::Held(format!(
                "jobs of queue {queue:?} have keys, and Sidekiq process {} takes from it too: order would be lost; remove the queue from that process, or limit the routes with keys to other queues with `from`",
                consumer.identity
            ))),
        }
    }

    /// Reads the figures of the source.
    async fn measure(&mut self, link: &mut Link) -> Result<(), Fault> {
        let (keys, source) = (&self.bridge.keys, &self.source);
        if matches!(source, Source::Set(_)) {
            return Ok(());
        }
        let counts = if matches!(source, Source::Queue(_)) { "LLEN" } else { "ZCARD" };
        let status = &mut self.ledger.status;
        status.length = link.ask(redis::cmd(counts).arg(keys.source(source))).await?;
        status.rejected = link.ask(redis::cmd("LLEN").arg(keys.rejected(source))).await?;
        let now = Timestamp::of_this_machine();
        match source {
            Source::Queue(_) => {
                let mut script = Call::of(&OLDEST);
                script.key(keys.source(source)).arg(PAYLOAD_BYTES_MAX);
                let oldest: Option<Vec<u8>> = link.call(&script).await?;
                let since = oldest.and_then(|bytes| Element::read(&bytes).ok()?.since());
                status.lag = since.map_or(0.0, |since| now.since(since).as_secs_f64());
            }
            Source::Ids { .. } => {
                let first = ids::page(link, (keys, source), 0, 1).await?;
                // As Lowkiq counts it: from when the id was due.
                status.lag =
                    first.first().map_or(0.0, |(_, due)| (now.as_secs_f64() - due).max(0.0));
            }
            Source::Set(_) | Source::Morgue(_) => {}
        }
        Ok(())
    }
}

/// Whether a source is paused. Waits until that is known; `None` if the node stops first.
async fn is_paused(
    mut pauses: watch::Receiver<Option<Pauses>>,
    mut stopping: watch::Receiver<bool>,
    source: &str,
) -> Option<bool> {
    tokio::select! {
        known = pauses.wait_for(Option::is_some) => {
            Some(known.is_ok_and(|known| known.as_ref().is_some_and(|all| all.holds(source))))
        }
        _ = stopping.wait_for(|is| *is) => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn a_stop_is_heard_while_the_store_cannot_say_what_is_paused() {
        let ((told, pauses), (stop, stopping)) = (watch::channel(None), watch::channel(false));
        let asked = tokio::spawn(is_paused(pauses.clone(), stopping.clone(), "queue mail"));
        stop.send_replace(true);
        assert_eq!(asked.await.unwrap(), None);
        stop.send_replace(false);
        told.send_replace(Some(Pauses::default()));
        assert_eq!(is_paused(pauses, stopping, "queue mail").await, Some(false));
    }
}
