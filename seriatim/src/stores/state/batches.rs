//! Batches: their counts, their end, and the callback that follows it.

use std::cmp::Reverse;
use std::sync::Arc;

use super::State;
use super::batch_rows::Row;
use crate::contract::batches::{
    THROTTLED, called_back, no_batch, of_callback, other_callback, too_many_batches,
};
use crate::contract::{BatchQuery, BatchView, OpenBatch, Page, PushStatus, validate_job};
use crate::model::limits::{BATCH_KEPT, BATCHES_OPEN_MAX};
use crate::model::{BatchCounts, HeldJob, Job, Queue, Result, Timestamp};

impl State {
    pub(in crate::stores) fn open_batch(
        &mut self,
        now: Timestamp,
        request: &OpenBatch,
    ) -> Result<BatchView> {
        let OpenBatch { id, callback, .. } = request;
        if let Some(row) = self.batches.rows.get(id) {
            let what = |job: &Job| (HeldJob::of(job), job.payload_digest());
            let is_same = what(&row.callback) == what(callback);
            return if is_same { Ok(row.view(id)) } else { Err(other_callback(id)) };
        }
        let implied = || Queue::implied(&callback.queue, callback.key.is_some());
        let queue = self.queue(&callback.queue).map_or_else(|_| implied(), |row| row.queue.clone());
        validate_job(&queue, callback, 0).map_err(of_callback)?;
        let open = self.batches.rows.values().filter(|row| row.ended_at.is_none());
        if open.count() as u64 >= BATCHES_OPEN_MAX {
            return Err(too_many_batches());
        }
        let row = Row {
            opened_at: now,
            sealed: false,
            counts: BatchCounts::default(),
            ended_at: None,
            callback: callback.clone(),
            job: None,
            refused: None,
        };
        let view = row.view(id);
        self.batches.rows.insert(id.clone(), row);
        Ok(view)
    }

    pub(in crate::stores) fn seal_batch(&mut self, id: &Arc<str>) -> Result<()> {
        self.batches.rows.get_mut(id).ok_or_else(|| no_batch(id))?.sealed = true;
        self.batches.touched.insert(id.clone());
        Ok(())
    }

    pub(in crate::stores) fn batch(&self, id: &Arc<str>) -> Option<BatchView> {
        self.batches.rows.get(id).map(|row| row.view(id))
    }

    pub(in crate::stores) fn batch_page(&self, query: &BatchQuery) -> Result<Page<BatchView>> {
        let (opened, id) = query.begin()?;
        let place = |view: &BatchView| (view.opened_at.as_micros(), view.id.clone());
        let all = self.batches.rows.iter().map(|(id, row)| row.view(id));
        let mut rows: Vec<BatchView> = all
            .filter(|view| !query.is_live || view.ended_at.is_none())
            .filter(|view| place(view) < (opened, id.as_str().into()))
            .collect();
        rows.sort_by_key(|view| Reverse(place(view)));
        rows.truncate(query.most() + 1);
        Ok(query.page(rows))
    }

    /// Ends the batches whose last job this step has ended, and pushes their callbacks. Returns the queues of those.
    pub(in crate::stores) fn end_batches(&mut self, now: Timestamp) -> Vec<String> {
        let mut queues = Vec::new();
        for id in std::mem::take(&mut self.batches.touched) {
            let Some(row) = self.batches.rows.get_mut(&id) else { continue };
            if !row.sealed || row.counts.pending > 0 || row.ended_at.is_some() {
                continue;
            }
            row.ended_at = Some(now);
            let job = called_back(&row.callback, &id, row.counts);
            queues.push(job.queue.clone());
            let pushed = self.push(now, vec![job]).map(|pushed| pushed.first().copied());
            let Some(row) = self.batches.rows.get_mut(&id) else { continue };
            match pushed {
                Ok(Some(pushed)) if pushed.again_at.is_some() => {
                    row.refused = Some(THROTTLED.into());
                }
                Ok(pushed) => row.job = pushed.map(|pushed| pushed.job_id),
                Err(error) => row.refused = Some(error.to_string()),
            }
        }
        queues
    }

    pub(super) fn sweep_batches(&mut self, now: Timestamp) {
        self.batches.rows.retain(|_, row| row.ended_at.is_none_or(|at| at + BATCH_KEPT > now));
    }

    /// Counts a pushed job.
    pub(super) fn join_batch(&mut self, batch: Option<&str>, status: PushStatus) {
        if status == PushStatus::Queued {
            self.batches.join(batch);
        }
    }
}
