//! The figures of the queues.

use std::cmp::Reverse;
use std::collections::HashMap;
use std::time::Duration;

use seriatim::store::Store;
use seriatim::store::{NodeView, QueueStats};

use crate::protocol::document::{NamedFigures, Stats};
use crate::protocol::figures::Numbers;

/// A queue is late if its oldest due lane has waited so long.
const LATE: Duration = Duration::from_secs(60);

#[derive(Clone, Debug, Default)]
pub(crate) struct Figures {
    pub(crate) stats: QueueStats,
    /// Claimed turns that wait for a free slot of their node.
    pub(crate) prefetched: u64,
}

impl Figures {
    /// Those of all queues.
    pub(crate) async fn all(store: &dyn Store) -> seriatim::Result<Vec<Self>> {
        let (stats, nodes) = tokio::try_join!(store.stats(None), store.nodes())?;
        Ok(Self::of(stats, &nodes))
    }

    /// Those of one queue; a queue that was made this moment may have none yet.
    pub(crate) async fn one(store: &dyn Store, queue: &str) -> seriatim::Result<Self> {
        let all = Self::all(store).await?;
        Ok(all.into_iter().find(|of| *of.stats.queue == *queue).unwrap_or_default())
    }

    /// The store knows what is claimed; the nodes know what of it they have not started.
    pub(crate) fn of(stats: Vec<QueueStats>, nodes: &[NodeView]) -> Vec<Self> {
        let mut prefetched: HashMap<&str, u64> = HashMap::new();
        for node in nodes.iter().filter(|node| !node.dead && !node.info.has_stopped()) {
            for (queue, turns) in &node.info.prefetched {
                *prefetched.entry(queue).or_default() += u64::from(*turns);
            }
        }
        let of = |stats: QueueStats| {
            // From an earlier heartbeat: more may have started since.
            let prefetched = prefetched.get(&*stats.queue).copied().unwrap_or(0);
            Self { prefetched: prefetched.min(stats.claimed), stats }
        };
        stats.into_iter().map(of).collect()
    }

    /// Adds those of another queue.
    fn add(&mut self, other: &Self) {
        let (all, stats) = (&mut self.stats, &other.stats);
        all.lanes += stats.lanes;
        all.jobs += stats.jobs;
        all.claimed += stats.claimed;
        all.retrying += stats.retrying;
        all.dead += stats.dead;
        all.processed += stats.processed;
        all.failed += stats.failed;
        all.lag = all.lag.max(other.lag_in_total());
        self.prefetched += other.prefetched;
    }

    pub(crate) fn running(&self) -> u64 {
        self.stats.claimed - self.prefetched
    }

    /// What it adds to the lag of several queues. While it is paused, nothing of it waits for a worker.
    pub(crate) fn lag_in_total(&self) -> Duration {
        if self.stats.paused { Duration::ZERO } else { self.stats.lag }
    }

    pub(crate) fn is_late(&self) -> bool {
        self.stats.lag >= LATE
    }

    /// What the queue does, in a word for people. `nodes`: how many work on it.
    pub(crate) fn state(&self, nodes: usize) -> &'static str {
        match () {
            () if self.stats.paused => "paused",
            () if self.stats.jobs > 0 && nodes == 0 => "no workers",
            () if self.is_late() => "late",
            () => "open",
        }
    }

    /// As JSON documents have them.
    pub(crate) fn numbers(&self) -> Numbers {
        let stats = &self.stats;
        Numbers {
            jobs: stats.jobs,
            lanes: stats.lanes,
            waiting: stats.waiting(),
            claimed: stats.claimed,
            running: self.running(),
            prefetched: self.prefetched,
            retrying: stats.retrying,
            dead: stats.dead,
            processed: stats.processed,
            failed: stats.failed,
            lag: stats.lag.as_secs_f64(),
        }
    }
}

/// The busiest queues, and where there are more, all others together as `other`.
pub(crate) fn busiest(mut all: Vec<Figures>, most: usize) -> (Vec<Figures>, Option<Figures>) {
    if all.len() <= most {
        return (all, None);
    }
    all.sort_by_key(|of| Reverse((of.stats.jobs + of.stats.dead, of.stats.processed)));
    let mut others = Figures::default();
    others.stats.queue = "other".into();
    all.drain(most..).for_each(|of| others.add(&of));
    (all, Some(others))
}

/// The document of these queues. Its sum includes `others`, which it does not list.
pub(crate) fn statistics(listed: &[Figures], others: Option<&Figures>) -> Stats {
    let mut total = Figures::default();
    listed.iter().chain(others).for_each(|of| total.add(of));
    let named = |of: &Figures| (of.stats.queue.clone(), NamedFigures::new(&of.stats, of.numbers()));
    Stats { total: total.numbers().into(), by_worker: listed.iter().map(named).collect() }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_lag_of_a_paused_queue_is_its_own_and_counts_in_no_total() {
        let queue = |name: &str, lag: u64, paused: bool| {
            let lag = Duration::from_secs(lag);
            let stats = QueueStats { queue: name.into(), lag, paused, ..QueueStats::default() };
            Figures { stats, prefetched: 0 }
        };
        let all = [queue("late", 7, false), queue("paused", 600, true)];
        let told = serde_json::to_value(statistics(&all, None)).unwrap();
        assert_eq!(told["total"]["lag"], 7.0, "{told}");
        assert_eq!(told["by_worker"]["paused"]["lag"], 600.0, "{told}");
    }
}
