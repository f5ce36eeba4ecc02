//! Batches: their counts, their end, and the callback that follows it.

use std::sync::Arc;

use async_trait::async_trait;
use rusqlite::{Row, params};

use super::Sqlite;
use super::row::{Job, Sql, batch_in};
use super::tx::Tx;
use crate::contract::batches::{
    THROTTLED, batch_has_ended, called_back, no_batch, of_callback, other_callback,
    too_many_batches,
};
use crate::contract::{
    BatchQuery, BatchView, Batches, OpenBatch, Page, SealBatch, Swept, validate_job,
};
use crate::model::clock::micros;
use crate::model::limits::{BATCH_KEPT, BATCHES_OPEN_MAX};
use crate::model::{
    BatchCounts, Digest, Error, ErrorKind, HeldJob, JobId, Leave, Queue, Result, Timestamp,
};
use crate::stores::json::json;

const OPEN: &str = "INSERT INTO batch (id, opened, callback, payload, digest)
    VALUES (?1, ?2, ?3, ?4, ?5) ON CONFLICT DO NOTHING";
/// The end of a batch fixes its counts.
const CHANGE: &str = "UPDATE batch SET pending = pending + ?2, done = done + ?3, dead = dead + ?4,
      cancelled = cancelled + ?5
    WHERE id = ?1 AND ended IS NULL RETURNING sealed AND pending <= 0";
const END: &str = "UPDATE batch SET ended = ?2 WHERE id = ?1
    RETURNING done, dead, cancelled, callback, payload, digest";
const REFUSE: &str = "UPDATE batch SET refused = ?2 WHERE id = ?1";
const SHOW: &str =
    "SELECT id, opened, pending, done, dead, cancelled, sealed, ended, job, refused FROM batch";
const LATEST_FIRST: &str = "(opened, id) < (?1, ?2) ORDER BY opened DESC, id DESC LIMIT ?3";

#[async_trait]
impl Batches for Sqlite {
    async fn open_batch(&self, request: OpenBatch) -> Result<BatchView> {
        request.validate()?;
        self.change(move |tx| tx.at(request.now).open_batch(&request)).await
    }

    async fn seal_batch(&self, request: SealBatch) -> Result<BatchView> {
        self.change(move |tx| tx.at(request.now).seal_batch(&request.id)).await
    }

    async fn batch(&self, id: Arc<str>) -> Result<Option<BatchView>> {
        self.look(move |tx| tx.batch(&id)).await
    }

    async fn batches(&self, query: BatchQuery) -> Result<Page<BatchView>> {
        self.look(move |tx| tx.batch_page(&query)).await
    }
}

