//! A store whose payloads are written in their stored form, and read from it.

use std::sync::Arc;

use seriatim::limits::PAGE_BYTES_MAX;
use seriatim::store::*;
use seriatim::{JobId, Payload, Result, SharedStore};

use super::form::{EXCESS_BYTES_MAX, Forms};

pub(super) struct Formed {
    inner: SharedStore,
    forms: Arc<Forms>,
}

impl Formed {
    pub(super) fn new(inner: SharedStore, forms: Arc<Forms>) -> Self {
        Self { inner, forms }
    }

    fn turns<'a>(&self, turns: impl Iterator<Item = &'a mut Turn>) {
        let (jobs, mut excess) = (turns.flat_map(|turn| &mut turn.jobs), EXCESS_BYTES_MAX);
        jobs.for_each(|job| self.forms.open(&mut job.payload, &mut excess));
    }

    /// For people: what cannot be read is shown as it is stored. Longer payloads than `bytes_max` are left out.
    fn seen(&self, job: &mut JobView, bytes_max: usize) {
        if job.lacks_payload() {
            return;
        }
        if let Ok(Some(plain)) = self.forms.read(&job.payload) {
            job.payload_bytes = plain.as_bytes().len();
            job.payload = if job.payload_bytes <= bytes_max {
                plain
            } else {
                Payload::from_bytes(Vec::new())
            };
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

    async fn jobs(&self, mut query: JobQuery) -> Result<Page<JobView>> {
        let bytes_max = query.payload_bytes_max.unwrap_or(usize::MAX);
        loop {
            let mut page = self.inner.jobs(query.clone()).await?;
            let (mut rows, mut bytes) = (0, 0);
            for job in &mut page.rows {
                if bytes >= PAGE_BYTES_MAX {
                    break;
                }
                self.seen(job, bytes_max);
                (rows, bytes) = (rows + 1, bytes + job.payload.as_bytes().len());
            }
            if rows == page.rows.len() {
                return Ok(page);
            }
            // The store ends a page by stored forms, of which eight times more may fit in, and more of those that others wrote.
            query.rows_max = rows;
        }
    }

    async fn job(&self, id: JobId) -> Result<Option<JobView>> {
        let mut job = self.inner.job(id).await?;
        job.iter_mut().for_each(|job| self.seen(job, usize::MAX));
        Ok(job)
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use seriatim::Job;

    use super::super::keys::Keys;
    use super::*;
    use crate::config::PayloadsConfig;

    #[tokio::test]
    async fn a_page_of_compressed_payloads_is_no_larger_than_one_of_others() {
        let compress = BTreeSet::from(["q".to_owned()]);
        let config = PayloadsConfig { compress, ..PayloadsConfig::default() };
        let forms = Arc::new(Forms::new(&config, Ok(Keys::default())));
        let store: SharedStore = Arc::new(Formed::new(Arc::new(Memory::new()), forms));
        let text = format!("\"{}\"", "x".repeat(1 << 20));
        let job = |_| Job::with_payload("q", Payload::from_json_text(&text).unwrap());
        store.push(Push { now: None, jobs: (0..6).map(job).collect() }).await.unwrap();
        let (mut query, mut pages) = (JobQuery::new("q", JobFilter::Live), Vec::new());
        loop {
            let page = store.jobs(query.clone()).await.unwrap();
            assert!(page.rows.iter().all(|job| job.payload.as_bytes() == text.as_bytes()));
            pages.push(page.rows.len());
            query.after = page.next;
            if query.after.is_none() {
                break;
            }
        }
        assert_eq!(pages, [4, 2]);
        // More than a stored form has, and less than its payload.
        let short = JobQuery { payload_bytes_max: Some(256 << 10), ..query };
        let rows = store.jobs(short).await.unwrap().rows;
        let is_told = |job: &JobView| job.lacks_payload() && job.payload_bytes == text.len();
        assert!(rows.len() == 6 && rows.iter().all(is_told));
    }
}
