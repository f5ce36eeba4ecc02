//! Stores with a defect, each wrapping a correct one: the checker must find the defect in a recorded history.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};

use seriatim::store::*;
use seriatim::{Groups, Job, JobId, Limit, Payload, Queue, Result, SharedStore};

use crate::lock::lock;

/// The token that [`Fault::TokenNotGrowing`] gives to every claim.
const TOKEN: Token = Token(1);

/// A defect of a store.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Fault {
    /// A settle with an old token is executed.
    NoFence,
    /// A claimed lane can be claimed again.
    BusyLaneClaimable,
    /// A claimed lane can be claimed again, under a new token.
    BusyLaneReclaimed,
    /// A claim of a living node is taken over.
    LivingRescued,
    /// A job pushed while its lane is claimed is reported as merged into a running one.
    MergeDropped,
    /// Settling also deletes the waiting jobs of the same key.
    SettleByIdOnly,
    /// Every claim gets the same token.
    TokenNotGrowing,
    /// A job that waits for a retry goes behind later ones.
    RetryOvertakes,
    /// Now and then a done job goes back into its lane.
    DoneKept,
    /// Now and then a job is delivered with another payload.
    PayloadChanged,
    /// The limits of queues and groups are not known.
    LimitsIgnored,
    /// No key is throttled.
    ThrottleIgnored,
}

impl Fault {
    /// All of them.
    pub const ALL: [Self; 12] = [
        Self::NoFence,
        Self::BusyLaneClaimable,
        Self::BusyLaneReclaimed,
        Self::LivingRescued,
        Self::MergeDropped,
        Self::SettleByIdOnly,
        Self::TokenNotGrowing,
        Self::RetryOvertakes,
        Self::DoneKept,
        Self::PayloadChanged,
        Self::LimitsIgnored,
        Self::ThrottleIgnored,
    ];

    /// Wraps a correct store with this defect.
    pub fn of(self, store: SharedStore) -> SharedStore {
        Arc::new(Broken { fault: self, inner: store, seen: Mutex::default() })
    }
}

struct Broken {
    fault: Fault,
    inner: SharedStore,
    seen: Mutex<Seen>,
}

/// What the answers so far have shown, and what is hidden from the store.
#[derive(Default)]
struct Seen {
    /// The last turn of each lane: a takeover returns its jobs without payloads.
    turns: BTreeMap<LaneId, Turn>,
    /// Jobs that are dead in the store, but appear to wait for a retry.
    detained: Vec<(Arc<str>, JobId)>,
    /// Counts occasions for defects that happen only now and then.
    count: u64,
}

impl Broken {
    fn has(&self, fault: Fault) -> bool {
        self.fault == fault
    }

    /// Whether the defect happens this time: each `every`th.
    fn strikes(&self, fault: Fault, every: u64) -> bool {
        let mut seen = lock(&self.seen);
        seen.count += u64::from(self.has(fault));
        self.has(fault) && seen.count.is_multiple_of(every)
    }

    /// Records delivered turns and changes them as the defect requires.
    fn hand_out(&self, mut turns: Vec<Turn>) -> Vec<Turn> {
        lock(&self.seen).turns.extend(turns.iter().map(|turn| (turn.lane, turn.clone())));
        turns.iter_mut().for_each(|turn| turn.token = self.shown(turn.token));
        turns
    }

    fn shown(&self, token: Token) -> Token {
        if self.has(Fault::TokenNotGrowing) { TOKEN } else { token }
    }

    /// The token in the inner store for a caller's token.
    fn meant(&self, lane: LaneId, token: Token) -> Token {
        let is_blind = self.has(Fault::NoFence) || self.has(Fault::TokenNotGrowing);
        let newest = lock(&self.seen).turns.get(&lane).map(|turn| turn.token);
        newest.filter(|_| is_blind).unwrap_or(token)
    }

