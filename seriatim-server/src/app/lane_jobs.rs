//! The jobs of a lane, as they are shown with it.

use seriatim::store::{JobFilter, JobOrder, JobQuery, JobState, JobView};
use seriatim::{Mode, Queue, store::Store};

use super::error::Error;

/// Jobs of a lane that are shown with it.
const JOBS_SHOWN: usize = 100;
/// Ended jobs of a key that are shown.
const ENDED_SHOWN: usize = 10;

/// Those that are claimed and those that wait, in the order in which they are handed over.
pub(crate) async fn of(
    store: &dyn Store,
    queue: &Queue,
    key: &str,
) -> Result<(Vec<JobView>, Vec<JobView>), Error> {
    let live = JobQuery::new(queue.name.as_str(), JobFilter::Live);
    let query = JobQuery { key: Some(key.to_owned()), rows_max: JOBS_SHOWN, ..live };
    let mut jobs = store.jobs(query).await?.rows;
    match queue.mode {
        Mode::Exclusive => jobs.sort_by_key(|job| (job.priority, job.run_at, job.id)),
        _ => jobs.sort_by(|a, b| a.score.total_cmp(&b.score)),
    }
    Ok(jobs.into_iter().partition(|job| job.state == JobState::Running))
}

/// Jobs of the key that have ended and are still known, the latest first.
pub(crate) async fn ended(
    store: &dyn Store,
    queue: &str,
    key: &str,
) -> Result<Vec<JobView>, Error> {
    let mut ended = Vec::new();
    for state in [JobState::Dead, JobState::Succeeded, JobState::Canceled] {
        let query = JobQuery {
            key: Some(key.to_owned()),
            order: JobOrder::UpdatedAt,
            rows_max: ENDED_SHOWN,
            ..JobQuery::new(queue, state)
        };
        ended.extend(store.jobs(query).await?.rows);
    }
    ended.sort_by_key(|job| std::cmp::Reverse(job.finished_at));
    ended.truncate(ENDED_SHOWN);
    Ok(ended)
}
