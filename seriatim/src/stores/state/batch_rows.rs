//! The batches that the model knows, and their counts.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use super::lane::Entry;
use crate::contract::BatchView;
use crate::contract::batches::{batch_has_ended, no_batch};
use crate::model::{BatchCounts, Job, JobId, JobOptions, Leave, Result, Timestamp};

#[derive(Default)]
pub(in crate::stores) struct Batches {
    pub(super) rows: BTreeMap<Arc<str>, Row>,
    /// Those that may have ended in this step.
    pub(super) touched: BTreeSet<Arc<str>>,
}

pub(super) struct Row {
    pub opened_at: Timestamp,
    pub sealed: bool,
    pub counts: BatchCounts,
    pub ended_at: Option<Timestamp>,
    pub callback: Job,
    pub job: Option<JobId>,
    pub refused: Option<String>,
}

impl Row {
    pub(super) fn view(&self, id: &Arc<str>) -> BatchView {
        BatchView {
            sealed: self.sealed,
            ended_at: self.ended_at,
            callback: self.job,
            refused: self.refused.clone(),
            ..BatchView::new(id.clone(), self.opened_at, self.counts)
        }
    }
}

impl Batches {
    /// Refuses a batch that takes no jobs.
    pub(super) fn check(&self, id: &str) -> Result<()> {
        match self.rows.get(id) {
            None => Err(no_batch(id)),
            Some(row) if row.ended_at.is_some() => Err(batch_has_ended(id)),
            Some(_) => Ok(()),
        }
    }

    pub(super) fn join(&mut self, batch: Option<&str>) {
        self.change(batch, BatchCounts::join);
    }

    pub(super) fn leave(&mut self, job: &Entry, how: Leave) {
        self.change(batch_of(job), |counts| counts.leave(how));
    }

    /// A requeued job is one of the batch's jobs again, if that has not ended. Its id may be another batch's since then.
    pub(super) fn come_back(&mut self, job: &mut Entry, died_at: Timestamp) {
        let is_open = |row: &Row| row.ended_at.is_none() && row.opened_at <= died_at;
        let batch = batch_of(job);
        if batch.and_then(|id| self.rows.get(id)).is_some_and(is_open) {
            self.change(batch, BatchCounts::come_back);
        } else if let Some(options) = job.options.as_mut().filter(|o| o.batch.is_some()) {
            Arc::make_mut(options).batch = None;
            job.options = job.options.take().filter(|o| **o != JobOptions::default());
        }
    }

    /// The end of a batch fixes its counts.
    fn change(&mut self, batch: Option<&str>, change: impl FnOnce(&mut BatchCounts)) {
        let Some(id) = batch else { return };
        if let Some(row) = self.rows.get_mut(id).filter(|row| row.ended_at.is_none()) {
            change(&mut row.counts);
            self.touched.insert(id.into());
        }
    }
}

fn batch_of(job: &Entry) -> Option<&str> {
    job.options.as_deref()?.batch.as_deref()
}
