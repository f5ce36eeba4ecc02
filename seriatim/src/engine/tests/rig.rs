//! A memory store that uses tokio's time and fails on demand, and an engine on it.

use std::future::{Future, Ready, ready};
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use tokio::sync::{Notify, oneshot};
use tokio::task::JoinHandle;

use crate::contract::{
    Bell, Capabilities, Claim, Claimed, Declare, GiveUp, Heartbeat, JobState, Lease, NodeInfo,
    Producer, Pulse, Push, Pushed, QueueDue, Rescue, Settle, Settled, SharedStore, Store, Sweep,
    Swept, Wakeups, Wrapper,
};
use crate::engine::Summary;
use crate::engine::builder::EngineBuilder;
use crate::engine::lifecycle::Engine;
use crate::handler::batch::Batch;
use crate::machine::PRETENDED;
use crate::model::{
    Error, ErrorKind, Job, JobId, LaneId, NodeId, Result, Settlement, Timestamp, Token, Turn,
};
use crate::stores::Memory;

/// The store's clock at the start of a test.
pub(super) const START: Timestamp = Timestamp::from_micros(1_800_000_000_000_000);

/// An engine that claims this often spins: it gets no answer, so that its test fails instead of hanging.
const CLAIMS_MAX: usize = 100_000;

/// How long an engine waits for the answer of a settle that is lost.
pub(super) const ANSWERED_AFTER: Duration = Duration::from_millis(50);

/// The faults of the store.
#[derive(Default)]
pub(super) struct Faults {
    /// Every call fails.
    pub(super) down: AtomicBool,
    /// Heartbeats fail.
    pub(super) no_beats: AtomicBool,
    /// The number of next claims that take effect while their answers are lost.
    pub(super) lost_claims: AtomicUsize,
    /// The same for settles.
    pub(super) lost_settles: AtomicUsize,
    /// The same for rescues.
    pub(super) lost_rescues: AtomicUsize,
    /// The number of next settles that take effect, though the part of the store that has their lanes does not answer.
    pub(super) unanswered_settles: AtomicUsize,
    /// The number of next heartbeats that get no answer.
    pub(super) hung_beats: AtomicUsize,
    /// Reports of earlier turns are not read: the question gets no answer.
    pub(super) forgetful: AtomicBool,
    /// The next heartbeat says that another server has taken over.
    pub(super) moved: AtomicBool,
    /// The number of a node's first heartbeats that fail.
    pub(super) failed_names: AtomicUsize,
    /// Calls get no answer.
    pub(super) hangs: AtomicBool,
    /// How many ms it takes before the clock is read that is asked for.
    pub(super) clock_after: AtomicU64,
    /// How many ms it takes until it is said who leads.
    pub(super) leads_after: AtomicU64,
    /// How many ms it takes until the question who leads fails; 0: it does not.
    pub(super) leads_fail_after: AtomicU64,
    /// How many ms after they took effect claims and settles are answered.
    pub(super) answered_after: AtomicU64,
    /// Claims, and questions about queues, share one connection.
    pub(super) single: AtomicBool,
    connection: tokio::sync::Mutex<()>,
    /// Claims of more lanes are split in two; 0: never.
    pub(super) claim_split: AtomicUsize,
    /// The number of heartbeats.
    pub(super) beats: AtomicUsize,
    /// The largest number of beats that one heartbeat had for a lane.
    pub(super) beats_of_a_lane: AtomicUsize,
    /// The number of claims.
    pub(super) claims: AtomicUsize,
    /// The number of queues for which it was asked when they are due.
    pub(super) dues: AtomicUsize,
    /// The number of these questions.
    pub(super) due_calls: AtomicUsize,
    /// Wake-ups that engines have passed on.
    pub(super) passed_on: AtomicUsize,
    /// The number of declarations.
    pub(super) declares: AtomicUsize,
    /// Pushes are refused, as by a standby.
    pub(super) read_only: AtomicBool,
    /// The number of pushes.
    pub(super) pushes: AtomicUsize,
    /// The store says that it loses no wake-up.
    pub(super) certain: AtomicBool,
    /// Wake-ups are lost.
    pub(super) deaf: AtomicBool,
    /// The number of next claims that take effect, and then fail for a lasting reason.
    pub(super) broken_claims: AtomicUsize,
    /// The number of settles.
    pub(super) settles: AtomicUsize,
    /// The number of looks at one job.
    pub(super) looks: AtomicUsize,
    /// This job's turn is answered as busy.
    pub(super) busy: Mutex<Option<JobId>>,
    /// This job's turn cannot be read.
    pub(super) unreadable: Mutex<Option<JobId>>,
    /// Batches with this job are refused.
    refused: Mutex<Option<(JobId, ErrorKind)>>,
    /// Claims of this queue are refused if they ask for more lanes than this.
    unclaimable: Mutex<Option<(&'static str, usize)>>,
    /// The part of the store with this queue does not answer.
    pub(super) away: Mutex<Option<&'static str>>,
    /// Which lanes of this queue are claimed cannot be read, for a lasting reason.
    pub(super) incomparable: Mutex<Option<&'static str>>,
    /// The queues cannot be read.
    pub(super) no_queues: AtomicBool,
    /// The question for them gets no answer.
    pub(super) hung_queues: AtomicBool,
    /// The part with this queue does not say what is due.
    pub(super) silent: Mutex<Option<&'static str>>,
    /// The turns that were handed out, by lane, and their jobs.
    taken: Mutex<std::collections::HashMap<LaneId, JobId>>,
    /// However much a sweep removes, more is left.
    pub(super) never_swept: AtomicBool,
    /// Calls of this operation panic.
    panics: Mutex<Option<&'static str>>,
    /// The largest number of lanes that one claim asked for.
    pub(super) lanes_asked: AtomicUsize,
}

impl Faults {
    /// Refuses every batch with this job's turn from now on.
    pub(super) fn refuses_to_settle(&self, job: JobId, kind: ErrorKind) {
        *self.refused.lock().unwrap() = Some((job, kind));
    }

