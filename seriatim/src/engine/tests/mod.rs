//! The engine on the memory store, in tokio's paused time: no test sleeps.

mod around;
mod batches;
mod calls;
#[cfg(feature = "cron")]
mod clock;
mod definitions;
mod faults;
mod going_on;
mod leases;
mod loading;
mod logging;
mod panics;
mod refusals;
mod results;
mod retrying;
mod rig;
mod scheduling;
mod series;
mod splitting;
mod steps;
mod stopping;
mod suspects;
mod takeover;
mod transactions;
mod waking;
