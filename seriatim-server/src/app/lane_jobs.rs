//! The jobs of a lane, as they are shown with it.

use seriatim::store::{JobOrder, JobQuery, JobState, JobView, Store};

use super::error::Result;

/// Jobs of a lane that programs get with it.
pub(super) const JOBS_SHOWN: usize = 100;
/// Ended jobs of a key that are shown.
pub(crate) const ENDED_SHOWN: usize = 10;

/// States in which jobs have ended.
pub(crate) const ENDED: [JobState; 3] = [JobState::Dead, JobState::Succeeded, JobState::Canceled];

/// Those that are claimed, and a page of those that wait: in the order in which they are handed over.
#[derive(Default)]
pub(crate) struct LaneJobs {
    pub(crate) claimed: Vec<JobView>,
    pub(crate) waiting: Vec<JobView>,
    /// Where the next page of the waiting ones starts.
    pub(crate) next: Option<String>,
}

/// The claimed and waiting jobs of a key, from a cursor on, up to a limit for each; none is claimed if its lane is not.
/// Longer payloads are left out.
pub(crate) async fn of(
    store: &dyn Store,
    queue: &str,
    key: &str,
    is_claimed: bool,
    after: Option<String>,
    rows_max: usize,
    payload_bytes_max: Option<usize>,
) -> Result<LaneJobs> {
    let in_state = |state| JobQuery {
        key: Some(key.to_owned()),
        order: JobOrder::Turn,
        rows_max,
        payload_bytes_max,
        ..JobQuery::new(queue, state)
    };
    let claimed = match is_claimed {
        true => store.jobs(in_state(JobState::Running)).await?.rows,
        false => Vec::new(),
    };
    let waiting = store.jobs(JobQuery { after, ..in_state(JobState::Queued) }).await?;
    Ok(LaneJobs { claimed, waiting: waiting.rows, next: waiting.next })
}

/// Jobs of the key that ended in these states and are still known, the latest first.
pub(crate) async fn ended(
    store: &dyn Store,
    queue: &str,
    key: &str,
    states: &[JobState],
    payload_bytes_max: Option<usize>,
) -> Result<Vec<JobView>> {
    let mut ended = Vec::new();
    for &state in states {
        let query = JobQuery {
            key: Some(key.to_owned()),
            order: JobOrder::UpdatedAt,
            rows_max: ENDED_SHOWN,
            payload_bytes_max,
            ..JobQuery::new(queue, state)
        };
        ended.extend(store.jobs(query).await?.rows);
    }
    ended.sort_by_key(|job| std::cmp::Reverse(job.finished_at));
    ended.truncate(ENDED_SHOWN);
    Ok(ended)
}
