//! Transactions of the user's own, in which pushes and settles can take part.

#[cfg(all(test, any(feature = "mysql", feature = "postgres")))]
pub(crate) mod tests;

use async_trait::async_trait;

use super::{Push, Pushed, Settle, Settled, Store};
use crate::model::error::Result;

/// A transaction that the user began on the database of a store, with the driver of that database.
///
/// What is done in it holds when it is committed, and vanishes when it is rolled back or dropped.
/// Stores whose capability `transactions` is set have one: with the feature `postgres` it is
/// `tokio_postgres::Transaction`, which must be at the isolation level READ COMMITTED; with `mysql`,
/// `mysql_async::Transaction`, at any.
#[async_trait]
pub trait Transaction: Send {
    /// As [`Producer::push`](super::Producer::push); workers learn of it after the commit.
    ///
    /// Until then the keys' lanes are locked: turns of theirs that end meanwhile wait for the commit.
    async fn push(&mut self, store: &dyn Store, request: Push) -> Result<Vec<Pushed>>;

    /// As [`Consumer::settle`](super::Consumer::settle).
    async fn settle(&mut self, store: &dyn Store, request: Settle) -> Result<Vec<Settled>>;

    /// Makes all of it hold. After an `Unavailable` error nobody knows whether it does.
    async fn commit(self, store: &dyn Store) -> Result<()>
    where
        Self: Sized;

    /// Makes nothing of it hold.
    async fn rollback(self) -> Result<()>
    where
        Self: Sized;
}