    pub(super) fn settles_all(&self) {
        *self.refused.lock().unwrap() = None;
    }

    /// Refuses claims of a queue from now on, except those of at most `but` lanes; `usize::MAX`: refuses all.
    pub(super) fn refuses_to_claim(&self, queue: &'static str, but: usize) {
        let but = if but == usize::MAX { 0 } else { but };
        *self.unclaimable.lock().unwrap() = Some((queue, but));
    }

    pub(super) fn claims_all(&self) {
        *self.unclaimable.lock().unwrap() = None;
    }

    fn check_part(&self, queue: &str) -> Result<()> {
        match *self.away.lock().unwrap() {
            Some(away) if away == queue => lost(),
            _ => Ok(()),
        }
    }

    fn check_compared(&self, queue: &str) -> Result<()> {
        match *self.incomparable.lock().unwrap() {
            Some(bad) if bad == queue => Err(Error::new(ErrorKind::Corrupt, "it cannot be read")),
            _ => Ok(()),
        }
    }

    /// Whether another transaction has locked the lane of this turn.
    fn is_busy(&self, turn: &Settlement) -> bool {
        let busy = *self.busy.lock().unwrap();
        busy.is_some() && self.taken.lock().unwrap().get(&turn.lane) == busy.as_ref()
    }

    fn is_unreadable(&self, lane: LaneId) -> bool {
        let unreadable = *self.unreadable.lock().unwrap();
        unreadable.is_some() && self.taken.lock().unwrap().get(&lane) == unreadable.as_ref()
    }

    fn check_settle(&self, settle: &Settle) -> Result<()> {
        self.settles.fetch_add(1, Ordering::SeqCst);
        let (refused, taken) = (self.refused.lock().unwrap(), self.taken.lock().unwrap());
        match *refused {
            Some((job, kind))
                if settle.turns.iter().any(|turn| taken.get(&turn.lane) == Some(&job)) =>
            {
                Err(Error::new(kind, "it cannot be settled"))
            }
            _ => Ok(()),
        }
    }

    fn check_claim(&self, claim: &Claim) -> Result<()> {
        match *self.unclaimable.lock().unwrap() {
            Some((queue, most)) if queue == &*claim.queue && claim.lanes_max > most => {
                Err(Error::new(ErrorKind::Internal, "it cannot be claimed"))
            }
            _ => Ok(()),
        }
    }

    /// The connection, if there is only one.
    async fn connect(&self) -> Option<tokio::sync::MutexGuard<'_, ()>> {
        match self.single.load(Ordering::SeqCst) {
            true => Some(self.connection.lock().await),
            false => None,
        }
    }

    async fn answer(&self) {
        let after = self.answered_after.load(Ordering::SeqCst);
        if after > 0 {
            pass(Duration::from_millis(after)).await;
        }
    }

