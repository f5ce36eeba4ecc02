//! One suite that every store must pass: a case for each promise of the contract, and random
//! sequences of operations compared step by step with the memory store.
//!
//! A store's own test is a factory:
//!
//! ```no_run
//! # async fn fresh_store() -> seriatim::SharedStore { std::sync::Arc::new(seriatim::Memory::new()) }
//! for case in seriatim::conformance::cases() {
//!     case.run(&|| Box::pin(fresh_store()));
//! }
//! ```
//!
//! Time is passed in everywhere: no case sleeps.
#![allow(clippy::unwrap_used, clippy::missing_panics_doc, missing_docs)]

mod bench;
mod claiming;
mod ending;
mod figures;
mod leasing;
mod people;
mod pushing;
mod random;
mod taking_back;
mod views;

use std::future::Future;
use std::pin::Pin;

pub use bench::Bench;

use crate::SharedStore;

/// Makes an empty store.
pub type Factory<'a> = &'a (dyn Fn() -> Pin<Box<dyn Future<Output = SharedStore>>> + Sync);

type Body = fn(Bench) -> Pin<Box<dyn Future<Output = ()>>>;

/// One case of the suite.
#[derive(Clone, Copy)]
pub struct Case {
    /// What it shows, as a sentence.
    pub name: &'static str,
    body: Body,
}

impl Case {
    /// Runs it on a new store; panics when the store is wrong.
    pub fn run(&self, fresh: Factory<'_>) {
        let runtime = tokio::runtime::Builder::new_multi_thread()
            .worker_threads(1)
            .enable_all()
            .build()
            .expect("a runtime can be started");
        runtime.block_on(async {
            let store = fresh().await;
            let bench = Bench::new(store.clone()).await;
            (self.body)(bench).await;
            store.close().await.expect("the store closes");
        });
    }
}

/// All cases.
pub fn cases() -> Vec<Case> {
    [
        pushing::cases(),
        claiming::cases(),
        ending::cases(),
        leasing::cases(),
        people::cases(),
        views::cases(),
        figures::cases(),
        taking_back::cases(),
        random::cases(),
    ]
    .concat()
}

/// Names each listed function's case after the function.
macro_rules! listed {
    ($($case:ident),* $(,)?) => {
        vec![$($crate::conformance::Case {
            name: stringify!($case),
            body: |bench| Box::pin($case(bench)),
        }),*]
    };
}
use listed;
