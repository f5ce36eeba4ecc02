//! The pool between the claims and the slots.

use std::sync::Mutex;

use tokio::sync::Notify;
use tokio::time::Instant;

use crate::engine::claim::buffer::{QueueBuffer, Want};
use crate::engine::claim::scheduler::{Scheduler, Waiting};
use crate::engine::limits::{CRASHED_CHANCE_EVERY, PREFETCH_LANES_MAX};
use crate::lock::lock;
use crate::model::{Queue, Turn};

/// Filled by the fetcher and emptied by the slots.
#[derive(Debug)]
pub(in crate::engine) struct Dispatch {
    state: Mutex<State>,
    /// Notified when there is a call to run.
    work: Notify,
    /// Notified when there is room for a claim.
    pub(in crate::engine) room: Notify,
    /// Notified when there are turns.
    pub(in crate::engine) stirred: Notify,
}

#[derive(Debug)]
struct State {
    buffers: Vec<QueueBuffer>,
    scheduler: Scheduler,
    concurrency: usize,
    busy: usize,
    /// A slot is kept free for a lane of this queue with earlier crashes: such a lane must not wait for a slot, and
    /// under load none is ever free.
    reserved: Option<usize>,
    next_place: u64,
    /// The number of calls picked so far.
    served: u64,
    closed: bool,
}

/// The turns of one call.
pub(in crate::engine) struct Picked {
    pub(in crate::engine) source: usize,
    pub(in crate::engine) turns: Vec<Turn>,
}

/// A call that has ended.
#[derive(Clone, Copy)]
pub(in crate::engine) struct Finished {
    pub(in crate::engine) source: usize,
    pub(in crate::engine) turns: usize,
}

impl Dispatch {
    /// A pool for queues with these limits of concurrent calls.
    pub(in crate::engine) fn new(
        limits: impl Iterator<Item = usize>,
        scheduler: Scheduler,
        concurrency: usize,
        ahead: usize,
    ) -> Self {
        let buffers = limits.map(|limit| QueueBuffer::new(limit, concurrency, ahead)).collect();
        let state = State {
            buffers,
            scheduler,
            concurrency,
            busy: 0,
            reserved: None,
            next_place: 1,
            served: 0,
            closed: false,
        };
        let [work, room, stirred] = std::array::from_fn(|_| Notify::new());
        Self { state: Mutex::new(state), work, room, stirred }
    }

    /// The next call for a slot; `None` when the pool is closed and empty.
    pub(in crate::engine) async fn next(&self, finished: Option<Finished>) -> Option<Picked> {
        if let Ok(answer) = self.pick(finished) {
            return answer;
        }
        loop {
            let work = self.work.notified();
            tokio::pin!(work);
            // Enabled before the check, so that no fill in between is missed.
            work.as_mut().enable();
            if let Ok(answer) = self.pick(None) {
                return answer;
            }
            self.room.notify_one();
            work.await;
        }
    }

    /// `Err` if there is nothing to do now.
    fn pick(&self, finished: Option<Finished>) -> Result<Option<Picked>, ()> {
        let mut state = lock(&self.state);
        if let Some(finished) = finished {
            state.busy -= 1;
            state.buffers[finished.source].ended(finished.turns);
        }
        let Some(picked) = state.pick() else {
            return if state.closed { Ok(None) } else { Err(()) };
        };
        let low = state.buffers[picked.source].is_low();
        drop(state);
        if low {
            self.room.notify_one();
        }
        Ok(Some(picked))
    }

    /// How many lanes of a queue to claim; the node may claim at most `most`. `first`: it is this queue's turn.
    pub(in crate::engine) fn want(
        &self,
        source: usize,
        (queue, weight): (Option<&Queue>, u32),
        most: Want,
        first: bool,
    ) -> Want {
        let mut state = lock(&self.state);
        let buffer = &mut state.buffers[source];
        buffer.batch = queue.map_or(1, |queue| queue.batch_size as usize).max(1);
        buffer.weight = weight;
        let was_reserved = state.reserved.is_some();
        let want = state.want(source, most, first);
        if was_reserved && state.reserved.is_none() {
            self.work.notify_one();
        }
        want
    }

    /// Whether a free slot would let a queue run: its own limit is not full.
    pub(in crate::engine) fn may_run(&self, source: usize) -> bool {
        lock(&self.state).may_run(source)
    }

    /// Releases the slot that is kept free for a queue, if nothing can be claimed from it now; otherwise the slot
    /// would stay empty.
    pub(in crate::engine) fn unreserve(&self, is_idle: impl FnOnce(usize) -> bool) {
        let mut state = lock(&self.state);
        let reserved = state.reserved;
        let is_asked = |source: usize| state.buffers[source].asked.lanes > 0;
        if reserved
            .is_some_and(|source| !state.may_run(source) || is_idle(source) && !is_asked(source))
        {
            state.reserved = None;
            drop(state);
            self.work.notify_one();
        }
    }

    /// Counts the lanes of a claim until [`fill`](Self::fill) adds its turns.
    pub(in crate::engine) fn ask(&self, source: usize, want: Want) {
        let asked = &mut lock(&self.state).buffers[source].asked;
        asked.lanes += want.lanes;
        asked.crashed += want.crashed;
    }

    /// Adds the turns of a claim.
    pub(in crate::engine) fn fill(&self, source: usize, turns: Vec<Turn>, want: Want) {
        let mut state = lock(&self.state);
        let asked = &mut state.buffers[source].asked;
        asked.lanes -= want.lanes;
        asked.crashed -= want.crashed;
        if want.crashed > 0 {
            state.reserved = state.reserved.filter(|reserved| *reserved != source);
            state.buffers[source].crashed_chance = Instant::now();
        }
        let (place, stirs) = (state.next_place(), !turns.is_empty());
        state.buffers[source].add(turns, place, want.lanes);
        state.wake_slots(source, &self.work);
        drop(state);
        if stirs {
            self.stirred.notify_one();
        }
    }

