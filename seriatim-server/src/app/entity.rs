//! A lane with all that is known of it now.

use seriatim::Timestamp;
use seriatim::store::{LaneView, QueueView, Store};

use super::error::Error;
use super::lane_jobs::{self, LaneJobs};
use super::limits::Usage;
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
    ) -> Result<Self, Error> {
        let jobs = match &lane.key {
            Some(key) => {
                lane_jobs::of(store, &queue.queue.name, key, None, payload_bytes_max).await?
            }
            None => LaneJobs::default(),
        };
        let (nodes, now) = (store.nodes().await?, store.now().await?);
        let usage = Usage::read(store, &queue.queue).await?;
        let around = Around { queue, usage: &usage, nodes: &nodes, now };
        let why = Why::of(&lane, jobs.head(), around);
        Ok(Self { lane, jobs, why, now })
    }
}
