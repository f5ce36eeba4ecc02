//! Actions on one job.

use seriatim::store::{Amend, Change, JobState, JobView, LaneState, LaneView, Selected, Selection};
use seriatim::{Job, JobId, Mode, Timestamp, store::Store};

use super::error::{Error, Result};
use super::find;
use super::lanes::{self, OneLane};

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

/// When a job of a queue of this mode is due: in `accumulate`, when its lane is. None while a turn hides that.
pub(crate) async fn due_of(
    store: &dyn Store,
    job: &JobView,
    mode: Mode,
) -> Result<Option<Timestamp>> {
    let Some(lane) = job.lane.filter(|_| mode == Mode::Accumulate) else {
        return Ok(Some(job.run_at));
    };
    let lane = lanes::known(store, &job.queue, &OneLane::Lane(lane)).await?;
    // Of a claimed lane it is when the turn was due, which is not for jobs that wait behind it.
    let is_its_own =
        |lane: &LaneView| lane.state != LaneState::Claimed || job.state == JobState::Running;
    Ok(lane.filter(is_its_own).and_then(|lane| lane.due))
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
    let lane = match (&job.key, job.lane) {
        (Some(key), _) => OneLane::Key(key.to_string()),
        (None, Some(lane)) => OneLane::Lane(lane),
        (None, None) => return Ok(()),
    };
    let Some(LaneView { lane, state, .. }) = lanes::known(store, &job.queue, &lane).await? else {
        return Ok(());
    };
    match state {
        LaneState::Waiting | LaneState::Claimed => Ok(()),
        LaneState::Held | LaneState::Paused => {
            let key = job.key.as_deref().map(str::to_owned);
            Err(Error::StandsStill { queue: job.queue.clone(), key, lane, state })
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
