//! A store whose payloads are written in their stored form, and read from it.

use std::sync::Arc;

use seriatim::store::*;
use seriatim::{JobId, Result, SharedStore};

use super::form::Forms;

pub(super) struct Formed {
    inner: SharedStore,
    forms: Arc<Forms>,
}

impl Formed {
    pub(super) fn new(inner: SharedStore, forms: Arc<Forms>) -> Self {
        Self { inner, forms }
    }

    fn turns<'a>(&self, turns: impl Iterator<Item = &'a mut Turn>) {
        let jobs = turns.flat_map(|turn| &mut turn.jobs);
        jobs.for_each(|job| self.forms.open(&mut job.payload));
    }

    /// For people: what cannot be read is shown as it is stored.
    fn seen(&self, job: &mut JobView) {
        if job.lacks_payload() {
            return;
        }
        if let Ok(Some(plain)) = self.forms.read(&job.payload) {
            job.payload_bytes = plain.as_bytes().len();
            job.payload = plain;
        }
    }
}

impl Wrapper for Formed {
    fn inner(&self) -> &SharedStore {
        &self.inner
    }

    async fn push(&self, mut request: Push) -> Result<Vec<Pushed>> {
        for (place, job) in request.jobs.iter_mut().enumerate() {
            self.forms.write(job).map_err(|error| error.in_field(format!("jobs[{place}]")))?;
        }
        self.inner.push(request).await
    }

    async fn open_batch(&self, mut request: OpenBatch) -> Result<BatchView> {
        self.forms.write(&mut request.callback).map_err(|error| error.in_field("callback"))?;
        self.inner.open_batch(request).await
    }

    async fn claim(&self, request: Claim) -> Result<Claimed> {
        let mut claimed = self.inner.claim(request).await?;
        self.turns(claimed.turns.iter_mut());
        Ok(claimed)
    }

    async fn settle(&self, request: Settle) -> Result<Vec<Settled>> {
        let mut settled = self.inner.settle(request).await?;
        let next = settled.iter_mut().filter_map(|settled| match settled {
            Settled::Ok { next, .. } => next.as_deref_mut(),
            _ => None,
        });
        self.turns(next);
        Ok(settled)
    }

    async fn turn(&self, lane: LaneId, token: Token) -> Result<Option<Turn>> {
        let mut turn = self.inner.turn(lane, token).await?;
        self.turns(turn.iter_mut());
        Ok(turn)
    }

    async fn jobs(&self, query: JobQuery) -> Result<Page<JobView>> {
        let mut page = self.inner.jobs(query).await?;
        page.rows.iter_mut().for_each(|job| self.seen(job));
        Ok(page)
    }

    async fn job(&self, id: JobId) -> Result<Option<JobView>> {
        let mut job = self.inner.job(id).await?;
        job.iter_mut().for_each(|job| self.seen(job));
        Ok(job)
    }
}
