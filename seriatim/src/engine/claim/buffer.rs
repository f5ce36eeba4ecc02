//! The claimed lanes of one queue that wait for a slot, and how many to claim ahead.

use std::collections::VecDeque;

use tokio::time::Instant;

use crate::engine::limits::{
    PREFETCH_AGE_MAX, PREFETCH_GROWS_BELOW, PREFETCH_GROWTH, PREFETCH_SHRINKS_ABOVE,
};
use crate::model::{JobId, Timestamp, Turn};

/// How many lanes to claim.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(in crate::engine) struct Want {
    pub(in crate::engine) lanes: usize,
    /// How many of them may have earlier crashes.
    pub(in crate::engine) crashed: usize,
}

impl Want {
    /// Splits it into two claims if it asks for more than `most` lanes. Only the first asks for lanes with earlier
    /// crashes.
    pub(in crate::engine) fn split(self, most: Option<usize>) -> Vec<Self> {
        if most.is_none_or(|most| self.lanes <= most) {
            return vec![self];
        }
        let lanes = self.lanes.div_ceil(2);
        let first = Self { lanes, crashed: self.crashed.min(lanes) };
        vec![first, Self { lanes: self.lanes - lanes, crashed: 0 }]
    }
}

#[derive(Debug)]
pub(in crate::engine) struct QueueBuffer {
    waiting: VecDeque<Waiting>,
    /// What the claims on their way ask for.
    pub(in crate::engine) asked: Want,
    /// Most lanes in one call.
    pub(in crate::engine) batch: usize,
    /// Its share under the `weighted` scheduler.
    pub(in crate::engine) weight: u32,
    /// The number of its last call, counted over all queues.
    pub(in crate::engine) served: u64,
    /// Most concurrent calls.
    pub(in crate::engine) limit: usize,
    /// Calls under way.
    pub(in crate::engine) busy: usize,
    /// How many lanes to claim beyond the free slots: none for slow jobs, many for short ones, so that slots do not
    /// wait for the store.
    pub(in crate::engine) prefetch: usize,
    /// The limit of `prefetch`.
    ahead: usize,
    /// The node's slots, each of which may run a full call.
    slots: usize,
    fill: Option<Fill>,
    /// When a claim last could have returned a lane with earlier crashes.
    pub(in crate::engine) crashed_chance: Instant,
}

#[derive(Debug)]
struct Waiting {
    turn: Turn,
    /// Its place in line across all queues.
    place: u64,
    since: Instant,
}

/// The last claim that returned as many lanes as asked, to measure how long they last.
#[derive(Debug)]
struct Fill {
    at: Instant,
    left: usize,
}

impl QueueBuffer {
    pub(in crate::engine) fn new(limit: usize, slots: usize, ahead: usize) -> Self {
        Self {
            waiting: VecDeque::new(),
            asked: Want::default(),
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

    /// The lanes that wait, or that a claim on its way may bring.
    pub(in crate::engine) fn ahead(&self) -> usize {
        self.waiting.len() + self.asked.lanes
    }

    /// The calls that these will make.
    pub(in crate::engine) fn calls_ahead(&self) -> usize {
        self.ahead().div_ceil(self.batch)
    }

    /// Whether it is time to claim more.
    pub(in crate::engine) fn is_low(&self) -> bool {
        self.ahead() <= self.prefetch / 2
    }

    /// The place in line of its next call; `None` if no call may start.
    pub(in crate::engine) fn next_place(&self) -> Option<u64> {
        let first = self.waiting.front()?;
        (self.busy < self.limit).then_some(first.place)
    }

    /// Adds the turns of a claim. A lane with earlier crashes goes to the front, because it was claimed for a free
    /// slot.
    pub(in crate::engine) fn add(&mut self, turns: Vec<Turn>, place: u64, wanted: usize) {
        let full = turns.len() >= wanted;
        self.fill = full.then(|| Fill { at: Instant::now(), left: turns.len() });
        let last = self.waiting.back().map(|waiting| urgency(&waiting.turn));
        // An answer begins with its best lanes; those with earlier crashes go to the front anyhow.
        let first = turns.iter().find(|turn| turn.crashes == 0).map(urgency);
        let overtakes = first.zip(last).is_some_and(|(first, last)| first < last);
        self.line_up(turns, place);
        if overtakes {
            // Of claims side by side, a later one was answered first.
            let urgency = |waiting: &Waiting| urgency(&waiting.turn);
            self.waiting.make_contiguous().sort_by_key(urgency);
        }
    }

    /// Adds turns without measuring how long they last.
    pub(in crate::engine) fn line_up(&mut self, turns: Vec<Turn>, place: u64) {
        let since = Instant::now();
        for turn in turns {
            if turn.crashes > 0 {
                self.waiting.push_front(Waiting { turn, place: 0, since });
            } else {
                self.waiting.push_back(Waiting { turn, place, since });
            }
        }
    }

    /// Takes the turns of the next call: those at the front that can share one.
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

    /// Records the end of a call with this many turns.
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

    /// Takes all waiting turns if they have waited too long because the jobs became slow.
    pub(in crate::engine) fn take_old(&mut self) -> Vec<Turn> {
        let is_old = |waiting: &Waiting| waiting.since.elapsed() > PREFETCH_AGE_MAX;
        if self.waiting.front().is_some_and(is_old) { self.take_all() } else { Vec::new() }
    }

    /// Takes all waiting turns.
    pub(in crate::engine) fn take_all(&mut self) -> Vec<Turn> {
        self.prefetch = 0;
        self.fill = None;
        self.waiting.drain(..).map(|waiting| waiting.turn).collect()
    }
}

/// The order in which lanes are claimed; those with earlier crashes first.
fn urgency(turn: &Turn) -> (bool, Option<u16>, Option<(Timestamp, JobId)>) {
    let priority = turn.jobs.iter().map(|job| job.priority).min();
    (turn.crashes == 0, priority, turn.head().map(|job| (job.run_at, job.id)))
}
