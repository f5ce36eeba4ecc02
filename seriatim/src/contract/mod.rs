//! The contract between the engine and the stores.
//!
//! A [`Store`] has several roles. Each role is a trait in a file of its own, with the requests and answers of its
//! methods. Every method works on a batch, is atomic (all or nothing), and takes an explicit `now`; if unset, the
//! store's clock counts. Each method documents its behaviour as a list, and each line of these lists is a case of the
//! conformance suite.

pub(crate) mod actions;
pub(crate) mod batches;
pub(crate) mod capabilities;
pub(crate) mod consumer;
pub(crate) mod definition;
pub(crate) mod deletion;
pub(crate) mod errors;
pub(crate) mod fleet;
pub(crate) mod inbox;
pub(crate) mod job_query;
pub(crate) mod job_view;
pub(crate) mod lane_query;
mod lane_view;
pub(crate) mod notebook;
pub(crate) mod origin;
pub(crate) mod periodic;
pub(crate) mod producer;
pub(crate) mod queues;
pub(crate) mod release;
#[cfg(feature = "cron")]
pub(crate) mod schedules;
pub(crate) mod transaction;
pub(crate) mod trouble;
pub(crate) mod views;
mod vitals;
pub(crate) mod wake;
mod wrapper;

use std::future::Future;
use std::sync::Arc;

use async_trait::async_trait;

pub use actions::*;
pub use batches::{BatchQuery, BatchView, Batches, OpenBatch, SealBatch};
pub use capabilities::*;
pub use consumer::*;
pub use definition::{Declaration, Undeclared, declare_each};
pub use deletion::{Deleted, delete_queue};
pub use fleet::*;
pub use inbox::*;
pub use job_query::*;
pub use job_view::*;
pub use lane_query::*;
pub use lane_view::*;
pub use notebook::*;
pub use origin::Origin;
pub use periodic::{PeriodicState, PeriodicView};
pub use producer::*;
pub use queues::*;
pub use release::release_claims;
#[cfg(feature = "cron")]
pub use schedules::{
    Schedule, ScheduleDefinition, SchedulePause, ScheduleTick, pause_schedule, resume_schedule,
    run_schedule, schedule, schedule_of, schedules,
};
pub use transaction::Transaction;
pub use trouble::{Trouble, TroubleKind};
pub use views::*;
pub use vitals::Vitals;
pub use wake::{Bell, WAKE_QUEUES_MAX, Wake, Wakeups};
pub use wrapper::Wrapper;

use crate::model::{Result, Timestamp};

/// A store that is being opened.
pub type Opening = std::pin::Pin<Box<dyn Future<Output = Result<SharedStore>> + Send>>;

/// A store, shared by its users.
pub type SharedStore = Arc<dyn Store>;

/// The database of jobs. Each kind of database has one implementation; the engine knows only this trait.
///
/// Its roles are supertraits, so all their methods can be called on a `dyn Store`.
#[async_trait]
pub trait Store:
    Queues + Producer + Batches + Consumer + Fleet + Actions + Views + Notebook + Inbox + 'static
{
    /// What this store can do.
    fn capabilities(&self) -> Capabilities;

    /// The store's clock, which decides what is due and which lease has expired.
    async fn now(&self) -> Result<Timestamp>;

    /// Creates or upgrades the store's tables or keys.
    ///
    /// - Repeating it changes nothing, also when several nodes do it concurrently.
    /// - A store written by a newer version is refused, naming both versions.
    async fn migrate(&self) -> Result<()>;

    /// Whether [`Self::migrate`] would change nothing. Writes nothing.
    ///
    /// - A store that was never set up is `NotFound`; one of another version is `Conflict`.
    async fn check(&self) -> Result<()>;

    /// The secret of this store, the same for all its users. Servers use it to verify claims, and forms of their pages,
    /// that any server of the store handed out. `offered` is random.
    ///
    /// - The first call stores `offered`; every later call returns the stored secret.
    /// - If several first calls run concurrently, one wins, and all get the same answer.
    /// - No listing shows it. An emptied store keeps the next offer.
    async fn secret(&self, offered: Secret) -> Result<Secret>;

    /// Signals that a lane may have become claimable. These are hints; correctness never depends on one.
    fn wakeups(&self) -> Wakeups;

    /// The engine does not claim from a queue although it was woken for it, for example because it has no free slot. A
    /// store that wakes only a few of the waiting nodes wakes others now. A hint too.
    fn pass_on(&self, queue: &str) {
        let _ = queue;
    }

    /// A separate connection for heartbeats, to be opened on the runtime that uses it, so that neither a handler that
    /// blocks the engine's runtime nor other calls delay heartbeats. If `None`, the engine sends its heartbeats
    /// through this store, from its own runtime.
    fn heartbeat_line(&self) -> Option<Opening> {
        None
    }

    /// The store as its concrete type, if it supports its driver's transactions: see [`Transaction`].
    fn native(&self) -> Option<&(dyn std::any::Any + Send + Sync)> {
        None
    }

    /// Closes connections and files; later calls fail as `Unavailable`.
    async fn close(&self) -> Result<()>;
}
