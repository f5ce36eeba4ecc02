//! What the doctor reads from the store, once, before it judges.

use std::cmp::Reverse;
use std::sync::Arc;
use std::time::Duration;

use futures_util::{StreamExt, TryStreamExt, stream};
use seriatim::store::{
    BatchQuery, BatchView, InboxView, JobOptions, JobOrder, JobQuery, JobState, JobView, LaneOrder,
    LaneQuery, LaneStage, LaneState, LaneView, NodeView, QueueStats, QueueView, Vitals,
};
use seriatim::text::one_line;
use seriatim::{JobId, Timestamp, store::Store};
use tokio::time::Instant;

use super::finding::{Finding, Severity};
use crate::app::bridges;
use crate::app::limits::Usage;
use crate::app::pauses::{self, Pause};
use crate::app::running::{Running, running};
use crate::base::time::length;
use crate::protocol::document::Bridge;

/// Queues that are read closely, the most troubled ones, and how many of them at once: each takes a few calls.
const QUEUES_MAX: usize = 500;
const AT_ONCE: usize = 4;
/// A queue lags if its oldest due lane has waited so long.
pub(super) const LAG_MAX: Duration = Duration::from_secs(60);
/// Running lanes read of each queue, oldest first.
pub(super) const RUNNING_MAX: usize = 1_000;
/// Lanes read of each queue for retries and holds, most retries first.
pub(super) const FAILED_MAX: usize = 100;
/// Held lanes and paused lanes read of each queue, oldest first.
pub(crate) const LANES_MAX: usize = 1_000;
/// Dead jobs read of each queue, latest first.
pub(crate) const DEAD_MAX: usize = 100;
/// Waiting lanes read of each queue for bindings to nodes and groups, the earliest due first: unlike jobs by age, they have
/// an index.
const WAITING_MAX: usize = 1_000;
/// Of these, lanes with several jobs whose first one is read too, if the queue lags: a call of the store for each.
const HEADS_MAX: usize = 20;
/// Smaller differences of clocks are not reported.
const CLOCK_TOLERANCE: Duration = Duration::from_secs(5);

/// A store at one moment.
pub(crate) struct Seen {
    pub(crate) now: Timestamp,
    /// The time of this machine then, give or take.
    pub(crate) here: (Timestamp, Duration),
    pub(crate) queues: Vec<QueueView>,
    pub(crate) stats: Vec<QueueStats>,
    /// Queues with jobs that were not read closely.
    pub(crate) left_out: usize,
    /// What the groups of queues use that lag.
    pub(crate) usage: Vec<(Arc<str>, Usage)>,
    pub(crate) nodes: Vec<NodeView>,
    pub(crate) running: Vec<Running>,
    /// Lanes with failures, and held or paused ones.
    pub(crate) troubled: Vec<Running>,
    /// Who paused a queue, or the only paused key of one, and why.
    pub(super) pauses: Vec<(Arc<str>, Pauses)>,
    /// The first jobs of waiting lanes that are bound to a node or a group, by queue.
    pub(crate) bound: Vec<(Arc<str>, Vec<Bound>)>,
    /// The latest dead jobs, by queue.
    pub(crate) dead: Vec<(Arc<str>, Vec<JobView>)>,
    /// What SQL sessions inserted and no node has pushed.
    pub(crate) inbox: InboxView,
    pub(crate) bridges: Vec<Bridge>,
    /// The batches that have not ended, and of the latest ones those whose callback was not pushed.
    pub(crate) batches: Vec<BatchView>,
    /// Whether older ones may be among those whose callback was not pushed.
    pub(super) older_batches: bool,
    pub(crate) vitals: Vitals,
}

/// Who last paused a queue, and its only paused key.
#[derive(Default)]
pub(super) struct Pauses {
    pub(super) queue: Option<Pause>,
    pub(super) key: Option<Pause>,
}

/// A job that only some nodes may run.
pub(crate) struct Bound {
    pub(super) id: JobId,
    pub(super) key: Option<Arc<str>>,
    pub(super) options: Arc<JobOptions>,
}

impl Seen {
    pub(super) fn queue(&self, name: &str) -> Option<&QueueView> {
        self.queues.iter().find(|view| view.queue.name == name)
    }

    /// Who paused the queue, or its only paused key, in brackets; nothing if that is not known.
    pub(super) fn paused_by(&self, queue: &str, which: fn(&Pauses) -> Option<&Pause>) -> String {
        let of_queue = self.pauses.iter().find(|(of, _)| **of == *queue);
        let pause = of_queue.and_then(|(_, pauses)| which(pauses));
        pause.map(|pause| format!(" ({})", one_line(&pause.to_string()))).unwrap_or_default()
    }
}

