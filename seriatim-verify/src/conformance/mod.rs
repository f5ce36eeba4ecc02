//! One suite that every store must pass: a case for each rule of the contract, and random sequences of operations
//! compared step by step with the memory store.
//!
//! A store's own test is a factory:
//!
//! ```no_run
//! # async fn fresh_store() -> seriatim::SharedStore { std::sync::Arc::new(seriatim::store::Memory::new()) }
//! for case in seriatim_verify::conformance::cases() {
//!     case.run(&|| Box::pin(fresh_store()));
//! }
//! ```
//!
//! Every call gets its time from the case: no case sleeps.
#![allow(clippy::unwrap_used, clippy::missing_panics_doc, missing_docs)]

mod batches;
mod bench;
mod case;
mod claiming;
mod ending;
mod figures;
mod going_on;
mod job_views;
mod large;
mod leasing;
mod notes;
mod past;
mod people;
mod pushing;
mod random;
mod results;
mod series;
mod sharing;
mod store_scope;
mod taking_back;
mod throttle;
mod views;
mod windows;
mod witness;

pub use bench::Bench;
pub use case::{Case, Factory, SEQUENCES};

/// All cases.
pub fn cases() -> Vec<Case> {
    [
        pushing::cases(),
        store_scope::cases(),
        past::cases(),
        throttle::cases(),
        batches::cases(),
        windows::cases(),
        claiming::cases(),
        sharing::cases(),
        ending::cases(),
        results::cases(),
        going_on::cases(),
        series::cases(),
        large::cases(),
        leasing::cases(),
        notes::cases(),
        people::cases(),
        views::cases(),
        job_views::cases(),
        figures::cases(),
        taking_back::cases(),
        random::cases(),
    ]
    .concat()
}
