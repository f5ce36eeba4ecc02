//! Which source is asked first, and whose lanes run first when several wait.

use serde::{Deserialize, Serialize};

use crate::model::clock::Timestamp;

/// How a node with several queues chooses the next one to claim from, and of those that have lanes
/// waiting for a slot the next one to run.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
pub enum Scheduler {
    /// The queue whose oldest lane has been due the longest.
    #[default]
    Lag,
    /// One after the other.
    Seq,
    /// At random, a queue of weight 2 twice as often as one of weight 1.
    Weighted,
    /// Always the first in the order of the workers; a later one gets what it leaves.
    Strict,
}

impl Scheduler {
    /// The places of the sources to ask, first to last. `due` says since when each has had
    /// something to claim; `round` counts the rounds.
    pub(in crate::engine) fn order(
        self,
        due: &[Option<Timestamp>],
        weights: &[u32],
        round: usize,
    ) -> Vec<usize> {
        let mut order: Vec<usize> = (0..due.len()).collect();
        match self {
            Self::Lag => order.sort_by_key(|place| due[*place].unwrap_or(Timestamp::MAX)),
            Self::Seq => order.rotate_left(round % due.len().max(1)),
            Self::Weighted => {
                // The first to fire of clocks that tick as often as the weights say.
                let mut ticks = vec![0.0; due.len()];
                for (tick, weight) in ticks.iter_mut().zip(weights) {
                    *tick = -fastrand::f64().max(f64::MIN_POSITIVE).ln() / f64::from(*weight);
                }
                order.sort_by(|a, b| ticks[*a].total_cmp(&ticks[*b]));
            }
            Self::Strict => {}
        }
        order
    }

    /// Which of the queues that have lanes waiting runs next.
    pub(in crate::engine) fn next(self, waiting: impl Iterator<Item = Waiting>) -> Option<usize> {
        let first = match self {
            Self::Lag => waiting.min_by_key(|one| one.claimed),
            Self::Seq => waiting.min_by_key(|one| one.served),
            Self::Strict => waiting.min_by_key(|one| one.source),
            Self::Weighted => by_weight(&waiting.collect::<Vec<_>>()),
        };
        first.map(|one| one.source)
    }
}

/// A queue with lanes that wait for a slot.
#[derive(Clone, Copy, Debug)]
pub(in crate::engine) struct Waiting {
    pub(in crate::engine) source: usize,
    /// When its first lane was claimed, as a number that grows.
    pub(in crate::engine) claimed: u64,
    /// When its last call began, likewise.
    pub(in crate::engine) served: u64,
    pub(in crate::engine) weight: u32,
}

fn by_weight(waiting: &[Waiting]) -> Option<Waiting> {
    let total: u32 = waiting.iter().map(|one| one.weight).sum();
    let mut at = if waiting.len() > 1 { fastrand::u32(0..total) } else { 0 };
    waiting.iter().copied().find(|one| {
        let hit = at < one.weight;
        at = at.saturating_sub(one.weight);
        hit
    })
}
