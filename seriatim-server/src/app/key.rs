//! One key in all queues: what holds it, what waits, what has ended.

use futures_util::{StreamExt, stream};
use seriatim::store::{JobState, JobView, NodeView, QueueView, Store};
use seriatim::{ErrorKind, Timestamp};

use super::entity::Entity;
use super::error::Result;
use super::figures::Figures;
use super::lane_jobs::{ENDED, JOBS_SHOWN};
use super::why::Around;
use super::{find, lane_jobs, limits, queues};
use crate::protocol::document;

/// Queues that are asked for a key.
pub(crate) const QUEUES_ASKED_MAX: usize = 200;
/// As many at once.
const AT_ONCE: usize = 8;

/// What is asked for.
pub(crate) struct Wanted<'a> {
    pub(crate) key: &'a str,
    /// Only in this queue.
    pub(crate) queue: Option<&'a str>,
    /// The waiting jobs behind this place, which is one in that queue.
    pub(crate) after: Option<String>,
    /// Most jobs that wait, and that run, of each queue.
    pub(crate) jobs_max: usize,
    /// Longer payloads are left out.
    pub(crate) payload_bytes_max: Option<usize>,
}

impl<'a> Wanted<'a> {
    /// In all queues, as programs get it.
    pub(crate) fn of(key: &'a str, payload_bytes_max: Option<usize>) -> Self {
        Self { key, queue: None, after: None, jobs_max: JOBS_SHOWN, payload_bytes_max }
    }
}

/// The key, wherever it is known.
pub(crate) struct OfKey {
    pub(crate) queues: Vec<InQueue>,
    /// Queues that were not asked.
    pub(crate) left_out: usize,
    pub(crate) nodes: Vec<NodeView>,
    pub(crate) now: Timestamp,
}

impl OfKey {
    pub(crate) fn document(self, key: String) -> document::Key {
        let in_queue = |InQueue { queue, entity, ended }: InQueue| {
            let lane = entity.map(|Entity { lane, jobs, why, .. }| {
                document::Lane::from(lane).in_full(&why, jobs.claimed, jobs.waiting)
            });
            document::KeyInQueue::new(queue.queue.name, lane, ended)
        };
        document::Key::new(key, self.queues.into_iter().map(in_queue).collect(), self.left_out)
    }
}

/// The key in one queue.
pub(crate) struct InQueue {
    pub(crate) queue: QueueView,
    /// If something waits or runs.
    pub(crate) entity: Option<Entity>,
    /// The latest that have ended.
    pub(crate) ended: Vec<JobView>,
}

impl InQueue {
    /// All jobs that were read.
    pub(crate) fn jobs(&self) -> impl Iterator<Item = &JobView> {
        let lane = self.entity.as_ref().map(|entity| &entity.jobs);
        let lane = lane.into_iter().flat_map(|jobs| jobs.claimed.iter().chain(&jobs.waiting));
        lane.chain(&self.ended)
    }
}

/// Looks for the key in the queues that the caller may see.
pub(crate) async fn read(
    store: &dyn Store,
    wanted: Wanted<'_>,
    may_see: impl Fn(&str) -> bool,
) -> Result<OfKey> {
    let (mut queues, nodes) = queues::with_figures(store).await?;
    queues.retain(|(view, figures)| {
        let name = view.queue.name.as_str();
        let is_asked = wanted.queue.is_none_or(|queue| queue == name);
        is_asked && may_have(view, figures) && may_see(name)
    });
    let left_out = queues.len().saturating_sub(QUEUES_ASKED_MAX);
    queues.truncate(QUEUES_ASKED_MAX);
    let now = store.now().await?;
    let fleet = (&*nodes, now);
    let ask = |(queue, figures)| in_queue(store, &wanted, queue, figures, fleet);
    let asked: Vec<_> = queues.into_iter().map(ask).collect();
    let mut asked = stream::iter(asked).buffered(AT_ONCE);
    let mut queues = Vec::new();
    while let Some(found) = asked.next().await {
        match found {
            Ok(found) => queues.extend(found),
            // It was deleted meanwhile.
            Err(error) if error.kind() == ErrorKind::NotFound && wanted.queue.is_none() => {}
            Err(error) => return Err(error),
        }
    }
    drop(asked);
    Ok(OfKey { queues, left_out, nodes, now })
}

