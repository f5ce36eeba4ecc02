//! The lanes that this node holds, according to the node.

use std::collections::HashMap;
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, Ordering};

use tokio::sync::Notify;
use tokio::time::Instant;

use crate::lock::lock;
use crate::model::{LaneId, Settlement, Token, Turn};

/// Lanes from their claim to the answer to their settlement.
#[derive(Debug, Default)]
pub(in crate::engine) struct Held {
    /// Each with the token of its claim, and since when the node has it without a break.
    lanes: Mutex<HashMap<LaneId, (Token, Instant)>>,
    doubled: AtomicBool,
    /// The lane that may be what ends the processes, and since when the node has it.
    suspect: Mutex<Option<Suspect>>,
    /// Notified when there is no suspect any more.
    pub(in crate::engine) cleared: Notify,
}

type Suspect = (LaneId, Token, Instant);

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
        let (mut lanes, mut suspect) = (lock(&self.lanes), lock(&self.suspect));
        for settlement in settlements {
            let held = lanes.get(&settlement.lane).map(|(token, _)| *token);
            if held == Some(settlement.token) {
                lanes.remove(&settlement.lane);
            }
            self.clear_if(&mut suspect, settlement);
        }
    }

    /// Makes a lane the suspect. False if there is another one.
    pub(in crate::engine) fn suspect(&self, turn: &Turn) -> bool {
        let mut suspect = lock(&self.suspect);
        let is_free = suspect.is_none();
        suspect.get_or_insert_with(|| (turn.lane, turn.token, Instant::now()));
        is_free
    }

    /// Since when there is a suspect.
    pub(in crate::engine) fn suspect_since(&self) -> Option<Instant> {
        lock(&self.suspect).map(|(_, _, since)| since)
    }

    /// Records that a turn runs no more: it is no suspect.
    pub(in crate::engine) fn clear(&self, settlement: &Settlement) {
        self.clear_if(&mut lock(&self.suspect), settlement);
    }

    fn clear_if(&self, suspect: &mut Option<Suspect>, settlement: &Settlement) {
        let ended = (settlement.lane, settlement.token);
        if suspect.take_if(|(lane, token, _)| (*lane, *token) == ended).is_some() {
            self.cleared.notify_one();
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

    /// Whether a lane was ever claimed again before its last turn was settled: after a lost claim (the lease expired, the
    /// node was declared dead), or while a handler that has settled its own turn still runs. Afterwards one batch of
    /// settlements can name a lane twice, which the store's contract forbids.
    pub(in crate::engine) fn was_doubled(&self) -> bool {
        self.doubled.load(Ordering::Relaxed)
    }
}
