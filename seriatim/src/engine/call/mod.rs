//! Handler calls: their slots, timeouts and cancellation.

pub(in crate::engine) mod flags;
pub(in crate::engine) mod perform;
pub(in crate::engine) mod running;
pub(in crate::engine) mod slot;