    /// The first running turn among the `wanted` ones, as its holder got it.
    async fn under_way(&self, wanted: impl Fn(&Turn) -> bool + Send) -> Option<Turn> {
        let held: Vec<(LaneId, Token)> = {
            let seen = lock(&self.seen);
            let wanted = seen.turns.values().filter(|turn| turn.key.is_some() && wanted(turn));
            wanted.map(|turn| (turn.lane, turn.token)).collect()
        };
        for (lane, token) in held {
            if let Ok(Some(turn)) = self.inner.turn(lane, token).await {
                return Some(turn);
            }
        }
        None
    }

    /// The running job into which this one is reported to have merged.
    async fn swallows(&self, job: &Job) -> Option<JobId> {
        let same =
            |turn: &Turn| *turn.queue == job.queue && turn.key.as_deref() == job.key.as_deref();
        let turn = match self.has(Fault::MergeDropped) {
            true => self.under_way(same).await?,
            false => return None,
        };
        self.strikes(Fault::MergeDropped, 2).then(|| turn.head().map(|head| head.id))?
    }

    /// Takes a running turn away from its holder, who is not told.
    async fn take_away(
        &self,
        wanted: impl Fn(&Turn) -> bool + Send,
        now: Option<seriatim::Timestamp>,
    ) -> Result<Vec<Turn>> {
        let Some(turn) = self.under_way(wanted).await else { return Ok(Vec::new()) };
        let claims = ClaimSelection::Lane(turn.lane);
        self.inner.release(Release { now, claims, made_by: None, lanes_max: 1 }).await
    }

    /// Deletes the jobs waiting behind a turn.
    async fn delete_behind(&self, turn: &Turn) -> Result<()> {
        let Some(key) = turn.key.as_deref() else { return Ok(()) };
        let key = Some(key.to_owned());
        let query = JobQuery { key, ..JobQuery::new(turn.queue.clone(), JobState::Queued) };
        for job in self.inner.jobs(query).await?.rows {
            let change = Change::Delete;
            self.inner.amend(Amend { now: None, job: job.id, change }).await?;
        }
        Ok(())
    }

    /// Makes the store bury jobs that are to be retried.
    fn detain(&self, settlement: &mut Settlement, turn: &Turn) {
        if settlement.keep.retry_count < 0 || settlement.ends_owner() {
            return;
        }
        let kept = turn.jobs.iter().filter(|job| settlement.fate_of(job.id) == Fate::Keep);
        lock(&self.seen).detained.extend(kept.map(|job| (turn.queue.clone(), job.id)));
        let exceptions = settlement.exceptions.iter_mut().map(|(_, fate)| fate);
        let kept = exceptions.chain([&mut settlement.rest]).filter(|fate| **fate == Fate::Keep);
        kept.for_each(|fate| *fate = Fate::Bury);
    }

    /// Requeues buried jobs after others had their turn.
    async fn let_go(&self, now: Option<seriatim::Timestamp>) -> Result<()> {
        let detained = std::mem::take(&mut lock(&self.seen).detained);
        for (queue, job) in detained {
            let which = Selection::Jobs(vec![job]);
            self.inner.requeue(Selected { now, queue, which }).await?;
        }
        Ok(())
    }
}

impl Wrapper for Broken {
    fn inner(&self) -> &SharedStore {
        &self.inner
    }

    async fn declare(&self, mut request: Declare) -> Result<()> {
        if self.has(Fault::LimitsIgnored) {
            for queue in &mut request.queues {
                queue.limit = Limit::default();
                queue.groups = queue.groups.as_ref().map(|_| Groups::default());
            }
        }
        if self.has(Fault::ThrottleIgnored) {
            for queue in &mut request.queues {
                (queue.throttle, queue.throttled) = (None, Throttled::default());
            }
        }
        self.inner.declare(request).await
    }

