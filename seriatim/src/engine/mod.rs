//! The engine: fetch → execute → settle, in batches from end to end.
//!
//! One task claims (`fetch`), as many as `concurrency` run handlers (`slot`, `perform`), one
//! settles (`settle`), one beats (`heartbeat`), one guards the lease by the monotonic clock (`guard`),
//! and one takes over what dead nodes held (`maintenance`). They share a [`core::Core`] and nothing
//! else. The beat and the guard have a thread of their own (`beats`). A panic of the user's code stays
//! where it was called (`shield`); a task of the engine that ends or panics stops the engine. No task is spawned for a job: a handler that ends without waiting costs a queue pop and
//! a push.

mod builder;
mod call;
mod claim;
mod core;
mod handle;
mod hooks;
mod lease;
mod lifecycle;
mod limits;
mod outage;
mod phase;
mod settle;
mod shield;
mod summary;
#[cfg(test)]
mod tests;
mod upkeep;

pub use builder::EngineBuilder;
pub use claim::scheduler::Scheduler;
pub use claim::splitter::{Fleet, Prefer, Splitter};
pub use handle::{Handle, RunningCall};
pub use lifecycle::Engine;
pub use settle::exhausted::Exhausted;
pub use settle::turn_log::TurnLog;
pub use summary::Summary;
#[doc(hidden)]
pub use upkeep::origin::ProcessStat;
pub use upkeep::periodic::{Periodic, PeriodicState, PeriodicView, Tick};
