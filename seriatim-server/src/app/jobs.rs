//! Actions on one job.

use seriatim::store::{Amend, Change, JobState, JobView, LaneState, Selected, Selection};
use seriatim::{Job, JobId, Timestamp, store::Store};

use super::error::{Error, Result};
use super::find;

/// Refuses a time that no store holds exactly.
fn check_due(at: Timestamp) -> Result<()> {
    match (Timestamp::default()..=Timestamp::MAX).contains(&at) {
        true => Ok(()),
        false => {
            let why = "must be between 1970 and 2255".to_owned();
            Err(Error::Bound { field: "run_at", why })
        }
    }
}

/// Changes a waiting job; answers what it is then.
pub(crate) async fn amended(store: &dyn Store, id: JobId, change: Change) -> Result<JobView> {
    let job = find::job(store, id).await?;
    waiting(&job)?;
    match &change {
        Change::RunAt(at) => check_due(*at)?,
        Change::Node(Some(node)) => {
            // As a push would.
            let mut bound = Job::new(&*job.queue, &())?;
            bound.options.node = Some(node.clone());
            bound.validate()?;
        }
        _ => {}
    }
    changed(store, id, change).await
}

async fn changed(store: &dyn Store, id: JobId, change: Change) -> Result<JobView> {
    store.amend(Amend { now: None, job: id, change }).await?;
    find::job(store, id).await
}

/// Refuses a job that does not wait.
pub(crate) fn waiting(job: &JobView) -> Result<()> {
    match job.state {
        JobState::Queued => Ok(()),
        state => Err(Error::NotWaiting { job: job.id, queue: job.queue.clone(), state }),
    }
}

/// Makes a waiting job due now, sends a dead one back; answers what it is then.
pub(crate) async fn retried(store: &dyn Store, id: JobId) -> Result<JobView> {
    let job = find::job(store, id).await?;
    if job.state == JobState::Dead {
        let which = Selection::Jobs(vec![id]);
        store.requeue(Selected { now: None, queue: job.queue.clone(), which }).await?;
        return find::job(store, id).await;
    }
    waiting(&job)?;
    stands_still(store, &job).await?;
    changed(store, id, Change::RunAt(store.now().await?)).await
}

/// Refuses a job whose lane is held or paused: another time would not make it run.
async fn stands_still(store: &dyn Store, job: &JobView) -> Result<()> {
    let Some(key) = job.key.as_deref() else { return Ok(()) };
    match find::lane(store, &job.queue, key).await?.state {
        LaneState::Waiting | LaneState::Claimed => Ok(()),
        state @ (LaneState::Held | LaneState::Paused) => {
            Err(Error::StandsStill { queue: job.queue.clone(), key: key.to_owned(), state })
        }
    }
}

/// Deletes a waiting or a dead job.
pub(crate) async fn deleted(store: &dyn Store, job: &JobView) -> Result<()> {
    if job.state == JobState::Dead {
        let which = Selection::Jobs(vec![job.id]);
        store.delete_dead(Selected { now: None, queue: job.queue.clone(), which }).await?;
    } else {
        waiting(job)?;
        store.amend(Amend { now: None, job: job.id, change: Change::Delete }).await?;
    }
    Ok(())
}
