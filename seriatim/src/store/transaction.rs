//! Transactions of the user's own, in which pushes and settles can take part.

use async_trait::async_trait;

use super::{Push, Pushed, Settle, Settled, Store};
use crate::error::Result;

/// A transaction that the user began on the database of a store, with the driver of that database.
///
/// What is done in it holds when it is committed, and vanishes when it is rolled back or dropped.
/// Stores whose capability `transactions` is set have one: with the feature `postgres` it is
/// `tokio_postgres::Transaction`. It must be at the isolation level READ COMMITTED.
#[async_trait]
pub trait Transaction: Send {
    /// As [`Store::push`]; the wake-up goes out at the commit.
    ///
    /// Until then the keys' lanes are locked: turns of theirs that end meanwhile wait for the commit.
    async fn push(&mut self, store: &dyn Store, request: Push) -> Result<Vec<Pushed>>;

    /// As [`Store::settle`].
    async fn settle(&mut self, store: &dyn Store, request: Settle) -> Result<Vec<Settled>>;

    /// Makes all of it hold. After an `Unavailable` error nobody knows whether it does.
    async fn commit(self) -> Result<()>
    where
        Self: Sized;
}
