//! The reference model: a real store that forgets everything when the process ends.
//!
//! Written to be read: every rule of `docs/store-contract.md` is here in its plainest form, and
//! the conformance suite compares the other stores with it step by step. One mutex guards all of
//! it, so every method is atomic by construction.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use async_trait::async_trait;
use tokio::time::Instant;

use super::state::State;
use crate::contract::request::*;
use crate::contract::view::*;
use crate::contract::wake::{Bell, Wakeups};
use crate::contract::{Store, validate_push};
use crate::model::clock::Timestamp;
use crate::model::error::{Error, ErrorKind, Result};
use crate::model::id::{JobId, LaneId, NodeId, Token};
use crate::model::turn::Turn;

/// A store in memory: the default of tests, and the model of all others.
#[derive(Clone, Default)]
pub struct Memory {
    state: Arc<Mutex<State>>,
    bell: Bell,
    /// What its clock showed, and when by tokio's; none: it shows the machine's.
    clock: Option<(Timestamp, Instant)>,
}

impl Memory {
    /// An empty store.
    pub fn new() -> Self {
        Self::default()
    }

    /// When [`Self::in_tokio_time`] begins: the midnight of UTC in which 2027 begins, a Friday.
    pub const TOKIO_TIME_START: Timestamp = Timestamp::from_micros(1_798_761_600_000_000);

    /// An empty store whose clock follows tokio's: it stands still and jumps where a test pauses
    /// that one. It begins now, at [`Self::TOKIO_TIME_START`].
    pub fn in_tokio_time() -> Self {
        Self { clock: Some((Self::TOKIO_TIME_START, Instant::now())), ..Self::default() }
    }

    /// The store's clock, unless the caller brings the time.
    fn at(&self, now: Option<Timestamp>) -> Timestamp {
        let own = || match self.clock {
            Some((start, since)) => start + since.elapsed(),
            None => Timestamp::of_this_machine(),
        };
        now.unwrap_or_else(own)
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        // A panic under the lock would be a defect of ours; the tests that run into one shall
        // report it instead of hanging on a poisoned lock.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn open(&self) -> Result<MutexGuard<'_, State>> {
        let state = self.lock();
        if state.closed {
            return Err(Error::new(ErrorKind::Unavailable, "the store has been closed"));
        }
        Ok(state)
    }
}

#[async_trait]
impl Store for Memory {
    fn capabilities(&self) -> Capabilities {
        Capabilities { name: "memory", shared: false, claim_split: None }
    }

    async fn now(&self) -> Result<Timestamp> {
        Ok(self.at(None))
    }

    async fn migrate(&self) -> Result<()> {
        self.open().map(drop)
    }

    async fn check(&self) -> Result<()> {
        self.open().map(drop)
    }

    async fn secret(&self, offered: Secret) -> Result<Secret> {
        Ok(*self.open()?.secret.get_or_insert(offered))
    }

    async fn declare(&self, request: Declare) -> Result<()> {
        self.open()?.declare(self.at(request.now), request.queues)
    }

    async fn push(&self, request: Push) -> Result<Vec<Pushed>> {
        validate_push(&request)?;
        let pushed = self.open()?.push(self.at(request.now), request.jobs)?;
        self.bell.ring();
        Ok(pushed)
    }

    async fn claim(&self, request: Claim) -> Result<Claimed> {
        self.open()?.claim(self.at(request.now), &request)
    }

    async fn settle(&self, request: Settle) -> Result<Vec<Settled>> {
        let settled = self.open()?.settle(self.at(request.now), &request.turns);
        self.bell.ring();
        Ok(settled)
    }

    async fn heartbeat(&self, request: Heartbeat) -> Result<Pulse> {
        self.open()?.heartbeat(self.at(request.now), request)
    }

    async fn rescue(&self, request: Rescue) -> Result<Vec<Turn>> {
        self.open()?.rescue(self.at(request.now), &request)
    }

    async fn release(&self, request: Release) -> Result<Vec<Turn>> {
        self.open()?.release(self.at(request.now), &request)
    }

    async fn give_up(&self, request: GiveUp) -> Result<()> {
        self.open()?.give_up(&request);
        Ok(())
    }

    async fn sweep(&self, request: Sweep) -> Result<Swept> {
        Ok(self.open()?.sweep(self.at(request.now), request.rows_max))
    }

    async fn cancel(&self, request: Cancel) -> Result<Vec<Cancelled>> {
        let mut state = self.open()?;
        let now = self.at(request.now);
        Ok(request.jobs.into_iter().map(|job| state.cancel(now, job)).collect())
    }

    async fn requeue(&self, request: Selected) -> Result<Acted> {
        let acted = self.open()?.requeue(self.at(request.now), &request)?;
        self.bell.ring();
        Ok(acted)
    }

    async fn delete_dead(&self, request: Selected) -> Result<Acted> {
        self.open()?.delete_dead(&request)
    }

    async fn act(&self, request: Act) -> Result<Acted> {
        let acted = self.open()?.act(self.at(request.now), &request)?;
        self.bell.ring();
        Ok(acted)
    }

    async fn amend(&self, request: Amend) -> Result<()> {
        self.open()?.amend(self.at(request.now), &request)?;
        self.bell.ring();
        Ok(())
    }

    async fn pause_queue(&self, queue: &str, paused: bool) -> Result<()> {
        self.open()?.pause_queue(queue, paused)?;
        self.bell.ring();
        Ok(())
    }

    async fn delete_queue(&self, request: DeleteQueue) -> Result<Acted> {
        self.open()?.delete_queue(&request)
    }

    async fn command_node(&self, node: &NodeId, command: Command) -> Result<()> {
        self.open()?.command_node(node, command)
    }

    async fn declare_dead(&self, request: DeclareDead) -> Result<bool> {
        Ok(self.open()?.declare_dead(self.at(request.now), &request))
    }

    async fn lead(&self, request: Lead) -> Result<bool> {
        Ok(self.open()?.lead(self.at(request.now), request))
    }

    async fn due(&self, request: DueQuery) -> Result<Vec<SourceDue>> {
        Ok(self.open()?.due(&request.queues))
    }

    async fn queues(&self) -> Result<Vec<QueueView>> {
        Ok(self.open()?.queue_views())
    }

    async fn stats(&self, now: Option<Timestamp>) -> Result<Vec<QueueStats>> {
        Ok(self.open()?.stats(self.at(now)))
    }

    async fn lanes(&self, query: LaneQuery) -> Result<Page<LaneView>> {
        self.open()?.lane_page(&query)
    }

    async fn jobs(&self, query: JobQuery) -> Result<Page<JobView>> {
        self.open()?.job_page(&query)
    }

    async fn job(&self, id: JobId) -> Result<Option<JobView>> {
        Ok(self.open()?.job_view(id))
    }

    async fn turn(&self, lane: LaneId, token: Token) -> Result<Option<Turn>> {
        Ok(self.open()?.turn(lane, token))
    }

    async fn nodes(&self) -> Result<Vec<NodeView>> {
        Ok(self.open()?.node_views())
    }

    fn wakeups(&self) -> Wakeups {
        self.bell.listen()
    }

    async fn close(&self) -> Result<()> {
        self.lock().closed = true;
        Ok(())
    }
}
