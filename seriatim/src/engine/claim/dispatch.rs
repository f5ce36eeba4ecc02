//! What waits for a slot, and who waits for work.

use std::sync::Mutex;

use tokio::sync::Notify;
use tokio::time::Instant;

use crate::engine::claim::buffer::QueueBuffer;
use crate::engine::claim::scheduler::{Scheduler, Waiting};
use crate::engine::limits::{CRASHED_CHANCE_EVERY, PREFETCH_LANES_MAX};
use crate::lock::lock;
use crate::model::queue::Queue;
use crate::model::turn::Turn;

/// Between the fetcher, which fills it, and the slots, which empty it.
#[derive(Debug)]
pub(in crate::engine) struct Dispatch {
    state: Mutex<State>,
    /// Rung when there is something to run.
    work: Notify,
    /// Rung when there is room for a claim.
    pub(in crate::engine) room: Notify,
}

#[derive(Debug)]
struct State {
    buffers: Vec<QueueBuffer>,
    scheduler: Scheduler,
    concurrency: usize,
    busy: usize,
    /// A slot is kept free for a lane of this queue with a crash behind it: such a lane must not
    /// wait for a slot, and under load there never is a free one.
    reserved: Option<usize>,
    next_place: u64,
    /// Calls picked so far.
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

/// How many lanes to claim.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(in crate::engine) struct Want {
    pub(in crate::engine) lanes: usize,
    /// Of them, with a crash behind them.
    pub(in crate::engine) crashed: usize,
}

impl Want {
    /// The same as two claims, if it is of more lanes than `most`. Lanes with a crash behind them are
    /// looked for by the first.
    pub(in crate::engine) fn split(self, most: Option<usize>) -> Vec<Self> {
        if most.is_none_or(|most| self.lanes <= most) {
            return vec![self];
        }
        let lanes = self.lanes.div_ceil(2);
        let first = Self { lanes, crashed: self.crashed.min(lanes) };
        vec![first, Self { lanes: self.lanes - lanes, crashed: 0 }]
    }
}

