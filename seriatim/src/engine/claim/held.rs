//! The lanes that this node holds, according to the node.

use std::collections::HashMap;
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, Ordering};

use crate::lock::lock;
use crate::model::id::{LaneId, Token};
use crate::model::settle::Settlement;
use crate::model::turn::Turn;

/// Lanes from their claim to the answer to their settlement.
#[derive(Debug, Default)]
pub(in crate::engine) struct Held {
    lanes: Mutex<HashMap<LaneId, Token>>,
    doubled: AtomicBool,
}

impl Held {
    pub(in crate::engine) fn add(&self, turns: &[Turn]) {
        let mut lanes = lock(&self.lanes);
        for turn in turns {
            if lanes.insert(turn.lane, turn.token).is_some() {
                self.doubled.store(true, Ordering::Relaxed);
            }
        }
    }

    pub(in crate::engine) fn remove<'s>(
        &self,
        settlements: impl IntoIterator<Item = &'s Settlement>,
    ) {
        let mut lanes = lock(&self.lanes);
        for settlement in settlements {
            if lanes.get(&settlement.lane) == Some(&settlement.token) {
                lanes.remove(&settlement.lane);
            }
        }
    }

    pub(in crate::engine) fn contains(&self, lane: LaneId, token: Token) -> bool {
        lock(&self.lanes).get(&lane) == Some(&token)
    }

    pub(in crate::engine) fn tokens(&self) -> Vec<Token> {
        lock(&self.lanes).values().copied().collect()
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
