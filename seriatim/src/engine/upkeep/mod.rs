//! Heartbeats and their guard, takeovers, queue definitions, cron, periodic workers.

pub(in crate::engine) mod beats;
#[cfg(feature = "cron")]
pub(in crate::engine) mod cron;
pub(in crate::engine) mod declaring;
pub(in crate::engine) mod definitions;
pub(in crate::engine) mod guard;
pub(in crate::engine) mod heartbeat;
pub(in crate::engine) mod inbox;
pub(in crate::engine) mod losses;
pub(in crate::engine) mod maintenance;
pub(in crate::engine) mod neighbours;
pub(in crate::engine) mod origin;
pub(crate) mod periodic;
pub(in crate::engine) mod repeat;
pub(in crate::engine) mod troubles;