impl Dispatch {
    /// A pool for queues that may each run so many calls at once.
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
        Self { state: Mutex::new(state), work: Notify::new(), room: Notify::new() }
    }

    /// The next call for a slot; none when the pool is closed and empty.
    pub(in crate::engine) async fn next(&self, finished: Option<Finished>) -> Option<Picked> {
        if let Ok(answer) = self.pick(finished) {
            return answer;
        }
        loop {
            let work = self.work.notified();
            tokio::pin!(work);
            // Listens before it looks, so that a fill in between is not missed.
            work.as_mut().enable();
            if let Ok(answer) = self.pick(None) {
                return answer;
            }
            self.room.notify_one();
            work.await;
        }
    }

    /// `Err` when there is nothing to do now.
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

    /// How many lanes of a queue to claim, if the node may hold `most` more. `first`: it is this
    /// queue's turn.
    pub(in crate::engine) fn want(
        &self,
        source: usize,
        queue: Option<&Queue>,
        most: usize,
        first: bool,
    ) -> Want {
        let mut state = lock(&self.state);
        let buffer = &mut state.buffers[source];
        buffer.batch = queue.map_or(1, |queue| queue.batch_size as usize).max(1);
        buffer.weight = queue.map_or(1, |queue| queue.weight).max(1);
        state.want(source, most, first)
    }

    /// Gives a slot back that was kept free for a queue of which nothing can be claimed now: nobody
    /// would ever fill it.
    pub(in crate::engine) fn unreserve(&self, source: usize) {
        let mut state = lock(&self.state);
        if state.reserved == Some(source) {
            state.reserved = None;
            drop(state);
            self.work.notify_one();
        }
    }

    /// Adds what a claim brought.
    pub(in crate::engine) fn fill(&self, source: usize, turns: Vec<Turn>, want: Want) {
        let mut state = lock(&self.state);
        if want.crashed > 0 {
            state.reserved = state.reserved.filter(|reserved| *reserved != source);
            state.buffers[source].crashed_chance = Instant::now();
        }
        let place = state.next_place;
        state.next_place += 1;
        state.buffers[source].add(turns, place, want.lanes);
        let calls = state.buffers[source].calls();
        let idle = state.concurrency - state.busy;
        drop(state);
        for _ in 0..calls.min(idle).max(1) {
            self.work.notify_one();
        }
    }

    /// Takes what has waited too long.
    pub(in crate::engine) fn take_old(&self) -> Vec<(usize, Vec<Turn>)> {
        let mut state = lock(&self.state);
        let buffers = state.buffers.iter_mut().map(QueueBuffer::take_old).enumerate();
        buffers.filter(|(_, turns)| !turns.is_empty()).collect()
    }

    /// Takes all that waits of a queue.
    pub(in crate::engine) fn take_all_of(&self, source: usize) -> Vec<Turn> {
        let mut state = lock(&self.state);
        state.reserved = state.reserved.filter(|reserved| *reserved != source);
        state.buffers[source].take_all()
    }

    /// Takes all that waits.
    pub(in crate::engine) fn take_all(&self) -> Vec<(usize, Vec<Turn>)> {
        let mut state = lock(&self.state);
        let buffers = state.buffers.iter_mut().map(QueueBuffer::take_all).enumerate();
        buffers.filter(|(_, turns)| !turns.is_empty()).collect()
    }

    /// Lets the slots end when they are through.
    pub(in crate::engine) fn close(&self) {
        lock(&self.state).closed = true;
        self.work.notify_waiters();
    }

    /// Whether anything waits for a slot.
    pub(in crate::engine) fn is_waiting(&self) -> bool {
        lock(&self.state).buffers.iter().any(|buffer| buffer.calls() > 0)
    }

    /// Calls under way, and how many turns of each source wait for a slot.
    pub(in crate::engine) fn load(&self) -> (usize, Vec<usize>) {
        let state = lock(&self.state);
        (state.busy, state.buffers.iter().map(QueueBuffer::len).collect())
    }
}

impl State {
    fn pick(&mut self) -> Option<Picked> {
        // A reserved slot opens when the fetcher has asked for a crashed lane.
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

    fn want(&mut self, source: usize, most: usize, first: bool) -> Want {
        let waiting: usize = self.buffers.iter().map(QueueBuffer::calls).sum();
        let slots = (self.concurrency - self.busy).saturating_sub(waiting);
        let buffer = &self.buffers[source];
        let own = (buffer.limit.saturating_sub(buffer.busy)).saturating_sub(buffer.calls());
        // What others have claimed ahead must not keep out whose turn it is: it gets in line.
        let in_line = usize::from(first && buffer.calls() == 0 && waiting > 0);
        let free = slots.max(in_line).min(own);
        if free == 0 && self.reserved.is_none() {
            self.reserve(source);
        }
        let buffer = &self.buffers[source];
        let kept = self.reserved == Some(source)
            && self.busy < self.concurrency
            && buffer.busy < buffer.limit;
        let crashed = if kept { free.max(1) } else { free };
        if !buffer.is_low() && !kept {
            return Want::default();
        }
        let cap = PREFETCH_LANES_MAX.max(buffer.batch);
        let lanes = (free * buffer.batch + buffer.prefetch).saturating_sub(buffer.len()).min(cap);
        let lanes = lanes.max(usize::from(kept)).min(most);
        Want { lanes, crashed: crashed.min(lanes) }
    }

    fn reserve(&mut self, source: usize) {
        let buffer = &self.buffers[source];
        // Its own limit must not be what keeps it waiting, or the slot would idle for others.
        let may_run = buffer.busy < buffer.limit || buffer.limit >= self.concurrency;
        if buffer.busy > 0 && may_run && buffer.crashed_chance.elapsed() > CRASHED_CHANCE_EVERY {
            self.reserved = Some(source);
        }
    }
}
