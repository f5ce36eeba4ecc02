//! The user's own transactions, in which pushes and settles can take part.

#[cfg(all(test, any(feature = "mysql", feature = "postgres")))]
pub(crate) mod tests;

use async_trait::async_trait;

use super::{Push, Pushed, Settle, Settled, Store};
use crate::model::Result;

/// A transaction that the user began on the store's database, with that database's driver.
///
/// Its changes take effect at the commit, and vanish if it is rolled back or dropped. The stores that support it:
/// with the feature `postgres`, `tokio_postgres::Transaction` at the isolation level READ COMMITTED; with `mysql`,
/// `mysql_async::Transaction` at any level.
///
/// If the future of a push or settle is dropped before it ends, as by a time-out, roll the transaction back: on MySQL,
/// which needs several statements for it, a part of it may be there.
#[async_trait]
pub trait Transaction: Send {
    /// As [`Producer::push`](super::Producer::push); workers see the jobs after the commit.
    ///
    /// Until then the keys' lanes are locked: turns of these lanes that end meanwhile wait for the commit.
    async fn push(&mut self, store: &dyn Store, request: Push) -> Result<Vec<Pushed>>;

    /// As [`Consumer::settle`](super::Consumer::settle).
    async fn settle(&mut self, store: &dyn Store, request: Settle) -> Result<Vec<Settled>>;

    /// Commits the transaction. After an `Unavailable` error it is unknown whether it took effect.
    async fn commit(self, store: &dyn Store) -> Result<()>
    where
        Self: Sized;

    /// Rolls the transaction back.
    async fn rollback(self) -> Result<()>
    where
        Self: Sized;
}
