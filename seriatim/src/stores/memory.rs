//! The reference model: a complete store that loses its data when the process ends.
//!
//! Written to be read: it implements every rule of `docs/store-contract.md` in the simplest form, and the conformance
//! suite compares the other stores with it step by step. One mutex guards the whole state, so every method is atomic.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard};

use async_trait::async_trait;
use tokio::time::Instant;

use super::job_look::{self, JobRows, Step};
use super::state::State;
use crate::contract::*;
use crate::lock::lock;
use crate::model::{Error, ErrorKind, JobId, LaneId, NodeId, Result, Timestamp, Token, Turn};

/// A store in memory: the default of tests, and the model of all other stores.
#[derive(Clone)]
pub struct Memory {
    state: Arc<Mutex<State>>,
    notes: Arc<Mutex<BTreeMap<String, Vec<u8>>>>,
    bell: Bell,
    clock: Arc<Clock>,
}

#[cfg(test)]
impl Memory {
    /// A store in which jobs were bound to so many nodes.
    pub(super) fn with_routes(&self, count: usize) {
        let nodes = (0..count).map(|node| (Some(node.to_string()), None)).collect();
        lock(&self.state).routes = Arc::new(nodes);
    }
}

type Clock = dyn Fn() -> Timestamp + Send + Sync;

impl Default for Memory {
    fn default() -> Self {
        Self::new()
    }
}

impl Memory {
    /// Creates an empty store with this machine's clock.
    pub fn new() -> Self {
        Self::with_clock(Timestamp::of_this_machine)
    }

    /// Creates an empty store with the given clock.
    pub fn with_clock(clock: impl Fn() -> Timestamp + Send + Sync + 'static) -> Self {
        Self {
            state: Arc::default(),
            notes: Arc::default(),
            bell: Bell::default(),
            clock: Arc::new(clock),
        }
    }

    /// The time at which [`Self::in_tokio_time`] starts: Friday, 2027-01-01, 00:00 UTC.
    pub const TOKIO_TIME_START: Timestamp = Timestamp::from_micros(1_798_761_600_000_000);

    /// Creates an empty store whose clock follows tokio's: it stops and jumps with it if a test pauses tokio's time.
    /// The clock starts now, at [`Self::TOKIO_TIME_START`].
    pub fn in_tokio_time() -> Self {
        let begin = Instant::now();
        Self::with_clock(move || Self::TOKIO_TIME_START + begin.elapsed())
    }

    /// The caller's time if given, else the store's clock.
    fn at(&self, now: Option<Timestamp>) -> Timestamp {
        now.unwrap_or_else(|| (self.clock)())
    }

    fn define(&self, request: Declare, keep: bool) -> Result<()> {
        let wake = Wake::of(request.queues.iter().map(|queue| &*queue.name));
        self.open()?.declare(self.at(request.now), request.queues, keep)?;
        // Limits may have changed.
        self.bell.ring(&wake);
        Ok(())
    }

    /// One operation that may end jobs, with the ends of their batches.
    fn step<T>(
        &self,
        now: Option<Timestamp>,
        operation: impl FnOnce(&mut State, Timestamp) -> Result<T>,
    ) -> Result<T> {
        let (now, mut state) = (self.at(now), self.open()?);
        let answer = operation(&mut state, now)?;
        let callbacks = state.end_batches(now);
        drop(state);
        self.bell.ring(&Wake::of(callbacks.iter().map(|queue| &**queue)));
        Ok(answer)
    }

    fn open(&self) -> Result<MutexGuard<'_, State>> {
        let state = lock(&self.state);
        if state.closed {
            return Err(Error::new(ErrorKind::Unavailable, "the store has been closed"));
        }
        Ok(state)
    }
}

