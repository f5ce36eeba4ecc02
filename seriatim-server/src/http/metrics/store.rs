//! A store that counts: every operation goes to the one inside, instrumented here once.

use std::sync::Arc;
use std::time::Instant;

use async_trait::async_trait;
use seriatim::store::*;
use seriatim::{
    JobId, Result, SharedStore, Timestamp,
    store::{LaneId, NodeId, Store, Token, Turn},
};

use super::meter::{Meter, Timed};
use crate::journal::Journal;

/// Counts what goes through it, and tells the journal.
pub(crate) struct Metered {
    inner: SharedStore,
    meter: Arc<Meter>,
    journal: Arc<Journal>,
}

impl Metered {
    /// The store with a meter and a journal around it.
    pub(crate) fn wrap(inner: SharedStore, journal: Arc<Journal>) -> (SharedStore, Arc<Meter>) {
        let meter = Arc::new(Meter::default());
        (Arc::new(Self { inner, meter: meter.clone(), journal }), meter)
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

    /// Counts what failed.
    fn told<T>(&self, operation: &'static str, answer: Result<T>) -> Result<T> {
        if let Err(error) = &answer {
            self.meter.failed(operation, error.kind());
        }
        answer
    }

    /// Takes the time too.
    fn timed<T>(
        &self,
        what: Timed,
        operation: &'static str,
        started: Instant,
        answer: Result<T>,
    ) -> Result<T> {
        self.meter.took(what, started.elapsed());
        self.told(operation, answer)
    }
}

#[deny(clippy::missing_trait_methods)]
#[async_trait]
impl Store for Metered {
    fn capabilities(&self) -> Capabilities {
        self.inner.capabilities()
    }

    fn heartbeat_line(&self) -> Option<Opening> {
        let (opening, meter, journal) =
            (self.inner.heartbeat_line()?, self.meter.clone(), self.journal.clone());
        Some(Box::pin(async move {
            let inner = opening.await?;
            Ok(Arc::new(Self { inner, meter, journal }) as SharedStore)
        }))
    }

    fn native(&self) -> Option<&(dyn std::any::Any + Send + Sync)> {
        self.inner.native()
    }

    async fn now(&self) -> Result<Timestamp> {
        self.told("now", self.inner.now().await)
    }

    async fn migrate(&self) -> Result<()> {
        self.told("migrate", self.inner.migrate().await)
    }

    async fn check(&self) -> Result<()> {
        self.told("check", self.inner.check().await)
    }

    async fn secret(&self, offered: Secret) -> Result<Secret> {
        self.told("secret", self.inner.secret(offered).await)
    }

    async fn declare(&self, request: Declare) -> Result<()> {
        self.told("declare", self.inner.declare(request).await)
    }

    async fn push(&self, request: Push) -> Result<Vec<Pushed>> {
        let about = self.journal.about(&request.jobs);
        let started = Instant::now();
        let pushed = self.timed(Timed::Push, "push", started, self.inner.push(request).await)?;
        self.journal.pushed(&about, &pushed);
        Ok(pushed)
    }

    async fn claim(&self, request: Claim) -> Result<Claimed> {
        let (started, node) = (Instant::now(), request.node.clone());
        let claimed =
            self.timed(Timed::Claim, "claim", started, self.inner.claim(request).await)?;
        self.journal.claimed(&claimed.turns, &node);
        Ok(claimed)
    }

    async fn settle(&self, request: Settle) -> Result<Vec<Settled>> {
        let asked = self.journal.wanted(&request.turns);
        let started = Instant::now();
        let settled =
            self.timed(Timed::Settle, "settle", started, self.inner.settle(request).await)?;
        for (settlement, settled) in asked.iter().zip(&settled) {
            if let Settled::Ok { cancelled } = settled {
                self.journal.settled(settlement, cancelled);
            }
        }
        Ok(settled)
    }

    async fn heartbeat(&self, request: Heartbeat) -> Result<Pulse> {
        self.told("heartbeat", self.inner.heartbeat(request).await)
    }

    async fn rescue(&self, request: Rescue) -> Result<Vec<Turn>> {
        let turns = self.told("rescue", self.inner.rescue(request).await)?;
        self.journal.rescued(&turns);
        Ok(turns)
    }

