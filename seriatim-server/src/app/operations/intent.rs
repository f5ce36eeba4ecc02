//! What a step is about to do to jobs, written down before it. If its process is killed between the deed and its
//! record, or the store goes away, who goes on counts what was done. Without it the deed would be done, and never
//! counted. Actions on lanes write none: afterwards nothing tells a lane that they changed from another one.

use std::num::ParseIntError;

use seriatim::store::{JobState, JobView, Note, Store};
use seriatim::{JobId, Timestamp};

use super::action::Action;
use super::operation::{Record, range};
use super::wish::Wish;
use crate::app::error::Result;
use crate::protocol::value::Time;

pub(super) const PREFIX: &str = "operation-step/";
/// Jobs of one note.
const IDS_OF_NOTE: usize = 300;

/// The notes of one step.
pub(super) struct Intent {
    id: String,
    step: u64,
    notes: usize,
}

impl Intent {
    /// Of the next step. Notes of the step before have another number, and are written over.
    pub(super) fn of(record: &Record) -> Self {
        Self { id: record.operation.id.clone(), step: record.steps, notes: 0 }
    }

    /// Writes down the jobs to which it is done next.
    pub(super) async fn write(&mut self, store: &dyn Store, jobs: &[JobId]) -> Result<()> {
        let parts = jobs.chunks(IDS_OF_NOTE).zip(self.notes..);
        let note = |(part, at): (&[JobId], usize)| {
            let ids: Vec<String> = part.iter().map(JobId::to_string).collect();
            let value = format!("{} {}", self.step, ids.join(","));
            Note::new(format!("{PREFIX}{}/{at}", self.id), value)
        };
        let notes: Vec<Note> = parts.map(note).collect();
        self.notes += notes.len();
        Ok(store.write_notes(notes).await?)
    }
}

/// To how many the last step was done that was not written down.
pub(super) async fn done_unwritten(store: &dyn Store, record: &Record) -> Result<u64> {
    let wish = &record.operation.what;
    let before = wish.before.map_or(Timestamp::MAX, |Time(before)| before);
    let mut count = 0;
    for note in store.read_notes(range(PREFIX, &record.operation.id)).await? {
        let Ok((step, ids)) = read(&note) else { continue };
        if step != record.steps {
            continue;
        }
        for id in ids {
            count += u64::from(is_done(wish, before, store.job(id).await?.as_ref()));
        }
    }
    Ok(count)
}

fn read(note: &Note) -> Result<(u64, Vec<JobId>), ParseIntError> {
    let text = String::from_utf8_lossy(&note.value);
    let (step, ids) = text.split_once(' ').unwrap_or_default();
    Ok((step.parse()?, ids.split(',').filter_map(|id| id.parse().ok()).collect()))
}

/// Whether it was done to this job: it is no more what the step found.
fn is_done(wish: &Wish, before: Timestamp, job: Option<&JobView>) -> bool {
    match (wish.action, job) {
        // Its queue may keep none that were cancelled.
        (Action::CancelJobs, job) => {
            job.is_none_or(|job| job.state == JobState::Canceled || job.cancel_requested)
        }
        // Sent back it may have died again.
        (Action::Requeue, Some(job)) => {
            job.state != JobState::Dead || job.finished_at.is_none_or(|at| at >= before)
        }
        (_, job) => job.is_none(),
    }
}
