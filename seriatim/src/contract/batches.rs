//! Batches: sets of jobs, over any queues, with a callback after the last has ended.

use std::sync::Arc;

use async_trait::async_trait;
use serde::Serialize;

use super::views::Page;
use crate::model::limits::{BATCHES_OPEN_MAX, NAME_BYTES_MAX, PAGE_ROWS_MAX};
use crate::model::{
    BatchCounts, Cursor, EndedBatch, Error, ErrorKind, Job, JobId, Result, RunAt, Timestamp,
    validate_text,
};

/// The batches of a store: see [`Capabilities::batches`](super::Capabilities::batches). A store without batches keeps
/// the default methods, and refuses jobs that name a batch.
///
/// - A job joins the batch that it names ([`Job::batch`]) when it is pushed. A push that made no job, because it merged
///   or repeats an idempotency key, adds none. Jobs are equal only within their batch, and one that merges with another
///   after a failure no longer counts.
/// - A job of the batch ends when it is done, dead or cancelled. Jobs dropped after their last retry count as dead;
///   jobs that expired or were deleted while they waited count as cancelled.
/// - A dead job that is requeued before the batch ends is one of its jobs again. Deleting it changes no count.
/// - The batch ends when it is sealed and none of its jobs is left. In that same step its callback is pushed, once, with
///   the counts in [`JobOptions::ended_batch`](crate::store::JobOptions::ended_batch). From then on nothing changes the
///   counts, and a push that names the batch is `Conflict`.
/// - So a sealed batch still takes jobs as long as one of its jobs has not ended, for example from that job's handler.
/// - If the store refuses the callback then, for example because its queue is being deleted or its key is throttled, it
///   is not pushed, and the batch has the reason.
/// - A sweep forgets a batch [`BATCH_KEPT`](crate::limits::BATCH_KEPT) after its end, and its id is free again. A dead job
///   that is requeued after the end of its batch belongs to none.
#[async_trait]
pub trait Batches: Send + Sync {
    /// Opens a batch.
    ///
    /// - Repeating it changes nothing; with another callback it is `Conflict`, also after the end.
    /// - More than [`BATCHES_OPEN_MAX`] that have not ended are `Conflict`.
    async fn open_batch(&self, request: OpenBatch) -> Result<BatchView> {
        let _ = request;
        Err(no_batches())
    }

    /// Seals a batch: it ends with the last of its jobs, or now if none is left.
    ///
    /// - Repeating it changes nothing. An unknown batch is `NotFound`.
    async fn seal_batch(&self, request: SealBatch) -> Result<BatchView> {
        let _ = request;
        Err(no_batches())
    }

    /// A batch.
    async fn batch(&self, id: Arc<str>) -> Result<Option<BatchView>> {
        let _ = id;
        Err(no_batches())
    }

    /// A page of the batches, those opened last first.
    async fn batches(&self, query: BatchQuery) -> Result<Page<BatchView>> {
        let _ = query;
        Err(no_batches())
    }
}

/// See [`Batches::open_batch`].
#[derive(Clone, Debug)]
pub struct OpenBatch {
    /// The time; the store's clock if unset.
    pub now: Option<Timestamp>,
    /// Its id, which the caller chooses: 1 to 256 bytes.
    pub id: Arc<str>,
    /// The job to push when the batch ends, due at once.
    pub callback: Job,
}

/// See [`Batches::seal_batch`].
#[derive(Clone, Debug)]
pub struct SealBatch {
    /// The time; the store's clock if unset.
    pub now: Option<Timestamp>,
    /// The batch.
    pub id: Arc<str>,
}

/// See [`Batches::batches`].
#[derive(Clone, Debug)]
pub struct BatchQuery {
    /// Only batches that have not ended.
    pub is_live: bool,
    /// Where to start: the `next` of the previous page.
    pub after: Option<String>,
    /// Most rows.
    pub rows_max: usize,
}

impl Default for BatchQuery {
    fn default() -> Self {
        Self { is_live: false, after: None, rows_max: PAGE_ROWS_MAX }
    }
}

impl BatchQuery {
    /// Most rows of a page.
    pub(crate) fn most(&self) -> usize {
        self.rows_max.clamp(1, PAGE_ROWS_MAX)
    }

    /// Behind which batch the page starts: when that was opened, in microseconds, and its id.
    pub(crate) fn begin(&self) -> Result<(i64, String)> {
        let cursor = Cursor::read(self.after.as_deref())?;
        Ok(cursor.map_or((i64::MAX, String::new()), |cursor| (cursor.number, cursor.place)))
    }

    /// The page of these rows. One more than it may have shows that there are more.
    pub(crate) fn page(&self, mut rows: Vec<BatchView>) -> Page<BatchView> {
        let next = (rows.len() > self.most()).then(|| {
            rows.truncate(self.most());
            rows.last().map(|last| Cursor::behind(last.opened_at.as_micros(), &last.id))
        });
        Page { rows, next: next.flatten(), cut: false }
    }
}