    /// Makes calls of this operation panic from now on.
    pub(super) fn panics(&self, call: &'static str) {
        *self.panics.lock().unwrap() = Some(call);
    }

    fn may_panic(&self, call: &str) {
        let panics = *self.panics.lock().unwrap();
        assert!(panics != Some(call), "the store panics in {call}");
    }
}

#[derive(Clone)]
pub(super) struct Rig {
    inner: SharedStore,
    pub(super) faults: Arc<Faults>,
}

impl Rig {
    pub(super) fn new() -> Self {
        let begin = tokio::time::Instant::now();
        let inner = Arc::new(Memory::with_clock(move || START + begin.elapsed() + PRETENDED.get()));
        Self { inner, faults: Arc::default() }
    }

    pub(super) fn shared(&self) -> SharedStore {
        Arc::new(self.clone())
    }

    pub(super) async fn push(&self, job: Job) -> JobId {
        let pushed = Producer::push(self, Push { now: None, jobs: vec![job] }).await.unwrap();
        pushed[0].job_id
    }

    pub(super) async fn store_declared(&self, queue: crate::model::Queue) {
        self.declare(Declare { now: None, queues: vec![queue] }).await.unwrap();
    }

    pub(super) async fn state(&self, id: JobId) -> Option<JobState> {
        self.inner.job(id).await.unwrap().map(|view| view.state)
    }

    pub(super) async fn error(&self, id: JobId) -> String {
        let view = self.inner.job(id).await.unwrap().unwrap();
        view.error.map(|e| e.to_string()).unwrap_or_default()
    }

    /// Claims as a node that then does nothing more.
    pub(super) async fn claim_as(&self, node: &str, queue: &str, ttl: Duration) -> Vec<Turn> {
        let id = NodeId::from(node);
        let info = NodeInfo::new(id.clone(), ttl);
        let beat = Heartbeat { now: None, node: info, beats: Vec::new() };
        self.heartbeat(beat).await.unwrap();
        let request = Claim::new(queue, id, 100, Lease::Node { ttl });
        self.claim(request).await.unwrap().turns
    }

    fn check(&self) -> Result<()> {
        match self.faults.down.load(Ordering::SeqCst) {
            true => Err(Error::new(ErrorKind::Unavailable, "the store is down")),
            false => Ok(()),
        }
    }
}

/// Decrements a counter; false if it is zero.
fn take(counter: &AtomicUsize) -> bool {
    counter.fetch_update(Ordering::SeqCst, Ordering::SeqCst, |n| n.checked_sub(1)).is_ok()
}

fn lost<T>() -> Result<T> {
    Err(Error::new(ErrorKind::Unavailable, "the answer was lost"))
}

/// Its operations can be called without importing their roles.
impl std::ops::Deref for Rig {
    type Target = dyn Store;

    fn deref(&self) -> &Self::Target {
        self
    }
}

impl Wrapper for Rig {
    fn inner(&self) -> &SharedStore {
        &self.inner
    }