/// Whether a queue may know a key: most of many are empty.
fn may_have(view: &QueueView, figures: &Figures) -> bool {
    view.queue.mode.is_keyed()
        && (figures.stats.lanes > 0 || !may_have_ended(view, figures).is_empty())
}

/// In which states the queue may know jobs that have ended.
fn may_have_ended(view: &QueueView, figures: &Figures) -> Vec<JobState> {
    let may_know = |state: &JobState| match state {
        JobState::Dead => figures.stats.dead > 0,
        _ => !view.queue.retention().is_zero(),
    };
    ENDED.into_iter().filter(may_know).collect()
}

async fn in_queue(
    store: &dyn Store,
    wanted: &Wanted<'_>,
    queue: QueueView,
    figures: Figures,
    (nodes, now): (&[NodeView], Timestamp),
) -> Result<Option<InQueue>> {
    let (name, payloads) = (queue.queue.name.as_str(), wanted.payload_bytes_max);
    let lane = match figures.stats.lanes {
        0 => None,
        _ => find::known_lane(store, name, wanted.key).await?,
    };
    let states = may_have_ended(&queue, &figures);
    let ended = lane_jobs::ended(store, name, wanted.key, &states, payloads).await?;
    let entity = match lane {
        Some(lane) => {
            let usage = &limits::UNKNOWN;
            let around = Around { queue: &queue, usage, nodes, now };
            let after = wanted.after.clone().filter(|_| wanted.queue.is_some());
            let from = (after, wanted.jobs_max);
            Some(Entity::from(store, around, lane, from, payloads).await?)
        }
        None => None,
    };
    let is_known = entity.is_some() || !ended.is_empty();
    Ok(is_known.then_some(InQueue { queue, entity, ended }))
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;
    use std::sync::atomic::{AtomicUsize, Ordering};
    use std::time::Duration;

    use seriatim::store::{Declare, Memory, Push, Wrapper};
    use seriatim::{Job, Queue, SharedStore};

    use super::*;

    /// A store whose lanes take a second to be read.
    struct Slow {
        inner: SharedStore,
        under_way: Arc<AtomicUsize>,
        most: Arc<AtomicUsize>,
    }

    impl Wrapper for Slow {
        fn inner(&self) -> &SharedStore {
            &self.inner
        }

        fn around<T: Send + 'static>(
            &self,
            operation: &'static str,
            call: impl Future<Output = seriatim::Result<T>> + Send + 'static,
        ) -> impl Future<Output = seriatim::Result<T>> + Send {
            let (under_way, most) = (self.under_way.clone(), self.most.clone());
            async move {
                if operation == "lanes" {
                    let now = under_way.fetch_add(1, Ordering::SeqCst) + 1;
                    most.fetch_max(now, Ordering::SeqCst);
                    tokio::time::sleep(Duration::from_secs(1)).await;
                    under_way.fetch_sub(1, Ordering::SeqCst);
                }
                call.await
            }
        }
    }

    #[tokio::test(start_paused = true)]
    async fn queues_are_asked_for_a_key_side_by_side_within_a_limit() {
        let (inner, most) = (Arc::new(Memory::new()), Arc::<AtomicUsize>::default());
        let store = Arc::new(Slow { inner, under_way: Arc::default(), most: most.clone() });
        let store: SharedStore = store;
        let name = |i: usize| format!("q-{i:02}");
        let queues = (0..4 * AT_ONCE).map(|i| Queue::fifo(name(i))).collect();
        store.declare(Declare { now: None, queues }).await.unwrap();
        let jobs = (0..4 * AT_ONCE).map(|i| Job::new(name(i), &i).unwrap().key("k")).collect();
        store.push(Push { now: None, jobs }).await.unwrap();
        let began = tokio::time::Instant::now();
        let found = read(&*store, Wanted::of("k", None), |_| true).await.unwrap();
        let names = found.queues.iter().map(|of| of.queue.queue.name.clone());
        assert_eq!(names.collect::<Vec<_>>(), (0..4 * AT_ONCE).map(name).collect::<Vec<_>>());
        assert_eq!(most.load(Ordering::SeqCst), AT_ONCE);
        assert!(began.elapsed() <= Duration::from_secs(5), "{:?}", began.elapsed());
    }
}
