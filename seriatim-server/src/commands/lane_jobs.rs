//! The jobs of a lane, as they are shown with it.

use seriatim::store::{JobOrder, JobQuery, JobState, JobView, LaneView};
use seriatim::{Mode, Store};

use super::find;
use crate::output::Failure;
use crate::output::document::{self, Shown};

/// Jobs of a lane that are shown with it.
const JOBS_SHOWN: usize = 100;

/// Those that run and those that wait, in the order in which they are handed over.
pub(crate) async fn of(
    store: &dyn Store,
    queue: &str,
    key: &str,
) -> Result<(Vec<JobView>, Vec<JobView>), Failure> {
    let query = JobQuery {
        queue: queue.into(),
        state: JobState::Queued,
        key: Some(key.to_owned()),
        order: JobOrder::Arrival,
        after: None,
        rows_max: JOBS_SHOWN,
    };
    let mut jobs = store.jobs(query).await?.rows;
    match find::queue(store, queue).await?.queue.mode {
        Mode::Exclusive => jobs.sort_by_key(|job| (job.priority, job.run_at, job.id)),
        _ => jobs.sort_by(|a, b| a.score.total_cmp(&b.score)),
    }
    Ok(jobs.into_iter().partition(|job| job.state == JobState::Running))
}

/// The lane with its jobs.
pub(crate) fn document<'a>(
    queue: &str,
    lane: &'a LaneView,
    running: &'a [JobView],
    waiting: &'a [JobView],
) -> Shown<'a> {
    document::lane(lane)
        .with("queue", queue)
        .with_list("running", running.iter().map(document::job).collect())
        .with_list("waiting", waiting.iter().map(document::job).collect())
}