impl Tx<'_> {
    fn open_batch(&mut self, request: &OpenBatch) -> Result<BatchView> {
        let OpenBatch { id, callback, .. } = request;
        let implied = || Arc::new(Queue::implied(&callback.queue, callback.key.is_some()));
        let queue = self.queue(&callback.queue)?.map_or_else(implied, |row| row.queue);
        validate_job(&queue, callback, 0).map_err(of_callback)?;
        let (job, digest) = (json(&HeldJob::of(callback))?, callback.payload_digest());
        let payload = callback.payload.as_bytes();
        if self.execute(OPEN, params![&**id, self.now, job, payload, digest])? == 0 {
            let sql = "SELECT callback = ?2 AND digest = ?3 FROM batch WHERE id = ?1";
            let is_same = self.first(sql, params![&**id, job, digest], |row| row.get(0))?;
            if is_same != Some(true) {
                return Err(other_callback(id));
            }
        } else {
            let sql = "SELECT count(*) FROM batch WHERE ended IS NULL";
            let open: i64 = self.first(sql, [], |row| row.get(0))?.unwrap_or_default();
            if open as u64 > BATCHES_OPEN_MAX {
                return Err(too_many_batches());
            }
        }
        self.batch(id)?.ok_or_else(|| no_batch(id))
    }

    fn seal_batch(&mut self, id: &Arc<str>) -> Result<BatchView> {
        if self.execute("UPDATE batch SET sealed = 1 WHERE id = ?1", [&**id])? == 0 {
            return Err(no_batch(id));
        }
        self.batches.entry(id.to_string()).or_default();
        self.end_batches()?;
        self.batch(id)?.ok_or_else(|| no_batch(id))
    }

    fn batch(&mut self, id: &Arc<str>) -> Result<Option<BatchView>> {
        self.first(&format!("{SHOW} WHERE id = ?1"), [&**id], view)
    }

    fn batch_page(&mut self, query: &BatchQuery) -> Result<Page<BatchView>> {
        let (opened, id) = query.begin()?;
        // An index has those that have not ended: the others may be very many.
        let open = if query.is_live { "ended IS NULL AND" } else { "" };
        let sql = format!("{SHOW} WHERE {open} {LATEST_FIRST}");
        Ok(query.page(self.rows(&sql, params![opened, id, query.most() as i64 + 1], view)?))
    }

    /// Refuses a batch that takes no jobs.
    pub(super) fn check_batch(&self, id: &str) -> Result<()> {
        if self.batches.contains_key(id) {
            // A job of this push has joined it.
            return Ok(());
        }
        let sql = "SELECT ended IS NOT NULL FROM batch WHERE id = ?1";
        match self.first(sql, [id], |row| row.get(0))? {
            None => Err(no_batch(id)),
            Some(true) => Err(batch_has_ended(id)),
            Some(false) => Ok(()),
        }
    }

    pub(super) fn join_batch(&mut self, id: &str) {
        // Most jobs of a push are of one batch.
        match self.batches.get_mut(id) {
            Some(counts) => counts.join(),
            None => self.counts_of(id).join(),
        }
    }

    /// Counts that a job leaves its batch, if it has one.
    pub(super) fn leave_batch(&mut self, job: &Job, how: Leave) {
        if let Some(id) = job.batch() {
            self.counts_of(&id).leave(how);
        }
    }

    /// How many jobs have left their batches in this operation.
    pub(super) fn left_batches(&self) -> i64 {
        self.batches.values().map(|counts| counts.done + counts.dead + counts.cancelled).sum()
    }

    /// Counts done jobs with these options that leave their batch, if they have one.
    pub(super) fn leave_done(&mut self, options: Option<&str>, jobs: usize) {
        if let Some(id) = options.and_then(batch_in) {
            let counts = self.counts_of(&id);
            (0..jobs).for_each(|_| counts.leave(Leave::Done));
        }
    }

    /// A requeued job is one of the batch's jobs again, if that has not ended. Its id may be another batch's since then.
    pub(super) fn come_back_to_batch(&mut self, job: &mut Job, died_at: i64) -> Result<()> {
        let Some(id) = job.batch() else { return Ok(()) };
        let sql = "SELECT ended IS NULL AND opened <= ?2 FROM batch WHERE id = ?1";
        if self.first(sql, params![id, died_at], |row| row.get(0))? == Some(true) {
            self.counts_of(&id).come_back();
            return Ok(());
        }
        let mut options = job.options().unwrap_or_default();
        Arc::make_mut(&mut options).batch = None;
        job.options = self.write_options.json(&options)?;
        Ok(())
    }

    pub(super) fn counts_of(&mut self, id: &str) -> &mut BatchCounts {
        self.batches.entry(id.to_owned()).or_default()
    }

    /// Stores what an operation has changed of batches: one statement for each. Ends those that it has ended.
    pub(super) fn end_batches(&mut self) -> Result<()> {
        while let Some((id, c)) = self.batches.pop_first() {
            let values = params![id, c.pending, c.done, c.dead, c.cancelled];
            if self.first(CHANGE, values, |row| row.get(0))? == Some(true) {
                self.end_batch(&id)?;
            }
        }
        Ok(())
    }

    fn end_batch(&mut self, id: &str) -> Result<()> {
        let Some(callback) = self.first(END, params![id, self.now], Callback::read)? else {
            return Ok(());
        };
        let job = called_back(&callback.job?, id, callback.counts);
        match self.push_or_undo(std::slice::from_ref(&job))? {
            Ok(pushed) if pushed.iter().any(|pushed| pushed.again_at.is_some()) => {
                self.execute(REFUSE, params![id, THROTTLED])?;
            }
            Ok(pushed) => {
                let job = pushed.first().map(|pushed| pushed.job_id.to_bytes());
                self.execute("UPDATE batch SET job = ?2 WHERE id = ?1", params![id, job])?;
            }
            // The end of the last job must not fail because of it.
            Err(error) if matches!(error.kind(), ErrorKind::Conflict | ErrorKind::Invalid) => {
                self.execute(REFUSE, params![id, error.to_string()])?;
            }
            Err(error) => return Err(error),
        }
        Ok(())
    }

    pub(super) fn sweep_batches(&mut self, rows_max: usize, swept: &mut Swept) -> Result<()> {
        let sql = "DELETE FROM batch WHERE id IN (SELECT id FROM batch WHERE ended <= ?1 LIMIT ?2)";
        let old = self.now.saturating_sub(micros(BATCH_KEPT));
        swept.more |= self.execute(sql, params![old, rows_max as i64])? == rows_max;
        Ok(())
    }
}

fn view(row: &Row<'_>) -> Sql<BatchView> {
    let time = |at: i64| Timestamp::from_micros(at);
    let counts = BatchCounts {
        pending: row.get(2)?,
        done: row.get(3)?,
        dead: row.get(4)?,
        cancelled: row.get(5)?,
    };
    let id: String = row.get(0)?;
    Ok(BatchView {
        sealed: row.get(6)?,
        ended_at: row.get::<_, Option<i64>>(7)?.map(time),
        callback: row.get::<_, Option<[u8; 16]>>(8)?.map(JobId::from_bytes),
        refused: row.get(9)?,
        ..BatchView::new(id.into(), time(row.get(1)?), counts)
    })
}

/// What is pushed at the end of a batch.
struct Callback {
    counts: BatchCounts,
    job: Result<crate::model::Job>,
}

impl Callback {
    fn read(row: &Row<'_>) -> Sql<Self> {
        let (done, dead, cancelled) = (row.get(0)?, row.get(1)?, row.get(2)?);
        let (held, payload): (String, Vec<u8>) = (row.get(3)?, row.get(4)?);
        let digest: Digest = row.get(5)?;
        let job = serde_json::from_str::<HeldJob>(&held).map(|held| held.with(payload));
        let job = job.map(|mut job| {
            job.digest = Some(digest);
            job
        });
        let corrupt = |e| Error::new(ErrorKind::Corrupt, "a callback cannot be read").because(e);
        let counts = BatchCounts { pending: 0, done, dead, cancelled };
        Ok(Self { counts, job: job.map_err(corrupt) })
    }
}
