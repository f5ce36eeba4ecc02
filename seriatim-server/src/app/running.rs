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
    let query = LaneQuery { stages, node: node.cloned(), rows_max, ..all };
    let rows = store.lanes(query).await?.rows.into_iter();
    Ok(rows.map(|lane| Running { queue: queue.clone(), lane }).collect())
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
