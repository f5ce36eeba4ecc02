//! The jobs of a lane, as they are shown with it.

use serde_json::json;
use seriatim::store::{JobOrder, JobQuery, JobState, JobView, LaneView};
use seriatim::{Mode, store::Store};

use super::error::Error;
use super::find;
use crate::protocol::document::{self, Shown};

/// Jobs of a lane that are shown with it.
const JOBS_SHOWN: usize = 100;
/// Ended jobs of a key that are shown.
const ENDED_SHOWN: usize = 10;

/// Those that are claimed and those that wait, in the order in which they are handed over.
pub(crate) async fn of(
    store: &dyn Store,
    queue: &str,
    key: &str,
) -> Result<(Vec<JobView>, Vec<JobView>), Error> {
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

/// Jobs of the key that have ended and are still known, the latest first.
pub(crate) async fn ended(
    store: &dyn Store,
    queue: &str,
    key: &str,
) -> Result<Vec<JobView>, Error> {
    let mut ended = Vec::new();
    for state in [JobState::Dead, JobState::Succeeded, JobState::Canceled] {
        let query = JobQuery {
            queue: queue.into(),
            state,
            key: Some(key.to_owned()),
            order: JobOrder::UpdatedAt,
            after: None,
            rows_max: ENDED_SHOWN,
        };
        ended.extend(store.jobs(query).await?.rows);
    }
    ended.sort_by_key(|job| std::cmp::Reverse(job.finished_at));
    ended.truncate(ENDED_SHOWN);
    Ok(ended)
}

/// A key of which nothing waits and nothing is claimed, as programs read it.
pub(crate) fn document_of_ended<'a>(queue: &str, key: &str, ended: &'a [JobView]) -> Shown<'a> {
    Shown::plain(json!({ "queue": queue, "key": key, "lane": null }))
        .with_list("ended", ended.iter().map(document::job).collect())
}

/// The lane with its jobs.
pub(crate) fn document<'a>(
    queue: &str,
    lane: &'a LaneView,
    claimed: &'a [JobView],
    waiting: &'a [JobView],
) -> Shown<'a> {
    document::lane(lane)
        .with("queue", queue)
        .with_list("claimed", claimed.iter().map(document::job).collect())
        .with_list("waiting", waiting.iter().map(document::job).collect())
}
