//! A node whose process is known to be gone.
//!
//! A claim stands until the last beat of its node and its ttl. So that all claims of such a node
//! have expired at once, whatever their ttl, a store keeps its last beat two centuries early, and
//! shows it as it was. It is dead, so no beat of it follows.

use std::time::Duration;

use crate::model::clock::Timestamp;

/// Longer than any lease, and so long that no such time can be taken for a real one.
const EARLIER: Duration = Duration::from_secs(200 * 365 * 86_400);

/// How long a node that died or stopped is shown.
pub(super) const DEAD_NODE_SHOWN: Duration = Duration::from_secs(86_400);

/// What is kept in place of the last beat.
pub(super) fn set_back(beat: Timestamp) -> Timestamp {
    beat - EARLIER
}

/// The last beat, of what is kept.
pub(super) fn as_it_was(kept: Timestamp) -> Timestamp {
    if kept < Timestamp::from_micros(0) { kept + EARLIER } else { kept }
}
