//! The claimed lanes of one queue that wait for a slot, and how many there should be.

use std::collections::VecDeque;

use tokio::time::Instant;

use crate::engine::limits::{
    PREFETCH_AGE_MAX, PREFETCH_GROWS_BELOW, PREFETCH_GROWTH, PREFETCH_SHRINKS_ABOVE,
};
use crate::model::turn::Turn;

#[derive(Debug)]
pub(in crate::engine) struct QueueBuffer {
    waiting: VecDeque<Waiting>,
    /// Most lanes in one call.
    pub(in crate::engine) batch: usize,
    /// How often its turn comes, beside others.
    pub(in crate::engine) weight: u32,
    /// The number of its last call among those of all.
    pub(in crate::engine) served: u64,
    /// Most calls at once.
    pub(in crate::engine) limit: usize,
    /// Calls under way.
    pub(in crate::engine) busy: usize,
    /// How many lanes to claim beyond what free slots can take: none for slow jobs, many for
    /// short ones, so that slots do not wait for the store.
    pub(in crate::engine) prefetch: usize,
    /// The most that `prefetch` may grow to.
    ahead: usize,
    /// The node's slots, each of which may run a full call.
    slots: usize,
    fill: Option<Fill>,
    /// When a claim could last bring a lane with a crash behind it.
    pub(in crate::engine) crashed_chance: Instant,
}

#[derive(Debug)]
struct Waiting {
    turn: Turn,
    /// Its place in line among all queues.
    place: u64,
    since: Instant,
}

/// The last claim that came back full: how long do so many lanes last?
#[derive(Debug)]
struct Fill {
    at: Instant,
    left: usize,
}

impl QueueBuffer {
    pub(in crate::engine) fn new(limit: usize, slots: usize, ahead: usize) -> Self {
        Self {
            waiting: VecDeque::new(),
            batch: 1,
            weight: 1,
            served: 0,
            limit: limit.min(slots),
            busy: 0,
            prefetch: 0,
            ahead,
            slots,
            fill: None,
            crashed_chance: Instant::now(),
        }
    }

    pub(in crate::engine) fn len(&self) -> usize {
        self.waiting.len()
    }

    /// How many calls wait.
    pub(in crate::engine) fn calls(&self) -> usize {
        self.waiting.len().div_ceil(self.batch)
    }

    /// Whether it is time to claim more.
    pub(in crate::engine) fn is_low(&self) -> bool {
        self.waiting.len() <= self.prefetch / 2
    }

    /// The place in line of its next call; none when it has none that may start.
    pub(in crate::engine) fn next_place(&self) -> Option<u64> {
        let first = self.waiting.front()?;
        (self.busy < self.limit).then_some(first.place)
    }

    /// Adds what a claim brought. A lane with a crash behind it goes to the front: it was claimed
    /// for a slot that is free.
    pub(in crate::engine) fn add(&mut self, turns: Vec<Turn>, place: u64, wanted: usize) {
        let since = Instant::now();
        self.fill = (turns.len() >= wanted).then_some(Fill { at: since, left: turns.len() });
        for turn in turns {
            if turn.crashes > 0 {
                self.waiting.push_front(Waiting { turn, place: 0, since });
            } else {
                self.waiting.push_back(Waiting { turn, place, since });
            }
        }
    }

    /// Takes the turns of the next call: those at the front that may go together.
    pub(in crate::engine) fn take_call(&mut self) -> Vec<Turn> {
        let Some(first) = self.waiting.pop_front().map(|waiting| waiting.turn) else {
            return Vec::new();
        };
        let alone = first.is_alone();
        let most = if alone { 1 } else { self.batch.min(self.waiting.len() + 1) };
        let mut turns = Vec::with_capacity(most);
        turns.push(first);
        while turns.len() < most
            && let Some(next) = self.waiting.front()
            && !next.turn.is_alone()
            && next.turn.task() == turns[0].task()
            && let Some(next) = self.waiting.pop_front()
        {
            turns.push(next.turn);
        }
        self.busy += 1;
        turns
    }

    /// A call of so many turns has ended.
    pub(in crate::engine) fn ended(&mut self, turns: usize) {
        self.busy -= 1;
        let Some(fill) = &mut self.fill else { return };
        fill.left = fill.left.saturating_sub(turns);
        if fill.left > 0 {
            return;
        }
        let lasted = fill.at.elapsed();
        self.fill = None;
        let all_slots = self.limit.min(self.slots) * self.batch;
        if lasted < PREFETCH_GROWS_BELOW {
            self.prefetch = (self.prefetch * PREFETCH_GROWTH).max(all_slots).min(self.ahead);
        } else if lasted > PREFETCH_SHRINKS_ABOVE {
            let half = self.prefetch / 2;
            self.prefetch = if half < all_slots { 0 } else { half };
        }
    }

    /// Takes all that waits, when it has waited too long: the jobs have become slow.
    pub(in crate::engine) fn take_old(&mut self) -> Vec<Turn> {
        let is_old = |waiting: &Waiting| waiting.since.elapsed() > PREFETCH_AGE_MAX;
        if self.waiting.front().is_some_and(is_old) { self.take_all() } else { Vec::new() }
    }

    /// Takes all that waits.
    pub(in crate::engine) fn take_all(&mut self) -> Vec<Turn> {
        self.prefetch = 0;
        self.fill = None;
        self.waiting.drain(..).map(|waiting| waiting.turn).collect()
    }
}
