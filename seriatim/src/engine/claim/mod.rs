//! The claimer: what is claimed, for which slots, and what waits for one.

pub(in crate::engine) mod buffer;
pub(in crate::engine) mod dispatch;
pub(in crate::engine) mod fetch;
pub(in crate::engine) mod held;
pub(in crate::engine) mod reconcile;
pub(in crate::engine) mod scheduler;
pub(in crate::engine) mod source;
pub(in crate::engine) mod splitter;
