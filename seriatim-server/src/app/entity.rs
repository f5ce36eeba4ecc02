//! A lane with all that is known of it now.

use seriatim::Timestamp;
use seriatim::store::{LaneState, LaneView, QueueView, Store};

use super::error::Result;
use super::lane_jobs::{self, JOBS_SHOWN, LaneJobs};
use super::limits::{self, Usage};
use super::why::{Around, Why};

pub(crate) struct Entity {
    pub(crate) lane: LaneView,
    /// Of a lane without a key none are read: it has one.
    pub(crate) jobs: LaneJobs,
    pub(crate) why: Why,
    pub(crate) now: Timestamp,
}

impl Entity {
    /// Longer payloads are left out.
    pub(crate) async fn read(
        store: &dyn Store,
        queue: &QueueView,
        lane: LaneView,
        payload_bytes_max: Option<usize>,
    ) -> Result<Self> {
        let (nodes, now) = (store.nodes().await?, store.now().await?);
        let around = Around { queue, usage: &limits::UNKNOWN, nodes: &nodes, now };
        Self::from(store, around, lane, (None, JOBS_SHOWN), payload_bytes_max).await
    }

    /// With its waiting jobs from this place on, up to a limit. Reads the usage of the queue.
    pub(super) async fn from(
        store: &dyn Store,
        around: Around<'_>,
        lane: LaneView,
        (after, rows_max): (Option<String>, usize),
        payload_bytes_max: Option<usize>,
    ) -> Result<Self> {
        let (queue, is_first) = (&around.queue.queue, after.is_none());
        let jobs = match &lane.key {
            Some(key) => {
                let is_claimed = lane.state == LaneState::Claimed;
                let name = &queue.name;
                lane_jobs::of(store, name, key, is_claimed, after, rows_max, payload_bytes_max)
                    .await?
            }
            None => LaneJobs::default(),
        };
        let usage = Usage::read(store, queue).await?;
        let head = jobs.claimed.first().or(jobs.waiting.first().filter(|_| is_first));
        let why = Why::of(&lane, head, Around { usage: &usage, ..around });
        let why = why.told(store, &queue.name, lane.key.as_deref(), around.now).await?;
        Ok(Self { lane, jobs, why, now: around.now })
    }
}