#[async_trait]
impl Store for Memory {
    fn capabilities(&self) -> Capabilities {
        Capabilities {
            name: "memory",
            shared: false,
            claim_split: None,
            inbox: false,
            store_scope: true,
            batches: true,
            series: true,
            finished_by_time: true,
        }
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

    fn wakeups(&self) -> Wakeups {
        self.bell.listen()
    }

    async fn close(&self) -> Result<()> {
        lock(&self.state).closed = true;
        Ok(())
    }
}

#[async_trait]
impl Queues for Memory {
    async fn declare(&self, request: Declare) -> Result<()> {
        self.define(request, false)
    }

    async fn declare_new(&self, request: Declare) -> Result<()> {
        self.define(request, true)
    }

    async fn pause_queue(&self, queue: Arc<str>, paused: bool) -> Result<()> {
        self.open()?.pause_queue(&queue, paused)?;
        self.bell.ring(&Wake::of([&*queue]));
        Ok(())
    }

    async fn delete_queue(&self, request: DeleteQueue) -> Result<Acted> {
        self.step(None, |state, _| state.delete_queue(&request))
    }
}

#[async_trait]
impl Producer for Memory {
    async fn push(&self, request: Push) -> Result<Vec<Pushed>> {
        validate_push(&request)?;
        let wake = Wake::of_jobs(&request.jobs);
        let pushed = self.open()?.push(self.at(request.now), request.jobs)?;
        self.bell.ring(&wake);
        Ok(pushed)
    }
}

#[async_trait]
impl Batches for Memory {
    async fn open_batch(&self, request: OpenBatch) -> Result<BatchView> {
        request.validate()?;
        self.open()?.open_batch(self.at(request.now), &request)
    }

    async fn seal_batch(&self, request: SealBatch) -> Result<BatchView> {
        self.step(request.now, |state, _| state.seal_batch(&request.id))?;
        self.batch(request.id.clone()).await?.ok_or_else(|| batches::no_batch(&request.id))
    }

    async fn batch(&self, id: Arc<str>) -> Result<Option<BatchView>> {
        Ok(self.open()?.batch(&id))
    }

    async fn batches(&self, query: BatchQuery) -> Result<Page<BatchView>> {
        self.open()?.batch_page(&query)
    }
}

#[async_trait]
impl Consumer for Memory {
    async fn claim(&self, request: Claim) -> Result<Claimed> {
        self.open()?.claim(self.at(request.now), &request)
    }

    async fn settle(&self, request: Settle) -> Result<Vec<Settled>> {
        request.validate()?;
        let (now, mut state) = (self.at(request.now), self.open()?);
        let best = state.best_priorities(&request);
        let mut settled = state.settle(now, &request.turns);
        state.go_on(now, &request, &best, &mut settled);
        let callbacks = state.end_batches(now);
        let waiting = request.turns.iter().filter_map(|turn| state.wakes(turn.lane));
        let wake = Wake::of(waiting.chain(callbacks.iter().map(|queue| &**queue)));
        drop(state);
        self.bell.ring(&wake);
        Ok(settled)
    }

    async fn give_up(&self, request: GiveUp) -> Result<()> {
        self.open()?.give_up(&request);
        Ok(())
    }
}

#[async_trait]
impl Fleet for Memory {
    async fn heartbeat(&self, request: Heartbeat) -> Result<Pulse> {
        self.open()?.heartbeat(self.at(request.now), request)
    }

    async fn rescue(&self, request: Rescue) -> Result<Vec<Turn>> {
        self.open()?.rescue(self.at(request.now), &request)
    }

    async fn release(&self, request: Release) -> Result<Vec<Turn>> {
        self.open()?.release(self.at(request.now), &request)
    }

    async fn declare_dead(&self, request: DeclareDead) -> Result<bool> {
        Ok(self.open()?.declare_dead(self.at(request.now), &request))
    }

    async fn command_node(&self, node: NodeId, command: Command) -> Result<()> {
        self.open()?.command_node(&node, command)
    }

    async fn lead(&self, request: Lead) -> Result<bool> {
        Ok(self.open()?.lead(self.at(request.now), request))
    }