    async fn push(&self, request: Push) -> Result<Vec<Pushed>> {
        let (mut answers, mut jobs) = (Vec::new(), Vec::new());
        for job in request.jobs {
            let into = self.swallows(&job).await;
            answers.push(into.map(|job_id| Pushed::new(job_id, PushStatus::Merged)));
            jobs.extend(into.is_none().then_some(job));
        }
        let mut pushed = self.inner.push(Push { jobs, ..request }).await?.into_iter();
        Ok(answers.into_iter().filter_map(|answer| answer.or_else(|| pushed.next())).collect())
    }

    async fn claim(&self, request: Claim) -> Result<Claimed> {
        let (now, queue) = (request.now, request.queue.clone());
        let mut claimed = self.inner.claim(request.clone()).await?;
        self.let_go(now).await?;
        if self.has(Fault::BusyLaneReclaimed) && claimed.turns.is_empty() {
            let taken = self.take_away(|turn| turn.queue == queue, now).await?;
            let implied = Queue::implied(&queue, true);
            let turns = taken.iter().map(|turn| release(turn, &implied)).collect();
            self.inner.settle(Settle { now, turns, ..Settle::default() }).await?;
            claimed = self.inner.claim(request).await?;
        }
        claimed.turns = self.hand_out(claimed.turns);
        if self.has(Fault::BusyLaneClaimable) && claimed.turns.is_empty() {
            claimed.turns.extend(self.under_way(|turn| turn.queue == queue).await);
        }
        for job in claimed.turns.iter_mut().flat_map(|turn| &mut turn.jobs) {
            if self.strikes(Fault::PayloadChanged, 10) {
                job.payload = Payload::from_bytes("{\"n\":1000000}");
            }
        }
        Ok(claimed)
    }

    async fn settle(&self, mut request: Settle) -> Result<Vec<Settled>> {
        // The faults are in its claims.
        request.go_on.clear();
        for settlement in &mut request.turns {
            settlement.token = self.meant(settlement.lane, settlement.token);
            let Some(turn) = self.inner.turn(settlement.lane, settlement.token).await? else {
                continue;
            };
            match self.fault {
                Fault::SettleByIdOnly => self.delete_behind(&turn).await?,
                Fault::RetryOvertakes => self.detain(settlement, &turn),
                Fault::DoneKept if settlement.rest == Fate::Done => {
                    let strikes = self.strikes(Fault::DoneKept, 10);
                    settlement.rest = if strikes { Fate::Keep } else { Fate::Done };
                }
                _ => {}
            }
        }
        self.inner.settle(request).await
    }

    async fn heartbeat(&self, mut request: Heartbeat) -> Result<Pulse> {
        for beat in &mut request.beats {
            beat.token = self.meant(beat.lane, beat.token);
        }
        let mut pulse = self.inner.heartbeat(request).await?;
        pulse.cancel.iter_mut().for_each(|notice| notice.token = self.shown(notice.token));
        Ok(pulse)
    }

    async fn rescue(&self, request: Rescue) -> Result<Vec<Turn>> {
        let now = request.now;
        let mut turns = self.inner.rescue(request).await?;
        if self.has(Fault::LivingRescued) && turns.is_empty() {
            turns = self.take_away(|_| true, now).await?;
        }
        Ok(self.hand_out(turns))
    }

    async fn release(&self, request: Release) -> Result<Vec<Turn>> {
        Ok(self.hand_out(self.inner.release(request).await?))
    }

    async fn turn(&self, lane: LaneId, token: Token) -> Result<Option<Turn>> {
        let turn = self.inner.turn(lane, self.meant(lane, token)).await?;
        Ok(turn.map(|turn| Turn { token: self.shown(turn.token), ..turn }))
    }

    async fn lanes(&self, query: LaneQuery) -> Result<Page<LaneView>> {
        let mut page = self.inner.lanes(query).await?;
        for lane in &mut page.rows {
            lane.token = lane.token.map(|token| self.shown(token));
        }
        Ok(page)
    }
}
