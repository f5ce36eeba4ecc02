//! Lanes: one with or without its jobs, and a page of them.

use std::fmt;
use std::sync::Arc;

use schemars::JsonSchema;
use serde::Serialize;
use seriatim::JobId;
use seriatim::store::{JobView, LaneState, LaneView, Page};
use seriatim::store::{LaneId, NodeId, Token};

use super::job::Job;
use super::reported::Reported;
use crate::protocol::made_by::MadeBy;
use crate::protocol::schema::Foreign;
use crate::protocol::value::Time;

/// A lane: the waiting and claimed jobs of a key, or a single job without one.
#[derive(Serialize, JsonSchema)]
pub(crate) struct Lane {
    #[schemars(with = "Foreign<LaneId>")]
    lane: LaneId,
    key: Option<Arc<str>>,
    #[schemars(with = "Foreign<LaneState>")]
    state: LaneState,
    /// When the lane is due; of a claimed one, when it was
    due: Option<Time>,
    /// Until when pushes may delay it, if it waits in a queue with a window
    collects_until: Option<Time>,
    /// Lower runs first
    priority: u16,
    /// Waiting and claimed jobs
    jobs: u64,
    /// Its job, if it has only one
    #[schemars(with = "Option<Foreign<JobId>>")]
    job_id: Option<JobId>,
    /// The task of that job
    task: Option<Arc<str>>,
    /// What made that job: `cron NAME`, `batch ID`, `end of batch ID`, `push by PRODUCER` or `push`
    made_by: Option<String>,
    /// -1 before the first failure
    retry_count: i32,
    /// Claims that expired or were released
    crashes: u32,
    /// The last error
    error: Option<Arc<str>>,
    /// The fencing token of the claim
    #[schemars(with = "Option<Foreign<Token>>")]
    token: Option<Token>,
    /// The node of the claim
    #[schemars(with = "Option<Foreign<NodeId>>")]
    node: Option<NodeId>,
    claimed_at: Option<Time>,
    /// Until when the claim holds, if nothing extends it
    lease_until: Option<Time>,
    #[serde(flatten)]
    reported: Reported,
    /// Absent in listings of one queue
    #[serde(skip_serializing_if = "Option::is_none")]
    queue: Option<Arc<str>>,
    /// Why its jobs wait, or who runs them, in words; absent in listings
    #[serde(skip_serializing_if = "Option::is_none")]
    why: Option<String>,
    /// Claimed jobs; absent in listings
    #[serde(skip_serializing_if = "Option::is_none")]
    claimed: Option<Vec<Job>>,
    /// Waiting jobs; absent in listings
    #[serde(skip_serializing_if = "Option::is_none")]
    waiting: Option<Vec<Job>>,
}

impl From<LaneView> for Lane {
    fn from(lane: LaneView) -> Self {
        Self {
            lane: lane.lane,
            key: lane.key,
            state: lane.state,
            due: lane.due.map(Time),
            collects_until: lane.collects_until.map(Time),
            priority: lane.priority,
            jobs: lane.jobs,
            job_id: lane.only.as_ref().map(|job| job.id),
            made_by: lane.only.as_ref().map(|job| MadeBy::of(job.options.as_deref()).to_string()),
            task: lane.only.and_then(|job| job.task),
            retry_count: lane.retry_count,
            crashes: lane.crashes,
            error: lane.error,
            token: lane.token,
            node: lane.node,
            claimed_at: lane.claimed_at.map(Time),
            lease_until: lane.lease_until.map(Time),
            reported: lane.progress.into(),
            queue: None,
            why: None,
            claimed: None,
            waiting: None,
        }
    }
}

impl Lane {
    pub(crate) fn of_queue(lane: LaneView, queue: Arc<str>) -> Self {
        Self { queue: Some(queue), ..lane.into() }
    }

    pub(crate) fn in_full(
        self,
        why: &impl fmt::Display,
        claimed: Vec<JobView>,
        waiting: Vec<JobView>,
    ) -> Self {
        let jobs = |jobs: Vec<JobView>| Some(jobs.into_iter().map(Job::from).collect());
        let why = Some(why.to_string());
        Self { why, claimed: jobs(claimed), waiting: jobs(waiting), ..self }
    }
}

/// A page of lanes.
#[derive(Serialize, JsonSchema)]
pub(crate) struct Lanes {
    lanes: Vec<Lane>,
    /// The `after` of the next page
    next: Option<String>,
    /// Whether the page ended after reading `scan_max` lanes; the next page continues
    cut: bool,
}

impl From<Page<(Arc<str>, LaneView)>> for Lanes {
    fn from(page: Page<(Arc<str>, LaneView)>) -> Self {
        let lane = |(queue, lane)| Lane::of_queue(lane, queue);
        let lanes = page.rows.into_iter().map(lane).collect();
        Self { lanes, next: page.next, cut: page.cut }
    }
}

impl From<Page<LaneView>> for Lanes {
    fn from(page: Page<LaneView>) -> Self {
        Self {
            lanes: page.rows.into_iter().map(Lane::from).collect(),
            next: page.next,
            cut: page.cut,
        }
    }
}

/// A key in all queues that know it.
#[derive(Serialize, JsonSchema)]
pub(crate) struct Key {
    key: String,
    queues: Vec<KeyInQueue>,
    /// Queues that were not searched, because there are too many
    left_out: usize,
}

/// A key in one queue.
#[derive(Serialize, JsonSchema)]
pub(crate) struct KeyInQueue {
    queue: String,
    /// Why its jobs wait, and the first of them; null if none waits or runs
    lane: Option<Lane>,
    /// The latest jobs that have ended
    ended: Vec<Job>,
}

impl Key {
    pub(crate) fn new(key: String, queues: Vec<KeyInQueue>, left_out: usize) -> Self {
        Self { key, queues, left_out }
    }
}

impl KeyInQueue {
    pub(crate) fn new(queue: String, lane: Option<Lane>, ended: Vec<JobView>) -> Self {
        Self { queue, lane, ended: ended.into_iter().map(Job::from).collect() }
    }
}

/// A key without waiting or claimed jobs.
#[derive(Serialize)]
pub(crate) struct EndedLane<'a> {
    queue: &'a str,
    key: &'a str,
    /// Always null.
    lane: (),
    ended: Vec<Job>,
}

impl<'a> EndedLane<'a> {
    pub(crate) fn new(queue: &'a str, key: &'a str, ended: Vec<JobView>) -> Self {
        Self { queue, key, lane: (), ended: ended.into_iter().map(Job::from).collect() }
    }
}
