//! The lanes that are claimed right now.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use futures_util::{StreamExt, TryStreamExt, stream};
use seriatim::store::{LaneQuery, LaneStage, LaneView, QueueStats};
use seriatim::text::one_line;
use seriatim::{
    Timestamp,
    store::{NodeId, Store},
};

/// Queues that are asked at once.
const AT_ONCE: usize = 4;
/// Lanes read together: each may have a progress of 64 KiB.
pub(super) const STEP_LANES_MAX: usize = 250;
/// Longer progress is left out, as many lanes may have some; the page of a key and listings of lanes have it.
const PROGRESS_BYTES_MAX: usize = 4 << 10;
/// A turn is slow if it runs this many times longer than the median of its queue.
const SLOW_FACTOR: u32 = 10;
/// A turn that runs shorter than this is not slow.
const SLOW_MIN: Duration = Duration::from_secs(60);
/// What runs longer than this is slow, whatever the others do.
const LONG: Duration = Duration::from_secs(3_600);

/// A claimed lane and its queue.
pub(crate) struct Running {
    pub(crate) queue: Arc<str>,
    pub(crate) lane: LaneView,
}

impl Running {
    /// What people call it: by its key, if it has one.
    pub(crate) fn name(&self) -> String {
        let (queue, lane) = (&self.queue, &self.lane);
        match lane.key.as_deref() {
            Some(key) => format!("key {:?} of {queue}", one_line(key)),
            None => format!("lane {} of {queue}", lane.lane),
        }
    }
}

/// At most `lanes_max` claimed lanes of each queue that has any, the oldest; of one node if it is given.
pub(crate) async fn running(
    store: &dyn Store,
    stats: &[QueueStats],
    node: Option<&NodeId>,
    lanes_max: usize,
) -> seriatim::Result<Vec<Running>> {
    let busy = stats.iter().filter(|of| of.claimed > 0);
    let asked: Vec<_> = busy.map(|of| of_queue(store, &of.queue, node, lanes_max)).collect();
    let all: Vec<Vec<Running>> = stream::iter(asked).buffered(AT_ONCE).try_collect().await?;
    Ok(all.into_iter().flatten().collect())
}

async fn of_queue(
    store: &dyn Store,
    queue: &Arc<str>,
    node: Option<&NodeId>,
    rows_max: usize,
) -> seriatim::Result<Vec<Running>> {
    let (stages, all) = (vec![LaneStage::Running], LaneQuery::new(queue.clone()));
    let mut query = LaneQuery { stages, node: node.cloned(), ..all };
    let mut running = Vec::new();
    loop {
        query.rows_max = STEP_LANES_MAX.min(rows_max - running.len());
        let page = store.lanes(query.clone()).await?;
        running.extend(page.rows.into_iter().map(|mut lane| {
            lane.progress = lane.progress.filter(|text| text.len() <= PROGRESS_BYTES_MAX);
            Running { queue: queue.clone(), lane }
        }));
        query.after = page.next;
        if query.after.is_none() || running.len() >= rows_max {
            return Ok(running);
        }
    }
}

/// How long the turn has been running.
pub(crate) fn age(one: &Running, now: Timestamp) -> Duration {
    one.lane.claimed_at.map(|at| now.since(at)).unwrap_or_default()
}

/// How long the turns of each queue have been running: the median.
pub(crate) fn usual_ages(running: &[Running], now: Timestamp) -> HashMap<Arc<str>, Duration> {
    let mut ages: HashMap<Arc<str>, Vec<Duration>> = HashMap::new();
    for one in running {
        ages.entry(one.queue.clone()).or_default().push(age(one, now));
    }
    let middle = |mut ages: Vec<Duration>| {
        let middle = ages.len() / 2;
        *ages.select_nth_unstable(middle).1
    };
    ages.into_iter().map(|(queue, ages)| (queue, middle(ages))).collect()
}

/// Whether a turn of this age stands out among turns of which the middle one has the other.
pub(crate) fn stands_out(age: Duration, middle: Duration) -> bool {
    age >= LONG || (age >= SLOW_MIN && age >= middle.saturating_mul(SLOW_FACTOR))
}

#[cfg(test)]
mod tests {
    use seriatim::store::{Beat, Claim, Heartbeat, Lease, Memory, NodeInfo, Push, Turn};
    use seriatim::{Job, SharedStore};

    use super::*;

    #[tokio::test]
    async fn of_many_lanes_no_long_progress_is_kept() {
        let store: SharedStore = Arc::new(Memory::new());
        let job = |i: usize| Job::new("q", &i).unwrap().key(format!("k{i:03}"));
        let lanes = STEP_LANES_MAX + 2;
        store.push(Push { now: None, jobs: (0..lanes).map(job).collect() }).await.unwrap();
        let ttl = Duration::from_secs(60);
        let node = NodeInfo::new(NodeId::from("n"), ttl);
        let beat = |beats| Heartbeat { now: None, node: node.clone(), beats };
        store.heartbeat(beat(Vec::new())).await.unwrap();
        let claim = Claim::new("q", node.id.clone(), lanes, Lease::Own { ttl });
        let turns = store.claim(claim).await.unwrap().turns;
        let told = |turn: &Turn| {
            let is_long = turn.key.as_deref() == Some("k000");
            let text = "x".repeat(if is_long { PROGRESS_BYTES_MAX } else { 10 });
            let progress = Some(format!("\"{text}\"").into());
            Beat { lane: turn.lane, token: turn.token, progress, extend: None }
        };
        store.heartbeat(beat(turns.iter().map(told).collect())).await.unwrap();
        let stats = store.stats(None).await.unwrap();
        let all = running(&*store, &stats, None, 1_000).await.unwrap();
        let without: Vec<_> = all.iter().filter(|one| one.lane.progress.is_none()).collect();
        assert_eq!((all.len(), without.len()), (lanes, 1));
        assert_eq!(without[0].lane.key.as_deref(), Some("k000"));
        let some = running(&*store, &stats, None, lanes - 1).await.unwrap();
        assert_eq!(some.len(), lanes - 1);
    }
}
