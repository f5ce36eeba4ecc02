//! The store, with metrics and the journal around it.

use std::future::Future;
use std::sync::Arc;
use std::time::Instant;

use seriatim::engine::Observer;
use seriatim::store::*;
use seriatim::{
    Result, SharedStore,
    store::{LaneId, Token, Turn},
};

use super::meter::{Meter, Timed};
use crate::journal::Journal;

/// Counts store operations, and reports them to the journal.
pub(crate) struct Metered {
    inner: SharedStore,
    meter: Arc<Meter>,
    journal: Arc<Journal>,
    observer: Option<Arc<dyn Observer>>,
}

impl Metered {
    /// The store with a meter and a journal around it.
    pub(crate) fn wrap(inner: SharedStore, journal: Arc<Journal>) -> (SharedStore, Arc<Meter>) {
        Self::observed(inner, journal, None)
    }

    /// The same, which also tells an observer what people release.
    pub(crate) fn observed(
        inner: SharedStore,
        journal: Arc<Journal>,
        observer: Option<Arc<dyn Observer>>,
    ) -> (SharedStore, Arc<Meter>) {
        let meter = Arc::new(Meter::default());
        (Arc::new(Self { inner, meter: meter.clone(), journal, observer }), meter)
    }

    /// The queues, for the names of those whose jobs something was done to; none where nothing is
    /// written down.
    async fn named(&self) -> Vec<QueueView> {
        match self.journal.book() {
            Some(_) => self.inner.queues().await.unwrap_or_default(),
            None => Vec::new(),
        }
    }

    /// Writes down what was done to dead jobs, where it was done to all that were named.
    async fn picked(&self, what: &'static str, which: &Selection, acted: &Acted) {
        if let Selection::Jobs(jobs) = which
            && acted.count == jobs.len() as u64
        {
            self.journal.acted(what, jobs, &self.named().await);
        }
    }

    /// A call whose time is measured too.
    async fn timed<T>(
        &self,
        what: Timed,
        operation: &'static str,
        call: impl Future<Output = Result<T>>,
    ) -> Result<T> {
        let started = Instant::now();
        let answer = call.await;
        self.meter.took(what, started.elapsed());
        self.counted(operation, answer)
    }

    /// Counts what failed.
    fn counted<T>(&self, operation: &'static str, answer: Result<T>) -> Result<T> {
        if let Err(error) = &answer {
            self.meter.failed(operation, error.kind());
        }
        answer
    }
}

impl Wrapper for Metered {
    fn inner(&self) -> &SharedStore {
        &self.inner
    }

    async fn around<T: Send + 'static>(
        &self,
        operation: &'static str,
        call: impl Future<Output = Result<T>> + Send + 'static,
    ) -> Result<T> {
        self.counted(operation, call.await)
    }

    fn heartbeat_line(&self) -> Option<Opening> {
        let opening = self.inner.heartbeat_line()?;
        let (meter, journal, observer) =
            (self.meter.clone(), self.journal.clone(), self.observer.clone());
        Some(Box::pin(async move {
            let inner = opening.await?;
            Ok(Arc::new(Self { inner, meter, journal, observer }) as SharedStore)
        }))
    }

    async fn push(&self, request: Push) -> Result<Vec<Pushed>> {
        let about = self.journal.about(&request.jobs);
        let pushed = self.timed(Timed::Push, "push", self.inner.push(request)).await?;
        self.journal.pushed(&about, &pushed);
        Ok(pushed)
    }

    async fn drain_inbox(&self, request: DrainInbox) -> Result<Drained> {
        let drained = self.counted("drain_inbox", self.inner.drain_inbox(request).await)?;
        self.journal.pushed(&self.journal.about(&drained.jobs), &drained.pushed);
        Ok(drained)
    }

    async fn claim(&self, request: Claim) -> Result<Claimed> {
        let node = request.node.clone();
        let claimed = self.timed(Timed::Claim, "claim", self.inner.claim(request)).await?;
        self.journal.claimed(&claimed.turns, &node);
        Ok(claimed)
    }

    async fn settle(&self, request: Settle) -> Result<Vec<Settled>> {
        let asked = self.journal.wanted(&request.turns);
        let node = request.go_on.first().map(|go_on| go_on.claim.node.clone());
        let settled = self.timed(Timed::Settle, "settle", self.inner.settle(request)).await?;
        for (settlement, settled) in asked.iter().zip(&settled) {
            let Settled::Ok { cancelled, next } = settled else { continue };
            self.journal.settled(settlement, cancelled);
            if let (Some(turn), Some(node)) = (next, &node) {
                self.journal.claimed(std::slice::from_ref(turn), node);
            }
        }
        Ok(settled)
    }

    async fn rescue(&self, request: Rescue) -> Result<Vec<Turn>> {
        let turns = self.counted("rescue", self.inner.rescue(request).await)?;
        self.meter.rescued(turns.len());
        self.journal.rescued(&turns);
        Ok(turns)
    }

    async fn release(&self, request: Release) -> Result<Vec<Turn>> {
        let turns = self.counted("release", self.inner.release(request).await)?;
        self.journal.rescued(&turns);
        if let Some(observer) = &self.observer {
            turns.iter().for_each(|turn| observer.released(turn));
        }
        Ok(turns)
    }

    async fn cancel(&self, request: Cancel) -> Result<Vec<Cancelled>> {
        let jobs = request.jobs.clone();
        let done = self.counted("cancel", self.inner.cancel(request).await)?;
        self.journal.cancelled(&jobs, &done, &self.named().await);
        Ok(done)
    }

    async fn requeue(&self, request: Selected) -> Result<Acted> {
        let which = request.which.clone();
        let acted = self.counted("requeue", self.inner.requeue(request).await)?;
        self.picked("requeued", &which, &acted).await;
        Ok(acted)
    }

    async fn delete_dead(&self, request: Selected) -> Result<Acted> {
        let which = request.which.clone();
        let acted = self.counted("delete_dead", self.inner.delete_dead(request).await)?;
        self.picked("deleted", &which, &acted).await;
        Ok(acted)
    }

    async fn amend(&self, request: Amend) -> Result<()> {
        let (job, change) = (request.job, request.change.clone());
        self.counted("amend", self.inner.amend(request).await)?;
        self.journal.amended(job, &change, &self.named().await);
        Ok(())
    }

    async fn turn(&self, lane: LaneId, token: Token) -> Result<Option<Turn>> {
        let turn = self.counted("turn", self.inner.turn(lane, token).await)?;
        // Another process may have claimed it, and this one will settle it.
        turn.iter().for_each(|turn| self.journal.hold(turn));
        Ok(turn)
    }
}
