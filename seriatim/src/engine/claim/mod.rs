//! Claiming: the next queue, the number of lanes, and the lanes that wait for a slot.

pub(in crate::engine) mod buffer;
pub(in crate::engine) mod dispatch;
pub(in crate::engine) mod fetch;
mod flights;
pub(in crate::engine) mod held;
pub(in crate::engine) mod reconcile;
pub(in crate::engine) mod scheduler;
pub(in crate::engine) mod source;
pub(in crate::engine) mod splitter;
mod suspects;
