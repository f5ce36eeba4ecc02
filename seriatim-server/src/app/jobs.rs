//! What is done to one job.

use seriatim::store::{Amend, Change, JobState, JobView, LaneState, Selected, Selection};
use seriatim::{JobId, Store};

use super::find;
use crate::base::text::one_line;
use crate::cli::output::Failure;

/// The state as people read it: of a claimed job nobody but its node knows whether it has started.
pub(crate) fn state_name(state: JobState) -> &'static str {
    match state {
        JobState::Queued => "queued",
        JobState::Running => "claimed",
        JobState::Succeeded => "succeeded",
        JobState::Dead => "dead",
        JobState::Canceled => "canceled",
    }
}

/// Changes a waiting job; answers what it is then.
pub(crate) async fn amended(
    store: &dyn Store,
    id: JobId,
    change: Change,
) -> Result<JobView, Failure> {
    waiting(&find::job(store, id).await?)?;
    store.amend(Amend { now: None, job: id, change }).await?;
    find::job(store, id).await
}

/// Refuses a job that does not wait.
pub(crate) fn waiting(job: &JobView) -> Result<(), Failure> {
    let what = match job.state {
        JobState::Queued => return Ok(()),
        JobState::Running => "cancel it, or wait for the end of its turn".to_owned(),
        JobState::Dead => {
            format!("`seriatim morgue {} requeue {}` sends it back", job.queue, job.id)
        }
        JobState::Succeeded | JobState::Canceled => "push it again".to_owned(),
    };
    Err(Failure::conflict(format!(
        "job {} does not wait, it is {}: {what}",
        job.id,
        state_name(job.state)
    )))
}

/// Makes a waiting job due now, sends a dead one back; answers what it is then.
pub(crate) async fn retried(store: &dyn Store, id: JobId) -> Result<JobView, Failure> {
    let job = find::job(store, id).await?;
    if job.state == JobState::Dead {
        let which = Selection::Jobs(vec![id]);
        store.requeue(Selected { now: None, queue: job.queue.clone(), which }).await?;
        return find::job(store, id).await;
    }
    waiting(&job)?;
    stands_still(store, &job).await?;
    amended(store, id, Change::RunAt(store.now().await?)).await
}

/// Refuses a job whose lane is held or paused: another time would not make it run.
async fn stands_still(store: &dyn Store, job: &JobView) -> Result<(), Failure> {
    let Some(key) = job.key.as_deref() else { return Ok(()) };
    let (what, action) = match find::lane(store, &job.queue, key).await?.state {
        LaneState::Held => ("held", "retry"),
        LaneState::Paused => ("paused", "resume"),
        LaneState::Waiting | LaneState::Claimed => return Ok(()),
    };
    let (queue, key) = (&job.queue, one_line(key));
    Err(Failure::conflict(format!(
        "the lane of {key:?} is {what}: `seriatim lanes {queue} {action} {key}` lets it go on"
    )))
}

/// Deletes a waiting or a dead job.
pub(crate) async fn deleted(store: &dyn Store, job: &JobView) -> Result<(), Failure> {
    if job.state == JobState::Dead {
        let which = Selection::Jobs(vec![job.id]);
        store.delete_dead(Selected { now: None, queue: job.queue.clone(), which }).await?;
    } else {
        waiting(job)?;
        store.amend(Amend { now: None, job: job.id, change: Change::Delete }).await?;
    }
    Ok(())
}