    /// Adds the next turns of lanes that go on. Returns them if the pool is closed.
    pub(in crate::engine) fn go_on(&self, source: usize, turns: Vec<Turn>) -> Vec<Turn> {
        let mut state = lock(&self.state);
        if state.closed || turns.is_empty() {
            return turns;
        }
        let place = state.next_place();
        state.buffers[source].line_up(turns, place);
        state.wake_slots(source, &self.work);
        drop(state);
        self.stirred.notify_one();
        Vec::new()
    }

    /// Takes the turns that have waited too long.
    pub(in crate::engine) fn take_old(&self) -> Vec<(usize, Vec<Turn>)> {
        let mut state = lock(&self.state);
        let buffers = state.buffers.iter_mut().map(QueueBuffer::take_old).enumerate();
        buffers.filter(|(_, turns)| !turns.is_empty()).collect()
    }

    /// Takes all waiting turns of a queue.
    pub(in crate::engine) fn take_all_of(&self, source: usize) -> Vec<Turn> {
        let mut state = lock(&self.state);
        state.reserved = state.reserved.filter(|reserved| *reserved != source);
        state.buffers[source].take_all()
    }

    /// Takes all waiting turns.
    pub(in crate::engine) fn take_all(&self) -> Vec<(usize, Vec<Turn>)> {
        let mut state = lock(&self.state);
        let buffers = state.buffers.iter_mut().map(QueueBuffer::take_all).enumerate();
        buffers.filter(|(_, turns)| !turns.is_empty()).collect()
    }

    /// Lets the slots end once the pool is empty.
    pub(in crate::engine) fn close(&self) {
        lock(&self.state).closed = true;
        self.work.notify_waiters();
    }

    /// Whether a call waits for a slot.
    pub(in crate::engine) fn is_waiting(&self) -> bool {
        lock(&self.state).buffers.iter().any(|buffer| buffer.calls() > 0)
    }

    /// The number of calls under way, and of the turns of each source that wait for a slot.
    pub(in crate::engine) fn load(&self) -> (usize, Vec<usize>) {
        let state = lock(&self.state);
        (state.busy, state.buffers.iter().map(QueueBuffer::len).collect())
    }
}

impl State {
    fn next_place(&mut self) -> u64 {
        self.next_place += 1;
        self.next_place
    }

    /// Wakes as many idle slots as the source has calls.
    fn wake_slots(&self, source: usize, work: &Notify) {
        let calls = self.buffers[source].calls();
        let idle = self.concurrency - self.busy;
        (0..calls.min(idle).max(1)).for_each(|_| work.notify_one());
    }

    fn pick(&mut self) -> Option<Picked> {
        // The reserved slot opens once the fetcher has asked for a crashed lane.
        if self.busy + usize::from(self.reserved.is_some()) >= self.concurrency {
            return None;
        }
        let buffers = self.buffers.iter().enumerate();
        let waiting = buffers.filter_map(|(source, buffer)| {
            let (claimed, served, weight) = (buffer.next_place()?, buffer.served, buffer.weight);
            Some(Waiting { source, claimed, served, weight })
        });
        let source = self.scheduler.next(waiting)?;
        self.served += 1;
        self.buffers[source].served = self.served;
        self.busy += 1;
        Some(Picked { source, turns: self.buffers[source].take_call() })
    }

    fn want(&mut self, source: usize, most: Want, first: bool) -> Want {
        if most.crashed == 0 && self.reserved == Some(source) {
            self.reserved = None;
        }
        let waiting: usize = self.buffers.iter().map(QueueBuffer::calls_ahead).sum();
        let slots = (self.concurrency - self.busy).saturating_sub(waiting);
        let buffer = &self.buffers[source];
        let own = (buffer.limit.saturating_sub(buffer.busy)).saturating_sub(buffer.calls_ahead());
        // Lanes that other queues claimed ahead must not keep out the queue whose turn it is: it gets in line.
        let in_line = usize::from(first && buffer.calls_ahead() == 0 && waiting > 0);
        let free = slots.max(in_line).min(own);
        if free == 0 && most.crashed > 0 && self.reserved.is_none() {
            self.reserve(source);
        }
        let buffer = &self.buffers[source];
        let kept = self.reserved == Some(source)
            && most.crashed > 0
            && buffer.asked.crashed == 0
            && self.busy < self.concurrency
            && buffer.busy < buffer.limit;
        let crashed = if kept { free.max(1) } else { free };
        if !buffer.is_low() && !kept {
            return Want::default();
        }
        let cap = PREFETCH_LANES_MAX.max(buffer.batch);
        let lanes = (free * buffer.batch + buffer.prefetch).saturating_sub(buffer.ahead()).min(cap);
        let lanes = lanes.max(usize::from(kept)).min(most.lanes);
        let crashed_most = most.crashed.saturating_sub(buffer.asked.crashed);
        Want { lanes, crashed: crashed.min(crashed_most).min(lanes) }
    }

    /// Whether a free slot would let the source run: if its own limit stops it, the slot would idle.
    fn may_run(&self, source: usize) -> bool {
        let buffer = &self.buffers[source];
        buffer.busy < buffer.limit || buffer.limit >= self.concurrency
    }

    fn reserve(&mut self, source: usize) {
        let buffer = &self.buffers[source];
        let may_run = self.may_run(source);
        if buffer.busy > 0 && may_run && buffer.crashed_chance.elapsed() > CRASHED_CHANCE_EVERY {
            self.reserved = Some(source);
        }
    }
}
