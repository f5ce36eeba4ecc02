//! Messages between the engine and a running call.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, AtomicU8, Ordering};

use tokio::sync::Notify;

use crate::lock::lock;
use crate::model::{JobId, LaneId, Settlement, StepRecord, Timestamp, TurnReport};

/// Jobs whose payloads cannot be decoded, and why.
pub(crate) type Undecodable = Vec<(JobId, Arc<str>)>;

/// Why a call is asked to stop early, mildest first. A harder reason replaces a milder one.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
#[repr(u8)]
pub(crate) enum Stop {
    /// All its jobs were cancelled. The handler may still finish.
    Cancelled = 1,
    /// Its time limit is reached.
    TimedOut = 2,
    /// The node stops, and its `shutdown_timeout` has passed.
    Stopping = 3,
    /// Its lease is about to expire, or is lost.
    LeaseLost = 4,
}

impl Stop {
    fn from_u8(number: u8) -> Option<Self> {
        [Self::Cancelled, Self::TimedOut, Self::Stopping, Self::LeaseLost]
            .into_iter()
            .find(|stop| *stop as u8 == number)
    }
}

/// The shared state of one call.
#[derive(Debug, Default)]
pub(crate) struct Control {
    stop: AtomicU8,
    /// Whether the handler was told to end between two steps because the node stops.
    interrupted: AtomicBool,
    changed: Notify,
    notes: Mutex<Notes>,
}

#[derive(Debug, Default)]
struct Notes {
    flagged: Vec<(LaneId, Vec<JobId>)>,
    /// Jobs whose payloads cannot be decoded.
    undecodable: Undecodable,
    committed: Option<Committed>,
    told: BTreeMap<LaneId, Told>,
    /// The results of lanes, as JSON.
    results: BTreeMap<LaneId, Arc<str>>,
    /// How many reports the handler made, and up to which one they were taken and have arrived.
    reported: u64,
    taken: u64,
    arrived: u64,
}

/// The settlements of the handler's own transaction.
#[derive(Debug)]
pub(crate) struct Committed {
    pub(crate) settlements: Vec<Settlement>,
    /// When its commit was sent: the next turns of the keys may begin before the handler ends.
    pub(crate) sent_at: Timestamp,
}

/// The handler's reports about a lane.
#[derive(Debug, Default)]
struct Told {
    report: TurnReport,
    /// It includes what earlier turns left in the store. Until then it is not sent, because it would replace that.
    is_whole: bool,
    is_sent: bool,
}

impl Control {
    /// Asks the handler to stop.
    pub(crate) fn stop(&self, reason: Stop) {
        self.stop.fetch_max(reason as u8, Ordering::AcqRel);
        self.changed.notify_waiters();
    }

    /// Why the call is asked to stop.
    pub(crate) fn reason(&self) -> Option<Stop> {
        Stop::from_u8(self.stop.load(Ordering::Acquire))
    }

    /// Notes that the handler was told to end between two steps because the node stops.
    pub(crate) fn interrupt(&self) {
        self.interrupted.store(true, Ordering::Release);
    }

    /// Whether it was told so. Then its failure is not counted: the error may be made from the interruption.
    pub(crate) fn is_interrupted(&self) -> bool {
        self.interrupted.load(Ordering::Acquire)
    }

    /// Waits for a reason at least as hard as `least`.
    pub(crate) async fn reached(&self, least: Stop) -> Stop {
        self.wait_for(|| self.reason().filter(|reason| *reason >= least)).await
    }

    /// Records all jobs of a lane that are flagged for cancellation so far.
    pub(crate) fn flag(&self, lane: LaneId, jobs: &[JobId]) {
        let mut notes = lock(&self.notes);
        notes.flagged.retain(|(name, _)| *name != lane);
        notes.flagged.push((lane, jobs.to_vec()));
        drop(notes);
        self.changed.notify_waiters();
    }

    /// Whether `job` of `lane` is flagged.
    pub(crate) fn is_flagged(&self, lane: LaneId, job: JobId) -> bool {
        let notes = lock(&self.notes);
        notes.flagged.iter().any(|(name, jobs)| *name == lane && jobs.contains(&job))
    }

    /// Waits until more than `known` jobs are flagged, or the call is asked to stop.
    pub(crate) async fn flagged(&self, known: usize) -> Vec<(LaneId, Vec<JobId>)> {
        self.wait_for(|| {
            let notes = lock(&self.notes);
            let count: usize = notes.flagged.iter().map(|(_, jobs)| jobs.len()).sum();
            (count > known || self.reason().is_some()).then(|| notes.flagged.clone())
        })
        .await
    }

    /// Records the jobs that are not handed over because they cannot be decoded.
    pub(crate) fn note_undecodable(&self, jobs: &Undecodable) {
        if !jobs.is_empty() {
            lock(&self.notes).undecodable.clone_from(jobs);
        }
    }