    async fn around<T: Send + 'static>(
        &self,
        name: &'static str,
        call: impl Future<Output = Result<T>> + Send + 'static,
    ) -> Result<T> {
        self.check()?;
        self.faults.looks.fetch_add(usize::from(name == "job"), Ordering::SeqCst);
        let is_hung = match name {
            "job" => self.faults.forgetful.load(Ordering::SeqCst),
            "queues" => self.faults.hung_queues.load(Ordering::SeqCst),
            _ => false,
        };
        if is_hung {
            return std::future::pending().await;
        }
        let _connection = if name == "queues" { self.faults.connect().await } else { None };
        if name == "queues" && self.faults.no_queues.load(Ordering::SeqCst) {
            return lost();
        }
        let leads_after = self.faults.leads_after.load(Ordering::SeqCst);
        if name == "lead" && leads_after > 0 {
            pass(Duration::from_millis(leads_after)).await;
        }
        let fails_after = self.faults.leads_fail_after.load(Ordering::SeqCst);
        if name == "lead" && fails_after > 0 {
            pass(Duration::from_millis(fails_after)).await;
            return lost();
        }
        call.await
    }

    fn capabilities(&self) -> Capabilities {
        let share = self.faults.claim_split.load(Ordering::SeqCst);
        Capabilities { claim_split: (share > 0).then_some(share), ..self.inner.capabilities() }
    }

    fn wakeups(&self) -> Wakeups {
        if self.faults.deaf.load(Ordering::SeqCst) {
            return Bell::default().listen();
        }
        match self.faults.certain.load(Ordering::SeqCst) {
            true => self.inner.wakeups().certain(),
            false => self.inner.wakeups(),
        }
    }

    fn pass_on(&self, queue: &str) {
        self.faults.passed_on.fetch_add(1, Ordering::SeqCst);
        self.inner.pass_on(queue);
    }

    async fn now(&self) -> Result<Timestamp> {
        self.check()?;
        if self.faults.hangs.load(Ordering::SeqCst) {
            return std::future::pending().await;
        }
        match self.faults.clock_after.load(Ordering::SeqCst) {
            0 => {}
            after => pass(Duration::from_millis(after)).await,
        }
        self.inner.now().await
    }

    async fn declare(&self, request: Declare) -> Result<()> {
        self.faults.declares.fetch_add(1, Ordering::SeqCst);
        self.inner.declare(request).await
    }

    async fn declare_new(&self, request: Declare) -> Result<()> {
        self.faults.declares.fetch_add(1, Ordering::SeqCst);
        self.inner.declare_new(request).await
    }

    async fn push(&self, request: Push) -> Result<Vec<Pushed>> {
        self.check()?;
        self.faults.pushes.fetch_add(1, Ordering::SeqCst);
        if self.faults.read_only.load(Ordering::SeqCst) {
            return Err(Error::new(ErrorKind::ReadOnly, "the store is a standby"));
        }
        // A store takes some time, in which other callers may join the line.
        tokio::task::yield_now().await;
        self.inner.push(request).await
    }

    async fn claim(&self, request: Claim) -> Result<Claimed> {
        self.faults.may_panic("claim");
        self.check()?;
        if self.faults.claims.fetch_add(1, Ordering::SeqCst) >= CLAIMS_MAX {
            return std::future::pending().await;
        }
        self.faults.check_claim(&request)?;
        let _connection = self.faults.connect().await;
        self.faults.check_part(&request.queue)?;
        self.faults.lanes_asked.fetch_max(request.lanes_max, Ordering::SeqCst);
        let claimed = self.inner.claim(request).await?;
        let jobs = claimed.turns.iter().map(|turn| (turn.lane, turn.jobs[0].id));
        self.faults.taken.lock().unwrap().extend(jobs);
        self.faults.answer().await;
        if !claimed.turns.is_empty() && take(&self.faults.broken_claims) {
            Err(Error::new(ErrorKind::Internal, "the script broke half way"))
        } else if !claimed.turns.is_empty() && take(&self.faults.lost_claims) {
            lost()
        } else {
            Ok(claimed)
        }
    }

    async fn give_up(&self, request: GiveUp) -> Result<()> {
        self.check()?;
        let queue = request.queue.as_ref().expect("a part that is away must hold up no other");
        self.faults.check_part(queue)?;
        self.faults.check_compared(queue)?;
        self.inner.give_up(request).await
    }

    async fn due(&self, queues: Vec<Arc<str>>) -> Result<Vec<QueueDue>> {
        self.check()?;
        self.faults.dues.fetch_add(queues.len(), Ordering::SeqCst);
        self.faults.due_calls.fetch_add(1, Ordering::SeqCst);
        let _connection = self.faults.connect().await;
        let mut due = self.inner.due(queues).await?;
        let silent = *self.faults.silent.lock().unwrap();
        for one in due.iter_mut().filter(|one| silent == Some(&*one.queue)) {
            (one.due, one.unanswered) = (None, true);
        }
        Ok(due)
    }

    async fn settle(&self, request: Settle) -> Result<Vec<Settled>> {
        self.faults.may_panic("settle");
        self.check()?;
        self.faults.check_settle(&request)?;
        let mut request = request;
        let is_busy: Vec<bool> = request
            .turns
            .iter()
            .map(|turn| request.skip_locked && self.faults.is_busy(turn))
            .collect();
        for (turn, _) in request.turns.iter_mut().zip(&is_busy).filter(|(_, busy)| **busy) {
            turn.token = Token(-1);
        }
        let skips = request.skip_locked;
        let mut settled = self.inner.settle(request).await?;
        self.faults.answer().await;
        for (settled, _) in settled.iter_mut().zip(is_busy).filter(|(_, busy)| *busy) {
            *settled = Settled::Busy;
        }
        if skips && take(&self.faults.unanswered_settles) {
            settled.fill(Settled::Unanswered);
        }
        if take(&self.faults.lost_settles) {
            pass(ANSWERED_AFTER).await;
            return lost();
        }
        Ok(settled)
    }

    async fn turn(&self, lane: LaneId, token: Token) -> Result<Option<Turn>> {
        self.check()?;
        match self.faults.is_unreadable(lane) {
            true => Err(Error::new(ErrorKind::Corrupt, "its payload is missing")),
            false => self.inner.turn(lane, token).await,
        }
    }

    async fn heartbeat(&self, request: Heartbeat) -> Result<Pulse> {
        self.faults.may_panic("heartbeat");
        self.faults.beats.fetch_add(1, Ordering::SeqCst);
        let of_lane = |lane| request.beats.iter().filter(|beat| beat.lane == lane).count();
        let most = request.beats.iter().map(|beat| of_lane(beat.lane)).max();
        self.faults.beats_of_a_lane.fetch_max(most.unwrap_or_default(), Ordering::SeqCst);
        self.check()?;
        if self.faults.no_beats.load(Ordering::SeqCst) {
            return lost();
        }
        if take(&self.faults.hung_beats) {
            return std::future::pending().await;
        }
        let known = self.inner.nodes().await?.iter().any(|node| node.info.id == request.node.id);
        if !known && take(&self.faults.failed_names) {
            return lost();
        }
        let mut pulse = self.inner.heartbeat(request).await?;
        pulse.moved |= self.faults.moved.swap(false, Ordering::SeqCst);
        Ok(pulse)
    }

    async fn rescue(&self, request: Rescue) -> Result<Vec<Turn>> {
        self.faults.may_panic("rescue");
        self.check()?;
        let turns = self.inner.rescue(request).await?;
        if !turns.is_empty() && take(&self.faults.lost_rescues) { lost() } else { Ok(turns) }
    }

    async fn sweep(&self, request: Sweep) -> Result<Swept> {
        self.check()?;
        let swept = self.inner.sweep(request).await?;
        let more = swept.more || self.faults.never_swept.load(Ordering::SeqCst);
        Ok(Swept { more, ..swept })
    }
}

