//! The lanes that this node holds, according to the node.

use std::collections::HashMap;
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, Ordering};

use tokio::time::Instant;

use crate::lock::lock;
use crate::model::id::{LaneId, Token};
use crate::model::settle::Settlement;
use crate::model::turn::Turn;

/// Lanes from their claim to the answer to their settlement.
#[derive(Debug, Default)]
pub(in crate::engine) struct Held {
    /// Each with the token of its claim, and since when the node has it without a break.
    lanes: Mutex<HashMap<LaneId, (Token, Instant)>>,
    doubled: AtomicBool,
}

impl Held {
    pub(in crate::engine) fn add(&self, turns: &[Turn]) {
        let now = Instant::now();
        turns.iter().for_each(|turn| self.add_since(turn, now));
    }

    /// Adds the next turn of a lane that goes on.
    pub(in crate::engine) fn add_since(&self, turn: &Turn, since: Instant) {
        if lock(&self.lanes).insert(turn.lane, (turn.token, since)).is_some() {
            self.doubled.store(true, Ordering::Relaxed);
        }
    }

    /// For each of these turns, since when the node has its lane, if it still has it.
    pub(in crate::engine) fn since<'s>(
        &self,
        turns: impl Iterator<Item = &'s Settlement>,
    ) -> Vec<Option<Instant>> {
        let lanes = lock(&self.lanes);
        let since = |turn: &Settlement| {
            let (token, since) = *lanes.get(&turn.lane)?;
            (token == turn.token).then_some(since)
        };
        turns.map(since).collect()
    }

    pub(in crate::engine) fn remove<'s>(
        &self,
        settlements: impl IntoIterator<Item = &'s Settlement>,
    ) {
        let mut lanes = lock(&self.lanes);
        for settlement in settlements {
            let held = lanes.get(&settlement.lane).map(|(token, _)| *token);
            if held == Some(settlement.token) {
                lanes.remove(&settlement.lane);
            }
        }
    }

    pub(in crate::engine) fn contains(&self, lane: LaneId, token: Token) -> bool {
        lock(&self.lanes).get(&lane).is_some_and(|(held, _)| *held == token)
    }

    pub(in crate::engine) fn tokens(&self) -> Vec<Token> {
        lock(&self.lanes).values().map(|(token, _)| *token).collect()
    }

    pub(in crate::engine) fn count(&self) -> usize {
        lock(&self.lanes).len()
    }

    /// Whether a lane was ever claimed again before its last turn was settled. That requires a lost claim (the lease
    /// expired, the node was declared dead). Afterwards one batch of settlements can name a lane twice, which the
    /// store's contract forbids.
    pub(in crate::engine) fn was_doubled(&self) -> bool {
        self.doubled.load(Ordering::Relaxed)
    }
}
