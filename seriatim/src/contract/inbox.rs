//! The inbox: a table into which any SQL session inserts tasks, in its own transaction.

use async_trait::async_trait;
use serde::{Deserialize, Serialize};

use super::producer::Pushed;
use crate::model::{Error, ErrorKind, Job, JobId, Result, Timestamp};

/// The name under which a store rings for its inbox. No queue has it.
pub const INBOX_BELL: &str = "@inbox";

/// The inbox of a store in an SQL database: see [`Capabilities::inbox`](super::Capabilities::inbox).
///
/// Its rows are pushed in the order of their numbers, by one caller at a time. A store without an inbox leaves the
/// methods as they are.
#[async_trait]
pub trait Inbox: Send + Sync {
    /// Pushes the oldest rows of the inbox and deletes them, in one atomic step.
    ///
    /// - A row is pushed as [`Producer::push`](super::Producer::push) would, in the order of the rows.
    /// - A row that cannot be pushed is refused: it stays, with the reason, and those behind it are pushed. The store keeps
    ///   [`INBOX_REFUSED_MAX`](crate::limits::INBOX_REFUSED_MAX) of them, the latest.
    /// - A row whose key is [throttled](crate::Queue::throttle) is refused too, if its queue refuses such pushes.
    /// - Rows with an action are returned, not carried out: the caller carries them out and names them in its next
    ///   call. Rows behind them are not pushed before that.
    /// - If another caller is draining, only the results in `ended` are noted, and `more` is false; or this call waits.
    /// - With `rows_max` 0 nothing happens; `more` says whether rows wait.
    async fn drain_inbox(&self, request: DrainInbox) -> Result<Drained> {
        let _ = request;
        Err(no_inbox())
    }

    /// The oldest waiting row, and the refused rows, latest first.
    async fn inbox(&self) -> Result<InboxView> {
        Err(no_inbox())
    }
}

fn no_inbox() -> Error {
    Error::new(ErrorKind::Unsupported, "only stores in an SQL database have an inbox")
}

/// See [`Inbox::drain_inbox`].
#[derive(Clone, Debug, Default)]
pub struct DrainInbox {
    /// The time; the store's clock if unset.
    pub now: Option<Timestamp>,
    /// Most rows to push; at most [`INBOX_ROWS_MAX`](crate::limits::INBOX_ROWS_MAX).
    pub rows_max: usize,
    /// The results of the actions of the last call: their rows are deleted or refused first.
    pub ended: Vec<EndedDeed>,
}

/// An action that was carried out, or could not be.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct EndedDeed {
    /// Its row.
    pub row: i64,
    /// Why it was not carried out.
    pub refused: Option<String>,
}

/// What happened to rows of the inbox.
#[derive(Clone, Debug, Default)]
pub struct Drained {
    /// The jobs that were pushed, in order.
    pub jobs: Vec<Job>,
    /// The result for each of them.
    pub pushed: Vec<Pushed>,
    /// The rows that were refused.
    pub refused: Vec<RefusedRow>,
    /// The actions of other rows, which the caller must carry out in order.
    pub deeds: Vec<InboxDeed>,
    /// Whether rows are left as far as the store knows: call again. Others may appear at any time.
    pub more: bool,
}

/// A row with an action other than a push.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct InboxDeed {
    /// The row.
    pub row: i64,
    /// The job that it concerns.
    pub job: JobId,
    /// What to do.
    pub ask: InboxAsk,
}

/// The action of a row of the inbox.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum InboxAsk {
    /// Cancel the job.
    Cancel,
    /// Bind the waiting job to this node, or to none.
    Reassign(Option<String>),
}

/// A row of the inbox that was refused.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct RefusedRow {
    /// Its number: the column `id`.
    pub row: i64,
    /// Its queue, as written.
    pub queue: Option<String>,
    /// Its key, as written.
    pub key: Option<String>,
    /// Why.
    pub why: String,
    /// When.
    pub at: Timestamp,
}

/// What is in the inbox.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct InboxView {
    /// When the oldest waiting row was inserted.
    pub waits_since: Option<Timestamp>,
    /// The latest rows that were refused, at most [`PAGE_ROWS_MAX`](crate::limits::PAGE_ROWS_MAX).
    pub refused: Vec<RefusedRow>,
}
