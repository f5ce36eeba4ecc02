//! Background jobs that run **in order where order matters and in parallel everywhere else**, on the database that
//! you already have.
//!
//! Jobs of one key never overlap and run in order; all waiting jobs of a key can be handed over together. Data flows
//! one way: *push → store → claim → handler → settle*.
//!
//! Start with [`connect`], [`Client`], [`Job`], [`Queue`] and [`Engine`]. [`engine`] has the settings and views of an
//! engine, [`store`] the contract of a store, [`limits`] every limit with its value.
//!
//! ```no_run
//! use seriatim::{Batch, Client, Engine, Failure, Job, Queue};
//!
//! async fn sync(orders: Batch<String>) -> Result<(), Failure> {
//!     for order in orders.lanes() {
//!         println!("{}: {:?}", order.key(), order.payloads()); // lowest score first
//!     }
//!     Ok(()) // an error is a retry, after the queue's backoff
//! }
//!
//! #[tokio::main]
//! async fn main() -> seriatim::Result<()> {
//!     let store = seriatim::connect("sqlite:orders.db").await?;
//!     Client::new(store.clone()).push(Job::new("orders", "paid")?.key("order-42").score(7.0)).await?;
//!     Engine::builder(store)
//!         .queue(Queue::accumulate("orders"))
//!         .worker("orders", sync)
//!         .run_until(seriatim::shutdown_signal())
//!         .await?;
//!     Ok(())
//! }
//! ```

#![forbid(unsafe_code)]
#![cfg_attr(docsrs, feature(doc_cfg))]

mod client;
mod connect;
mod contract;
#[cfg(feature = "cron")]
mod cron;
pub mod engine;
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
pub use contract::SharedStore;
#[cfg(feature = "cron")]
pub use cron::{Cron, Missed};
pub use engine::builder::EngineBuilder;
pub use engine::lifecycle::Engine;
pub use engine::upkeep::periodic::Periodic;
pub use handler::batch::{Batch, Lane};
pub use handler::codec::Codec;
pub use handler::context::Context;
pub use handler::failure::{Failure, Fatal};
pub use handler::middleware::Next;
pub use handler::outcomes::Outcomes;
pub use handler::shape::Perform;
pub use handler::steps::Steps;
pub use handler::worker::Worker;
#[cfg(feature = "simulation")]
#[doc(hidden)]
pub use machine::stand_in;
pub use model::clock::Timestamp;
pub use model::error::{Error, ErrorKind, Result};
pub use model::flow::{Groups, Limit, Share};
pub use model::id::JobId;
pub use model::job::{Job, RunAt};
pub use model::limits;
pub use model::payload::Payload;
pub use model::queue::{DueRule, Merge, Mode, Queue};
pub use model::rate::Rate;
pub use model::retry::{Backoff, Exhaustion};
pub use model::settle::Outcome;
pub use model::window::Window;
#[doc(hidden)]
pub use model::{duration, names, text};
pub use stopping::shutdown_signal;

/// The store contract: its requests and answers, the rules that all stores share, and the stores themselves. For
/// authors of a store.
pub mod store {
    pub use crate::client::NextPush;
    pub use crate::connect::check_url;
    pub use crate::contract::*;
    pub use crate::model::batch::EndedBatch;
    pub use crate::model::build::{bound_group, build_of, group_of_build};
    pub use crate::model::id::{LaneId, NodeId, REMOTE_NAME_START, Token, check_node_name};
    pub use crate::model::job::{
        IdempotencyScope, JobOptions, refuse_reserved_queue, validate_queue_name,
    };
    pub use crate::model::past::Past;
    pub use crate::model::payload::{Digest, digest};
    pub use crate::model::queue::{Owner, Takes, Throttled};
    pub use crate::model::report::{StepRecord, TurnReport};
    pub use crate::model::result::check_result;
    pub use crate::model::settle::{
        Due, EndKind, Ending, Fate, Keep, NextRetry, Settlement, Verdict, plan, release,
        retries_max,
    };
    pub use crate::model::turn::{Turn, TurnJob};
    pub use crate::stores::*;
}