/// What is read of one queue.
#[derive(Default)]
struct Close {
    troubled: Vec<Running>,
    pauses: Pauses,
    bound: Option<Vec<Bound>>,
    dead: Option<Vec<JobView>>,
    usage: Option<Usage>,
}

pub(crate) async fn look(store: &dyn Store) -> seriatim::Result<Seen> {
    let (before, began) = (Timestamp::of_this_machine(), Instant::now());
    let now = store.now().await?;
    // The store read its clock at some time in between.
    let half = began.elapsed() / 2;
    let (stats, queues) = (store.stats(None).await?, store.queues().await?);
    let (chosen, left_out) = most_troubled(&stats);
    let (mut troubled, mut bound, mut dead) = (Vec::new(), Vec::new(), Vec::new());
    let (mut usage, mut pauses) = (Vec::new(), Vec::new());
    let asked: Vec<_> = chosen.iter().map(|of| closely(store, of, &queues, now)).collect();
    let asked: Vec<Close> = stream::iter(asked).buffered(AT_ONCE).try_collect().await?;
    for (of, close) in chosen.iter().zip(asked) {
        troubled.extend(close.troubled);
        pauses.push((of.queue.clone(), close.pauses));
        bound.extend(close.bound.map(|jobs| (of.queue.clone(), jobs)));
        dead.extend(close.dead.map(|jobs| (of.queue.clone(), jobs)));
        usage.extend(close.usage.map(|usage| (of.queue.clone(), usage)));
    }
    let inbox = match store.capabilities().inbox {
        true => store.inbox().await?,
        false => InboxView::default(),
    };
    let (batches, older_batches) = match store.capabilities().batches {
        true => batches(store).await?,
        false => (Vec::new(), false),
    };
    Ok(Seen {
        now,
        here: (before + half, half),
        queues,
        usage,
        nodes: store.nodes().await?,
        running: running(store, &chosen, None, RUNNING_MAX).await?,
        stats,
        left_out,
        troubled,
        pauses,
        bound,
        dead,
        inbox,
        bridges: bridges::all(store).await?,
        batches,
        older_batches,
        vitals: store.vitals().await?,
    })
}

/// Queues that have something, and how many others: those that lag, fail or have dead jobs come first.
fn most_troubled(stats: &[QueueStats]) -> (Vec<QueueStats>, usize) {
    let has_some = |of: &&QueueStats| of.lanes > 0 || of.jobs > 0 || of.dead > 0;
    let mut chosen: Vec<QueueStats> = stats.iter().filter(has_some).cloned().collect();
    let left_out = chosen.len().saturating_sub(QUEUES_MAX);
    if left_out > 0 {
        let signs = |of: &QueueStats| [of.lag >= LAG_MAX, of.retrying > 0, of.dead > 0];
        let count = |of: &QueueStats| signs(of).into_iter().filter(|is_so| *is_so).count();
        chosen.sort_by_key(|of| Reverse((count(of), of.lag, of.retrying, of.dead, of.jobs)));
        chosen.truncate(QUEUES_MAX);
    }
    (chosen, left_out)
}

async fn closely(
    store: &dyn Store,
    of: &QueueStats,
    queues: &[QueueView],
    now: Timestamp,
) -> seriatim::Result<Close> {
    let mut close = Close::default();
    if of.lanes > 0 {
        close.troubled = troubled_lanes(store, of).await?;
    }
    if of.paused {
        close.pauses.queue = pauses::of_queue(store, &of.queue, now).await?;
    }
    let mut paused = close.troubled.iter().filter(|one| one.lane.state == LaneState::Paused);
    if let (Some(one), None) = (paused.next(), paused.next())
        && let Some(key) = &one.lane.key
    {
        close.pauses.key = pauses::of_key(store, &of.queue, key, now).await?;
    }
    if of.jobs > 0 {
        close.bound = Some(bound_jobs(store, of).await?);
    }
    if of.dead > 0 {
        let (order, rows_max, payload_bytes_max) = (JobOrder::UpdatedAt, DEAD_MAX, Some(0));
        let query = JobQuery::new(of.queue.clone(), JobState::Dead);
        let query = JobQuery { order, rows_max, payload_bytes_max, ..query };
        close.dead = Some(store.jobs(query).await?.rows);
    }
    if of.lag >= LAG_MAX
        && let Some(view) = queues.iter().find(|view| *view.queue.name == *of.queue)
    {
        close.usage = Some(Usage::read(store, &view.queue).await?);
    }
    Ok(close)
}

