//! The figures of the queues, with the same names on every surface. `docs/figures.md` defines them.

use std::cmp::Reverse;
use std::collections::HashMap;

use serde_json::{Map, Value, json};
use seriatim::store::Store;
use seriatim::store::{NodeView, QueueStats};

/// The figures of one queue.
#[derive(Clone, Debug, Default)]
pub(crate) struct Figures {
    pub(crate) stats: QueueStats,
    /// Of what is claimed, what waits for a free slot of its node.
    pub(crate) prefetched: u64,
}

/// A figure that is a number.
pub(crate) struct Figure {
    pub(crate) name: &'static str,
    /// What it counts, for Prometheus and for people.
    pub(crate) says: &'static str,
    /// Whether it only grows.
    pub(crate) grows: bool,
    pub(crate) of: fn(&Figures) -> u64,
}

const fn now(name: &'static str, says: &'static str, of: fn(&Figures) -> u64) -> Figure {
    Figure { name, says, grows: false, of }
}

const fn counter(name: &'static str, says: &'static str, of: fn(&Figures) -> u64) -> Figure {
    Figure { name, says, grows: true, of }
}

/// All of them, in the order in which they are shown.
pub(crate) const ALL: [Figure; 10] = [
    now("jobs", "Jobs that have not ended", |of| of.stats.jobs),
    now("lanes", "Lanes that wait or are claimed", |of| of.stats.lanes),
    now("waiting", "Lanes that are not claimed", |of| of.stats.waiting()),
    now("claimed", "Turns that are claimed: running or prefetched", |of| of.stats.claimed),
    now("running", "Turns whose handler has been called, and those of remote workers", |of| {
        of.running()
    }),
    now("prefetched", "Turns that are claimed and wait for a free slot of their node", |of| {
        of.prefetched
    }),
    now("retrying", "Lanes that have failed and are not done since", |of| of.stats.retrying),
    now("dead", "Jobs in the morgue", |of| of.stats.dead),
    counter("processed", "Jobs that are done", |of| of.stats.processed),
    counter("failed", "Turns that failed or crashed", |of| of.stats.failed),
];

impl Figures {
    /// Those of all queues.
    pub(crate) async fn all(store: &dyn Store) -> seriatim::Result<Vec<Self>> {
        let stats = store.stats(None).await?;
        Ok(Self::of(stats, &store.nodes().await?))
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
            // Told by an earlier beat: by now more may have started.
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
        all.lag = all.lag.max(stats.lag);
        self.prefetched += other.prefetched;
    }

    pub(crate) fn running(&self) -> u64 {
        self.stats.claimed - self.prefetched
    }

    /// Its numbers, as programs read them.
    pub(crate) fn numbers(&self) -> Map<String, Value> {
        let numbers = ALL.iter().map(|figure| (figure.name.to_owned(), (figure.of)(self).into()));
        let lag = ("lag".to_owned(), self.stats.lag.as_secs_f64().into());
        numbers.chain([lag]).collect()
    }

    /// The same with what it is of.
    pub(crate) fn document(&self) -> Value {
        let mut document = self.numbers();
        document.insert("queue".to_owned(), (*self.stats.queue).into());
        document.insert("mode".to_owned(), self.stats.mode.map(|mode| mode.as_str()).into());
        document.insert("paused".to_owned(), self.stats.paused.into());
        document.into()
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

/// Lowkiq's shape (L17), with all figures in it. As there, `length` counts ids that wait: no payloads,
/// and nothing that is claimed.
pub(crate) fn as_json(all: &[Figures]) -> Value {
    let mut by_worker = Map::new();
    let mut total = Map::new();
    for figure in ALL {
        let sum: u64 = all.iter().map(figure.of).sum();
        total.insert(figure.name.to_owned(), sum.into());
    }
    let lag = all.iter().map(|of| of.stats.lag.as_secs_f64()).fold(0.0, f64::max);
    total.insert("lag".to_owned(), lag.into());
    for of in all {
        let mut numbers = of.numbers();
        as_in_lowkiq(&mut numbers);
        numbers.insert("mode".to_owned(), json!(of.stats.mode));
        numbers.insert("paused".to_owned(), of.stats.paused.into());
        by_worker.insert(of.stats.queue.to_string(), numbers.into());
    }
    as_in_lowkiq(&mut total);
    json!({ "total": total, "by_worker": by_worker })
}

/// The same under the names that Lowkiq has for them.
fn as_in_lowkiq(numbers: &mut Map<String, Value>) {
    for (name, figure) in [("length", "waiting"), ("morgue_length", "dead")] {
        let number = numbers[figure].clone();
        numbers.insert(name.to_owned(), number);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_figure_is_defined_in_the_documents() {
        let page = include_str!("../../../docs/figures.md");
        for figure in ALL {
            let row = format!("\n| `{}` |", figure.name);
            assert!(page.contains(&row), "docs/figures.md has no row {row}");
        }
    }
}
