//! Which source is asked first.

use serde::{Deserialize, Serialize};

use crate::clock::Timestamp;

/// How a node with several queues chooses the next one to claim from. (`weighted` and `strict`
/// are to come; a configuration that names one is refused.)
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
pub enum Scheduler {
    /// The queue whose oldest lane has been due the longest.
    #[default]
    Lag,
    /// One after the other.
    Seq,
}

impl Scheduler {
    /// The places of the sources to ask, first to last. `due` says since when each has had
    /// something to claim; `round` counts the rounds.
    pub(super) fn order(self, due: &[Option<Timestamp>], round: usize) -> Vec<usize> {
        let mut order: Vec<usize> = (0..due.len()).collect();
        match self {
            Self::Lag => order.sort_by_key(|place| due[*place].unwrap_or(Timestamp::MAX)),
            Self::Seq => order.rotate_left(round % due.len().max(1)),
        }
        order
    }
}
