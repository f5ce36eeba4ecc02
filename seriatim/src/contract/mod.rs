//! The contract between the engine and the stores.
//!
//! A [`Store`] plays several roles, one trait and one file each, with the requests and answers of its methods beside
//! them. Every method works on a batch, is atomic (all of it happens or none of it), and takes an explicit `now`; if
//! unset, the store's own clock counts. Each method documents its behaviour as a list, and each line of these lists
//! is a case of the conformance suite.

pub(crate) mod actions;
pub(crate) mod capabilities;
pub(crate) mod consumer;
pub(crate) mod definition;
pub(crate) mod deletion;
pub(crate) mod errors;
pub(crate) mod fleet;
pub(crate) mod origin;
pub(crate) mod producer;
pub(crate) mod queues;
pub(crate) mod release;
pub(crate) mod transaction;
pub(crate) mod trouble;
pub(crate) mod views;
pub(crate) mod wake;
mod wrapper;

use std::future::Future;
use std::sync::Arc;

use async_trait::async_trait;

pub use actions::*;
pub use capabilities::*;
pub use consumer::*;
pub use definition::{Declaration, Undeclared, declare_each};
pub use deletion::{Deleted, delete_queue};
pub use fleet::*;
pub use origin::Origin;
pub use producer::*;
pub use queues::*;
pub use release::release_claims;
pub use transaction::Transaction;
pub use trouble::{Trouble, TroubleKind};
pub use views::*;
pub use wake::{Bell, Wakeups};
pub use wrapper::Wrapper;

use crate::model::clock::Timestamp;
use crate::model::error::Result;

/// A store that is being opened.
pub type Opening = std::pin::Pin<Box<dyn Future<Output = Result<SharedStore>> + Send>>;

/// A store, shared by its users.
pub type SharedStore = Arc<dyn Store>;

/// Holds all state. There is one implementation for each database; the engine knows only this trait.
///
/// Its roles are supertraits, so all their methods can be called on a `dyn Store`.
#[async_trait]
pub trait Store: Queues + Producer + Consumer + Fleet + Actions + Views + 'static {
    /// What this store can do.
    fn capabilities(&self) -> Capabilities;

    /// The store's clock, which decides what is due and which lease has expired.
    async fn now(&self) -> Result<Timestamp>;

    /// Creates or upgrades the store's tables or keys.
    ///
    /// - Repeating it changes nothing, also when several nodes do it at once.
    /// - A store written by a newer version is refused, naming both versions.
    async fn migrate(&self) -> Result<()>;

    /// Whether [`Self::migrate`] would change nothing. Writes nothing.
    ///
    /// - A store that was never set up is `NotFound`; one of another version is `Conflict`.
    async fn check(&self) -> Result<()>;

    /// The secret of this store, the same for all its users: servers prove with it the claims that any server of the
    /// store handed out. `offered` is random.
    ///
    /// - The first call stores what it offers; every later one answers that.
    /// - Of several first calls at once one wins, and all get the same answer.
    /// - No listing shows it. An emptied store keeps the next offer.
    async fn secret(&self, offered: Secret) -> Result<Secret>;

    /// Hints that something may have become claimable. Correctness never depends on one.
    fn wakeups(&self) -> Wakeups;

    /// A connection for heartbeats alone, to be opened on the runtime that uses it: then neither a handler that blocks
    /// the engine's runtime nor other calls delay heartbeats. If none, the engine sends its heartbeats on this store,
    /// from its own runtime.
    fn heartbeat_line(&self) -> Option<Opening> {
        None
    }

    /// The store as its own type, if its driver's transactions can be used with it: see [`Transaction`].
    fn native(&self) -> Option<&(dyn std::any::Any + Send + Sync)> {
        None
    }

    /// Closes connections and files; later calls fail as `Unavailable`.
    async fn close(&self) -> Result<()>;
}
