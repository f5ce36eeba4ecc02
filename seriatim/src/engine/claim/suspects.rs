//! Lanes that may be what ends the processes. A node holds one of them at a time, so that poison is buried alone.

use tokio::time::Instant;

use crate::engine::claim::held::Held;
use crate::engine::limits::{BESIDE_SUSPECT_EVERY, SUSPECT_CRASHES};
use crate::model::{Queue, Turn};

/// Whether the lane may be what ends the processes, and not only one that ran beside it.
fn is_suspect(turn: &Turn, queue: &Queue) -> bool {
    turn.crashes > 0 && turn.crashes >= SUSPECT_CRASHES.min(queue.max_crashes.saturating_sub(1))
}

/// The suspects of a claim that the node must not hold now.
pub(super) struct Suspects {
    /// To be returned.
    pub(super) others: Vec<Turn>,
    /// Whether the claim brought any suspect.
    pub(super) found: bool,
}

/// Takes the suspects out of the turns of a claim, except the first one if the node holds none yet.
pub(super) fn take_suspects(held: &Held, queue: &Queue, turns: &mut Vec<Turn>) -> Suspects {
    let mut found = false;
    let is_other = |turn: &mut Turn| {
        let suspect = is_suspect(turn, queue);
        found |= suspect;
        suspect && !held.suspect(turn)
    };
    let others = turns.extract_if(.., is_other).collect();
    Suspects { others, found }
}

/// When a source's lanes with earlier crashes were claimed. The store tells them from others, but not suspects from
/// those with one crash.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Crashed {
    claimed_at: Option<Instant>,
    /// Whether the last such claim brought a suspect: more of them may wait, and would be claimed only to be returned.
    found: bool,
}

impl Crashed {
    /// Most lanes with earlier crashes that the next claim may take.
    ///
    /// While a suspect is held, others wait; but one that runs for long keeps only other suspects waiting: every now
    /// and then a claim takes all, and its suspects are returned.
    pub(super) fn most(&self, held: &Held) -> usize {
        let is_over = |at: Instant| at.elapsed() >= BESIDE_SUSPECT_EVERY;
        match held.suspect_since() {
            None if self.found => 1,
            None => usize::MAX,
            Some(since) if is_over(since) && self.claimed_at.is_none_or(is_over) => usize::MAX,
            Some(_) => 0,
        }
    }

    /// Records a claim that could take such lanes.
    pub(super) fn claimed(&mut self, found: bool) {
        *self = Self { claimed_at: Some(Instant::now()), found };
    }
}