    async fn release(&self, request: Release) -> Result<Vec<Turn>> {
        let turns = self.told("release", self.inner.release(request).await)?;
        self.journal.rescued(&turns);
        Ok(turns)
    }

    async fn give_up(&self, request: GiveUp) -> Result<()> {
        self.told("give_up", self.inner.give_up(request).await)
    }

    async fn sweep(&self, request: Sweep) -> Result<Swept> {
        self.told("sweep", self.inner.sweep(request).await)
    }

    async fn cancel(&self, request: Cancel) -> Result<Vec<Cancelled>> {
        let jobs = request.jobs.clone();
        let done = self.told("cancel", self.inner.cancel(request).await)?;
        self.journal.cancelled(&jobs, &done, &self.named().await);
        Ok(done)
    }

    async fn requeue(&self, request: Selected) -> Result<Acted> {
        let which = request.which.clone();
        let acted = self.told("requeue", self.inner.requeue(request).await)?;
        self.picked("requeued", &which, &acted).await;
        Ok(acted)
    }

    async fn delete_dead(&self, request: Selected) -> Result<Acted> {
        let which = request.which.clone();
        let acted = self.told("delete_dead", self.inner.delete_dead(request).await)?;
        self.picked("deleted", &which, &acted).await;
        Ok(acted)
    }

    async fn act(&self, request: Act) -> Result<Acted> {
        self.told("act", self.inner.act(request).await)
    }

    async fn amend(&self, request: Amend) -> Result<()> {
        let (job, change) = (request.job, request.change.clone());
        self.told("amend", self.inner.amend(request).await)?;
        self.journal.amended(job, &change, &self.named().await);
        Ok(())
    }

    async fn pause_queue(&self, queue: &str, paused: bool) -> Result<()> {
        self.told("pause_queue", self.inner.pause_queue(queue, paused).await)
    }

    async fn delete_queue(&self, request: DeleteQueue) -> Result<Acted> {
        self.told("delete_queue", self.inner.delete_queue(request).await)
    }

    async fn reshard(&self, queue: &str, shards: u16) -> Result<Resharded> {
        self.told("reshard", self.inner.reshard(queue, shards).await)
    }

    async fn command_node(&self, node: &NodeId, command: Command) -> Result<()> {
        self.told("command_node", self.inner.command_node(node, command).await)
    }

    async fn declare_dead(&self, request: DeclareDead) -> Result<bool> {
        self.told("declare_dead", self.inner.declare_dead(request).await)
    }

    async fn lead(&self, request: Lead) -> Result<bool> {
        self.told("lead", self.inner.lead(request).await)
    }

    async fn due(&self, request: DueQuery) -> Result<Vec<SourceDue>> {
        self.told("due", self.inner.due(request).await)
    }

    async fn queues(&self) -> Result<Vec<QueueView>> {
        self.told("queues", self.inner.queues().await)
    }

    async fn stats(&self, now: Option<Timestamp>) -> Result<Vec<QueueStats>> {
        self.told("stats", self.inner.stats(now).await)
    }

    async fn lanes(&self, query: LaneQuery) -> Result<Page<LaneView>> {
        self.told("lanes", self.inner.lanes(query).await)
    }

    async fn jobs(&self, query: JobQuery) -> Result<Page<JobView>> {
        self.told("jobs", self.inner.jobs(query).await)
    }

    async fn job(&self, id: JobId) -> Result<Option<JobView>> {
        self.told("job", self.inner.job(id).await)
    }

    async fn turn(&self, lane: LaneId, token: Token) -> Result<Option<Turn>> {
        let turn = self.told("turn", self.inner.turn(lane, token).await)?;
        // Another process may have claimed it, and this one will settle it.
        turn.iter().for_each(|turn| self.journal.hold(turn));
        Ok(turn)
    }

    async fn nodes(&self) -> Result<Vec<NodeView>> {
        self.told("nodes", self.inner.nodes().await)
    }

    fn wakeups(&self) -> Wakeups {
        self.inner.wakeups()
    }

    async fn close(&self) -> Result<()> {
        self.told("close", self.inner.close().await)
    }
}
