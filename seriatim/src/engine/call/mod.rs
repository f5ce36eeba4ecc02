//! Calls of handlers: how one is made, what it is told, and what it may reach.

pub(in crate::engine) mod flags;
pub(in crate::engine) mod perform;
pub(in crate::engine) mod running;
pub(in crate::engine) mod slot;
