//! Background jobs that run **in order where order matters and in parallel everywhere else**, on
//! the database a team already has.
//!
//! Jobs of one key never overlap and run in order; all that waits for a key can be handed over
//! together. Data flows one way: *push → store → claim → handler → settle*.

#![forbid(unsafe_code)]

mod batch;
mod canonical;
pub mod checker;
mod client;
mod clock;
mod codec;
#[cfg(feature = "conformance")]
pub mod conformance;
mod connect;
mod context;
#[cfg(feature = "cron")]
mod cron;
pub mod duration;
mod error;
mod id;
mod job;
pub mod limits;
mod middleware;
#[doc(hidden)]
pub mod names;
mod observe;
mod outcomes;
mod payload;
mod queue;
mod retry;
mod runtime;
mod settle;
#[cfg(feature = "conformance")]
pub mod simulation;
mod steps;
mod stopping;
pub mod store;
#[cfg(feature = "testing")]
pub mod testing;
#[cfg(test)]
mod tests;
pub mod text;
mod turn;
mod worker;

pub use batch::{Batch, Lane};
pub use client::Client;
pub use clock::Timestamp;
pub use codec::Codec;
pub use connect::{connect, connect_existing};
pub use context::Context;
#[cfg(feature = "cron")]
pub use cron::{Cron, Missed};
pub use error::{Error, ErrorKind, Result};
pub use id::{JobId, LaneId, NodeId, REMOTE_NAME_START, Token};
pub use job::{Job, JobOptions, RunAt, validate_queue_name};
pub use middleware::Next;
pub use observe::Observer;
pub use outcomes::Outcomes;
pub use payload::{Digest, Payload, digest};
pub use queue::{DueRule, Merge, Mode, Owner, Queue, Takes};
pub use retry::{Backoff, Exhaustion};
#[doc(hidden)]
pub use runtime::ProcessStat;
pub use runtime::{
    Engine, EngineBuilder, Exhausted, Fleet, Handle, Periodic, PeriodicState, PeriodicView, Prefer,
    RunningCall, Scheduler, Splitter, Summary, Tick, TurnLog,
};
pub use settle::{
    Due, EndKind, Ending, Fate, Keep, Outcome, Settlement, Verdict, backoff_of, plan,
};
pub use steps::Steps;
pub use stopping::shutdown_signal;
#[cfg(feature = "mysql")]
pub use store::Mysql;
#[cfg(feature = "postgres")]
pub use store::Postgres;
#[cfg(feature = "redis")]
pub use store::Redis;
#[cfg(feature = "sqlite")]
pub use store::Sqlite;
pub use store::{Memory, SharedStore, Store};
pub use turn::{Turn, TurnJob};
pub use worker::{Failure, Fatal, Perform, Unstartable, Worker};
