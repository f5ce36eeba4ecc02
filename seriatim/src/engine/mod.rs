//! Settings and views of an engine: schedulers, splitters, observers, periodic workers, the summary of a run.
//!
//! An engine claims, handles and settles in batches throughout. One task claims, `concurrency` tasks run handlers,
//! one settles, one rescues the claims of dead nodes. Heartbeats and the guard of the leases have their own thread,
//! so a handler that blocks loses no lease. A panic in users' code fails the call; a task of the engine that ends or
//! panics stops the engine. No task is spawned for a job: a handler that never waits costs one pop and one push on an
//! in-memory queue.

pub(crate) mod builder;
mod call;
mod claim;
mod core;
mod handle;
mod hooks;
mod lease;
pub(crate) mod lifecycle;
mod limits;
mod outage;
mod phase;
mod settle;
mod shield;
mod store_clock;
mod summary;
#[cfg(test)]
mod tests;
pub(crate) mod upkeep;

pub use crate::handler::answer::Answer;
pub use crate::handler::exhausted::Exhausted;
pub use crate::handler::failure::Unstartable;
pub use crate::handler::from_payload::FromPayload;
pub use crate::handler::retrying::Failed;
pub use crate::handler::shape::Handler;
pub use crate::handler::steps::Begun;
pub use crate::observe::Observer;
pub use claim::scheduler::Scheduler;
pub use claim::splitter::{FleetView, Prefer, Splitter};
pub use handle::{Handle, RunningCall};
pub use settle::turn_log::{FailedTurn, TurnLog};
pub use summary::Summary;
#[doc(hidden)]
pub use upkeep::origin::ProcessStat;
pub use upkeep::periodic::Tick;
