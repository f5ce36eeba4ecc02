//! Background jobs that run **in order where order matters and in parallel everywhere else**, on
//! the database a team already has.
//!
//! Jobs of one key never overlap and run in order; all that waits for a key can be handed over
//! together. Data flows one way: *push → store → claim → handler → settle*.

#![forbid(unsafe_code)]

mod client;
mod connect;
mod contract;
#[cfg(feature = "cron")]
mod cron;
mod engine;
mod handler;
mod lock;
mod machine;
mod model;
mod observe;
mod stopping;
mod stores;
#[cfg(feature = "testing")]
pub mod testing;
#[cfg(test)]
mod tests;

pub use client::Client;
pub use connect::{connect, connect_existing};
pub use contract::{SharedStore, Store};
#[cfg(feature = "cron")]
pub use cron::{Cron, Missed};
#[doc(hidden)]
pub use engine::ProcessStat;
pub use engine::{
    Engine, EngineBuilder, Exhausted, Fleet, Handle, Periodic, PeriodicState, PeriodicView, Prefer,
    RunningCall, Scheduler, Splitter, Summary, Tick, TurnLog,
};
pub use handler::batch::{Batch, Lane};
pub use handler::codec::Codec;
pub use handler::context::Context;
pub use handler::failure::{Failure, Fatal, Unstartable};
pub use handler::middleware::Next;
pub use handler::outcomes::Outcomes;
pub use handler::steps::Steps;
pub use handler::worker::{Perform, Worker};
#[cfg(feature = "simulation")]
#[doc(hidden)]
pub use machine::stand_in;
pub use model::clock::Timestamp;
pub use model::error::{Error, ErrorKind, Result};
pub use model::id::{JobId, LaneId, NodeId, REMOTE_NAME_START, Token};
pub use model::job::{Job, JobOptions, RunAt, validate_queue_name};
#[doc(hidden)]
pub use model::names;
pub use model::payload::{Digest, Payload, digest};
pub use model::queue::{DueRule, Merge, Mode, Owner, Queue, Takes};
pub use model::retry::{Backoff, Exhaustion};
pub use model::settle::{
    Due, EndKind, Ending, Fate, Keep, Outcome, Settlement, Verdict, backoff_of, plan,
};
pub use model::turn::{Turn, TurnJob};
pub use model::{duration, limits, text};
pub use observe::Observer;
pub use stopping::shutdown_signal;
pub use stores::Memory;
#[cfg(feature = "mysql")]
pub use stores::Mysql;
#[cfg(feature = "postgres")]
pub use stores::Postgres;
#[cfg(feature = "redis")]
pub use stores::Redis;
#[cfg(feature = "sqlite")]
pub use stores::Sqlite;

/// What a store does: the contract, its requests and answers. For those who write one, or look at one closely.
pub mod store {
    pub use crate::contract::*;
    pub use crate::stores::*;
}