/// An engine that runs until it is stopped.
pub(super) struct Running {
    stop: oneshot::Sender<()>,
    engine: JoinHandle<Result<Summary>>,
}

impl Running {
    pub(super) fn start(builder: EngineBuilder) -> Self {
        let (stop, stopped) = oneshot::channel::<()>();
        let engine = tokio::spawn(builder.run_until(stopped));
        Self { stop, engine }
    }

    /// Stops it, and returns its summary.
    pub(super) async fn stop(self) -> Summary {
        self.stop.send(()).unwrap();
        self.engine.await.unwrap().unwrap()
    }

    /// Ends it as if its process were killed.
    pub(super) fn kill(self) {
        self.engine.abort();
    }
}

/// An engine on the rig, with short times.
pub(super) fn engine(rig: &Rig) -> EngineBuilder {
    Engine::builder(rig.shared())
        .lease(Duration::from_secs(30))
        .heartbeat(Duration::from_secs(5))
        .concurrency(4)
}

/// The lines that handlers log.
#[derive(Clone, Default)]
pub(super) struct Log(Arc<(Mutex<Vec<String>>, Notify)>);

impl Log {
    pub(super) fn add(&self, line: impl Into<String>) {
        self.0.0.lock().unwrap().push(line.into());
        self.0.1.notify_waiters();
    }

    /// A handler that adds this line with each call.
    pub(super) fn adds<T>(&self, line: &'static str) -> impl Fn(Batch<T>) -> Ready<()> + use<T> {
        let log = self.clone();
        move |_| {
            log.add(line);
            ready(())
        }
    }

    pub(super) fn lines(&self) -> Vec<String> {
        self.0.0.lock().unwrap().clone()
    }

    pub(super) fn len(&self) -> usize {
        self.0.0.lock().unwrap().len()
    }

    /// Waits until there are this many lines; paused time passes meanwhile.
    pub(super) async fn reaches(&self, count: usize) {
        let waiting = async {
            loop {
                let added = self.0.1.notified();
                if self.len() >= count {
                    break;
                }
                added.await;
            }
        };
        let reached = tokio::time::timeout(secs(3_600), waiting).await;
        assert!(reached.is_ok(), "only {:?}", self.lines());
    }
}

/// Lets paused time pass.
pub(super) async fn pass(length: Duration) {
    tokio::time::sleep(length).await;
}

pub(super) fn secs(seconds: u64) -> Duration {
    Duration::from_secs(seconds)
}