    /// The jobs that cannot be decoded.
    pub(crate) fn undecodable(&self) -> Undecodable {
        lock(&self.notes).undecodable.clone()
    }

    /// Keeps the result of a lane until its turn ends.
    pub(crate) fn keep_result(&self, lane: LaneId, result: Arc<str>) {
        lock(&self.notes).results.insert(lane, result);
    }

    /// Whether a lane has a result.
    pub(crate) fn has_results(&self) -> bool {
        !lock(&self.notes).results.is_empty()
    }

    pub(crate) fn result(&self, lane: LaneId) -> Option<Arc<str>> {
        lock(&self.notes).results.get(&lane).cloned()
    }

    /// Records that the handler settled all turns of the call itself.
    pub(crate) fn commit(&self, committed: Committed) {
        lock(&self.notes).committed = Some(committed);
    }

    /// Whether the handler settled all turns of the call itself.
    pub(crate) fn is_committed(&self) -> bool {
        lock(&self.notes).committed.is_some()
    }

    /// Takes the settlements that the handler made itself.
    pub(crate) fn take_committed(&self) -> Option<Committed> {
        lock(&self.notes).committed.take()
    }

    /// Stores progress for the next heartbeat.
    pub(crate) fn report(&self, lane: LaneId, progress: Arc<str>) {
        self.tell(lane, |report| report.progress = Some(progress));
    }

    /// The same for steps.
    pub(crate) fn report_steps(&self, lane: LaneId, steps: StepRecord) {
        self.tell(lane, |report| report.steps = Some(steps));
    }

    fn tell(&self, lane: LaneId, change: impl FnOnce(&mut TurnReport)) {
        let mut notes = lock(&self.notes);
        let told = notes.told.entry(lane).or_default();
        change(&mut told.report);
        told.is_sent = false;
        notes.reported += 1;
    }

    /// Adds what earlier turns of the lane left in the store.
    pub(crate) fn recall(&self, lane: LaneId, kept: TurnReport) {
        let mut notes = lock(&self.notes);
        let told = notes.told.entry(lane).or_insert(Told { is_sent: true, ..Told::default() });
        if !told.is_whole {
            let report = &mut told.report;
            report.progress = report.progress.take().or(kept.progress);
            report.steps = report.steps.take().or(kept.steps);
            told.is_whole = true;
        }
    }

    /// What is known of a lane, if that includes what earlier turns left.
    pub(crate) fn recalled(&self, lane: LaneId) -> Option<TurnReport> {
        let notes = lock(&self.notes);
        notes.told.get(&lane).filter(|told| told.is_whole).map(|told| told.report.clone())
    }

    /// Lanes with a report that cannot be sent yet, because it is not known what earlier turns left.
    pub(crate) fn forgotten(&self) -> Vec<LaneId> {
        let notes = lock(&self.notes);
        let told = notes.told.iter().filter(|(_, told)| !told.is_whole);
        told.map(|(lane, _)| *lane).collect()
    }

    /// Takes the reports that were not sent yet.
    pub(crate) fn take_reports(&self) -> Vec<(LaneId, Arc<str>)> {
        let mut notes = lock(&self.notes);
        notes.taken = notes.reported;
        let unsent = notes.told.iter_mut().filter(|(_, told)| told.is_whole && !told.is_sent);
        let take = |(lane, told): (&LaneId, &mut Told)| {
            told.is_sent = true;
            Some((*lane, told.report.write()?))
        };
        unsent.filter_map(take).collect()
    }

    /// Whether the store has anything that the handler reported, or will have it, or steps are known. Progress that was
    /// not sent before its job ends is of no use any more.
    pub(crate) fn has_told_the_store(&self) -> bool {
        lock(&self.notes).told.values().any(|told| told.is_sent || told.report.steps.is_some())
    }

    /// Whether there are reports that were not sent yet.
    pub(crate) fn has_reports(&self) -> bool {
        lock(&self.notes).told.values().any(|told| !told.is_sent)
    }

    /// Records that the progress taken last is in the store.
    pub(crate) fn arrived(&self) {
        let mut notes = lock(&self.notes);
        notes.arrived = notes.taken;
        drop(notes);
        self.changed.notify_waiters();
    }

    /// Waits until all progress so far has arrived, or the call is asked to stop.
    pub(crate) async fn all_arrived(&self) {
        let reported = lock(&self.notes).reported;
        let ready = || lock(&self.notes).arrived >= reported || self.reason().is_some();
        self.wait_for(|| ready().then_some(())).await;
    }

    async fn wait_for<T>(&self, mut ready: impl FnMut() -> Option<T>) -> T {
        loop {
            let changed = self.changed.notified();
            tokio::pin!(changed);
            // Enabled before the check, so that no change in between is missed.
            changed.as_mut().enable();
            if let Some(answer) = ready() {
                return answer;
            }
            changed.await;
        }
    }
}
