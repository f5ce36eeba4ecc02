//! The batches of a run: a producer may fill one. Nobody works on the queue of their callbacks, so these are there to be
//! counted.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use seriatim::store::{BatchQuery, BatchView, JobQuery, JobState, JobView};
use seriatim::{Client, ErrorKind, Job, Payload, Result};
use tokio::time::sleep;

use super::world::World;

/// The queue of the callbacks.
pub(super) const CALLBACKS: &str = "callbacks";

/// Opens the batch of a producer, if it has one.
pub(super) async fn open(world: &World, client: &Client, number: usize) -> Option<String> {
    if !world.scene.batches {
        return None;
    }
    let id = format!("batch-{number}");
    let callback = Job::with_payload(CALLBACKS, Payload::from_bytes("1"));
    until_done(world, || client.open_batch(&*id, callback.clone())).await;
    Some(id)
}

pub(super) async fn seal(world: &World, client: &Client, id: &str) {
    until_done(world, || client.seal_batch(id)).await;
}

async fn until_done<F: Future<Output = Result<BatchView>>>(world: &World, call: impl Fn() -> F) {
    loop {
        match call().await {
            Ok(_) => return,
            Err(error) if error.is_transient() => {}
            Err(error) => {
                return world.alarm.raise(format!("error: a batch is refused with {error}"));
            }
        }
        sleep(Duration::from_millis(world.roll(|rng| rng.u64(0..2_000)))).await;
    }
}

/// What is wrong with the batches: each counts its jobs that have not ended, and has called back if it has ended, once and
/// with its counts.
pub(super) async fn judge(world: &World, is_drained: bool) -> Option<String> {
    let wrong = match look(world).await {
        Ok(Look { batches, mut left, callbacks }) => {
            let wrong = batches.iter().find_map(|batch| {
                let left = left.remove(&batch.id).unwrap_or_default();
                wrong(batch, left, &callbacks, is_drained)
            });
            let unknown = left.keys().next().map(|id| format!("jobs are of {id}, which is none"));
            let ended = batches.iter().filter(|batch| batch.ended_at.is_some()).count();
            let more = (callbacks.len() > ended)
                .then(|| format!("{} callbacks of {ended} ended batches", callbacks.len()));
            wrong.or(unknown).or(more)
        }
        Err(error) => Some(format!("they cannot be read: {error}")),
    };
    wrong.map(|wrong| format!("batches: {wrong}"))
}

fn wrong(batch: &BatchView, left: u64, callbacks: &[JobView], is_drained: bool) -> Option<String> {
    let id = &batch.id;
    if batch.pending != left {
        return Some(format!("{id} counts {}, and {left} jobs wait or run", batch.pending));
    }
    if batch.ended_at.is_none() {
        let is_over = batch.sealed && left == 0;
        return (is_over || is_drained).then(|| format!("{id} has not ended: {batch:?}"));
    }
    let counts = (batch.done, batch.dead, batch.cancelled);
    let is_of_it = |job: &&JobView| {
        let ended = job.options.as_ref().and_then(|options| options.ended_batch.as_ref());
        let is_counted = |ended: &seriatim::store::EndedBatch| {
            *ended.id == **id && (ended.done, ended.dead, ended.cancelled) == counts
        };
        Some(job.id) == batch.callback && ended.is_some_and(is_counted)
    };
    let found = callbacks.iter().filter(is_of_it).count();
    (found != 1).then(|| format!("{id} has {found} callbacks with its counts: {batch:?}"))
}

struct Look {
    batches: Vec<BatchView>,
    /// Jobs that have not ended, by their batch.
    left: BTreeMap<Arc<str>, u64>,
    callbacks: Vec<JobView>,
}

async fn look(world: &World) -> Result<Look> {
    let mut left = BTreeMap::new();
    for queue in &world.scene.queues {
        for state in [JobState::Queued, JobState::Running] {
            for job in jobs(world, &queue.name, state).await? {
                if let Some(batch) = job.options.as_ref().and_then(|own| own.batch.as_deref()) {
                    *left.entry(Arc::from(batch)).or_default() += 1;
                }
            }
        }
    }
    let callbacks = jobs(world, CALLBACKS, JobState::Queued).await?;
    let batches = world.store.batches(BatchQuery::default()).await?.rows;
    Ok(Look { batches, left, callbacks })
}

async fn jobs(world: &World, queue: &str, state: JobState) -> Result<Vec<JobView>> {
    let mut query = JobQuery::new(queue, state);
    let mut jobs = Vec::new();
    loop {
        let page = match world.store.jobs(query.clone()).await {
            // Nothing was pushed to it yet.
            Err(error) if error.kind() == ErrorKind::NotFound => return Ok(jobs),
            page => page?,
        };
        jobs.extend(page.rows);
        match page.next {
            Some(next) => query.after = Some(next),
            None => return Ok(jobs),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_batch_that_miscounts_does_not_end_or_does_not_call_back_is_wrong() {
        let fine = BatchView {
            id: "b".into(),
            opened_at: seriatim::Timestamp::default(),
            sealed: false,
            pending: 2,
            done: 1,
            dead: 0,
            cancelled: 0,
            ended_at: None,
            callback: None,
            refused: None,
        };
        let told = |batch: &BatchView, left, is_drained| {
            wrong(batch, left, &[], is_drained).unwrap_or_default()
        };
        assert_eq!(told(&fine, 2, false), "");
        assert!(told(&fine, 1, false).contains("counts 2, and 1 jobs"));
        let over = BatchView { sealed: true, pending: 0, ..fine };
        assert!(told(&over, 0, false).contains("has not ended"));
        assert!(told(&BatchView { sealed: false, ..over.clone() }, 0, true).contains("not ended"));
        let ended = BatchView { ended_at: Some(over.opened_at), ..over };
        assert!(told(&ended, 0, true).contains("0 callbacks"));
    }
}
