//! The dead jobs of a queue.

use clap::ValueEnum;
use schemars::JsonSchema;
use serde::Deserialize;
use seriatim::store::{
    JobOrder, JobQuery, JobState, JobView, Page, Push, PushStatus, Pushed, Selected, Selection,
    Store,
};
use seriatim::{ErrorKind, Job, JobId, Payload, RunAt, Timestamp};

use super::error::{Error, Result};
use super::find;
use super::job_filters::Filters;

/// The order in which dead jobs are listed.
#[derive(Clone, Copy, Debug, Default, ValueEnum, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
#[schemars(inline)]
pub(crate) enum By {
    #[default]
    #[serde(rename = "updated_at")]
    Time,
    Key,
    Arrival,
}

/// Which of them.
pub(crate) struct Wanted<'a> {
    pub(crate) queue: &'a str,
    pub(crate) by: By,
    pub(crate) filters: Filters<'a>,
    pub(crate) after: Option<&'a str>,
    pub(crate) rows_max: usize,
    pub(crate) payload_bytes_max: Option<usize>,
    pub(crate) scan_max: usize,
}

/// A page of them.
pub(crate) async fn page(store: &dyn Store, wanted: Wanted<'_>) -> Result<Page<JobView>> {
    find::queue(store, wanted.queue).await?;
    let dead = JobQuery {
        order: match wanted.by {
            By::Time => JobOrder::UpdatedAt,
            By::Key => JobOrder::Key,
            By::Arrival => JobOrder::Arrival,
        },
        after: wanted.after.map(str::to_owned),
        rows_max: wanted.rows_max,
        payload_bytes_max: wanted.payload_bytes_max,
        scan_max: Some(wanted.scan_max),
        ..JobQuery::new(wanted.queue, JobState::Dead)
    };
    let query = wanted.filters.of(store, dead).await?;
    Ok(store.jobs(query).await?)
}

/// The dead job of this id.
pub(crate) async fn dead_job(store: &dyn Store, queue: &str, id: JobId) -> Result<JobView> {
    find::queue(store, queue).await?;
    let job = find::job(store, id).await?;
    match job.state == JobState::Dead && &*job.queue == queue {
        true => Ok(job),
        false => Err(Error::NotDead { job: Box::new(job), queue: queue.to_owned() }),
    }
}

/// Pushes a dead job again with another payload, and deletes the dead one.
///
/// It pushes before it deletes, so that a crash loses nothing; the idempotency key lets a repeated edit find the job of an
/// interrupted one.
pub(crate) async fn edit(
    store: &dyn Store,
    queue: &str,
    id: JobId,
    payload: Payload,
) -> Result<Pushed> {
    if find::queue(store, queue).await?.queue.throttle.is_some() {
        let message = format!(
            "queue {queue:?} throttles its keys, so the edited job could get lost: requeue it as it is, or remove the throttle first"
        );
        return Err(seriatim::Error::new(ErrorKind::Conflict, message).into());
    }
    let dead = dead_job(store, queue, id).await?;
    let job = edited(&dead, payload.clone(), store.now().await?);
    let pushed = store.push(Push { now: None, jobs: vec![job] }).await?;
    let unanswered = || seriatim::Error::new(ErrorKind::Corrupt, "the push had no answer");
    let pushed = pushed.first().copied().ok_or_else(unanswered)?;
    if pushed.status == PushStatus::Duplicate {
        let earlier = store.job(pushed.job_id).await?;
        if earlier.is_some_and(|earlier| earlier.payload != payload) {
            let message = format!(
                "an earlier edit of this job pushed job {} with another payload: change that one, or let it run and delete this one",
                pushed.job_id
            );
            return Err(seriatim::Error::new(ErrorKind::Conflict, message).into());
        }
    }
    let which = Selection::Jobs(vec![id]);
    store.delete_dead(Selected { now: None, queue: queue.into(), which }).await?;
    Ok(pushed)
}

/// The job to push: due now, with the score and options of the dead one.
fn edited(dead: &JobView, payload: Payload, now: Timestamp) -> Job {
    let mut job = Job::with_payload(&*dead.queue, payload);
    job.key = dead.key.as_deref().map(str::to_owned);
    job.task = dead.task.as_deref().map(str::to_owned);
    (job.score, job.priority, job.run_at) = (Some(dead.score), dead.priority, RunAt::Now);
    job.options = dead.options.as_deref().cloned().unwrap_or_default();
    // Its batch has counted it as dead, and may have ended.
    job.options.batch = None;
    // Its own would find the dead job; an expiry in the past would end the job immediately.
    job.options.idempotency_key = Some(format!("edit-{}", dead.id));
    job.options.expires_at = job.options.expires_at.filter(|at| *at > now);
    job
}
