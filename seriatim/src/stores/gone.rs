//! Expiring the claims of a node whose process is known to be gone.
//!
//! A node's claim lasts until the node's last heartbeat plus its ttl. To expire all claims of such a node immediately,
//! whatever their ttl, a store moves the stored heartbeat 200 years back, and undoes the shift when it shows the node.
//! The node is dead, so no heartbeat follows.

use std::time::Duration;

use crate::model::Timestamp;

/// Longer than any lease, and so long that a shifted time is never a real one.
const EARLIER: Duration = Duration::from_secs(200 * 365 * 86_400);

/// How long a node that died or stopped is still shown.
pub(super) const DEAD_NODE_SHOWN: Duration = Duration::from_secs(86_400);

/// The value stored in place of the last heartbeat.
pub(super) fn set_back(beat: Timestamp) -> Timestamp {
    beat - EARLIER
}

/// When a claim with a node lease ends, by the stored value: with the last heartbeat, if the node is known to be gone.
pub(super) fn lease_end(kept: Timestamp, ttl: Duration) -> Timestamp {
    if kept < Timestamp::from_micros(0) { as_it_was(kept) } else { kept + ttl }
}

/// The last heartbeat, from the stored value.
pub(super) fn as_it_was(kept: Timestamp) -> Timestamp {
    if kept < Timestamp::from_micros(0) { kept + EARLIER } else { kept }
}