    async fn sweep(&self, request: Sweep) -> Result<Swept> {
        self.step(request.now, |state, now| Ok(state.sweep(now, request.most())))
    }
}

#[async_trait]
impl Actions for Memory {
    async fn cancel(&self, request: Cancel) -> Result<Vec<Cancelled>> {
        self.step(request.now, |state, now| {
            Ok(request.jobs.iter().map(|job| state.cancel(now, *job)).collect())
        })
    }

    async fn requeue(&self, request: Selected) -> Result<Acted> {
        let acted = self.open()?.requeue(self.at(request.now), &request)?;
        self.bell.ring(&Wake::of([&*request.queue]));
        Ok(acted)
    }

    async fn delete_dead(&self, request: Selected) -> Result<Acted> {
        self.open()?.delete_dead(&request)
    }

    async fn act(&self, request: Act) -> Result<Acted> {
        let acted = self.step(request.now, |state, now| state.act(now, &request))?;
        self.bell.ring(&Wake::of([&*request.queue]));
        Ok(acted)
    }

    async fn amend(&self, request: Amend) -> Result<()> {
        self.step(request.now, |state, now| state.amend(now, &request))?;
        self.bell.ring(&Wake::All);
        Ok(())
    }
}

#[async_trait]
impl Views for Memory {
    async fn queues(&self) -> Result<Vec<QueueView>> {
        Ok(self.open()?.queue_views())
    }

    async fn stats(&self, now: Option<Timestamp>) -> Result<Vec<QueueStats>> {
        Ok(self.open()?.stats(self.at(now)))
    }

    async fn due(&self, queues: Vec<Arc<str>>) -> Result<Vec<QueueDue>> {
        Ok(self.open()?.due(&queues))
    }

    async fn lanes(&self, query: LaneQuery) -> Result<Page<LaneView>> {
        self.open()?.lane_page(self.at(query.now), &query)
    }

    async fn jobs(&self, query: JobQuery) -> Result<Page<JobView>> {
        job_look::page(self, query).await
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

    async fn vitals(&self) -> Result<Vitals> {
        Ok(Vitals::default())
    }
}

impl Inbox for Memory {}

#[async_trait]
impl JobRows for Memory {
    async fn job_rows(&self, query: &JobQuery, looks_max: usize) -> Result<Step> {
        self.open()?.job_rows(self.at(query.now), query, looks_max)
    }
}

#[async_trait]
impl Notebook for Memory {
    async fn write_notes(&self, notes: Vec<Note>) -> Result<()> {
        validate_notes(&notes)?;
        let _open = self.open()?;
        lock(&self.notes).extend(notes.into_iter().map(|note| (note.name, note.value)));
        Ok(())
    }

    async fn read_notes(&self, query: NoteQuery) -> Result<Vec<Note>> {
        let _open = self.open()?;
        Ok(in_range(&lock(&self.notes), &query))
    }

    async fn named_notes(&self, names: Vec<String>) -> Result<Vec<Note>> {
        let names = names_to_read(names)?;
        let _open = self.open()?;
        let notes = lock(&self.notes);
        let note = |name: String| Some(Note { value: notes.get(&name)?.clone(), name });
        Ok(names.into_iter().filter_map(note).collect())
    }

    async fn delete_notes(&self, query: NoteQuery) -> Result<u64> {
        let _open = self.open()?;
        let mut notes = lock(&self.notes);
        let gone = in_range(&notes, &query);
        gone.iter().for_each(|note| drop(notes.remove(&note.name)));
        Ok(gone.len() as u64)
    }
}

fn in_range(notes: &BTreeMap<String, Vec<u8>>, query: &NoteQuery) -> Vec<Note> {
    if query.from >= query.to {
        return Vec::new();
    }
    let range = notes.range(query.from.clone()..query.to.clone());
    let value = |value: &Vec<u8>| if query.names_only { Vec::new() } else { value.clone() };
    let note = |(name, of): (&String, &Vec<u8>)| Note::new(name.clone(), value(of));
    match query.backwards {
        false => range.take(query.most()).map(note).collect(),
        true => range.rev().take(query.most()).map(note).collect(),
    }
}
