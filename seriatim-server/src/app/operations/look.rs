//! One look at the jobs or lanes of a queue, and those among them that an operation is about.

use seriatim::store::{
    JobFilter, JobOrder, JobQuery, JobState, JobView, LaneOrder, LaneQuery, LaneStage, LaneView,
    Store,
};
use seriatim::{JobId, Mode, Timestamp, store::LaneId};

use super::action::Action;
use super::wish::{List, Wish};
use crate::app::error::Result;
use crate::protocol::value::Time;

/// What was found among the rows of one page.
pub(super) struct Look {
    pub(super) found: Found,
    /// Rows that were looked at.
    pub(super) rows: u64,
    /// Where the next look begins; none at the end.
    pub(super) next: Option<String>,
}

pub(super) enum Found {
    Jobs(Vec<JobView>),
    Lanes(Vec<LaneView>),
    /// Named one by one, and not read.
    TheseJobs(Vec<JobId>),
    TheseLanes(Vec<LaneId>),
}

impl Found {
    pub(super) fn len(&self) -> usize {
        match self {
            Self::Jobs(jobs) => jobs.len(),
            Self::Lanes(lanes) => lanes.len(),
            Self::TheseJobs(jobs) => jobs.len(),
            Self::TheseLanes(lanes) => lanes.len(),
        }
    }
}

/// Looks at the next rows: at this many behind this place. `dead_by`: the order of dead jobs.
pub(super) async fn look(
    store: &dyn Store,
    (wish, mode): (&Wish, Mode),
    before: Timestamp,
    dead_by: JobOrder,
    (after, rows_max): (Option<String>, usize),
) -> Result<Look> {
    if let Some(List(jobs)) = &wish.jobs {
        return Ok(whole(Found::TheseJobs(jobs.clone())));
    }
    if let Some(List(lanes)) = &wish.lanes {
        return Ok(whole(Found::TheseLanes(lanes.clone())));
    }
    if wish.action.on_lanes().is_some() && !wish.finds_jobs(mode) {
        return lanes(store, wish, before, (after, rows_max)).await;
    }
    let (filter, order) = match wish.action {
        Action::CancelJobs => (JobFilter::Live, JobOrder::Arrival),
        action if action.on_lanes().is_some() => (JobState::Queued.into(), JobOrder::Arrival),
        _ => (JobState::Dead.into(), dead_by),
    };
    let query = JobQuery {
        key: wish.key.clone(),
        order,
        after,
        rows_max,
        payload_bytes_max: Some(0),
        ..JobQuery::new(wish.queue.as_str(), filter)
    };
    let page = store.jobs(query).await?;
    let rows = page.rows.len() as u64;
    let died = page.rows.last().and_then(|job| job.finished_at);
    let is_past = died.zip(wish.since).is_some_and(|(died, Time(since))| died < since);
    // Behind it all died earlier.
    let next = page.next.filter(|_| order != JobOrder::UpdatedAt || !is_past);
    let jobs = page.rows.into_iter().filter(|job| wish.has_job(job, before)).collect();
    Ok(Look { found: Found::Jobs(jobs), rows, next })
}

async fn lanes(
    store: &dyn Store,
    wish: &Wish,
    before: Timestamp,
    (after, rows_max): (Option<String>, usize),
) -> Result<Look> {
    let order = match (&wish.prefix, wish.action) {
        (_, Action::Bury | Action::DeleteFailed) => LaneOrder::RetryCount,
        (Some(_), _) => LaneOrder::Key,
        (None, _) => LaneOrder::Age,
    };
    let now = store.now().await?;
    let meant = LaneQuery { now: Some(now), order, ..wish.lane_query(before)? };
    // Stores have no index of the other states, or of other filters in these orders: in one call they would pass by
    // all lanes that do not fit. These are read and left out here, so that a step stays small. In the order of due times
    // a lane that fails meanwhile would come twice.
    let stands = [LaneStage::Held, LaneStage::Paused];
    let has_index = meant.stages == [LaneStage::Running]
        || meant.stages.iter().all(|stage| stands.contains(stage));
    let query = LaneQuery {
        prefix: meant.prefix.clone().filter(|_| order == LaneOrder::Key),
        stages: meant.stages.iter().copied().filter(|_| has_index).collect(),
        due_from: None,
        due_to: None,
        retries_min: None,
        after,
        rows_max,
        ..meant.clone()
    };
    let page = store.lanes(query).await?;
    let rows = page.rows.len() as u64;
    let fits = |lane: &LaneView| {
        meant.shows(lane, now) && wish.has(lane.key.as_deref(), lane.error.as_deref())
    };
    let found = page.rows.into_iter().filter(fits).collect();
    Ok(Look { found: Found::Lanes(found), rows, next: page.next })
}

fn whole(found: Found) -> Look {
    Look { rows: found.len() as u64, found, next: None }
}
