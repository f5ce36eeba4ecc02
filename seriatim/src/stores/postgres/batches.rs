//! Batches: opened, sealed and shown. What ends their jobs counts them, in `sql/batches.sql`.

use std::sync::Arc;

use async_trait::async_trait;
use tokio_postgres::Row;

use super::Postgres;
use super::convert::{column, job_id, micros, time};
use super::error;
use super::push::{PushBatch, push_error};
use crate::contract::batches::{no_batch, of_callback, other_callback, too_many_batches};
use crate::contract::{BatchQuery, BatchView, Batches, OpenBatch, Page, SealBatch};
use crate::model::batch::digest_of_callback;
use crate::model::limits::BATCHES_OPEN_MAX;
use crate::model::{BatchCounts, Result, Timestamp};

const OPEN: &str = "SELECT seriatim.open_batch($1, $2, $3, $4, $5, $6)";
const SEAL: &str = "SELECT seriatim.seal_batch($1, $2)";
/// A query of batches with this condition and order.
macro_rules! batches {
    ($which:literal) => {
        concat!(
            "SELECT id, opened_at, sealed, pending, done, dead, cancelled, ended_at, job_queue, job_seq, \
             job_created_at, refused FROM seriatim.job_batch WHERE ",
            $which
        )
    };
}

const SHOW: &str = batches!("id = $1");
const LIST: &str = batches!("(opened_at, id) < ($1, $2) ORDER BY opened_at DESC, id DESC LIMIT $3");
/// An index has those that have not ended: the others may be very many.
const LIST_LIVE: &str = batches!(
    "ended_at IS NULL AND (opened_at, id) < ($1, $2) ORDER BY opened_at DESC, id DESC LIMIT $3"
);

#[async_trait]
impl Batches for Postgres {
    async fn open_batch(&self, request: OpenBatch) -> Result<BatchView> {
        request.validate()?;
        let OpenBatch { id, callback, .. } = &request;
        let jobs = std::slice::from_ref(callback);
        let written = PushBatch::new(None, jobs)?.as_callback(&callback.queue);
        let digest = digest_of_callback(id, callback.payload_digest()).to_vec();
        let payload = callback.payload.as_bytes().to_vec();
        let refused = |e: tokio_postgres::Error| match error::ours(&e) {
            Some(("SR023", _)) => other_callback(id),
            Some(("SR024", _)) => too_many_batches(),
            _ => of_callback(push_error(e, jobs)),
        };
        let most = BATCHES_OPEN_MAX as i64;
        let now = request.now.map(micros);
        self.pool
            .query_or(OPEN, &[&now, &&**id, &written, &payload, &digest, &most], refused)
            .await?;
        self.shown(id).await
    }

    async fn seal_batch(&self, request: SealBatch) -> Result<BatchView> {
        let now = request.now.map(micros);
        self.pool.query(SEAL, &[&now, &&*request.id]).await?;
        self.shown(&request.id).await
    }

    async fn batch(&self, id: Arc<str>) -> Result<Option<BatchView>> {
        let rows = self.pool.query(SHOW, &[&&*id]).await?;
        rows.first().map(view).transpose()
    }

    async fn batches(&self, query: BatchQuery) -> Result<Page<BatchView>> {
        let (opened, id) = query.begin()?;
        let sql = if query.is_live { LIST_LIVE } else { LIST };
        let most = query.most() as i64 + 1;
        let rows = self.pool.query(sql, &[&opened, &id, &most]).await?;
        Ok(query.page(rows.iter().map(view).collect::<Result<_>>()?))
    }
}

impl Postgres {
    async fn shown(&self, id: &Arc<str>) -> Result<BatchView> {
        self.batch(id.clone()).await?.ok_or_else(|| no_batch(id))
    }
}

fn view(row: &Row) -> Result<BatchView> {
    let counts = BatchCounts {
        pending: column(row, "pending")?,
        done: column(row, "done")?,
        dead: column(row, "dead")?,
        cancelled: column(row, "cancelled")?,
    };
    let job: (Option<i64>, Option<i32>, Option<i64>) =
        (column(row, "job_created_at")?, column(row, "job_queue")?, column(row, "job_seq")?);
    let callback = match job {
        (Some(created_at), Some(queue), Some(seq)) => Some(job_id(created_at, queue, seq)),
        _ => None,
    };
    let opened_at = Timestamp::from_micros(column(row, "opened_at")?);
    let id: String = column(row, "id")?;
    Ok(BatchView {
        sealed: column(row, "sealed")?,
        ended_at: time(row, "ended_at")?,
        callback,
        refused: column(row, "refused")?,
        ..BatchView::new(id.into(), opened_at, counts)
    })
}