/// The batches to look at, and whether there are older ones that have ended.
async fn batches(store: &dyn Store) -> seriatim::Result<(Vec<BatchView>, bool)> {
    let mut query = BatchQuery { is_live: true, ..BatchQuery::default() };
    let mut batches = Vec::new();
    // The oldest come last. There are at most `BATCHES_OPEN_MAX`.
    loop {
        let page = store.batches(query.clone()).await?;
        batches.extend(page.rows);
        match page.next {
            Some(next) => query.after = Some(next),
            None => break,
        }
    }
    let latest = store.batches(BatchQuery::default()).await?;
    batches.extend(latest.rows.into_iter().filter(|batch| batch.refused.is_some()));
    Ok((batches, latest.next.is_some()))
}

async fn troubled_lanes(store: &dyn Store, queue: &QueueStats) -> seriatim::Result<Vec<Running>> {
    let all = LaneQuery::new(queue.queue.clone());
    let mut queries = Vec::new();
    if queue.retrying > 0 {
        let (order, rows_max) = (LaneOrder::RetryCount, FAILED_MAX);
        queries.push(LaneQuery { order, rows_max, ..all.clone() });
    }
    for stage in [LaneStage::Held, LaneStage::Paused] {
        queries.push(LaneQuery { stages: vec![stage], rows_max: LANES_MAX, ..all.clone() });
    }
    let mut lanes: Vec<LaneView> = Vec::new();
    for query in queries {
        for lane in store.lanes(query).await?.rows {
            if !lanes.iter().any(|known| known.lane == lane.lane) {
                lanes.push(lane);
            }
        }
    }
    Ok(lanes.into_iter().map(|lane| Running { queue: queue.queue.clone(), lane }).collect())
}

async fn bound_jobs(store: &dyn Store, stats: &QueueStats) -> seriatim::Result<Vec<Bound>> {
    let queue = &stats.queue;
    let query = LaneQuery {
        stages: LaneStage::WAITING.to_vec(),
        order: LaneOrder::Due,
        rows_max: WAITING_MAX,
        ..LaneQuery::new(queue.clone())
    };
    let mut bound = Vec::new();
    let mut heads_left = if stats.lag >= LAG_MAX { HEADS_MAX } else { 0 };
    for LaneView { key, only, .. } in store.lanes(query).await?.rows {
        let first = match (only, &key) {
            (Some(job), _) => Some((job.id, job.options)),
            (None, Some(key)) if heads_left > 0 => {
                heads_left -= 1;
                head(store, queue, key).await?.map(|job| (job.id, job.options))
            }
            (None, _) => None,
        };
        if let Some((id, Some(options))) = first
            && (options.node.is_some() || options.consumer_group.is_some())
        {
            bound.push(Bound { id, key, options });
        }
    }
    Ok(bound)
}

/// The first waiting job of a key.
async fn head(
    store: &dyn Store,
    queue: &Arc<str>,
    key: &Arc<str>,
) -> seriatim::Result<Option<JobView>> {
    let query = JobQuery {
        key: Some(key.to_string()),
        order: JobOrder::Turn,
        rows_max: 1,
        payload_bytes_max: Some(0),
        ..JobQuery::new(queue.clone(), JobState::Queued)
    };
    Ok(store.jobs(query).await?.rows.into_iter().next())
}

/// The store's clock decides what is due; a machine with another time schedules wrongly.
pub(super) fn check_clock(seen: &Seen) -> Option<Finding> {
    let (here, either_way) = seen.here;
    let apart = seen.now.since(here).max(here.since(seen.now)).saturating_sub(either_way);
    (apart > CLOCK_TOLERANCE).then(|| {
        Finding::new(
            Severity::Warning,
            "clock",
            format!("the clocks of the store and this machine differ by at least {}", length(apart)),
            "the store's clock decides; synchronize both by NTP, or use delays instead of times (--in)",
        )
    })
}

/// Of very many queues only some are looked at.
pub(super) fn check_left_out(seen: &Seen) -> Option<Finding> {
    (seen.left_out > 0).then(|| {
        let found = format!(
            "{} queues with jobs were not examined closely: they lag and fail less than {QUEUES_MAX} others",
            seen.left_out
        );
        let advice = "`seriatim queues list` has their metrics, `seriatim queues show` those of one";
        Finding::new(Severity::Notice, "queues", found, advice)
    })
}

