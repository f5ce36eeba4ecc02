//! Chooses the source to claim from, and the waiting lanes to run first.

use serde::{Deserialize, Serialize};

use crate::model::Timestamp;

/// How a node with several queues chooses the next queue to claim from, and the next one to run among those with
/// lanes waiting for a slot.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
pub enum Scheduler {
    /// The queue whose oldest lane has been due the longest.
    #[default]
    Lag,
    /// In turn.
    Seq,
    /// At random; a queue of weight 2 is chosen twice as often as one of weight 1.
    Weighted,
    /// In the order of the workers; a later queue gets what the earlier ones leave.
    Strict,
}

impl Scheduler {
    /// Positions in `due`, in the order of asking the sources there. `due` has the time since which each has lanes to claim;
    /// `round` counts the rounds.
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
                // Each source draws an exponential time with its weight as the rate; the earliest comes first.
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

    /// The queue to run next among those with waiting lanes.
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
    /// When its first lane was claimed, as a growing number.
    pub(in crate::engine) claimed: u64,
    /// When its last call began, as a growing number.
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