/// A batch.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct BatchView {
    /// Its id.
    pub id: Arc<str>,
    /// When it was opened.
    pub opened_at: Timestamp,
    /// Whether it ends with the last of its jobs.
    pub sealed: bool,
    /// Jobs that have not ended.
    pub pending: u64,
    /// Jobs that succeeded.
    pub done: u64,
    /// Jobs that failed for good: in the morgue, or dropped.
    pub dead: u64,
    /// Jobs that were cancelled or deleted, or had expired.
    pub cancelled: u64,
    /// When it ended.
    pub ended_at: Option<Timestamp>,
    /// The callback's job, since the batch ended.
    pub callback: Option<JobId>,
    /// Why the callback could not be pushed.
    pub refused: Option<String>,
}

impl BatchView {
    pub(crate) fn new(id: Arc<str>, opened_at: Timestamp, counts: BatchCounts) -> Self {
        let count = |count: i64| count.max(0) as u64;
        Self {
            id,
            opened_at,
            sealed: false,
            pending: count(counts.pending),
            done: count(counts.done),
            dead: count(counts.dead),
            cancelled: count(counts.cancelled),
            ended_at: None,
            callback: None,
            refused: None,
        }
    }
}

impl OpenBatch {
    /// Refuses an id or a callback that no batch may have.
    pub(crate) fn validate(&self) -> Result<()> {
        validate_text("id", &self.id, NAME_BYTES_MAX)?;
        let refused = |e: Error| e.in_field("callback");
        self.callback.validate().map_err(refused)?;
        if self.callback.run_at != RunAt::Now {
            return Err(refused(Error::invalid("run_at", "must not be set: it is due at once")));
        }
        if self.callback.past.is_some() {
            let message = "must not be set: a callback is made when its batch ends";
            return Err(refused(Error::invalid("past", message)));
        }
        if self.callback.options.batch.is_some() {
            let message = "must not be set: a callback belongs to no batch";
            return Err(refused(Error::invalid("batch", message)));
        }
        if self.callback.options.idempotency_key.is_some() {
            let message = "must not be set: a batch calls back once anyway";
            return Err(refused(Error::invalid("idempotency_key", message)));
        }
        Ok(())
    }
}

/// The error of a push of the callback alone, as one of its batch.
pub(crate) fn of_callback(error: Error) -> Error {
    let field = error.field().and_then(|field| field.strip_prefix("jobs[0]")).map(str::to_owned);
    match field {
        Some(field) => Error::new(error.kind(), error.message().to_owned())
            .in_field(format!("callback{field}")),
        None => error,
    }
}

/// The callback's job, for a batch that ended with these counts. Nothing equals it, so it merges with no other job.
pub(crate) fn called_back(callback: &Job, id: &str, counts: BatchCounts) -> Job {
    let mut job = callback.clone();
    let count = |count: i64| count.max(0) as u64;
    job.options.ended_batch = Some(EndedBatch {
        id: id.to_owned(),
        done: count(counts.done),
        dead: count(counts.dead),
        cancelled: count(counts.cancelled),
    });
    job
}

/// Why a batch has no callback whose key had a job shortly before.
pub(crate) const THROTTLED: &str = "the key of the callback is throttled: it was not pushed";

/// Refuses jobs of batches, for a store without them.
#[cfg(any(feature = "mysql", feature = "redis"))]
pub(crate) fn refuse_batches(jobs: &[Job]) -> Result<()> {
    let place = jobs.iter().position(|job| job.options.batch.is_some());
    place.map_or(Ok(()), |place| {
        let error = Error::invalid("batch", HAVE_BATCHES);
        Err(error.in_field(format!("jobs[{place}]")))
    })
}

const HAVE_BATCHES: &str = "only stores in memory, SQLite and PostgreSQL have batches";

fn no_batches() -> Error {
    Error::new(ErrorKind::Unsupported, HAVE_BATCHES)
}

pub(crate) fn no_batch(id: &str) -> Error {
    Error::new(ErrorKind::NotFound, format!("there is no batch {id:?}: open it first"))
        .in_field("batch")
}

pub(crate) fn batch_has_ended(id: &str) -> Error {
    let message = format!("batch {id:?} has ended: it was sealed, and its last job has ended");
    Error::new(ErrorKind::Conflict, message).in_field("batch")
}

pub(crate) fn other_callback(id: &str) -> Error {
    let message = format!("batch {id:?} exists with another callback: choose another id");
    Error::new(ErrorKind::Conflict, message).in_field("id")
}

pub(crate) fn too_many_batches() -> Error {
    let message = format!("{BATCHES_OPEN_MAX} batches have not ended, which is the maximum");
    Error::new(ErrorKind::Conflict, message).in_field("id")
}