#[cfg(test)]
mod tests {
    use seriatim::limits::PAGE_ROWS_MAX;
    use seriatim::store::{
        Batches, Declare, Memory, OpenBatch, Producer, Push, Queues, SealBatch, Wrapper,
    };
    use seriatim::{Job, Queue, SharedStore};

    use super::super::judge;
    use super::*;

    /// A store whose clock takes long to answer.
    struct Slow(SharedStore);

    impl Wrapper for Slow {
        fn inner(&self) -> &SharedStore {
            &self.0
        }

        async fn now(&self) -> seriatim::Result<Timestamp> {
            tokio::time::sleep(CLOCK_TOLERANCE * 2).await;
            self.0.now().await
        }
    }

    #[tokio::test(start_paused = true)]
    async fn a_store_that_answers_slowly_has_no_wrong_clock() {
        let (start, begun) = (Timestamp::of_this_machine(), Instant::now());
        let store: SharedStore = Arc::new(Memory::with_clock(move || start + begun.elapsed()));
        let seen = look(&Slow(store)).await.unwrap();
        assert_eq!(check_clock(&seen).map(|finding| finding.found), None);
        let ahead = CLOCK_TOLERANCE * 3 + Duration::from_millis(500);
        let seen = look(&Memory::with_clock(move || Timestamp::of_this_machine() + ahead)).await;
        let found = check_clock(&seen.unwrap()).unwrap().found;
        assert!(found.ends_with(&format!("at least {}", length(CLOCK_TOLERANCE * 3))), "{found}");
    }

    #[tokio::test]
    async fn batches_without_a_callback_are_at_least_so_many_if_there_are_older_ones() {
        let store = Memory::new();
        let queues = vec![Queue::fifo("reports").throttle(Duration::from_secs(3_600))];
        store.declare(Declare { now: None, queues }).await.unwrap();
        let open = async |id: &str| {
            let callback = Job::new("reports", &1).unwrap().key("daily");
            store.open_batch(OpenBatch { now: None, id: id.into(), callback }).await.unwrap();
        };
        let told = async || {
            let findings = judge(&look(&store).await.unwrap(), &[]);
            let found = findings.into_iter().map(|finding| finding.found);
            found.filter(|found| found.contains("without a callback")).collect::<Vec<String>>()
        };
        for id in ["first", "second"] {
            open(id).await;
            store.seal_batch(SealBatch { now: None, id: id.into() }).await.unwrap();
        }
        let found = told().await;
        assert!(found[0].starts_with("1 batch ended without a callback"), "{found:?}");
        for i in 0..PAGE_ROWS_MAX {
            open(&format!("open-{i}")).await;
        }
        for id in ["third", "fourth"] {
            open(id).await;
            store.seal_batch(SealBatch { now: None, id: id.into() }).await.unwrap();
        }
        let found = told().await;
        assert!(found[0].starts_with("at least 2 batches ended"), "{found:?}");
    }

    #[tokio::test]
    async fn of_very_many_queues_the_most_troubled_are_looked_at_closely_and_the_others_counted() {
        let store = Memory::new();
        let name = |i: usize| format!("q-{i:03}");
        let queues = (0..QUEUES_MAX + 100).map(|i| Queue::fifo(name(i))).collect();
        store.declare(Declare { now: None, queues }).await.unwrap();
        let late = |i: usize| if i < 100 { Duration::from_secs(3_600) } else { Duration::ZERO };
        let job = |i: usize| {
            let at = Timestamp::of_this_machine() - late(i);
            Job::new(name(i), &i).unwrap().key("k").run_at(at)
        };
        // Those that lag have the last places among equals.
        let jobs = (0..QUEUES_MAX + 100).rev().map(job).collect();
        store.push(Push { now: None, jobs }).await.unwrap();
        let seen = look(&store).await.unwrap();
        assert_eq!((seen.bound.len(), seen.left_out), (QUEUES_MAX, 100));
        for of in seen.stats.iter().filter(|of| of.lag >= LAG_MAX) {
            assert!(seen.bound.iter().any(|(queue, _)| *queue == of.queue), "{of:?}");
        }
        assert_eq!(seen.stats.iter().filter(|of| of.lag >= LAG_MAX).count(), 100);
        let findings = judge(&seen, &[]);
        let told = "100 queues with jobs were not examined";
        assert!(findings.iter().any(|finding| finding.found.starts_with(told)), "{findings:?}");
    }
}
