//! The engine: fetch → execute → settle, in batches from end to end.
//!
//! One task claims (`fetch`), as many as `concurrency` run handlers (`slot`, `perform`), one
//! settles (`settle`), one beats (`pulse`), one guards the lease by the monotonic clock (`guard`),
//! and one takes over what dead nodes held (`caretaker`). They share a [`core::Core`] and nothing
//! else. The beat and the guard have a thread of their own (`beats`). A panic of the user's code stays
//! where it was called (`shield`); a task of the engine that ends or panics stops the engine. No task is spawned for a job: a handler that ends without waiting costs a queue pop and
//! a push.

mod beats;
mod builder;
mod call;
mod caretaker;
mod control;
mod core;
#[cfg(feature = "cron")]
mod cron;
mod definitions;
mod engine;
mod exhausted;
mod extras;
mod fetch;
mod flags;
mod guard;
mod handle;
mod held;
mod lease;
mod limits;
mod lock;
mod lot;
mod origin;
mod outage;
mod perform;
mod periodic;
mod phase;
mod pool;
mod pulse;
mod reconcile;
mod running;
mod scheduler;
mod settle;
mod shield;
mod slot;
mod source;
mod splitter;
mod summary;
mod surroundings;
mod takeover;
#[cfg(test)]
mod tests;
mod troubles;
mod turn_log;

pub use builder::EngineBuilder;
pub(crate) use call::Call;
pub(crate) use control::Stop;
pub use engine::Engine;
pub use exhausted::Exhausted;
pub use handle::{Handle, RunningCall};
#[doc(hidden)]
pub use origin::ProcessStat;
pub(crate) use perform::done_verdict;
pub use periodic::{Periodic, PeriodicState, PeriodicView, Tick};
pub use scheduler::Scheduler;
pub use splitter::{Fleet, Prefer, Splitter};
pub use summary::Summary;
pub use turn_log::TurnLog;
